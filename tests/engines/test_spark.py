"""Boards and readings by Spark in local mode, against the code that holds the graph in memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgraph.billboard.ballots import label_ballots
from hushgraph.billboard.board import cast, release
from hushgraph.billboard.reading import read_boards
from hushgraph.errors import GraphError, InputError, RunError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.noise.rounded import Draws
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.tasks.classes import Classes

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'hushgraph[spark]'")
pytest.importorskip("pandas", reason="Spark hands tables over as pandas: pip install 'hushgraph[spark]'")
if shutil.which("java") is None or subprocess.run(["java", "-version"], capture_output=True).returncode:
    pytest.skip("Spark needs Java, and there is none", allow_module_level=True)

from hushgraph.engines import spark as engine  # noqa: E402
from hushgraph.engines import train_rows  # noqa: E402

# Spark leaves sockets to its gateway for Python to close.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
NODES, CLASSES = 400, 3


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    # Workers would be the first python3 of the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # local[2,3]: two threads, and a task may fail twice before its job fails.
    builder = SparkSession.builder.master("local[2,3]").appName("hushgraph tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    del os.environ["PYSPARK_PYTHON"]


class Data:
    """Random tables with repeats and self-loops, and the same graph in memory."""

    def __init__(self, session: Any, *, text_ids: bool = False, symmetrize: bool = False) -> None:
        rng = np.random.default_rng(5)
        edges = rng.integers(0, NODES, (2, 2_000))
        edges[0, :200] = 7
        edges[:, :50] = edges[:, 300:350]
        y = rng.integers(-1, CLASSES, NODES)
        split = rng.choice(["train", "val", "test"], NODES, p=[0.6, 0.2, 0.2])
        x = rng.normal(size=NODES).astype(np.float32)
        name = (lambda v: f"person {v}") if text_ids else int
        self.ids = [name(v) for v in range(NODES)]
        labels = [None if v < 0 else int(v) for v in y]
        rows = list(zip(self.ids, x.tolist(), labels, split.tolist(), strict=True))
        kind = "string" if text_ids else "bigint"
        self.nodes = session.createDataFrame(rows, f"id {kind}, a float, label int, split string")
        pairs = [(name(u), name(w)) for u, w in edges.T.tolist()]
        self.edges = session.createDataFrame(pairs, f"source {kind}, target {kind}")
        self.graph = Graph.from_arrays(
            edge_index=edges,
            x=x[:, None],
            y=y,
            train_idx=np.flatnonzero(split == "train"),
            val_idx=np.flatnonzero(split == "val"),
            test_idx=np.flatnonzero(split == "test"),
            num_classes=CLASSES,
            symmetrize=symmetrize,
        )

    def make(self, out: Path, **changes: Any) -> engine.SparkRows:
        settings: dict[str, Any] = {"edge_owner": "sender", "num_classes": CLASSES, "epsilon": 4.0}
        return engine.make_rows(self.nodes, self.edges, out, **(settings | changes))

    def resume(self, out: Path) -> engine.SparkRows:
        return engine.resume_rows(out, self.nodes, self.edges)

    def in_order(self, table: Any, prefix: str) -> np.ndarray:
        """The columns with this prefix, of all nodes in the order of the graph."""
        names = [f"{prefix}_{k}" for k in range(CLASSES)]
        cells = {row["id"]: [row[name] for name in names] for row in table.collect()}
        assert len(cells) == table.count() == NODES
        return np.array([cells[name] for name in self.ids], np.float32)


def releases(out: Path) -> dict[str, str | None]:
    return Ledger.open(out / "ledger.jsonl", read_only=True).releases


def boards_charged(out: Path) -> int:
    return Ledger.open(out / "ledger.jsonl", read_only=True).releases_charged


@pytest.mark.parametrize(
    ("owner", "symmetrize", "text_ids"),
    [("sender", True, False), ("sender", False, True), ("reader", False, False)],
)
def test_board_and_rows_are_those_of_the_graph_in_memory(
    session: Any, tmp_path: Path, owner: EdgeOwner, symmetrize: bool, text_ids: bool
) -> None:
    data = Data(session, text_ids=text_ids, symmetrize=symmetrize)
    made = data.make(tmp_path / "run", edge_owner=owner, symmetrize=symmetrize, epsilon=None, private=False)
    ballots = label_ballots(data.graph, owner, task=Classes(num_classes=CLASSES))
    in_memory = release(cast(data.graph, ballots), noise_std=0.0)
    assert np.array_equal(data.in_order(made.board, "class"), in_memory.values)
    config = made.folder.config
    expected = read_boards(
        [in_memory],
        data.graph,
        owner,
        own=[ballots],
        scale=config.reading_scale,
        radius=config.reading_radius,
    )
    # Spark adds numbers in an order of its own.
    assert np.allclose(data.in_order(made.rows, "reading"), expected, rtol=1e-5, atol=1e-6)
    assert made.rows.columns == ["id", "a", *(f"reading_{k}" for k in range(CLASSES)), "label", "split"]
    labels = {row["id"]: row["label"] for row in made.rows.collect()}
    assert [labels[name] for name in data.ids] == data.graph.y.tolist()
    # Nothing private is in the folder of the run.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.rows"]
    assert not list((tmp_path / "run").rglob("*row*"))


def killed_at_first(key: bytes, part: int, *, log: str) -> Draws:
    """Draws of a task whose process is killed, after it has drawn, on its first attempt."""
    from pyspark import TaskContext

    def draw(count: int) -> np.ndarray:
        drawn = engine.draws_of_part(key, part)(count)
        context = TaskContext.get()
        assert context is not None
        np.save(Path(log) / f"{part}-{context.attemptNumber()}.npy", drawn)
        if context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return drawn

    return draw


def test_a_killed_task_neither_draws_a_released_cell_twice_nor_charges_twice(
    session: Any, tmp_path: Path
) -> None:
    data, out, log = Data(session), tmp_path / "run", tmp_path / "log"
    log.mkdir()
    made = data.make(out, draws=partial(killed_at_first, log=str(log)))
    first, second = (np.load(log / f"0-{attempt}.npy") for attempt in (0, 1))
    # Two attempts were made, and both would have released the same numbers.
    assert np.array_equal(first, second)
    assert len(first) == NODES * CLASSES
    assert boards_charged(out) == 1
    tally = cast(data.graph, label_ballots(data.graph, "sender", task=Classes(num_classes=CLASSES)))
    assert isinstance(made.folder.plan, BillboardPlan)
    # Identifiers are integers here, so one part's cells are in the order of the graph.
    expected = release(tally, noise_std=made.folder.plan.board_noise[0], draws=lambda count: second)
    assert np.array_equal(data.in_order(made.board, "class"), expected.values)
    assert [path.name for path in out.glob("board/_temporary*")] == []


def test_a_job_that_fails_ends_the_run_and_no_second_key_is_drawn(session: Any, tmp_path: Path) -> None:
    """Parts of the board may have been seen, and a second one would be another release."""
    data, out, log = Data(session), tmp_path / "run", tmp_path / "log"
    log.mkdir()
    with pytest.raises(Exception, match="out of luck") as failure:
        data.make(out, draws=partial(always_failing, log=str(log)))
    # No message gives the key away.
    key = (log / "key").read_bytes()
    assert repr(key)[2:-1] not in str(failure.value)
    assert key.hex() not in str(failure.value)
    assert boards_charged(out) == 1
    assert releases(out) == {"board-1": None}
    with pytest.raises(RunError, match="charges the data anew"):
        data.resume(out)
    assert not (out / "board").exists()


class StoppedError(Exception):
    """Stands for a driver that ends."""


def test_a_complete_draft_is_the_board(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = Data(session), tmp_path / "run"
    record, seen = Ledger.record_release, []

    def stop_at_digest(self: Ledger, name: str, digest: str | None) -> None:
        seen.append((tmp_path / "run.work" / "board").exists())
        if digest is not None:
            raise StoppedError
        record(self, name, digest)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record_release", stop_at_digest)
        with pytest.raises(StoppedError):
            data.make(out)
    # The ledger said that the release begins before a task could write anything.
    assert seen == [False, True]
    assert releases(out) == {"board-1": None}
    draft = data.in_order(session.read.parquet(f"{out}.work/board"), "class")
    made = data.resume(out)
    assert np.array_equal(data.in_order(made.board, "class"), draft)
    [recorded] = releases(out).values()
    assert recorded is not None
    assert boards_charged(out) == 1
    # A board that was moved away, or is another one, ends the run.
    away = (out / "board").rename(tmp_path / "away")
    shutil.rmtree(tmp_path / "run.rows")
    with pytest.raises(RunError, match="board-1 was released and is missing"):
        data.resume(out)
    other = session.read.parquet(str(away)).withColumn(
        "class_0", pyspark.sql.functions.lit(1.0).cast("float")
    )
    other.write.parquet(str(out / "board"))
    with pytest.raises(RunError, match="not the one that this run released"):
        data.resume(out)
    shutil.rmtree(out / "board")
    # The same rows in another order are the same board.
    session.read.parquet(str(away)).orderBy("class_0").write.parquet(str(out / "board"))
    assert data.resume(out).rows.count() == NODES


def always_failing(key: bytes, part: int, *, log: str) -> Draws:
    def draw(count: int) -> np.ndarray:
        (Path(log) / "key").write_bytes(key)
        np.save(Path(log) / "drawn.npy", engine.draws_of_part(key, part)(count))
        raise RuntimeError("out of luck")

    return draw


def test_parts_and_releases_have_noise_of_their_own() -> None:
    key, other = bytes(32), bytes(31) + b"\x01"
    draws = [engine.draws_of_part(k, part)(1_000) for k in (key, other) for part in (0, 1)]
    assert np.array_equal(draws[0], engine.draws_of_part(key, 0)(1_000))
    for i, one in enumerate(draws):
        assert all(not np.any(one == two) for two in draws[i + 1 :])


@pytest.mark.parametrize(
    ("node", "edge", "changes", "message"),
    [
        ((0, 1.0, 0, "train"), (0, 1), {}, "repeat an identifier"),
        ((None, 1.0, 0, "train"), (0, 1), {}, "without an identifier"),
        ((2, float("nan"), 0, "train"), (0, 1), {}, "not finite numbers"),
        ((2, 1.0, 9, "train"), (0, 1), {}, "no class"),
        ((2, 1.0, 0, "dev"), (0, 1), {}, "split is not"),
        ((2, 1.0, 0, "train"), (0, 5), {}, "not in the node table"),
        ((2, 1.0, 0, "val"), (0, 1), {"num_classes": None}, "num_classes=None"),
        ((2, 1.0, 0, "val"), (0, 1), {"columns": {"label": "school"}}, "no column 'school'"),
        ((2, 1.0, 0, "val"), (0, 1), {"columns": {"hashed": {"a": 4}}}, "hashed"),
    ],
)
def test_what_cannot_be_used_is_refused(
    session: Any, tmp_path: Path, node: Any, edge: Any, changes: dict[str, Any], message: str
) -> None:
    rows = [(0, 1.0, 0, "train"), (1, 2.0, 1, "val"), node]
    nodes = session.createDataFrame(rows, "id int, a float, label int, split string")
    edges = session.createDataFrame([edge], "source int, target int")
    settings: dict[str, Any] = {"edge_owner": "sender", "num_classes": 2, "epsilon": 4.0}
    with pytest.raises((GraphError, InputError), match=message):
        engine.make_rows(nodes, edges, tmp_path / "run", **(settings | changes))
    assert not list(tmp_path.iterdir())


def test_no_training_nodes_and_a_folder_that_cannot_be_renamed(session: Any, tmp_path: Path) -> None:
    nodes = session.createDataFrame([(0, 1.0, 0, "val")], "id int, a float, label int, split string")
    edges = session.createDataFrame([(0, 0)], "source int, target int")
    with pytest.raises(GraphError, match="training split"):
        engine.make_rows(nodes, edges, tmp_path / "run", edge_owner="sender", num_classes=2, epsilon=4.0)
    with pytest.raises(Exception, match=r"renamed|does not exist"):
        engine.Storage.of(session, tmp_path, None).rename("work/nothing", "board")


def test_a_folder_that_is_there_is_not_gone_on_with_silently(session: Any, tmp_path: Path) -> None:
    data, out = Data(session), tmp_path / "run"
    data.make(out)
    with pytest.raises(RunError, match="begun; go on with"):
        data.make(out)
    other = Data(session)
    other.nodes = other.nodes.replace("val", "train", "split")
    with pytest.raises(RunError, match="other training nodes"):
        other.resume(out)
    # Rows beside it are those that training reads, and removes.
    train_rows(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    with pytest.raises(RunError, match="finished"):
        data.make(out)


def test_rows_are_where_storage_says_and_never_in_the_folder_of_the_run(session: Any, tmp_path: Path) -> None:
    data, out, storage = Data(session), tmp_path / "run", tmp_path / "storage"
    with pytest.raises(InputError, match="in the folder of the run"):
        data.make(out, storage=(out / "rows").as_uri())
    data.make(out, storage=storage.as_uri(), steps=3)
    assert sorted(path.name for path in storage.iterdir()) == ["board", "rows"]
    with pytest.raises(RunError, match="parts of another run"):
        data.make(tmp_path / "second", storage=storage.as_uri())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "storage"]
    # The storage is kept with the run, and rows that the caller names stay.
    assert data.resume(out).board.count() == NODES
    assert train_rows(out, rows=storage / "rows").result["guarantee"] == "holds"
    assert (storage / "rows").exists()
