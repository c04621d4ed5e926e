"""Promise: what check, fill, drop and warnings read off private rows reaches the owner's terminal alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.privacy.budget import DataBudget
from hushgraph.training.cautions import list_notes, list_warnings
from run_folders import contents

Run = Callable[..., tuple[int, str, str]]
PEOPLE = 40
# Whose row differs between the two data sets.
ROW = 7
RULES = (
    *("--fill", "0", "--indicators", "age", "--missing", "NA", "--categorical", "city=Oslo|Bergen"),
    *("--unknown-category", "other", "--unknown-ids", "drop", "--edge-owner", "sender"),
)
QUICK = ("--epsilon", "4", "--steps", "2", "--hidden", "4", "--device", "cpu")
# What a run says of noisy tables and of the clock; everything else must not depend on a row.
MEASURED = "(val|test)_|figure_table$|seconds$"


def write_people(folder: Path, row: str, lists: list[str]) -> Path:
    """Tables in which one person has this row and these lists; everybody else is the same."""
    folder.mkdir()
    lines = ["id,age,city,label,split,note"]
    for n in range(PEOPLE):
        part = ("train", "train", "val", "test")[n % 4]
        about = row if n == ROW else f"{20 + n % 7},{('Oslo', 'Bergen')[n % 2]},{n % 2}"
        lines.append(f"p{n},{about},{part},-")
    edges = [f"p{n},p{(n + step) % PEOPLE}" for n in range(PEOPLE) if n != ROW for step in (1, 2)]
    edges += [f"p{ROW},{place}" for place in lists]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    return folder


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two data sets under one name that differ in one row: complete in one, and in every way imperfect."""
    monkeypatch.chdir(tmp_path)
    full = write_people(tmp_path / "full", "27,Oslo,1", ["p8", "p9"])
    poor = write_people(tmp_path / "poor", "NA,Atlantis,", ["p8", "p8", f"p{ROW}", "x1", "x2", "x3", ""])
    return full, poor


def use(folder: Path) -> Path:
    """The data set, under the name that both have."""
    link = Path("people")
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    return link


def test_rules_treat_a_row_by_that_row_alone(pair: tuple[Path, Path]) -> None:
    columns: dict[str, Any] = {"fill": 0, "indicators": ["age"], "missing": ["NA"], "ignore": ["note"]}
    columns |= {"categorical": {"city": ["Oslo", "Bergen"]}, "unknown_category": "other"}
    full, poor = (load_graph(folder, columns={**columns, "unknown_ids": "drop"}) for folder in pair)
    others = np.arange(PEOPLE) != ROW
    np.testing.assert_array_equal(full.x[others], poor.x[others])
    np.testing.assert_array_equal(full.y[others], poor.y[others])
    np.testing.assert_array_equal(full.train_idx, poor.train_idx)
    for name in ("full", "poor"):
        graph = {"full": full, "poor": poor}[name]
        source, target = next(graph.edge_chunks())
        kept = {(int(u), int(w)) for u, w in zip(source, target, strict=True) if u != ROW}
        assert kept == {(n, (n + step) % PEOPLE) for n in range(PEOPLE) if n != ROW for step in (1, 2)}
    # Filled, not listed, to other ids, a repeat and a self-loop: all of the rules applied in this row.
    assert sum(poor.clean_up.values()) == 1 + 1 + 4
    assert (poor.duplicates_removed, poor.self_loops_removed) == (1, 1)
    assert sum(full.clean_up.values()) == 0


def test_json_of_plans_does_not_depend_on_a_row(pair: tuple[Path, Path], run: Run) -> None:
    printed = []
    for folder in pair:
        data = use(folder)
        dry = run("train", data, *QUICK, *RULES, "--ignore", "note", "--dry-run", "--json")
        printed.append((dry, run("plan", data, *QUICK[:4], *RULES, "--ignore", "note", "--json")))
    assert printed[0] == printed[1]
    assert [code for code, _, _ in printed[0]] == [0, 0]
    # Nothing on standard error either: what reads JSON may keep both.
    assert [err for _, _, err in printed[0]] == ["", ""]


def test_runs_and_reports_do_not_depend_on_a_row_but_by_what_is_paid_for(
    pair: tuple[Path, Path], run: Run
) -> None:
    runs, results, reports, screens = [], [], [], []
    for number, folder in enumerate(pair):
        out = Path(f"run{number}")
        code, text, err = run("train", use(folder), *QUICK, *RULES, "--ignore", "note", "--out", out)
        assert code == 0, err
        assert run("report", out)[0] == 0
        runs.append((out / "run.json").read_bytes())
        results.append(json.loads((out / "result.json").read_text()))
        reports.append(json.loads((out / "report.json").read_text()))
        screens.append((text, err))
    assert runs[0] == runs[1]
    assert {k: v for k, v in results[0].items() if not re.match(MEASURED, k)} == {
        k: v for k, v in results[1].items() if not re.match(MEASURED, k)
    }
    assert [result["figures"] for result in results] == ["covered"] * 2
    for key in ("declared", "warnings", "assumptions", "not_covered", "config", "plan", "guarantee"):
        assert reports[0][key] == reports[1][key]
    assert reports[0]["declared"]
    # The counts are on the owner's terminal, on standard error alone, and only there.
    assert "private, for you alone: edges to unknown ids dropped: 4" in screens[1][1]
    assert "private, for you alone: self-loops dropped: 1" in screens[1][1]
    assert "for you alone" not in screens[1][0]
    for name, content in contents(Path("run1")).items():
        assert b"ids dropped" not in content, name


def test_check_writes_one_file_without_values_and_charges_nothing(pair: tuple[Path, Path], run: Run) -> None:
    budget = DataBudget.create("people.ledger", epsilon=4.0, delta=0.001)
    before = budget.path.read_bytes()
    texts = []
    for folder in pair:
        known = {path.name for path in folder.iterdir()}
        code, _, _ = run("check", folder)
        assert code == 0
        assert {path.name for path in folder.iterdir()} - known == {"graph.toml"}
        texts.append((folder / "graph.toml").read_text())
    assert texts[0] == texts[1]
    for value in ("Oslo", "Bergen", "Atlantis", "x1", "p8", str(PEOPLE)):
        assert value not in texts[1]
    assert budget.path.read_bytes() == before


def test_warnings_follow_from_public_figures(pair: tuple[Path, Path]) -> None:
    columns: dict[str, Any] = {"fill": 0, "missing": ["NA"], "hashed": {"city": 4}, "ignore": ["note"]}
    said = []
    for folder in pair:
        graph, plan, _ = hg.prepare(
            folder,
            columns={**columns, "unknown_ids": "drop"},
            paper_noise_multiplier=3.0,
            steps=2,
            max_readers=PEOPLE,
            delta=0.2,
            edge_owner="sender",
            num_classes=2,
        )
        said.append(list_warnings(graph, plan))
        assert not any("dropped" in warning for warning in said[-1])
    assert said[0] == said[1]
    assert len(said[0]) == 2
    assert list_notes(
        load_graph(pair[1], columns={**columns, "unknown_ids": "drop"}), symmetrize=False, directed=True
    )


def test_a_refused_run_leaves_nothing_and_charges_nothing(pair: tuple[Path, Path], run: Run) -> None:
    budget = DataBudget.create("people.ledger", epsilon=9.0, delta=0.001)
    before = {str(path): path.is_dir() or path.read_bytes() for path in Path().rglob("*")}
    for flags in (RULES[2:], (*RULES, "--out", "poor"), (*RULES, "--epsilon", "99")):
        code, out, err = run("train", pair[1], *QUICK, *flags, "--ignore", "note", "--budget", budget.path)
        assert code in (2, 3)
        assert (out, err.count("\n")) == ("", 1)
    assert {str(path): path.is_dir() or path.read_bytes() for path in Path().rglob("*")} == before
