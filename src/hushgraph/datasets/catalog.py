"""The datasets that have a name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike

from hushgraph.datasets.synthetic import synthetic
from hushgraph.errors import GraphError
from hushgraph.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named dataset: what it is, and how to get it given the folder for files."""

    description: str
    load: Callable[[str | PathLike[str] | None], Graph]


_ENTRIES = {
    "demo": Entry(
        description="generated: 20,000 nodes, 8 planted classes, power-law degrees, weak features",
        load=lambda root: synthetic(),
    ),
}


def names() -> tuple[str, ...]:
    """The known names, sorted."""
    return tuple(sorted(_ENTRIES))


def describe(name: str) -> str:
    """One line about the dataset `name`."""
    return _entry(name).description


def load(name: str, root: str | PathLike[str] | None = None) -> Graph:
    """Load the dataset `name`; files it needs are kept in the folder `root`."""
    return _entry(name).load(root)


def _entry(name: str) -> Entry:
    if name in _ENTRIES:
        return _ENTRIES[name]
    near = difflib.get_close_matches(name.lower(), _ENTRIES, n=1, cutoff=0.4)
    advice = f"did you mean {near[0]!r}?" if near else f"known names: {', '.join(names())}"
    raise GraphError(f"dataset {name[:80]!r} is neither a file nor a known name; {advice}")
