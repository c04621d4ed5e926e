"""The graph part of a billboard run on a cluster; on one machine, `train(..., engine="duckdb")` does it.

Casting and reading are joins with a sum by key. `spark` takes and gives DataFrames: it charges the ledger of
a run, releases one board, and writes rows of features and readings. `streaming` trains on these rows without
holding them all in memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.engines.streaming import train_rows as train_rows

__all__ = ["train_rows"]

_HOMES = {"train_rows": "streaming"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: what trains is loaded only where it is used."""
    if name in _HOMES:
        return getattr(import_module(f"hushgraph.engines.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hushgraph.engines' has no attribute {name!r}")
