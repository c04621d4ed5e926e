"""Where graphs come from: named datasets, files, tables, PyG and NetworkX objects, and a generator."""

from hushgraph.datasets.catalog.registry import describe, load, names
from hushgraph.datasets.loading import from_networkx, load_graph
from hushgraph.datasets.splits import random_split
from hushgraph.datasets.synthetic import synthetic

__all__ = [
    "describe",
    "from_networkx",
    "load",
    "load_graph",
    "names",
    "random_split",
    "synthetic",
]
