"""What is mistyped on the command line: one line, the nearest thing that exists, exit code 2."""

from __future__ import annotations

from typing import get_args

import pytest
import typer

from hushgraph.cli.app import build_app, main
from hushgraph.cli.options import nearest_flag, parse_choices, suggest_value
from hushgraph.graph.columns import UnknownCategory, UnknownIds
from hushgraph.privacy import choices
from hushgraph.privacy.fields import CHOICES
from hushgraph.runs.config import _CHOICES
from hushgraph.settings import SYNONYMS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train demo --epsilonn 4", "No such option: --epsilonn; did you mean --epsilon?"),
        ("train demo --max-reader 4", "did you mean --max-readers?"),
        ("train demo --zzzz 4", "No such option: --zzzz; see hushgraph train --help"),
        ("predict run demo --probability", "did you mean --probabilities?"),
        ("trian demo", "No such command 'trian'. Did you mean 'train'?"),
        ("zzzz", "No such command 'zzzz'; see hushgraph --help"),
        ("train demo --epsilon 4 --model gnc", "model='gnc': expected 'gcn', 'gin', 'gat' or 'mlp' (did you"),
        ("train demo --epsilon 4 --model gnc", "(did you mean 'gcn'?)"),
        ("train demo --epsilon 4 --model GCN", "model='GCN': expected 'gcn', 'gin', 'gat' or 'mlp'\n"),
        ("compare demo --epsilon 4 --device gpu", "device='gpu': expected 'auto', 'cpu' or 'cuda'"),
        ("plan --max-readers 3", "no --train-nodes: give it, or DATA; see hushgraph plan --help"),
        ("report", "Missing argument 'RUN'; see hushgraph report --help"),
        ("report run demo more", "unexpected extra argument(s) (more); see hushgraph report --help"),
        ("train demo --epsilon lots", "--epsilon='lots': expected a number; see hushgraph train --help\n"),
        ("train demo --epsilon 1 --steps 1.5", "--steps='1.5': expected a whole number; see"),
        ("train demo --learning-rate 0.1", "No such option: --learning-rate; did you mean --lr?\n"),
        ("train demo --num-layers 2", "did you mean --layers?"),
        ("train demo --eps 2", "did you mean --epsilon?\n"),
        ("train demo --epochs 20", "did you mean --steps (one step is one update)?\n"),
        ("train demo --max-grad-norm 1", "did you mean --clip?\n"),
        ("train demo --sigma 2", "did you mean --sigma-over-clip (sigma / C)?\n"),
        (
            "train demo --noise-multiplier 2",
            "did you mean --paper-noise-multiplier (sigma / (2 C n), which it was here; for sigma / C, as "
            "elsewhere, give --sigma-over-clip)?\n",
        ),
        ("train demo --k 2", "did you mean --max-readers?\n"),
        ("train demo -K 2", "did you mean --max-readers?\n"),
        ("train demo --max-degree 2", "did you mean --max-readers?\n"),
        ("train demo --batch 2", "did you mean --batch-size?\n"),
        ("compare demo --hidden-channels 2", "did you mean --hidden?\n"),
        ("plan --num-train-nodes 2", "did you mean --train-nodes?\n"),
        ("predict run demo --output a.csv", "did you mean --out?\n"),
        ("train demo --target-epsilon 2", "did you mean --epsilon?"),
        ("train demo --nonprivate", "did you mean --non-private?"),
        ("train demo --private", "No such option: --private; see hushgraph train --help\n"),
        (
            "plan demo --epsilon 4 --hidden 3",
            "No such option: --hidden; a plan does not need this flag of train: leave it out; see hushgraph",
        ),
        ("compare demo --zzrate 8", "No such option: --zzrate; see hushgraph compare --help\n"),
        ("compare demo --bad 8", "No such option: --bad; see hushgraph compare --help\n"),
        ("compare demo --learning-rate 8", "--learning-rate; see hushgraph compare --help\n"),
        (
            "audit nope",
            "nope: not the folder of a run, and dataset 'nope' is neither a file nor a known name",
        ),
        ("audit nope --epsilon 4", "nope: not the folder of a run, and dataset 'nope' is neither a file"),
        ("audit demo", "no --epsilon: expected the epsilon to audit"),
        (
            "audit --epsilon 4 --edges e.csv",
            "--edges without DATA: there is nothing to read; give DATA as well",
        ),
        ("train demo --epsilon", "'--epsilon' requires an argument"),
    ],
)
def test_the_nearest_is_suggested(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("hushgraph: ")
    assert words in captured.err


def test_all_wrong_values_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = "train demo --epsilon 4 --model gnc --optimizer adan --setting none"
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    for words in ("model='gnc'", "optimizer='adan'", "setting='none'"):
        assert words in err


def test_hints() -> None:
    assert suggest_value("gnc", ["gcn", "gin", "gat"]) == " (did you mean 'gcn'?)"
    assert suggest_value("reader", ["sender", "readers"]) == " (did you mean 'readers'?)"
    assert suggest_value("xyz", ["gcn", "gin"]) == ""


def test_no_guess_switches_privacy_off() -> None:
    known = ["non-private", "noise", "lr"]
    for word in ("learning-rate", "private", "no-noise", "on-private-data", "non-public"):
        assert nearest_flag(word, known) != "non-private"
    assert nearest_flag("learning-rate", known) == "lr"
    assert nearest_flag("learning-rate", ["epsilon"]) is None
    assert nearest_flag("non-privat", known) == "non-private"


def test_only_lists_of_values_are_choices() -> None:
    assert parse_choices("common|per-layer") == ("common", "per-layer")
    for metavar in (None, "DATA", "FILE.toml", "a|...", "NAME|PATH"):
        assert parse_choices(metavar) == ()


def test_every_hint_is_a_flag() -> None:
    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    flags = {name[2:] for command in commands.values() for each in command.params for name in each.opts}
    meant = {flag if isinstance(flag, str) else flag[0] for flag in SYNONYMS.values()}
    assert meant - flags == set()
    assert not flags & {*SYNONYMS}


def test_audit_offers_the_faults_and_canaries_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    audit = typer.main.get_command(build_app()).commands["audit"]  # type: ignore[attr-defined]
    offered = {parameter.name: parse_choices(parameter.metavar) for parameter in audit.params}
    assert offered["canary"] == pytest.importorskip("hushgraph.audit.scene").CANARIES
    assert main(["audit", "--epsilon", "4", "--fault", "none"]) == 2
    listed = capsys.readouterr().err.strip().partition("expected one of ")[2]
    assert listed.split(", ") == list(pytest.importorskip("hushgraph.audit.faults").FAULTS)


def test_the_command_line_offers_what_the_library_takes() -> None:
    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    # A module or a function of the caller's is for Python alone.
    library = {**CHOICES, **{name: tuple(v for v in of if v != "own") for name, of in _CHOICES.items()}}
    library |= {"method": get_args(choices.Method), "device": get_args(choices.Device)}
    library |= {"engine": get_args(choices.Engine)}
    library |= {"task": get_args(choices.Task), "numbers": get_args(choices.Numbers)}
    library |= {"unknown_category": get_args(UnknownCategory), "unknown_ids": get_args(UnknownIds)}
    offered = {
        parameter.name: parse_choices(parameter.metavar)
        for parameter in commands["train"].params
        if parse_choices(parameter.metavar)
    }
    assert set(offered) >= {"model", "optimizer", "sampler", "clipping", "noise", "activation", "setting"}
    assert offered == {name: library[name] for name in offered}
