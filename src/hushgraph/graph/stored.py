"""StoredGraph: a graph whose arrays stay on disk, for graphs larger than memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError
from hushgraph.graph.checks import Array, check_number_of_classes, check_range, disjoint_splits
from hushgraph.graph.graph import SPLITS, EdgeOwner, Graph
from hushgraph.graph.mapped import INDICES, INDPTR, MappedRows, open_mapped, release


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoredGraph(Graph):
    """A graph in a folder: reads, features and labels are memory maps, read where they are asked for.

    `hushgraph.datasets.store` and `store_arrays` write such a folder; `hushgraph.datasets.load_graph` opens
    it and checks its arrays block by block. Everything that takes a `Graph` takes one.

    Attributes:
        folder: where it is.
        x: features [N, d] in the type they were stored in: float32, float16, or integers.
        y: labels [N] in an integer type; -1 means no label.

    Guarantees:
        Training, and inference with the built-in models, hold no array of the size of the features or of the
        edges in memory. The other attributes and the results are those of the same graph in memory.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Check what a change of splits or classes can break; `load_graph` has checked the rest."""
        check_number_of_classes(self.num_classes)
        check_range("y", self.y, -1, self.num_classes - 1, "use -1 for no label, or raise num_classes")
        for name, nodes in disjoint_splits(self.num_nodes, {n: getattr(self, n) for n in SPLITS}).items():
            object.__setattr__(self, name, nodes)
        object.__setattr__(self, "_rows", MappedRows(self.x))

    def edge_chunks(
        self, chunk_edges: int = 1 << 22, *, shard: int = 0, shards: int = 1
    ) -> Iterator[tuple[Array, Array]]:
        """As `Graph.edge_chunks`; at most two chunks of the file are mapped at a time."""
        for chunk in super().edge_chunks(chunk_edges, shard=shard, shards=shards):
            yield chunk
            release(self.indices)

    def dense_features(self, rows: Array) -> npt.NDArray[np.float32]:
        """The features of the nodes `rows` as a dense float32 array [len(rows), d]."""
        taken: MappedRows = self._rows  # type: ignore[attr-defined]
        return taken.take(rows).astype(np.float32, copy=False)

    def symmetrized(self) -> StoredGraph:
        """This graph with the reverse of every read added, sorted anew into a temporary folder."""
        return replace(self._with_reads(self.edge_chunks(), symmetrize=True), is_directed=False)

    def disjoint(self) -> StoredGraph:
        """This graph without reads across splits, in a temporary folder."""
        group = self._split_numbers()

        def kept() -> Iterator[tuple[Array, Array]]:
            for source, target in self.edge_chunks():
                same = group[source] == group[target]
                yield source[same], target[same]

        return self._with_reads(kept())

    def with_row_emptied(self, v: int, edge_owner: EdgeOwner) -> Graph:
        """As `Graph.with_row_emptied`, in memory."""
        return self.in_memory().with_row_emptied(v, edge_owner)

    def in_memory(self) -> Graph:
        """The same graph with every array in memory."""
        return Graph(
            num_nodes=self.num_nodes,
            indptr=np.array(self.indptr),
            indices=np.array(self.indices),
            x=np.array(self.x, np.float32),
            y=np.array(self.y),
            train_idx=self.train_idx,
            val_idx=self.val_idx,
            test_idx=self.test_idx,
            num_classes=self.num_classes,
            is_directed=self.is_directed,
            duplicates_removed=self.duplicates_removed,
            self_loops_removed=self.self_loops_removed,
            node_names=None if self.node_names is None else np.array(self.node_names),
            columns=self.columns,
        )

    def __repr__(self) -> str:
        return f"StoredGraph({self.summary()})"

    def _with_reads(self, edges: Iterable[tuple[Array, Array]], *, symmetrize: bool = False) -> StoredGraph:
        """This graph with other reads, whose files go with the graph."""
        from hushgraph.graph.external_sort import write_reads

        folder = Path(tempfile.mkdtemp(prefix="hushgraph-"))
        try:
            write_reads(folder, edges, num_nodes=self.num_nodes, symmetrize=symmetrize)
            indptr, indices = (open_mapped(folder / name, ndim=1, kinds="iu") for name in (INDPTR, INDICES))
            return replace(self, indptr=indptr, indices=indices)
        except OSError as error:
            raise GraphError(f"{folder}: cannot be written ({error.strerror}); free space for it") from None
        finally:
            # A memory map outlives the name of its file, so nothing can be left behind.
            shutil.rmtree(folder, ignore_errors=True)
