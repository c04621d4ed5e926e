"""Paths in messages, and whether a file is there."""

from __future__ import annotations

from pathlib import Path

from hushgraph.errors import GraphError


def shown(path: Path) -> str:
    """The path on one line, its end if it is long."""
    text = "".join(c if c.isprintable() else "?" for c in str(path))
    return text if len(text) <= 80 else f"...{text[-77:]}"


def is_there(path: Path) -> bool:
    """Whether the path exists; a name that no file can have does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_is_file(path: Path) -> None:
    """Refuse a path that is no file; the caller says which path."""
    if not is_there(path):
        raise GraphError("no such file")
    if not path.is_file():
        raise GraphError("not a file; expected the path of a file")
