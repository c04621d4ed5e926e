"""The checked graph that everything else reads: in memory, stored in a folder, or as a stream of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.graph.stored import StoredGraph

__all__ = ["Graph", "StoredGraph"]


def __getattr__(name: str) -> Any:
    # Imported on demand: modules of this room that need no SciPy stay cheap to import.
    if name == "Graph":
        from hushgraph.graph.graph import Graph

        return Graph
    if name == "StoredGraph":
        from hushgraph.graph.stored import StoredGraph

        return StoredGraph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
