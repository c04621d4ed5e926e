"""Paths: how they appear in messages, whether they exist, and what is said of a damaged file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hushgraph.errors import GraphError, InputError


def format_path(path: Path | str) -> str:
    """Format a path for a message: one line, and only the end of a long path."""
    text = "".join(c if c.isprintable() else "?" for c in str(path))
    return text if len(text) <= 80 else f"...{text[-77:]}"


def path_exists(path: Path) -> bool:
    """Return whether the path exists; a name that no file can have does not exist."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_is_file(path: Path) -> None:
    """Raise GraphError unless the path is a file; the caller adds the path to the message."""
    if not path_exists(path):
        raise GraphError("no such file")
    if not path.is_file():
        raise GraphError("not a file; expected the path of a file")


@contextmanager
def name_in_errors(name: str, kind: type[InputError] = GraphError) -> Iterator[None]:
    """Put the name of a file before the message of every error of this kind about its content."""
    try:
        yield
    except PermissionError:
        raise GraphError(f"{name}: cannot be read (permission denied); allow reading it") from None
    except kind as error:
        raise type(error)(f"{name}: {error}") from None


@contextmanager
def refuse_damage(what: str, advice: str) -> Iterator[None]:
    """Turn what is raised about a damaged file into one GraphError: readers raise a dozen types for it."""
    try:
        yield
    except (GraphError, PermissionError):
        raise
    except Exception as error:
        raise GraphError(f"{what} ({type(error).__name__}); {advice}") from error
