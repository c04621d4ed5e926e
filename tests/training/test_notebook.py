"""Runs in notebooks: what they show, where they are kept, and what an interruption leaves."""

from __future__ import annotations

import gc
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.errors import RunError, WriteError
from hushgraph.graph.graph import Graph
from hushgraph.training import progress
from hushgraph.training import trainer as loop

QUICK: dict[str, Any] = {"steps": 6, "hidden": 4, "batch_size": 40, "device": "cpu"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=160, num_classes=3, num_features=6, average_degree=4, seed=3)


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return hg.train(graph, epsilon=6.0, out=tmp_path_factory.mktemp("kept") / "<run>", **QUICK)


def test_a_notebook_shows_accuracy_epsilon_guarantee_and_sentence(run: hg.Run) -> None:
    html = run._repr_html_()
    assert "<strong>The guarantee holds</strong>" in html
    assert re.search(r">epsilon</th><td[^>]*><strong>6\.00<", html)
    assert run.result["figures"] == "covered"
    assert "test accuracy (covered)" in html
    value = run.result["test_accuracy"]
    assert f"<strong>{'too few to tell' if value is None else f'{value:.2%}'}</strong>" in html
    assert "are together (6.00, " in html
    assert "&lt;run&gt;" in html
    assert "<run>" not in html
    HTMLParser().feed(html)


def test_a_notebook_shows_that_a_seeded_run_is_not_private(graph: Graph) -> None:
    html = hg.train(graph, epsilon=6.0, seed=1, **QUICK)._repr_html_()
    assert "<strong>Reproducible, not private</strong>" in html
    assert "<strong>infinity</strong>" in html
    assert "test accuracy (exact, not covered)" in html
    assert "6.00" not in html
    assert 'a temporary folder; <code>run.save("a-run")</code> keeps it' in html.replace("&#34;", '"')


def test_a_saved_run_outlives_its_folder(graph: Graph, tmp_path: Path) -> None:
    run = hg.train(graph, epsilon=6.0, **QUICK)
    assert run.is_temporary
    first, expected = run.folder.path, run.predict(graph)
    assert run.save(tmp_path / "deep" / "kept") == tmp_path / "deep" / "kept"
    assert not run.is_temporary
    assert run.folder.path == tmp_path / "deep" / "kept"
    ledger = (first / "ledger.jsonl").read_bytes()
    del run
    gc.collect()
    assert not first.exists()
    again = hg.Run.load(tmp_path / "deep" / "kept", device="cpu")
    assert np.array_equal(again.predict(graph), expected)
    assert (tmp_path / "deep" / "kept" / "ledger.jsonl").read_bytes() == ledger


def test_saving_replaces_nothing(run: hg.Run, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(RunError, match="it exists and is not an empty folder"):
            run.save(tmp_path / name)
    with pytest.raises(WriteError, match="cannot be written"):
        run.save(tmp_path / "file" / "below")
    (tmp_path / "empty").mkdir()
    copy = hg.Run.load(run.folder.path, device="cpu")
    assert hg.Run.load(copy.save(tmp_path / "empty")).epsilon == run.epsilon
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "full"]


def stop_at(step: int) -> Any:
    def observe(done: int, *others: Any) -> None:
        if done == step:
            raise KeyboardInterrupt

    return observe


@pytest.mark.parametrize("is_named", [True, False])
def test_an_interrupted_run_is_kept_and_says_where(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
    out = {"out": tmp_path / "named"} if is_named else {}
    with pytest.raises(KeyboardInterrupt) as stopped:
        hg.train(graph, epsilon=6.0, observer=stop_at(2), **out, **QUICK)
    (note,) = stopped.value.__notes__
    (path,) = tmp_path.iterdir()
    assert note == (
        f"Stopped after step 2 of 6. The run and what it spent are kept in {path}; "
        f"hushgraph.resume({str(path)!r}, data) goes on."
    )
    run = hg.resume(path, graph, device="cpu")
    assert (run.result["resumed"], run.result["steps"], run.is_temporary) == (True, 6, False)
    assert run.epsilon <= 6.0


def test_what_spent_nothing_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refuse(folder: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        hg.train(graph, epsilon=6.0, on_start=refuse, **QUICK)
    assert not hasattr(stopped.value, "__notes__")
    assert list(tmp_path.iterdir()) == []


def test_the_bar_is_shown_by_default_and_off_with_one_argument(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"epsilon": 6.0, "method": "trees", "max_readers": 1, **QUICK}
    hg.train(graph, **settings)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert progress.choose_bar(None) is progress.choose_bar(True) is progress.TerminalBar
    assert progress.choose_bar(False) is None
    monkeypatch.undo()
    assert progress.choose_bar(None) is None
    hg.train(graph, progress=True, **settings)
    out, err = capsys.readouterr()
    assert out == ""
    # Without a terminal there are lines for a log, the last one at the end.
    assert err == "step 6 of 6, epsilon 6.00\n"


def test_an_interrupted_bar_says_where_the_run_is(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, epsilon=6.0, out=tmp_path / "run", progress=True, observer=stop_at(2), **QUICK)
    assert f"kept in {tmp_path / 'run'}; hushgraph.resume(" in capsys.readouterr().err.replace("\n", "")


def test_in_a_notebook_the_bar_is_html_without_widgets(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        """What IPython calls the shell of a notebook."""

    drawn: list[str] = []
    handle = SimpleNamespace(update=drawn.append)

    def display(html: str, *, display_id: bool) -> Any:
        assert display_id
        drawn.append(html)
        return handle

    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    module.HTML, module.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    hg.train(graph, epsilon=6.0, method="trees", max_readers=1, **QUICK)
    assert drawn[0].startswith('<progress value="1" max="6"></progress> step 1 of 6, epsilon ')
    assert drawn[-2] == '<progress value="6" max="6"></progress> step 6 of 6, epsilon 6.00'
    assert drawn[-1] == ""
    assert progress.choose_bar(False) is None


def test_epsilon_without_privacy_is_infinite_on_the_bar() -> None:
    shown: list[str] = []
    bar = SimpleNamespace(show=lambda done, total, figures: shown.append(figures), close=lambda: None)
    with progress.watch_steps(lambda: bar, lambda *_: None) as observe:
        observe(1, 1, math.inf, 0.5)
    assert shown == ["epsilon infinity"]


def test_classes_come_back_under_their_names(tmp_path: Path) -> None:
    names = ["red", "blue"]
    rows = [f"p{n},{n % 7},{names[n % 2]}" for n in range(80)]
    (tmp_path / "nodes.csv").write_text("\n".join(["person,age,team", *rows]))
    (tmp_path / "edges.csv").write_text(
        "\n".join(["source,target", *(f"p{n},p{(n + 2) % 80}" for n in range(80))])
    )
    columns = {"id": "person", "label": "team", "classes": names}
    run = hg.train(tmp_path, epsilon=6.0, columns=columns, **QUICK)
    best = run.predict_proba(tmp_path).argmax(1)
    assert run.classes.tolist() == names
    assert run.predict(tmp_path).tolist() == [names[number] for number in best]
    table = run.predict_table(tmp_path).to_columns()
    assert list(table) == ["person", "class", "p_red", "p_blue"]
    assert table["person"].tolist() == [f"p{n}" for n in range(80)]
    assert table["class"].tolist() == run.predict(tmp_path).tolist()
    clf = hg.NodeClassifier(epsilon=6.0, columns=columns, **QUICK).fit(tmp_path)
    assert clf.classes_.tolist() == names
    assert set(clf.predict(tmp_path)) <= set(names)
    assert 0 <= clf.score(tmp_path) <= 1
