"""Training on rows in Parquet files, against the same rows in memory."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch

from hushgraph.engines import streaming, train_rows
from hushgraph.engines.plan import begin_run, rows_folder
from hushgraph.engines.streaming import RowFiles, RowStream
from hushgraph.errors import GraphError, RunError
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowSums
from hushgraph.graph.graph import Graph
from hushgraph.inputs.rows import Rows
from hushgraph.models.gnn import scale_rows
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.sampling.random import KeyedGenerator
from hushgraph.training.distributed import Group
from hushgraph.training.run import Run
from spark_rows import make_rows

NODES, CLASSES = 2_000, 3


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Any:
    """Cut the one file of a small graph into eight blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "BLOCK", 256)
        yield


def make_graph(*, with_test: bool = True) -> Graph:
    rng = np.random.default_rng(1)
    y = np.arange(NODES) % CLASSES
    same = rng.integers(0, NODES // CLASSES, (2, 15_000)) * CLASSES
    edges = np.minimum(same + rng.integers(0, CLASSES, 15_000), NODES - 1)
    x = rng.normal(size=(NODES, 2)) + y[:, None]
    split = rng.choice(3, NODES, p=[0.7, 0.1, 0.2])
    return Graph.from_arrays(
        edge_index=edges,
        x=x.astype(np.float32),
        y=y,
        train_idx=np.flatnonzero(split == 0),
        val_idx=np.flatnonzero(split == 1),
        test_idx=np.flatnonzero(split == 2) if with_test else None,
        num_classes=CLASSES,
    )


def make(out: Path, *, with_test: bool = True, **changes: Any) -> RunFolder:
    settings: dict[str, Any] = {"edge_owner": "sender", "epsilon": 8.0, "steps": 20, "hidden": 8}
    return make_rows(make_graph(with_test=with_test), out, **(settings | changes))[0]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with a board and rows, not trained."""
    return make(tmp_path_factory.mktemp("rows") / "run")


def read_all(folder: RunFolder, split: str) -> Rows:
    """All rows of a split at once, by a query of its own."""
    names = ["f0", "f1", *(f"reading_{k}" for k in range(CLASSES))]
    with duckdb.connect() as connection:
        part = connection.execute(
            f"SELECT * FROM read_parquet('{folder.path}.rows/*.parquet') WHERE split = ? ORDER BY id", [split]
        ).fetchnumpy()
    cells = np.stack([part[name] for name in names], axis=1).astype(np.float32)
    cells[:, :2] = scale_rows(torch.from_numpy(cells[:, :2].copy()), folder.config.feature_norm).numpy()
    return Rows(dense=cells, labels=part["label"].astype(np.int64))


def stream(folder: RunFolder, connection: Any, **changes: Any) -> RowStream:
    files = RowFiles.open(connection, folder, None)
    settings: dict[str, Any] = {"files": files, "rate": 0.2, "most_rows": 1_500, "rng": KeyedGenerator(3)}
    return RowStream(**(settings | changes))


def keys(rows: Rows) -> list[bytes]:
    return [row.tobytes() for row in rows.dense]


@pytest.mark.parametrize("most_rows", [10_000, 100])
def test_a_full_batch_in_pieces_has_the_clipped_sum_of_all_rows(
    run_folder: RunFolder, most_rows: int
) -> None:
    model, clipping = run_folder.build_model(), Clipping(kind="normalised", clip=1.0, stability=0.1)
    expected = RowSums()(model, read_all(run_folder, "train"), clipping)
    with duckdb.connect() as connection:
        batches = stream(run_folder, connection, rate=1.0, most_rows=most_rows).iterate(0)
        for _ in range(2):
            pieces = list(next(batches))
            assert len(pieces) == 8
            parts = [RowSums()(model, piece, clipping) for piece in pieces]
            for name, value in expected.items():
                assert torch.allclose(sum(part[name] for part in parts), value, rtol=1e-5, atol=1e-4)


def test_poisson_batches_take_every_row_alike_and_independently(run_folder: RunFolder) -> None:
    everyone = read_all(run_folder, "train")
    steps, rate = 400, 0.2
    counts: Counter[bytes] = Counter()
    sizes, both = [], 0
    first, second = keys(everyone)[:2]
    with duckdb.connect() as connection:
        batches = stream(run_folder, connection, rate=rate, most_rows=100_000).iterate(0)
        for _ in range(steps):
            [rows] = next(batches)
            drawn = keys(rows)
            assert len(set(drawn)) == len(drawn)
            counts.update(drawn)
            sizes.append(len(drawn))
            both += first in drawn and second in drawn
    assert set(counts) <= set(keys(everyone))
    n = everyone.num_rows
    # Six standard deviations.
    assert abs(np.mean(sizes) - rate * n) < 6 * np.sqrt(n * rate * (1 - rate) / steps)
    assert abs(np.var(sizes) / (n * rate * (1 - rate)) - 1) < 6 * np.sqrt(2 / steps)
    each = np.array([counts[key] for key in keys(everyone)])
    assert np.abs(each - rate * steps).max() < 6 * np.sqrt(steps * rate * (1 - rate))
    assert abs(both - rate**2 * steps) < 6 * np.sqrt(steps * rate**2)


def test_processes_share_the_rows(run_folder: RunFolder) -> None:
    seen: list[bytes] = []
    with duckdb.connect() as connection:
        for rank in range(3):
            own = stream(run_folder, connection, rate=1.0, group=Group(rank=rank, size=3))
            seen += [key for piece in next(own.iterate(0)) for key in keys(piece)]
        alone = stream(run_folder, connection, group=Group(rank=9, size=10))
        assert next(alone.iterate(0)) == []
    assert sorted(seen) == sorted(keys(read_all(run_folder, "train")))


def test_training_spends_what_the_plan_says_and_learns(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", batch_size=400, steps=60, epsilon=20.0)
    steps: list[int] = []
    run = train_rows(folder.path, observer=lambda done, steps_in_all, epsilon, accuracy: steps.append(done))
    assert steps == list(range(1, 61))
    ledger = Ledger.open(folder.ledger_path, plan=folder.plan, read_only=True)
    # The board and the figures.
    assert (ledger.releases_charged, ledger.steps_charged) == (2, 60)
    assert ledger.spent_epsilon() <= run.epsilon <= 20.0
    assert run.result["guarantee"] == "holds"
    assert run.result["test_accuracy"] > 0.5
    again = train_rows(folder.path)
    assert again.result == run.result
    loaded = Run.load(folder.path)
    for name, value in run.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value)


def test_interrupted_training_goes_on_where_the_ledger_is(tmp_path: Path) -> None:
    # At most 100 steps are charged ahead, and these are taken before a run stops.
    folder = make(tmp_path / "run", batch_size=100, steps=300)

    def stop(done: int, steps: int, epsilon: float, accuracy: float | None) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_rows(folder.path, observer=stop)
    assert not folder.is_finished
    run = train_rows(folder.path)
    assert run.result["resumed"] is True
    assert Ledger.open(folder.ledger_path, read_only=True).steps_charged == folder.plan.steps


def test_without_privacy_and_without_test_rows(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", with_test=False, epsilon=None, private=False)
    run = train_rows(folder.path)
    assert run.result["guarantee"] == "none"
    assert run.result["test_accuracy"] is None


# Forked as torchrun would start them: by what it tells them in the environment.
TWO_PROCESSES = """
import gc, os, socket, sys
# Imports make no garbage.
gc.disable()
from hushgraph.engines import streaming, train_rows
from hushgraph.training.distributed import join_group
streaming.BLOCK = 256
with socket.socket() as free:
    free.bind(("localhost", 0))
    port = str(free.getsockname()[1])
os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port)
# What training imports is inherited.
import hushgraph.training.trainer
gc.freeze()
gc.enable()
other = os.fork()
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if other else "1"
with join_group():
    run = train_rows(sys.argv[1])
print(run.result["processes"], flush=True)
if other:
    sys.exit(os.waitpid(other, 0)[1])
"""


def test_two_processes_train_one_model(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", batch_size=400, steps=3)
    command = [sys.executable, "-c", TWO_PROCESSES, str(folder.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    # Two processes print at the same time, and their lines may run into each other.
    assert "".join(done.stdout.split()) == "22"
    assert Ledger.open(folder.ledger_path, read_only=True).steps_charged == 3
    assert Run.load(folder.path).result["processes"] == 2


def test_what_cannot_be_trained_is_refused(run_folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no rows"):
        train_rows(run_folder.path, rows=tmp_path)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS x) TO '{tmp_path}/x.parquet'")
        with pytest.raises(GraphError, match="no column"):
            train_rows(run_folder.path, rows=tmp_path)
        few = tmp_path / "few"
        few.mkdir()
        connection.execute(
            f"COPY (SELECT * FROM '{run_folder.path}.rows/*.parquet' LIMIT 10) TO '{few}/x.parquet'"
        )
        with pytest.raises(RunError, match="training nodes"):
            train_rows(run_folder.path, rows=few)


def test_a_run_whose_board_is_not_charged_is_refused(tmp_path: Path) -> None:
    first = make(tmp_path / "first")
    begin_run(replace(first, path=tmp_path / "second"), engine="spark").close()
    with pytest.raises(RunError, match="no board"):
        train_rows(tmp_path / "second", rows=rows_folder(first.path))
