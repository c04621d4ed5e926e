"""The data of a column: from the catalog, a file in the data folder, a substitute, or generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph._text import find_nearest
from hushgraph.datasets import load_graph, synthetic
from hushgraph.datasets.catalog import registry as catalog
from hushgraph.datasets.catalog.data_root import data_root
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.reproduction import spec
from hushgraph.reproduction.spec import Column

GENERATED = "generated"


class MissingDataError(InputError):
    """There is no data for a column; the message gives the reason and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the data of a column comes from.

    Attributes:
        name: its name in records.
        comparable: whether it is the data of the paper.
        path: its file; None for the catalog and for generated data.
        reading: the options it is read with.
    """

    name: str
    comparable: bool
    path: Path | None
    reading: Mapping[str, Any]


class Sources:
    """Finds the graphs of the columns and keeps them, so that each is read once.

    Args:
        substitutes: maps the name of a dataset or column to a file in the folder of named datasets.
        quick: generate all data.
    """

    def __init__(self, substitutes: Mapping[str, str], *, quick: bool = False) -> None:
        self.root, self.substitutes, self.quick = data_root(), dict(substitutes), quick
        self._graphs: dict[tuple[Any, ...], Graph] = {}
        known = sorted(
            {n for name in spec.names() for c in spec.load(name).columns for n in (c.name, c.dataset)}
        )
        for name in self.substitutes:
            if name not in known:
                near = find_nearest(name, known, cutoff=0.0)
                raise InputError(f"--substitute {name}=...: no experiment uses it; did you mean {near}?")

    def source(self, column: Column) -> Source:
        """Return the source of a column; raise MissingDataError if there is none."""
        reading: dict[str, Any] = {"symmetrize": column.symmetrize, "split_by": column.split_by}
        if self.quick:
            return Source(name=GENERATED, comparable=False, path=None, reading=reading)
        other = self.substitutes.get(column.name) or self.substitutes.get(column.dataset)
        origin = catalog.base(column.dataset)
        if other is None and origin in self.substitutes:
            # Derived from the substitute as it would be from the dataset.
            other = self.substitutes[origin]
            reading["derived"] = column.dataset
        file = other or column.file
        if file is not None:
            path = self.root / file
            if not path.is_file():
                raise MissingDataError(
                    f"{path} does not exist; give --data-root, or the full path of the file"
                )
            # A substitute is never called as what it stands for.
            name = path.name if other is not None and column.is_called(path.stem) else path.stem
            return Source(name=name, comparable=other is None, path=path, reading=reading)
        if column.dataset not in catalog.names() or catalog.on_disk(column.dataset, self.root) != "yes":
            # Not downloaded here: an experiment must not start with an hour of unrequested downloads.
            raise MissingDataError(
                f"{column.dataset} is not in {self.root}; get it with hushgraph datasets {column.dataset} "
                f"--download, or give --substitute {column.dataset}=FILE"
            )
        return Source(name=column.dataset, comparable=True, path=None, reading=reading)

    def graph(self, column: Column, seed: int = 0) -> Graph:
        """Return the graph of a column, including edges between splits; `seed` draws a random split."""
        source = self.source(column)
        if column.split is not None and not self.quick and seed:
            return load_graph(self.graph(column), split=column.split, split_seed=seed)
        key = (source.name, source.path, *source.reading.values())
        if key not in self._graphs:
            graph = self._read(source, column)
            if not len(graph.test_idx):
                raise InputError(f"{column.name}: no test nodes in {source.name}; expected a split with some")
            self._graphs[key] = graph
        return self._graphs[key]

    def _read(self, source: Source, column: Column) -> Graph:
        if self.quick:
            return synthetic(num_nodes=300, num_classes=4, num_features=8, average_degree=6.0)
        if source.path is None:
            # Graphs of the catalog have both directions of every edge.
            return catalog.load(column.dataset, self.root)
        # Nobody declares the classes of a substitute.
        classes = column.classes if source.comparable else None
        graph = load_graph(source.path, symmetrize=column.symmetrize, num_classes=classes, split=column.split)
        if "derived" in source.reading:
            return catalog.derive(column.dataset, graph, self.root)
        return graph if column.split_by is None else split_by_group(graph, source.path, column.split_by)


def split_by_group(graph: Graph, path: Path, key: str) -> Graph:
    """Split a graph by groups of nodes: of every 8 groups in order, 5 train, 1 validates and 2 test.

    A split contains every node of its groups, labelled or not: membership in training must not depend on a
    label, and edges to unlabelled nodes of a group stay in its split. Unlabelled nodes are not evaluated.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            group = np.asarray(archive[key])
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: no array {key} ({error}); expected one group number per node") from None
    if group.shape != (graph.num_nodes,) or group.dtype.kind not in "iu":
        raise InputError(f"{path}: {key} has shape {list(group.shape)}; expected one integer per node")
    number = np.searchsorted(np.unique(group), group)
    test, val = number % 4 == 3, number % 8 == 1
    return replace(
        graph,
        train_idx=np.flatnonzero(~test & ~val),
        val_idx=np.flatnonzero(val),
        test_idx=np.flatnonzero(test),
    )


def parse_substitutes(given: Sequence[str]) -> dict[str, str]:
    """Parse any number of NAME=FILE."""
    substitutes = {}
    for text in given:
        name, sign, file = text.partition("=")
        if not (name and sign and file):
            raise InputError(f"--substitute {text}: expected NAME=FILE, such as ogbn-arxiv=mine.npz")
        substitutes[name] = file
    return substitutes
