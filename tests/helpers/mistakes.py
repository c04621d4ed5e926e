"""Mistakes of users: one line says what is wrong, nothing is left behind, and the remedy works."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Run = Callable[..., tuple[int, str, str]]
Change = Callable[[], object]
# The end of what `check` says where it lists problems, which it prints, and writes its file.
LISTED = "training; see above, then run check again\n"


@dataclass(frozen=True)
class Mistake:
    """One mistake: the command that fails, words of its message, and the command that they lead to.

    Attributes:
        line: the command that fails.
        words: what its message says, the remedy among it.
        remedy: the command that the message leads to.
        code: of the failure.
        before: changes the files before the command that fails.
        correct: changes the files where that is the remedy.
    """

    line: str
    words: str
    remedy: str
    code: int = 2
    before: Change | None = None
    correct: Change | None = None


def follow(mistake: Mistake, run: Run, world: Path, home: Path) -> None:
    """Make a mistake in a copy of a folder, then do what its message says.

    Args:
        mistake: the mistake.
        run: calls the command.
        world: the folder that commands are given in.
        home: the current folder, which is empty and will hold the copy.
    """
    shutil.copytree(world, home, dirs_exist_ok=True)
    if mistake.before is not None:
        mistake.before()
    before = snapshot()
    run("--version")
    code, out, err = run(*shlex.split(mistake.line))
    assert code == mistake.code, err
    assert err.startswith("hushgraph: ")
    assert err.count("\n") == 1
    if err.endswith(LISTED):
        assert mistake.words in out + err
        for name in snapshot().keys() - before.keys():
            assert name.endswith("graph.toml")
            Path(name).unlink()
    else:
        assert out == ""
        assert mistake.words in err
    assert snapshot() == before
    if mistake.correct is not None:
        mistake.correct()
    code, _, err = run(*shlex.split(mistake.remedy))
    assert code == 0, err


def snapshot() -> dict[str, bytes | None]:
    """The content of every file in the current folder, and None for every folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(Path().rglob("*"))}


def write(name: str, text: str) -> Change:
    """Writes a file."""
    return lambda: Path(name).write_text(text)


def replace(name: str, old: str, new: str, count: int = -1) -> Change:
    """Replaces a text in a file that holds it."""

    def make() -> None:
        text = Path(name).read_text()
        assert old in text
        Path(name).write_text(text.replace(old, new, count))

    return make


def all_of(*changes: Change) -> Change:
    """Makes several changes."""
    return lambda: [change() for change in changes]
