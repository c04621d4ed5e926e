"""Rows as steps read them: features, sparse or dense, where they are, and dense columns behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from torch import Tensor

from hushgraph._arrays import Float32Array, FloatArray, Int64Array
from hushgraph.tasks.classes import cross_entropy

# Rows whose squares are computed at a time.
_SQUARED_ROWS = 1 << 12
# Of kernels that only kernels call: without what Python would call them by, they are compiled sooner. What
# calls them is cached, with them in it.
INNER: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}

Loss = Callable[[Tensor, Tensor], Tensor]
"""From scores [rows, outputs] and labels to the loss of every row, `Task.loss`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRows:
    """Rows of which only what is not zero is kept.

    Attributes:
        indptr, indices, values: as those of a SciPy CSR matrix; int64, int32 and float32.
        num_columns: columns of the rows.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    num_columns: int

    @classmethod
    def of(cls, rows: Any) -> SparseRows:
        """Wrap a SciPy CSR matrix; its arrays are shared where they have these types."""
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        return cls(
            indptr=rows.indptr.astype(np.int64, copy=False),
            indices=rows.indices.astype(np.int32, copy=False),
            values=rows.data.astype(np.float32, copy=False),
            num_columns=int(rows.shape[1]),
        )

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    def scales(self, norm: float) -> Float32Array | None:
        """float32 [rows]: what every row is multiplied by to have this norm; None for the norm 0."""
        if not norm:
            return None
        squares = self.square()
        # The lower limit keeps a row of zeros at zero.
        lengths = np.maximum(np.sqrt(squares, out=squares), 1e-12, out=squares)
        return np.divide(norm, lengths, out=lengths).astype(np.float32)

    def square(self, scales: Float32Array | None = None) -> FloatArray:
        """float64 [rows]: squared norms of the rows, each multiplied by its scale if there are any."""
        squares = np.zeros(self.num_rows)
        for begin in range(0, self.num_rows, _SQUARED_ROWS):
            ends = self.indptr[begin : begin + _SQUARED_ROWS + 1]
            counts = np.diff(ends)
            values = self.values[ends[0] : ends[-1]]
            if scales is not None:
                values = values * np.repeat(scales[begin : begin + _SQUARED_ROWS], counts)
            # An empty row would be given the entry behind it.
            filled = np.flatnonzero(counts)
            if len(filled):
                sums = np.add.reduceat(np.square(values, dtype=np.float64), ends[filled] - ends[0])
                squares[begin + filled] = sums
        return squares

    def take(self, places: Int64Array, scales: Float32Array | None = None) -> SparseRows:
        """Some of the rows, each multiplied by its scale if there are any."""
        indptr = np.zeros(len(places) + 1, np.int64)
        np.cumsum(np.diff(self.indptr)[places], out=indptr[1:])
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        source = self.indptr, self.indices, self.values
        _copy_sparse_rows(places, _NO_SCALES if scales is None else scales, *source, indptr, indices, values)
        return replace(self, indptr=indptr, indices=indices, values=values)


NO_SPARSE_ROWS = SparseRows(
    indptr=np.zeros(1, np.int64),
    indices=np.zeros(0, np.int32),
    values=np.zeros(0, np.float32),
    num_columns=0,
)


def square_rows(rows: Float32Array, scales: Float32Array | None = None) -> FloatArray:
    """float64 [rows]: squared norms of dense rows, each multiplied by its scale if there are any."""
    squares = np.zeros(len(rows))
    for begin in range(0, len(rows), _SQUARED_ROWS):
        block = slice(begin, begin + _SQUARED_ROWS)
        part = rows[block] if scales is None else rows[block] * scales[block, None]
        np.einsum("ij,ij->i", part, part, dtype=np.float64, out=squares[block])
    return squares


class Tables(NamedTuple):
    """The inputs of rows as kernels read them: flat arrays.

    Attributes:
        nodes: int64 [rows], whose features each row has; empty where rows are the nodes, in order.
        scales: float32 [nodes], what the features of a node are multiplied by; empty leaves them unscaled.
        table, table_width: dense features of the nodes.
        dense, dense_width: the last columns of the rows.
        features: sparse features of the nodes, as in `SparseRows`. None where there are none: kernels are
            then compiled without them.
    """

    nodes: Int64Array
    scales: Float32Array
    table: Float32Array
    table_width: int
    dense: Float32Array
    dense_width: int
    features: tuple[Int64Array, npt.NDArray[np.int32], Float32Array] | None


class ByColumns(NamedTuple):
    """The entries of sparse rows, chunk by chunk, and in a chunk by column.

    The next counts[s] entries are of column columns[s], in the rows `places` of the chunk. Chunk c has the
    columns from chunk_starts[c, 0] to chunk_starts[c + 1, 0]; its entries begin at chunk_starts[c, 1].
    """

    counts: npt.NDArray[np.uint8]
    columns: npt.NDArray[np.int32]
    places: npt.NDArray[np.uint8]
    values: Float32Array
    chunk_starts: Int64Array


_NO_NODES, _NO_SCALES = np.zeros(0, np.int64), np.zeros(0, np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Inputs and labels of roots: features, sparse or dense, and dense columns behind them.

    Features are read where they are, such as those of all nodes of a graph: nothing of them is copied but the
    chunk that is computed with.

    Attributes:
        features: a table of sparse features; without columns where there are none.
        table: float32 [nodes, columns], a table of dense features; without columns where there are none.
        scales: float32 [nodes], what the features of a node are multiplied by; None leaves them unscaled.
        nodes: int64 [rows], whose features each row has; None where rows are the nodes, in order.
        dense: float32 [rows, columns], the last columns.
        squares: float64 [nodes], squared norms of the scaled features of every node; computed unless given.
        labels: [rows], of the task; -1 or NaN where a root has none.
        loss: from scores and labels to the loss of every row, of the task.
    """

    dense: Float32Array
    labels: npt.NDArray[Any]
    features: SparseRows = NO_SPARSE_ROWS
    table: Float32Array = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    scales: Float32Array | None = None
    nodes: Int64Array | None = None
    squares: FloatArray | None = None
    loss: Loss = cross_entropy
    _squares: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict, init=False, repr=False)
    _by_columns: dict[int, ByColumns | None] = field(default_factory=dict, init=False, repr=False)

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def dense_width(self) -> int:
        """The number of columns that are not sparse."""
        return int(self.table.shape[1] + self.dense.shape[1])

    @cached_property
    def tables(self) -> Tables:
        """The inputs, as the kernels read them."""
        features, has_features = self.features, self.features.num_columns
        return Tables(
            nodes=_NO_NODES if self.nodes is None else self.nodes,
            scales=_NO_SCALES if self.scales is None else self.scales,
            table=np.ascontiguousarray(self.table).reshape(-1),
            table_width=self.table.shape[1],
            dense=np.ascontiguousarray(self.dense).reshape(-1),
            dense_width=self.dense.shape[1],
            features=(features.indptr, features.indices, features.values) if has_features else None,
        )

    def by_columns(self, chunk_size: int) -> ByColumns | None:
        """The entries of every chunk of rows by column; None where no column is sparse. Computed once."""
        if chunk_size not in self._by_columns:
            self._by_columns[chunk_size] = self._sort(chunk_size) if self.features.num_columns else None
        return self._by_columns[chunk_size]

    def _sort(self, chunk_size: int) -> ByColumns:
        features, nodes = self.features, self.nodes
        chunks = -(-self.num_rows // chunk_size)
        lengths = np.diff(features.indptr)
        count = int((lengths if nodes is None else lengths[nodes]).sum())
        chunk_starts = np.zeros((chunks + 1, 2), np.int64)
        # No more columns than entries, and no more than there are in each chunk.
        most = min(count, chunks * features.num_columns)
        counts, columns = np.empty(most, np.uint8), np.empty(most, np.int32)
        places, values = np.empty(count, np.uint8), np.empty(count, np.float32)
        number = _sort_by_columns(
            self.tables.nodes,
            self.tables.scales,
            features.indptr,
            features.indices,
            features.values,
            self.num_rows,
            chunk_size,
            features.num_columns,
            chunk_starts,
            counts,
            columns,
            places,
            values,
        )
        # Made smaller where they are: copies would take memory twice.
        counts.resize(number, refcheck=False)
        columns.resize(number, refcheck=False)
        return ByColumns(counts, columns, places, values, chunk_starts)

    def input_squares(self, num_last: int) -> tuple[FloatArray, FloatArray]:
        """float64 [rows]: squared norms of all columns, and of the last `num_last`; computed once."""
        if num_last not in self._squares:
            squares = self.feature_squares()
            if squares is None:
                squares = np.zeros(self.num_rows)
            elif self.nodes is not None:
                squares = squares[self.nodes]
            first = self.dense.shape[1] - num_last
            last = square_rows(self.dense[:, first:])
            self._squares[num_last] = squares + square_rows(self.dense[:, :first]) + last, last
        return self._squares[num_last]

    def feature_squares(self) -> FloatArray | None:
        """float64 [nodes]: squared norms of the scaled features of every node; None where there are none."""
        if self.squares is not None:
            return self.squares
        if self.features.num_columns:
            return self.features.square(self.scales)
        return square_rows(self.table, self.scales) if self.table.shape[1] else None

    def take(self, places: Int64Array) -> Rows:
        """Some of the rows, in this order, with arrays of their own."""
        nodes = places if self.nodes is None else self.nodes[places]
        own = replace(self, nodes=nodes, dense=self.dense[places], labels=self.labels[places])
        return own.gathered()

    def gathered(self) -> Rows:
        """The same rows, with arrays of their own."""
        if self.nodes is None and self.scales is None and not self.table.shape[1]:
            return self
        nodes = np.arange(self.num_rows) if self.nodes is None else self.nodes
        features = self.features.take(nodes, self.scales) if self.features.num_columns else NO_SPARSE_ROWS
        return Rows(
            dense=self._join_dense(nodes, self.dense), labels=self.labels, features=features, loss=self.loss
        )

    def _join_dense(self, nodes: Int64Array, dense: Float32Array) -> Float32Array:
        """The dense features of these nodes, scaled, with the columns `dense` behind them."""
        if not self.table.shape[1]:
            return dense
        table = self.table[nodes]
        if self.scales is not None:
            table *= self.scales[nodes, None]
        return np.concatenate([table, dense], axis=1)


@numba.njit(**INNER)
def node_of(nodes, row):  # type: ignore[no-untyped-def]
    """The node whose features a row has; rows are the nodes where none are listed."""
    return nodes[row] if len(nodes) else row


@numba.njit(**INNER)
def scale_of(scales, node):  # type: ignore[no-untyped-def]
    """What the features of a node are multiplied by."""
    return scales[node] if len(scales) else np.float32(1)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _sort_by_columns(  # type: ignore[no-untyped-def]
    nodes,
    scales,
    indptr,
    indices,
    values,
    num_rows,
    chunk_size,
    num_columns,
    chunk_starts,
    counts,
    columns,
    places,
    entries,
):
    """Write the arrays of `ByColumns`; return the number of columns of all chunks."""
    ends = np.zeros(num_columns, np.int64)
    number, done = 0, 0
    chunk_starts[0] = 0
    for chunk in range(len(chunk_starts) - 1):
        begin, end = chunk * chunk_size, min((chunk + 1) * chunk_size, num_rows)
        for i in range(begin, end):
            node = node_of(nodes, i)
            for p in range(indptr[node], indptr[node + 1]):
                ends[indices[p]] += 1
        for column in range(num_columns):
            if ends[column]:
                counts[number], columns[number] = ends[column], column
                number += 1
                done += ends[column]
                ends[column] = done - ends[column]
        for i in range(begin, end):
            node = node_of(nodes, i)
            scale = scale_of(scales, node)
            for p in range(indptr[node], indptr[node + 1]):
                at = ends[indices[p]]
                ends[indices[p]] += 1
                places[at], entries[at] = i - begin, scale * values[p]
        for i in range(begin, end):
            node = node_of(nodes, i)
            for p in range(indptr[node], indptr[node + 1]):
                ends[indices[p]] = 0
        chunk_starts[chunk + 1, 0], chunk_starts[chunk + 1, 1] = number, done
    return number


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _copy_sparse_rows(nodes, scales, indptr, indices, values, new_indptr, new_indices, new_values):  # type: ignore[no-untyped-def]
    """Copy the rows of some nodes, with values multiplied by the scale of their row."""
    for i in range(len(nodes)):
        scale, first, at = scale_of(scales, nodes[i]), indptr[nodes[i]], new_indptr[i]
        for p in range(new_indptr[i + 1] - at):
            new_indices[at + p] = indices[first + p]
            new_values[at + p] = scale * values[first + p]
