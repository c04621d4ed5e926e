"""A new user's walk: from messy tables to the first private model and its report, without a dead end."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from messy_tables import write_messy_tables

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
# A user would leave these out; they keep the test short.
QUICK = ["--steps", "3", "--hidden", "4", "--device", "cpu"]


def test_three_commands_from_messy_tables_to_a_report(run: Run) -> None:
    write_messy_tables(Path("people"))
    code, out, err = run("check", "people", "--label", "school")
    assert (code, err) == (0, "")
    following = re.search(r"^Next: hushgraph (train .*)$", out, re.MULTILINE)
    assert following is not None
    code, out, err = run(*shlex.split(following[1]), *QUICK, "--out", "run")
    assert code == 0, err
    assert re.search(r"^guarantee +holds", out, re.MULTILINE)
    # The owner's terminal has the counts.
    assert "private, for you alone: edges to unknown ids dropped: 2" in err
    assert "--edge-weight weight:log1p" in following[1]
    assert run("report", "run")[0] == 0
    report = json.loads(Path("run/report.json").read_text())
    assert report["guarantee"]["guarantee"] == "holds"
    assert any("not a node, are dropped" in rule for rule in report["declared"])
    assert "records-looked-up" in {each["code"] for each in report["assumptions"]}
    page = html.unescape(Path("run/report.html").read_text())
    assert all(sentence in page for sentence in (*report["warnings"], *report["declared"]))


def test_without_the_label_check_asks_for_it_and_goes_on(run: Run) -> None:
    write_messy_tables(Path("people"))
    code, out, _ = run("check", "people")
    assert code == 2
    assert "name it with --label: 'city', 'school'" in out
    code, out, _ = run("check", "people", "--label", "school")
    assert code == 0
    following = re.search(r"^Next: hushgraph (train .*)$", out, re.MULTILINE)
    assert following is not None
    assert run(*shlex.split(following[1]), *QUICK, "--dry-run")[0] == 0


def test_predictions_apply_the_rules_of_the_run(run: Run) -> None:
    write_messy_tables(Path("people"))
    flags = "--label school --classes north,south --categorical city=Oslo|Bodø --unknown-category other"
    assert run("check", "people", *flags.split())[0] == 0
    missing = "NA,unknown"
    assert run("train", "people", "--epsilon", 4, "--missing", missing, *QUICK, "--out", "run")[0] == 0
    Path("people/graph.toml").unlink()
    assert run("predict", "run", "people", "--out", "all.csv")[0] == 0
    Path("new.csv").write_text("person,age,income,city,remark\nn1,NA,unknown,Paris,-\nn2,,4,,-\n")
    Path("lists.csv").write_text("from,to\np001,n1\np002,n2\np009,\n")
    line = "predict run new.csv --edges lists.csv --new --symmetrize --out new-classes.csv"
    code, _, err = run(*line.split())
    assert code == 0, err
    assert Path("new-classes.csv").read_text().count("\n") == 3


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_five_lines_from_a_frame(library: str) -> None:
    frames: Any = pytest.importorskip(library)
    write_messy_tables(Path("people"))
    quick: dict[str, Any] = {"steps": 3, "hidden": 4, "device": "cpu"}
    data = (frames.read_csv("people/nodes.csv"), frames.read_csv("people/edges.csv"))
    checked = hg.check(data, columns={"label": "school"})
    run = hg.train(data, epsilon=4.0, columns=checked.to_columns(), **quick)
    run.report("report.html")
    assert run.result["guarantee"] == "holds"
    assert Path("report.html").exists()


def test_columns_of_a_frame_are_arguments_too() -> None:
    frames: Any = pytest.importorskip("pandas")
    write_messy_tables(Path("people"))
    data = tuple(frames.read_csv(f"people/{name}.csv") for name in ("nodes", "edges"))
    names: dict[str, Any] = {"id": "person", "label": "school", "classes": ["north", "south"]}
    names |= {"split_column": "part", "source": "from", "target": "to", "features": ["age"]}
    run = hg.train(
        data,
        epsilon=4.0,
        **names,
        fill=0,
        missing=["NA"],
        unknown_ids="drop",
        steps=3,
        hidden=4,
        device="cpu",
    )
    assert run.folder.columns is not None
    assert run.folder.columns.label == "school"
    graph, plan, _ = hg.prepare(data, epsilon=4.0, **names, fill=0, unknown_ids="drop")
    assert (graph.num_features, plan.num_train_nodes) == (1, 90)
    classifier = hg.NodeClassifier(epsilon=4.0, columns=run.folder.columns, steps=3, hidden=4, device="cpu")
    assert classifier.fit(data).predict(data).shape == (150,)
