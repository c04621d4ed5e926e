"""Help of every command: it fits 80 columns, explains every option, and its examples are commands."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer

from hushgraph.cli.app import build_app, main
from hushgraph.cli.terminal import console

COMMANDS: dict[str, Any] = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
SMALL = "plan --train-nodes 1000 --max-readers 3 --batch-size 100 --steps 5 --paper-noise-multiplier 1"


def help_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*words, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def examples_of(text: str) -> list[list[str]]:
    lines = text.split("\nExamples:\n")[1].replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_and_explains(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(*name.split(), capsys=capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for parameter in COMMANDS[name].params if name else []:
        assert parameter.help, f"{name}: {parameter.name} has no help"
        if not getattr(parameter, "hidden", False):
            assert parameter.opts[0] in text or parameter.metavar in text


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_a_short_form(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "-h"]) == 0
    text = capsys.readouterr().out
    assert text == help_of(*name.split(), capsys=capsys)
    assert "-h, --help" in text


def test_usage_lines_have_no_braces(capsys: pytest.CaptureFixture[str]) -> None:
    def usage(name: str) -> str:
        return help_of(name, capsys=capsys).splitlines()[0]

    assert usage("report") == "Usage: hushgraph report [OPTIONS] RUN [DATA]"
    assert usage("train") == "Usage: hushgraph train [OPTIONS] DATA"
    assert usage("reproduce") == "Usage: hushgraph reproduce [OPTIONS] [NAME]"


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_commands_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = examples_of(help_of(name, capsys=capsys))
    assert 1 <= len(examples) <= 4
    for words in examples:
        assert words[:2] == ["hushgraph", name]
        COMMANDS[name].make_context(name, words[2:]).close()


def test_the_list_of_commands_is_not_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(capsys=capsys)
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S.*[^.]\.$", text, re.MULTILINE), name
    # Completion is set up once; only the first help speaks of it.
    assert "--install-completion" in text
    assert "completion" not in help_of("train", capsys=capsys)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    console().print("[bold red]words[/]")
    return stream.getvalue()


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[" in shown(monkeypatch, Screen())
    assert shown(monkeypatch, io.StringIO()) == "words\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(monkeypatch, Screen()) == "words\n"


def test_piped_output_is_plain() -> None:
    command = [sys.executable, "-m", "hushgraph", *SMALL.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == ""
    assert "epsilon" in done.stdout
    assert not re.search(r"[\x1b\r]", done.stdout)
