"""Features of a node table: dense, or sparse if almost all of them are zero by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph import _arrays
from hushgraph.graph.columns import Columns

# Wider one-hot features are kept sparse, if most of them are zero by construction.
_DENSE_WIDTH = 1024


class FeatureTable:
    """Builds `x`: dense, or sparse if almost all of it is zero by construction."""

    def __init__(self, columns: Columns, count: int) -> None:
        self.shape = (count, columns.num_features)
        # Entries of a row that are not zero, at most.
        per_row = len(columns.features or ()) + len(columns.categorical) + len(columns.hashed)
        per_row += len(columns.indicators) + columns.num_cycles
        # Depends on the columns alone: their content is private.
        self.is_sparse = columns.num_features > _DENSE_WIDTH and per_row * 4 < columns.num_features
        self.dense = _arrays.zeros((0, 0) if self.is_sparse else self.shape, np.float32)
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []
        room = count * per_row if self.is_sparse else 0
        self._places, self._values = _arrays.empty(room, np.int32), _arrays.empty(room, np.float32)
        self._ends = np.zeros(count + 1 if self.is_sparse else 0, np.int64)

    def put(self, rows: npt.NDArray[Any], column: int, values: npt.NDArray[np.float32]) -> None:
        if not self.is_sparse:
            self.dense[rows, column] = values
            return
        nonzero = np.flatnonzero(values)
        self._add(rows[nonzero], np.full(len(nonzero), column), values[nonzero])

    def put_one_hot(self, rows: npt.NDArray[Any], first: int, codes: npt.NDArray[np.int64]) -> None:
        has_value = codes >= 0
        rows, places = rows[has_value], first + codes[has_value]
        if self.is_sparse:
            self._add(rows, places, np.ones(len(rows), np.float32))
        else:
            self.dense[rows, places] = 1.0

    def _add(self, rows: npt.NDArray[Any], columns: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
        self._parts.append((rows.astype(np.int32), columns.astype(np.int32), values))

    def close_rows(self, begin: int, end: int) -> None:
        """Mark the rows from `begin` to `end` as complete; they follow those already closed."""
        if not self.is_sparse:
            return
        rows, columns, values = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        shape = (end - begin, self.shape[1])
        block = sparse.coo_array((values, (rows - begin, columns)), shape=shape).tocsr()
        first = self._ends[begin]
        self._ends[begin + 1 : end + 1] = first + block.indptr[1:]
        self._places[first : first + block.nnz] = block.indices
        self._values[first : first + block.nnz] = block.data
        self._parts = []

    def table(self) -> Any:
        """`x`, when all rows are closed."""
        if not self.is_sparse:
            return self.dense
        count = int(self._ends[-1])
        kept = self._values[:count], self._places[:count], self._ends
        return sparse.csr_array(kept, shape=self.shape)
