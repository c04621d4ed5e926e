"""`hushgraph plan DATA` and `hushgraph train --dry-run`: the plan of `train`, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.privacy.guarantee import FIXED_SEED

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
SMALL = ["--steps", "4", "--hidden", "4", "--device", "cpu"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    graph = hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4, seed=1)
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    splits = {name: getattr(graph, name) for name in ("train_idx", "val_idx", "test_idx")}
    np.savez(
        tmp_path / "people.npz", edge_index=np.stack([graph.indices, target]), x=graph.x, y=graph.y, **splits
    )
    return tmp_path / "people.npz"


def answer(run: Run, *arguments: Any) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "flags",
    [
        "--epsilon 5",
        "--epsilon 5 --model gin --layers 2",
        "--epsilon 5 --model mlp",
        "--paper-noise-multiplier 2 --max-readers 1",
        "--epsilon 5 --max-readers 2 --edge-owner reader --batch-size 30 --delta 0.001",
    ],
)
def test_the_price_is_that_of_the_run(run: Run, data: Path, tmp_path: Path, flags: str) -> None:
    steps = ["--steps", "4"]
    planned = answer(run, "plan", data, *flags.split(), *steps)
    dry = answer(run, "train", data, *flags.split(), *SMALL, "--dry-run")
    assert [path.name for path in tmp_path.iterdir()] == ["people.npz"]
    trained = answer(run, "train", data, *flags.split(), *SMALL)
    shared = hg.Run.load(trained["out"]).plan.summary().keys()
    for facts in (planned, dry):
        assert {key: facts[key] for key in shared} == {key: trained[key] for key in shared}
        assert facts["train_nodes"] == hg.Run.load(trained["out"]).plan.num_train_nodes
    assert (dry["dry_run"], dry["hidden"]) == (True, 4)


def test_what_is_solved_for(run: Run, data: Path) -> None:
    assert answer(run, "plan", data, "--epsilon", "5")["solved_for"] == "sigma-over-clip"
    trees = ["--max-readers", "1", "--paper-noise-multiplier", "2"]
    assert answer(run, "plan", data, *trees)["solved_for"] == "epsilon"
    assert answer(run, "plan", data, *trees, "--epsilon", "5")["solved_for"] == "steps"


def test_plan_reads_the_file_for_train(run: Run, data: Path) -> None:
    settings = {"data": str(data), "epsilon": 3, "model": "gin", "hidden": 8, "lr": 0.5, "optimizer": "sgd"}
    Path("run.toml").write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items()))
    found = answer(run, "plan", "--config", "run.toml")
    assert found == answer(run, "plan", data, "--epsilon", "3", "--model", "gin")
    # What plan does not use is still checked.
    Path("run.toml").write_text('data = "demo"\nepsilon = 3\nhidden = "wide"\n')
    code, _, err = run("plan", "--config", "run.toml")
    assert (code, 'hidden="wide": expected a whole number' in err) == (2, True)
    Path("run.toml").write_text('data = "demo"\nepsilon = 3\nhiden = 8\n')
    assert "did you mean 'hidden'?" in run("plan", "--config", "run.toml")[2]


def test_a_seed_is_not_priced_as_private(run: Run, data: Path) -> None:
    Path("run.toml").write_text(f"data = {json.dumps(str(data))}\nepsilon = 3\nseed = 1\n")
    dry = answer(run, "train", "--config", "run.toml", "--dry-run")
    planned = answer(run, "plan", "--config", "run.toml")
    assert dry["guarantee"] == planned["guarantee"] == "none"
    assert dry["epsilon"] == planned["epsilon"] == "inf"
    _, out, _ = run("train", data, "--epsilon", "3", "--seed", "1", "--dry-run")
    words = " ".join(out.split())
    assert words.split("delta")[0].endswith("epsilon infinity ")
    assert "guarantee none" in words
    assert FIXED_SEED.sentence in words


def test_people_read_what_would_happen(run: Run, data: Path) -> None:
    code, out, err = run("train", data, "--epsilon", "5", "--model", "gcn", "--dry-run")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("warning: training reads no edges")
    first, second, *rest = out.splitlines()
    assert first == "Dry run: nothing is trained, written or spent."
    assert second.startswith(f"Training privately on {data}: GCN, 1 round of messages, 6 features, 3 classes")
    assert any(line.startswith("sigma / C") for line in rest)
    assert run("train", data, "--epsilon", "5", "--dry-run", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "people.npz", "--epsilon", "4", "--train-nodes", "9"], "--train-nodes 9 with DATA"),
        (["plan", "people.npz"], "no budget"),
        (["plan", "nowhere.npz", "--epsilon", "4"], "nowhere.npz: no such file"),
        (["plan", "--train-nodes", "9", "--epsilon", "4"], "no --num-classes (--max-readers for trees)"),
        (["plan", "--epsilon", "4"], "no --train-nodes and no --num-classes"),
        (
            ["plan", "--train-nodes", "9", "--max-readers", "1", "--epsilon", "4", "--split", "1/2/3"],
            "--split without DATA",
        ),
        (
            ["plan", "--train-nodes", "9", "--max-readers", "1", "--epsilon", "4", "--method", "billboard"],
            "--max-readers=1 with --method='billboard'",
        ),
        (["train", "people.npz", "--resume", "here", "--dry-run"], "--dry-run with --resume"),
        (["train", "people.npz", "--dry-run"], "no budget"),
    ],
)
def test_bad_input_is_one_line(run: Run, data: Path, arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
