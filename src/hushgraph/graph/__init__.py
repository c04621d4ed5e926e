"""The checked graph that everything else reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph

__all__ = ["Graph"]


def __getattr__(name: str) -> Any:
    # Imported on demand: modules of this room that need no SciPy stay cheap to import.
    if name == "Graph":
        from hushgraph.graph.graph import Graph

        return Graph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
