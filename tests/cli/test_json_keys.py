"""The keys that other programs rely on are in the answers of `train` and `plan`, whatever is asked of a node.

The lists are those of the contract, word for word: a key that is renamed or dropped fails here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

Run = Callable[..., tuple[int, str, str]]
# Of a plan, and so of every run.
PLANNED = [
    *("epsilon", "delta", "accountant", "sampler", "adjacency", "guarantee", "assumptions", "changed_trees"),
    *("epsilon_group_of_two", "epsilon_evaluated", "epsilon_other", "sigma_over_clip", "steps"),
    *("sampling_rate", "max_readers", "max_reads", "edge_owner", "method", "task", "predictions", "figures"),
    *("epsilon_edge", "epsilon_label", "warnings"),
]
TRAINED = [*PLANNED, "val_accuracy", "test_accuracy", "seconds", "device"]
# Of a billboard; of trees.
BILLBOARD, TREES = ["board_share"], ["paper_noise_multiplier"]
COVERED = [*TRAINED, *BILLBOARD, "figure_table"]
OF_TASKS = {
    "classes": [],
    "binary": ["test_auc", "test_average_precision"],
    "number": ["test_r2", "test_mae"],
}
FLAGS = {
    "classes": ["--classes", "a,b,c"],
    "binary": ["--classes", "a,b"],
    "number": ["--task", "number", "--bounds", "0,100"],
}
# A figure of the table: where it is, its value, and both intervals.
ROW = {"split", "group", "class", "figure", "value", "noise", "sampling", "noise_std", "sampling_std"}
SMALL = ["--epsilon", "4", "--steps", "3"]


def write_tables(folder: Path, task: str) -> Path:
    rng = np.random.default_rng(2)
    values = {"classes": ["a", "b", "c"], "binary": ["a", "b"], "number": [3.5, 70.0]}[task]
    folder.mkdir()
    nodes = pd.DataFrame({"id": range(150), "age": rng.normal(size=150), "label": rng.choice(values, 150)})
    nodes.to_csv(folder / "nodes.csv", index=False)
    ends = rng.integers(150, size=(300, 2))
    pd.DataFrame(ends, columns=["source", "target"]).to_csv(folder / "edges.csv", index=False)
    return folder


def answer(run: Run, *arguments: Any) -> dict[str, Any]:
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.parametrize("task", OF_TASKS)
def test_train_and_plan_have_the_keys_of_the_contract(run: Run, tmp_path: Path, task: str) -> None:
    data = write_tables(tmp_path / "people", task)
    planned = answer(run, "plan", data, *FLAGS[task], *SMALL)
    assert [key for key in [*PLANNED, *BILLBOARD] if key not in planned] == []
    out = ["--device", "cpu", "--out", tmp_path / "run"]
    found = answer(run, "train", data, *FLAGS[task], *SMALL, *out)
    assert [key for key in [*COVERED, *OF_TASKS[task]] if key not in found] == []
    assert "exact_figures" not in found
    assert (found["task"], found["figures"], found["guarantee"]) == (task, "covered", "holds")
    assert found["predictions"] == "covered towards everybody else"
    assert all(set(row) - {"why"} == ROW for row in found["figure_table"])
    for key in set(planned) & set(PLANNED) - {"warnings"}:
        assert planned[key] == found[key], key


def test_exact_figures_are_there_only_if_asked_for(run: Run, tmp_path: Path) -> None:
    data = write_tables(tmp_path / "people", "classes")
    out = ["--device", "cpu", "--out", tmp_path / "run", "--exact-figures"]
    found = answer(run, "train", data, *FLAGS["classes"], *SMALL, *out)
    assert {"val_accuracy", "test_accuracy"} <= set(found["exact_figures"])
    assert found["figures"] == "covered"


def test_trees_have_the_paper_multiplier_and_no_covered_figures(run: Run, tmp_path: Path) -> None:
    data = write_tables(tmp_path / "people", "classes")
    planned = answer(run, "plan", data, *FLAGS["classes"], *SMALL, "--method", "trees")
    assert [key for key in [*PLANNED, *TREES] if key not in planned] == []
    assert (planned["figures"], planned["predictions"]) == ("not covered", "not covered")
