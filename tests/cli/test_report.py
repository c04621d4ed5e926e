"""`hushgraph compare`, `report` and `demo`: what they print and write, and their exit codes."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hushgraph as hg
from hushgraph._text import rounded_up
from hushgraph.cli import compare as comparing
from hushgraph.graph.graph import Graph
from hushgraph.training import interruption
from hushgraph.training import trainer as loop

Run = Callable[..., tuple[int, str, str]]
SMALL = {"steps": 3, "hidden": 4, "device": "cpu"}
FOLDERS = ["dp-billboard", "dp-gnn", "dp-mlp", "gnn", "mlp"]
NAMES = ["GNN", "MLP", "DP-Billboard", "DP-GNN (trees)", "DP-MLP"]
PAGES = ["report.html", "report.json", "settings.json"]
FILES = [".hushgraph-demo", "compare.svg", "comparison.json", *FOLDERS, *PAGES]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=240, num_classes=3, num_features=12, average_degree=6, seed=3)


@pytest.fixture(scope="module")
def file(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small.npz"
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    splits = {name: getattr(graph, name) for name in ("train_idx", "val_idx", "test_idx")}
    np.savez(path, edge_index=np.stack([graph.indices, targets]), x=graph.x, y=graph.y, **splits)
    return path


@pytest.fixture(scope="module")
def trained(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    hg.train(graph, epsilon=6.0, out=folder, **SMALL)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_compare_prints_a_table_and_the_cost(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("compare", file, "--epsilon", "3", "--steps", "3", "--device", "cpu")
    assert code == 0
    # Noise decides whether the graph helps.
    assert all(line.startswith("notice: ") for line in err.splitlines())
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "%" in line]
    assert [re.split("  +", row)[0] for row in rows] == NAMES
    assert [re.split("  +", row.rstrip())[-2:] for row in rows] == [
        ["none", "not covered"],
        ["none", "not covered"],
        ["holds*", "covered"],
        ["holds*", "not covered"],
        ["holds*", "covered"],
    ]
    assert "* assuming that the list of classes is public" in lines
    words = " ".join(out.split())
    [together] = re.findall(r"publishing all 3 together costs up to \(([0-9.]+),", words)
    assert 3.0 < float(together) < 9.0
    assert "by composition (all events by the 'pair' accountant)" in words
    assert "must not be released" in words
    assert "predictions for everybody else are together (3.00," in words
    assert "Training GNN without privacy: " in words


def test_compare_for_programs_with_a_folder(run: Run, file: Path, tmp_path: Path) -> None:
    flags = ["--epsilon", "6", "--steps", "3", "--device", "cpu", "--out", tmp_path / "five", "--json"]
    narrow = ["--hidden", "8", "--max-readers", "1", "--delta", "1e-4"]
    code, out, err = run("compare", file, "--model", "gin", "--layers", "2", *narrow, *flags)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
    found = json.loads(out)
    assert [row["name"] for row in found["rows"]] == NAMES
    assert [row["model"] for row in found["rows"]] == ["gin", "mlp", "mlp", "gin", "mlp"]
    assert found.pop("out") == str(tmp_path / "five")
    assert json.loads((tmp_path / "five" / "comparison.json").read_text()) == found
    assert names(tmp_path / "five") == FILES[1:]
    report = json.loads((tmp_path / "five" / "report.json").read_text())
    assert report["comparison"] == found
    assert report["plan"]["method"] == "billboard"
    assert (report["plan"]["delta"], report["config"]["hidden"]) == (1e-4, 8)
    assert report["test"]["classes"]
    again = run("compare", file, "--model", "gin", *flags)
    assert again[0] == 2
    assert again[2].count("\n") == 1
    assert "comparison.json in it already" in again[2]


def test_compare_continues_after_ctrl_c(
    run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["compare", file, "--epsilon", "3", "--steps", "3", "--device", "cpu", "--out", tmp_path / "five"]
    checks = iter([None] * 4)

    def check() -> None:
        try:
            next(checks)
        except StopIteration:
            raise KeyboardInterrupt from None

    with monkeypatch.context() as patch:
        patch.setattr(interruption, "delay_interrupts", lambda: contextlib.nullcontext(check))
        patch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
        code, _, err = run(*flags)
        assert (code, err) == (130, "hushgraph: stopped; the same command continues from there\n")
        code, _, err = run(*flags[:-2])
        assert (code, err) == (
            130,
            "hushgraph: interrupted, and nothing is kept; with --out it could continue\n",
        )
    assert names(tmp_path / "five") == ["dp-billboard", "dp-gnn", "settings.json"]
    code, out, err = run(*flags)
    assert code == 0
    # What noise decides to say of the figures is not told here.
    assert all(line.startswith("notice: ") for line in err.splitlines())
    assert "Training DP-Billboard" not in out
    assert "Training DP-GNN (trees)" in out
    assert names(tmp_path / "five") == FILES[1:]


def test_compare_with_a_seed(run: Run, file: Path) -> None:
    _, out, _ = run(
        "compare", file, "--epsilon", "6", "--steps", "2", "--seed", "1", "--split", "0.5/0.2/0.3"
    )
    assert "reproducible, not private" in " ".join(out.split())
    assert "holds" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "3"], "Missing option '--epsilon'"),
        (["--epsilon", "0"], "epsilon=0.0: expected a finite number above 0"),
        (["--epsilon", "4", "--model", "mlp"], "model='mlp': expected 'gcn', 'gin' or 'gat'"),
    ],
)
def test_compare_refuses(run: Run, file: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    code, out, err = run("compare", file, *arguments, "--out", tmp_path / "five")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "five").exists()


def test_report_of_a_folder(run: Run, graph: Graph, file: Path, tmp_path: Path) -> None:
    hg.train(graph, epsilon=6.0, out=tmp_path / "run", **SMALL)
    code, out, err = run("report", tmp_path / "run")
    assert (code, err) == (0, "")
    assert str(tmp_path / "run" / "report.html") in out
    assert "not covered" not in out
    assert json.loads((tmp_path / "run" / "report.json").read_text())["test"] is None
    code, out, err = run("report", tmp_path / "run", file, "--out", tmp_path / "page.html")
    assert (code, err) == (0, "")
    assert "exact figures, which are not covered: leave out DATA for a page to publish" in out
    twin = json.loads((tmp_path / "page.json").read_text())
    assert sum(entry["nodes"] for entry in twin["test"]["classes"]) == len(graph.test_idx)
    assert twin["comparison"] is None


def test_report_finds_the_comparison_it_belongs_to(run: Run, graph: Graph, tmp_path: Path) -> None:
    comparing.compare_into(tmp_path / "five", graph, epsilon=6.0, **SMALL)
    assert run("report", tmp_path / "five" / "dp-mlp")[0] == 0
    twin = json.loads((tmp_path / "five" / "dp-mlp" / "report.json").read_text())
    assert twin["comparison"] == json.loads((tmp_path / "five" / "comparison.json").read_text())
    (tmp_path / "five" / "comparison.json").write_text("{")
    code, _, err = run("report", tmp_path / "five" / "dp-mlp")
    assert (code, err.count("\n")) == (2, 1)
    assert "the comparison is damaged" in err


def test_report_refuses(run: Run, graph: Graph, tmp_path: Path) -> None:
    code, out, err = run("report", tmp_path / "nowhere")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no run.json in it" in err
    hg.train(graph, epsilon=6.0, out=tmp_path / "run", **SMALL)
    assert run("report", tmp_path / "run", "demo")[0] == 2
    assert run("report", tmp_path / "run", "--out", tmp_path / "page.pdf")[0] == 2
    ledger = tmp_path / "run" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"count"', b'"coont"'))
    (tmp_path / "run" / "ledger.jsonl").write_bytes(b"{}\n" + ledger.read_bytes())
    code, _, err = run("report", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1)
    assert "ledger=" in err


@pytest.fixture
def _small_demo(graph: Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(comparing, "DEMO", comparing.DEMO | SMALL)
    monkeypatch.setattr(hg.datasets, "load", lambda name: graph)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_small_demo")
def test_demo_prints_and_writes_and_starts_anew(run: Run, tmp_path: Path) -> None:
    first = run("demo")
    # The graph is small: noise may hide whether it helps, and a notice then says so.
    assert first[0] == 0
    assert all(line.startswith("notice: ") for line in first[2].splitlines())
    words = " ".join(first[1].split())
    assert "predictions for everybody else are together (4.00," in words
    total = json.loads((tmp_path / "demo" / "comparison.json").read_text())["release_all"]["epsilon"]
    assert f"publishing all 3 together costs up to ({rounded_up(total)}," in words
    assert "demo/report.html" in words
    assert names(tmp_path / "demo") == FILES
    assert "Privacy report: DP-Billboard on demo" in (tmp_path / "demo" / "report.html").read_text()
    second = run("demo", "--json")
    assert second[0] == 0
    assert json.loads(second[1])["out"] == "demo"
    assert json.loads(second[1])["seeded"] is False
    assert names(tmp_path / "demo") == FILES


@pytest.mark.usefixtures("_small_demo")
@pytest.mark.parametrize("name", ["mine.txt", "report.html"])
def test_demo_leaves_other_people_s_folders_alone(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / name).write_text("mine")
    code, out, err = run("demo")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"it holds {name}" in err
    assert names(tmp_path / "demo") == [name]


@pytest.mark.parametrize("command", ["compare", "report", "demo"])
def test_help_fits_a_terminal(run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(command, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80


def test_a_card_for_a_hub(run: Run, graph: Graph, file: Path, tmp_path: Path) -> None:
    trained = hg.train(graph, epsilon=6.0, out=tmp_path / "run", **SMALL)
    place = tmp_path / "run" / "README.md"
    assert run("report", tmp_path / "run", "--card") == (0, f"Model card in {place}.\n", "")
    assert place.read_text(encoding="utf-8") == trained.card()
    code, out, _ = run(
        "report", tmp_path / "run", "--card", "--accuracy", "--out", tmp_path / "a.md", "--json"
    )
    assert (code, json.loads(out)["accuracy"]) == (0, True)
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == trained.card(accuracy=True)
    (tmp_path / "run" / "about.toml").write_text('data = "members"')
    words = ["--card", "--about", tmp_path / "run" / "about.toml"]
    assert run("report", tmp_path / "run" / "release", *words)[0] == 0
    assert "on members\n" in (tmp_path / "run" / "release" / "README.md").read_text()
    for more, words in (
        (["--accuracy"], "--accuracy: the report has accuracies without it"),
        (["--card", "--out", tmp_path / "a.html"], "ends in .md"),
        ([file, "--card"], "a card needs the run alone"),
    ):
        code, out, err = run("report", tmp_path / "run", *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "run"]


def test_predictions_as_parquet(run: Run, graph: Graph, file: Path, tmp_path: Path) -> None:
    import duckdb

    trained = hg.train(graph, epsilon=6.0, out=tmp_path / "run", **SMALL)
    target = tmp_path / "p.parquet"
    code, out, err = run("predict", tmp_path / "run", file, "--out", target, "--probabilities")
    assert (code, err) == (0, "")
    assert "covered towards everybody else" in out
    table = duckdb.connect().read_parquet(str(target)).fetchnumpy()
    assert list(table) == ["node", "class", "p_0", "p_1", "p_2"]
    assert np.array_equal(table["class"], trained.predict(graph))


def test_the_page_takes_what_people_know_and_an_audit(
    run: Run, graph: Graph, file: Path, tmp_path: Path
) -> None:
    trained = hg.train(graph, epsilon=6.0, out=tmp_path / "run", **SMALL)
    (tmp_path / "about.toml").write_text('owner = "Ana"\n')
    assert run("report", tmp_path / "run", "--about", tmp_path / "about.toml")[0] == 0
    facts = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (facts["about"]["owner"], facts["audit"]) == ("Ana", None)
    record = {"lower_bound": 1.0, "lower_bound_by_event": 0.5, "claimed_epsilon": trained.plan.epsilon}
    record |= {"bound_confidence": 0.95, "trials": 100, "delta": trained.plan.delta, "exceeds": False}
    record |= {
        "attacked": "2 boards and 3 steps",
        "method": "billboard",
        "fault": None,
        "attacks": [],
        "checks": [],
    }
    (tmp_path / "audit.json").write_text(json.dumps(record))
    assert run("report", tmp_path / "run", file, "--audit", tmp_path / "audit.json")[0] == 0
    facts = json.loads((tmp_path / "run" / "report.json").read_text())
    assert facts["audit"]["is_of_this_plan"]
    assert facts["about"]["owner"] is None


def test_a_privacy_label(run: Run, graph: Graph, file: Path, tmp_path: Path) -> None:
    hg.train(graph, epsilon=6.0, out=tmp_path / "run", **SMALL)
    place = tmp_path / "run" / "privacy-label.svg"
    words = f"Privacy label in {place}, the same fields in {place.with_suffix('.json')}.\n"
    assert run("report", tmp_path / "run", "--privacy-label") == (0, words, "")
    assert place.read_text(encoding="utf-8").startswith("<svg ")
    (tmp_path / "about.toml").write_text('owner = "Ana"\n')
    options = ["--about", tmp_path / "about.toml", "--out", tmp_path / "mine.svg", "--json"]
    code, out, err = run("report", tmp_path / "run", "--privacy-label", *options)
    assert (code, err, out.count("\n")) == (0, "", 1)
    label = json.loads(out)
    assert label == json.loads((tmp_path / "mine.json").read_text())
    assert (label["about"]["owner"], label["guarantee"]) == ("Ana", "holds")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--privacy-label", "--card"], "--card with --privacy-label: a card needs the run alone"),
        (
            ["DATA", "--privacy-label"],
            "DATA: a label needs the run alone; leave out DATA",
        ),
        (["--privacy-label", "--accuracy"], "--privacy-label with --accuracy"),
        (["--privacy-label", "--audit", "a.json"], "--privacy-label with --audit"),
        (["--card", "--about", "unknown.toml"], "unknown key 'purpos'; did you mean"),
        (["--privacy-label", "--out", "a.html"], "ends in .svg"),
        (["--about", "none.toml"], "about=none.toml: cannot be read"),
        (["--about", "unknown.toml"], "unknown key 'purpos'; did you mean 'purpose'?"),
        (["--about", "damaged.toml"], "about=damaged.toml: not TOML"),
        (["--privacy-label", "--about", "number.toml"], "purpose=3: expected a string"),
        (["--audit", "unknown.toml"], "audit=unknown.toml: not the record of an audit"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    run: Run, trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unknown.toml").write_text('purpos = "x"')
    (tmp_path / "damaged.toml").write_text("purpose =")
    (tmp_path / "number.toml").write_text("purpose = 3")
    before = names(trained)
    code, out, err = run("report", trained, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert names(trained) == before


def test_a_release_is_reported_from_what_is_in_it(run: Run, file: Path, tmp_path: Path) -> None:
    trained = tmp_path / "whole-run"
    flags = ("--epsilon", "6", "--num-classes", "3", "--steps", "3", "--hidden", "4", "--device", "cpu")
    assert run("train", file, *flags, "--out", trained, "--exact-figures", "--json")[0] == 0
    release = trained / "release"
    published = tmp_path / "published"
    shutil.copytree(release, published)
    assert run("report", published)[0] == 0
    page, twin = (published / "report.html").read_text(), json.loads((published / "report.json").read_text())
    whole = json.loads((trained / "result.json").read_text())
    assert "The guarantee holds" in page
    assert twin["result"]["figure_table"] == whole["figure_table"]
    assert (twin["data"], twin["ledger"], twin["spending"], twin["test"]) == ("unnamed data", None, [], None)
    assert not twin["result"].keys() & {"exact_figures", "seconds", "device", "train_accuracy"}
    # An exact figure may equal a covered one by chance, so that numbers are compared with what was released.
    assert twin["result"] == json.loads((release / "release.json").read_text())["result"]
    text = page + json.dumps(twin)
    for word in (str(tmp_path), "whole-run", file.stem, socket.gethostname()):
        assert word not in text, word
    before = names(release)
    # What the whole run or its data shows beyond it does not go into a release.
    for words in (
        (published, file),
        (trained, "--out", release / "report.html"),
        (trained, file, "--out", release / "report.html"),
    ):
        code, out, err = run("report", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "is not covered, and a release holds nothing else" in err
    assert names(release) == before
    assert run("report", published, file, "--out", tmp_path / "page.html")[0] == 0


def test_exact_accuracies_stay_out_of_a_release(run: Run, graph: Graph, tmp_path: Path) -> None:
    trained = tmp_path / "trees"
    hg.train(graph, epsilon=6.0, method="trees", max_readers=1, out=trained, **SMALL)
    card = trained / "release" / "README.md"
    before = card.read_bytes()
    code, _, err = run("report", trained, "--card", "--accuracy", "--out", card)
    assert (code, err.count("\n")) == (2, 1)
    assert "a card with exact accuracies is not covered" in err
    assert card.read_bytes() == before
    assert run("report", trained, "--card", "--out", card)[0] == 0
