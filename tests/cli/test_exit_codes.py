"""Exit codes: 0 done, 1 failed, 2 bad input, 3 over budget, 130 interrupted; and --json of every command."""

from __future__ import annotations

import contextlib
import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.inference import predicted
from hushgraph.privacy import fields

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
PLAN = ["plan", "--train-nodes", "1000", "--max-readers", "3", "--batch-size", "100"]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """What `demo` means in these tests."""
    small = hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4)
    monkeypatch.setattr("hushgraph.datasets.loading.load", lambda name, root=None: small)
    return small


@pytest.fixture
def folder(graph: Graph, tmp_path: Path) -> Path:
    hg.train("demo", epsilon=5.0, steps=2, hidden=4, device="cpu", out=tmp_path / "run")
    return tmp_path / "run"


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "classes.csv")


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_0_done(run: Run) -> None:
    assert run(*PLAN, "--steps", "5", "--paper-noise-multiplier", "1")[0] == 0


def test_1_failed(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicted, "save", full)
    code, out, err = run("predict", folder, "demo", "--out", "classes.csv", "--device", "cpu")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "No space left on device: 'classes.csv'" in err


def test_1_where_nobody_reads_the_output() -> None:
    command = [sys.executable, "-m", "hushgraph", *PLAN, "--steps", "5", "--paper-noise-multiplier", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(timeout=300) == 1
        assert process.stderr.read() == ""


def test_2_bad_input(run: Run) -> None:
    code, out, err = run(*PLAN, "--steps", "5")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_3_over_budget(run: Run) -> None:
    code, out, err = run(*PLAN, "--paper-noise-multiplier", "0.01", "--epsilon", "0.01")
    assert (code, out, err.count("\n")) == (3, "", 1)


def test_130_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "check_budget", interrupted)
    code, out, err = run(*PLAN, "--steps", "5", "--epsilon", "1")
    assert (code, out) == (130, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([*PLAN, "--steps", "5"], 2, "no budget: give --epsilon=E or"),
        ([*PLAN, "--paper-noise-multiplier", "0.01", "--epsilon", "0.01"], 3, "it pays for no step"),
        (["train", "demo", "--eps", "4"], 2, "did you mean --epsilon?"),
        (["train", "nowhere.npz", "--epsilon", "4"], 2, "nowhere.npz: no such file"),
        (["compare", "demo", "--epsilon", "4", "--model", "mlp"], 2, "--model='mlp'"),
        (["predict", "nowhere", "demo", "--out", "a.csv"], 2, "no run.json"),
        (["report", "nowhere"], 2, "no run.json"),
        (["datasets", "nothing"], 2, "nothing"),
        (["reproduce"], 2, "no NAME"),
    ],
)
def test_a_failure_in_json(run: Run, arguments: list[str], code: int, words: str) -> None:
    got, out, err = run(*arguments, "--json")
    assert (got, err.count("\n")) == (code, 1)
    answer = json.loads(out.splitlines()[-1])
    assert answer == {"error": err.removeprefix("hushgraph: ").rstrip("\n"), "exit_code": code}
    assert words in answer["error"]
    # Without --json there is nothing on standard output.
    assert run(*arguments)[1] == ""


def test_an_interruption_and_a_surprise_in_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "check_budget", interrupted)
    flags = [*PLAN, "--steps", "5", "--epsilon", "1"]
    assert json.loads(run(*flags, "--json")[1]) == {"error": "interrupted", "exit_code": 130}

    def surprise(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(fields, "check_budget", surprise)
    with pytest.raises(ZeroDivisionError):
        run(*flags, "--json")


def test_a_file_may_ask_for_json(run: Run) -> None:
    Path("run.toml").write_text("json = true\ntrain-nodes = 10\nmax-readers = 1\n")
    code, out, _ = run("plan", "--config", "run.toml")
    assert (code, json.loads(out)["exit_code"]) == (2, 2)


def last_line(run: Run, *arguments: Any) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def test_predict_says_in_json_what_it_wrote(run: Run, folder: Path, graph: Graph) -> None:
    found = last_line(run, "predict", folder, "demo", "--out", "classes.csv", "--device", "cpu")
    assert Path(found["out"]).read_text().count("\n") == found["nodes"] + 1
    assert found == {
        "out": "classes.csv",
        "run": str(folder),
        "nodes": graph.num_nodes,
        "task": "classes",
        "classes": 3,
        "probabilities": False,
        "predictions": "covered towards everybody else",
        "covered": True,
    }
    more = ["--out", "more.npz", "--probabilities", "--in-the-clear", "--quiet"]
    assert last_line(run, "predict", folder, "demo", *more)["covered"] is False


def test_report_says_in_json_what_it_wrote(run: Run, folder: Path) -> None:
    found = last_line(run, "report", folder)
    assert set(found) == {"out", "facts", "run"}
    assert Path(found["out"]).read_text().startswith("<!")
    assert json.loads(Path(found["facts"]).read_text())["plan"]


ENDING = """
import atexit
from hushgraph.cli import app
atexit.register(print, "last")
app.main = lambda: print("first") or {code}
app.run()
"""


@pytest.mark.parametrize(("code", "target", "expected"), [(0, None, 0), (3, None, 3), (0, "/dev/full", 1)])
def test_a_process_ends_with_everything_written_or_a_failure(
    code: int, target: str | None, expected: int
) -> None:
    if target is not None and not Path(target).exists():
        pytest.skip(f"{target} is missing")
    with contextlib.ExitStack() as files:
        out = subprocess.PIPE if target is None else files.enter_context(Path(target).open("w"))
        done = subprocess.run(
            [sys.executable, "-c", ENDING.format(code=code)], stdout=out, text=True, check=False, timeout=300
        )
    assert done.returncode == expected
    assert done.stdout == ("first\nlast\n" if target is None else None)
