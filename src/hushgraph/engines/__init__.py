"""The graph part of a billboard run on engines that people have: DuckDB on one machine, Spark on a cluster.

Casting and reading are joins with a sum by key. `duck` reads tables with DuckDB within a memory limit,
`spark` takes and gives DataFrames; both charge the ledger of a run, release one board, and write rows of
features and readings. `streaming` trains on these rows without holding them all in memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.engines.duck import make_rows as make_rows
    from hushgraph.engines.duck import resume_rows as resume_rows
    from hushgraph.engines.streaming import train_rows as train_rows
    from hushgraph.engines.streaming import train_tables as train_tables

__all__ = ["make_rows", "resume_rows", "train_rows", "train_tables"]

_HOMES = {
    "make_rows": "duck",
    "resume_rows": "duck",
    "train_rows": "streaming",
    "train_tables": "streaming",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: DuckDB and Spark are loaded only where they are used."""
    if name in _HOMES:
        return getattr(import_module(f"hushgraph.engines.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hushgraph.engines' has no attribute {name!r}")
