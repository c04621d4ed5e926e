"""Promise: whatever a file or a flag holds, the command ends in time, with one line, and writes nowhere else.

`make thorough` tries 10,000; `benchmarks/fuzz.py` keeps a record.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from effort import choose
from hushgraph.cli.app import main

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
INPUTS = choose(60, 10_000)


def test_no_input_ends_in_more_than_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (BENCHMARKS / "fuzz.py").exists():
        pytest.skip("benchmarks/ is not part of what was installed")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import fuzz

    # What hangs, hangs for longer; a busy machine takes its time.
    monkeypatch.setattr(fuzz, "SECONDS", 300)
    found = fuzz.fuzz(INPUTS, seed=7, root=tmp_path / "fuzz")
    faults = [fault for about in found.values() for fault in about.faults]
    assert not faults, "\n\n".join(faults[:5])
    assert sum(about.inputs for about in found.values()) == INPUTS
    codes = {code for about in found.values() for code in about.codes}
    # Otherwise the inputs were all bad, or all good, and little was shown.
    assert {"0", "2"} <= codes <= {"0", "1", "2", "3", "130"}
    assert sys.path[0] == str(BENCHMARKS)


def test_a_fault_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (BENCHMARKS / "fuzz.py").exists():
        pytest.skip("benchmarks/ is not part of what was installed")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import fuzz

    def failing(arguments: list[str]) -> int:
        raise KeyError(arguments[0])

    def writing(arguments: list[str]) -> int:
        (Path.cwd().parent / "elsewhere").write_text("")
        return 0

    def silent(arguments: list[str]) -> int:
        return 2

    for number, (wrong, words) in enumerate(
        ((failing, "KeyError"), (writing, "elsewhere"), (silent, "other than one line"))
    ):
        monkeypatch.setattr("hushgraph.cli.app.main", wrong)
        found = fuzz.fuzz(1, seed=7, root=tmp_path / str(number))
        faults = [fault for about in found.values() for fault in about.faults]
        assert len(faults) == 1
        assert words in faults[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--hidden 1000000000", "make the model smaller"),
        ("--encoder-layers 1000000", "make the model smaller"),
        ("--layers 1000000", "expected at most 1000"),
        ("--num-classes 1000000000", "make the model smaller"),
        ("--layers 40 --max-readers 40 --max-reads 40", "too many to train on"),
        ("--lr 1e30", "--lr=1e+30"),
        ("--clip 1e30", "clip=1e+30"),
        ("--epsilon 1e300", "epsilon=1e+300"),
        ("--epsilon 1e300 --method trees", "epsilon=1e+300"),
        ("--epsilon 1e-12 --delta 1e-14", "epsilon=1e-12"),
        ("--epsilon 1e-12 --delta 1e-14 --method trees", "too much noise for its grid"),
        ("--encoder-layers 2 --method billboard", "applies only to"),
    ],
)
def test_what_no_machine_can_do_is_one_line(
    flags: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--epsilon", "4", "--steps", "1", "--device", "cpu", "--quiet", "--out", "run"]
    assert main(["train", "demo", *small, *flags.split()]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
