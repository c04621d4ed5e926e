"""The folder of the files of named datasets."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path

VARIABLE = "HUSHGRAPH_DATA"

_overrides: list[Path] = []


def data_root(root: str | PathLike[str] | None = None) -> Path:
    """Return `root`, else that of `--data-root`, else HUSHGRAPH_DATA, else hushgraph in the user's cache."""
    if root is not None:
        return Path(root)
    if _overrides:
        return _overrides[-1]
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "hushgraph"


def override_data_root(root: Path) -> Callable[[], None]:
    """Make `root` the default of this process until the returned function is called."""
    _overrides.append(root)
    return lambda: _overrides.remove(root)
