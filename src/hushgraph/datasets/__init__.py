"""Where graphs come from: named datasets, files and a generator."""

from hushgraph.datasets.catalog.registry import describe, load, names
from hushgraph.datasets.loading import load_graph, load_npz, load_pt
from hushgraph.datasets.splits import random_split
from hushgraph.datasets.storing import store, store_arrays
from hushgraph.datasets.synthetic import synthetic

__all__ = [
    "describe",
    "load",
    "load_graph",
    "load_npz",
    "load_pt",
    "names",
    "random_split",
    "store",
    "store_arrays",
    "synthetic",
]
