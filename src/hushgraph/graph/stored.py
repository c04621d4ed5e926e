"""StoredGraph: a graph whose arrays stay on disk, for graphs larger than memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.errors import GraphError
from hushgraph.graph.graph import (
    SPLITS,
    Array,
    EdgeOwner,
    Graph,
    check_number_of_classes,
    check_range,
    check_splits,
)
from hushgraph.graph.mapped import INDICES, INDPTR, MappedRows, open_mapped, release


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoredGraph(Graph):
    """A graph in a folder: reads, features and labels are memory maps that are read on demand.

    `hushgraph.datasets.store` and `store_arrays` write such a folder; `hushgraph.datasets.load_graph` opens
    it and checks its arrays block by block. Every function that takes a `Graph` also takes a `StoredGraph`.

    Attributes:
        folder: the folder of the arrays.
        x: features [N, d] in the type they were stored in: float32, float16 or integers; a
            `scipy.sparse.csr_array` of float32 whose arrays are memory maps if given sparse.
        y: labels [N] in an integer type; -1 means no label.

    Guarantees:
        Training, and inference with the built-in models, keep no array of the size of the features or of the
        edges in memory. The other attributes and all results equal those of the same graph in memory.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Check what a change of splits or classes can break; `load_graph` has checked everything else."""
        check_number_of_classes(self.num_classes)
        check_range("y", self.y, -1, self.num_classes - 1, "use -1 for no label, or raise num_classes")
        for name, nodes in check_splits(self.num_nodes, {n: getattr(self, n) for n in SPLITS}).items():
            object.__setattr__(self, name, nodes)
        object.__setattr__(self, "_rows", None if sparse.issparse(self.x) else MappedRows(self.x))

    def edge_chunks(
        self,
        chunk_edges: int = 1 << 20,
        *,
        shard: int = 0,
        shards: int = 1,
        targets: tuple[int, int] | None = None,
    ) -> Iterator[tuple[Array, Array]]:
        """Like `Graph.edge_chunks`; at most two chunks of the file are mapped at a time."""
        for chunk in super().edge_chunks(chunk_edges, shard=shard, shards=shards, targets=targets):
            yield chunk
            release(self.indices)

    def dense_features(self, rows: Array) -> npt.NDArray[np.float32]:
        """Return the features of the nodes `rows` as a dense float32 array [len(rows), d]."""
        features: MappedRows | None = self._rows  # type: ignore[attr-defined]
        if features is None:
            return super().dense_features(rows)
        return features.take(rows).astype(np.float32, copy=False)

    def release_features(self) -> None:
        """Release the pages of the features; the next access reads them again."""
        for array in (self.x.data, self.x.indices, self.x.indptr) if sparse.issparse(self.x) else (self.x,):
            release(array)

    def symmetrized(self) -> StoredGraph:
        """Return this graph with the reverse of every read added; the reads are sorted on disk."""
        return replace(self._replace_reads(self.edge_chunks(), symmetrize=True), is_directed=False)

    def disjoint(self) -> StoredGraph:
        """Return this graph without reads across splits; the reads are written to a temporary folder."""
        group = self._split_numbers()

        def reads_within_splits() -> Iterator[tuple[Array, Array]]:
            for source, target in self.edge_chunks():
                same = group[source] == group[target]
                yield source[same], target[same]

        return self._replace_reads(reads_within_splits())

    def with_row_emptied(self, v: int, edge_owner: EdgeOwner) -> Graph:
        """Like `Graph.with_row_emptied`; the result is in memory."""
        return self.in_memory().with_row_emptied(v, edge_owner)

    def in_memory(self) -> Graph:
        """Return the same graph with every array in memory."""
        return Graph(
            num_nodes=self.num_nodes,
            indptr=np.array(self.indptr),
            indices=np.array(self.indices),
            x=self.x.copy() if sparse.issparse(self.x) else np.array(self.x, np.float32),
            y=np.array(self.y),
            train_idx=self.train_idx,
            val_idx=self.val_idx,
            test_idx=self.test_idx,
            num_classes=self.num_classes,
            is_directed=self.is_directed,
            has_declared_classes=self.has_declared_classes,
            duplicates_removed=self.duplicates_removed,
            self_loops_removed=self.self_loops_removed,
            node_names=None if self.node_names is None else np.array(self.node_names),
            columns=self.columns,
        )

    def __repr__(self) -> str:
        return f"StoredGraph({self.summary()})"

    def _replace_reads(
        self, edges: Iterable[tuple[Array, Array]], *, symmetrize: bool = False
    ) -> StoredGraph:
        """Return this graph with other reads, in temporary files that vanish with the graph."""
        from hushgraph.graph.external_sort import write_reads

        folder = Path(tempfile.mkdtemp(prefix="hushgraph-"))
        try:
            write_reads(folder, edges, num_nodes=self.num_nodes, symmetrize=symmetrize)
            indptr, indices = (open_mapped(folder / name, ndim=1, kinds="iu") for name in (INDPTR, INDICES))
            return replace(self, indptr=indptr, indices=indices)
        except OSError as error:
            raise GraphError(f"{folder}: cannot be written ({error.strerror}); free space for it") from None
        finally:
            # A memory map survives the removal of its file, so no file is left behind.
            shutil.rmtree(folder, ignore_errors=True)
