"""The folder where named datasets keep their files."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path

VARIABLE = "HUSHGRAPH_DATA"

_chosen: list[Path] = []


def data_root(root: str | PathLike[str] | None = None) -> Path:
    """`root`, else what `--data-root` said, else HUSHGRAPH_DATA, else hushgraph in the user's cache."""
    if root is not None:
        return Path(root)
    if _chosen:
        return _chosen[-1]
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "hushgraph"


def choose(root: Path) -> Callable[[], None]:
    """Make `root` the default of this process until the function that is given back is called."""
    _chosen.append(root)
    return lambda: _chosen.remove(root)
