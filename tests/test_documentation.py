"""Every command and every Python example in README.md, docs/ and the public docstrings runs as it is written.

Blocks of one page run in order, in one namespace and one empty folder. Where an example leaves the number
of steps, trials or rows to the defaults, the defaults are made small, and the command `audit` attacks 20
times: what is shown is that examples work, not how well. Output that a page shows after commands, in a
block called `text`, is compared with what they print.
"""

from __future__ import annotations

import doctest
import inspect
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import hushgraph
from hushgraph.audit import attack
from hushgraph.cli.app import main
from hushgraph.methods import trees
from hushgraph.privacy import defaults

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)")
# Examples under these names would escape; `console` and `python` are the ones that run.
OTHER_NAMES = {"bash", "sh", "shell", "zsh", "shell-session", "py", "python3", "pycon"}

# Packages that the commands of a page need and that need not be installed.
NEEDS = {"serving.md": "onnx"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its language, the number of its first line, and its lines without the indentation."""

    language: str
    first_line: int
    lines: tuple[str, ...]

    @property
    def commands(self) -> Iterator[list[str]]:
        """The lines after a dollar sign, continued ones joined, as words."""
        joined = re.sub(r"\\\n\s*>?\s*", " ", "\n".join(self.lines))
        for line in joined.splitlines():
            if line.startswith("$ "):
                yield shlex.split(line[2:], comments=True)


def blocks_in(text: str) -> list[Block]:
    found: list[Block] = []
    lines = text.splitlines()
    start: tuple[int, re.Match[str]] | None = None
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if start is None:
            start = number, fence
            continue
        begin, opening = start
        indent = len(opening["indent"])
        inside = tuple(each[indent:] for each in lines[begin + 1 : number])
        found.append(Block(language=opening["language"], first_line=begin + 2, lines=inside))
        start = None
    assert start is None, f"the block that begins in line {start and start[0] + 1} has no end"
    return found


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    # Empty lines in front make a traceback point at the line of the page.
    source = "\n" * (block.first_line - 1) + "\n".join(block.lines)
    exec(compile(source, str(page), "exec"), namespace)


def run_command(words: list[str], page: Path) -> None:
    where = f"{page.name}: $ {shlex.join(words)}"
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert set(words[1:]) <= targets, f"{where}: no such target"
        return
    if words[0] == "python":
        script = ROOT / words[1]
        assert script.is_relative_to(ROOT / "docs"), f"{where}: only examples of the docs can be run here"
        with pytest.MonkeyPatch.context() as patch:
            rows = "2400" if "bank" in words else "600"
            patch.setattr(sys, "argv", [str(script), *words[2:], rows])
            runpy.run_path(str(script), run_name="__main__")
        return
    assert words[0] == "hushgraph", f"{where}: only hushgraph can be run here"
    if words[1] == "audit":
        # The last one counts.
        words = [*words, "--trials", "20"]
    assert main(words[1:]) == 0, where


@pytest.fixture
def _small_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_checks: None) -> None:
    monkeypatch.setattr(defaults, "STEPS", 3)
    monkeypatch.setattr(defaults, "BILLBOARD_STEPS", 3)
    monkeypatch.setattr(defaults, "_HIDDEN", 8)
    without_noise = trees.choose_non_private
    monkeypatch.setattr(
        trees, "choose_non_private", lambda **given: replace(without_noise(**given), steps=3, hidden=8)
    )
    for name in ("_GUESSES", "_LARGE_TRIALS"):
        monkeypatch.setattr(attack, name, 20)
    monkeypatch.chdir(tmp_path)


def check_output(shown: Block, said: str, *, exact: bool) -> None:
    """Every shown line was printed, in this order; digits may differ where noise decides them."""

    def form(line: str) -> str:
        return line.rstrip() if exact else re.sub(r"[\d.,]+", "#", line.rstrip())

    printed = iter([form(line) for line in said.splitlines()])
    for number, line in enumerate(shown.lines, start=shown.first_line):
        if line != "...":
            assert form(line) in printed, f"line {number} is not what the command prints: {line}"


@pytest.mark.usefixtures("_small_defaults")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run_as_written(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason=f"{page.name} needs {NEEDS[page.name]}")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    commands: list[list[str]] = []
    for block in blocks_in(page.read_text(encoding="utf-8")):
        assert block.language not in OTHER_NAMES, f"{page.name}:{block.first_line}: use python or console"
        if block.language == "text" and commands:
            # Planning draws nothing at random.
            exact = all(words[:2] == ["hushgraph", "plan"] for words in commands)
            check_output(block, capsys.readouterr().out, exact=exact)
        commands = []
        if block.language == "python":
            run_python(block, page, namespace)
        elif block.language == "console":
            capsys.readouterr()
            commands = list(block.commands)
            assert commands, f"{page.name}:{block.first_line}: no line begins with a dollar sign"
            for words in commands:
                run_command(words, page)


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_show_the_command_that_check_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    printed = re.findall(r"^Next: (hushgraph train .*)$", text, re.MULTILINE)
    typed = re.findall(r"^\$ (hushgraph train .*)$", text, re.MULTILINE)
    assert (len(printed), len(typed)) == (1, 1)
    # A page may declare more, or leave out what it knew without looking.
    assert shlex.split(printed[0])[2] == shlex.split(typed[0])[2]
    assert shlex.split(printed[0])[3:6] == shlex.split(typed[0])[3:6]
    for command in ("check", "predict", "report", "compare"):
        assert f"$ hushgraph {command} " in text
    assert "/release`" in text
    for picture in re.findall(r"\]\((\S+\.svg)\)", text):
        assert 0 < (page.parent / picture).stat().st_size < 150_000


def public_objects() -> list[Any]:
    """Everything public that has a docstring of its own, subpackages opened."""
    found = [getattr(hushgraph, name) for name in hushgraph.__all__]
    found += [getattr(hushgraph.datasets, name) for name in hushgraph.datasets.__all__]
    return [value for value in found if not inspect.ismodule(value)]


@pytest.mark.usefixtures("_small_defaults")
@pytest.mark.parametrize("value", public_objects(), ids=lambda value: value.__name__)
def test_examples_of_docstrings_run(value: Any) -> None:
    for test in doctest.DocTestFinder(recurse=True).find(value, value.__name__, globs={}):
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(test).failed == 0, test.name


@pytest.mark.parametrize("name", sorted({*hushgraph.__all__} - {"datasets"}))
def test_public_names_have_an_example(name: str) -> None:
    value = getattr(hushgraph, name)
    is_error = isinstance(value, type) and issubclass(value, Exception)
    assert is_error or ">>>" in value.__doc__


NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_pages_name_exist(page: Path) -> None:
    for file, test in NAMED_TEST.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / file).is_file(), f"{page.name}: {file}"
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_the_readme_has_both_kinds_of_examples() -> None:
    found = {block.language for block in blocks_in(PAGES[0].read_text(encoding="utf-8"))}
    assert {"python", "console"} <= found


PAGE = """\
Text.

```python
one = 1
```

- a list

  ```console
  $ hushgraph plan --steps 3 \\
      --epsilon 4   # a remark
  output
  $ make test
  ```
"""


def test_blocks_are_found_with_their_lines() -> None:
    python, console = blocks_in(PAGE)
    assert (python.language, python.first_line, python.lines) == ("python", 4, ("one = 1",))
    assert list(console.commands) == [
        ["hushgraph", "plan", "--steps", "3", "--epsilon", "4"],
        ["make", "test"],
    ]
    with pytest.raises(AssertionError, match="line 1 has no end"):
        blocks_in("```python\n")


def test_output_that_is_not_printed_is_noticed() -> None:
    shown = Block(language="text", first_line=4, lines=("epsilon  4.00", "...", "done"))
    check_output(shown, "epsilon  4.00  \nmore\ndone\n", exact=True)
    check_output(shown, "epsilon  3.21\ndone\n", exact=False)
    for said, exact in (
        ("epsilon  4.01\ndone", True),
        ("done\nepsilon  4.00", True),
        ("epsilon  inf", False),
    ):
        with pytest.raises(AssertionError, match=r"line [46] is not what the command prints"):
            check_output(shown, said, exact=exact)


def test_an_example_that_fails_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NameError, match="nowhere"):
        run_python(Block(language="python", first_line=7, lines=("nowhere",)), PAGES[0], {})
    wrong = (["hushgraph", "plan", "--no-such-flag"], ["make", "no-such-target"], ["rm", "-r"])
    for words in (*wrong, ["python", "scripts/golden.py"]):
        with pytest.raises(AssertionError, match=words[-1]):
            run_command(words, PAGES[0])
    assert "no-such-flag" in capsys.readouterr().err
