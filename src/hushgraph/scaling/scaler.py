"""`Scaler`: numbers of a row scaled with public constants, from that row alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph import _arrays
from hushgraph.graph.columns import Columns, Scale

LARGEST = 4.0
"""Scaled values are cut at this size."""
# Numbers that are scaled at a time: 128 MiB of float64.
_CELLS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Scaler:
    """Scales some of the first columns of features; the others stay as they are.

    Attributes:
        scales: for each numeric column, in order: its centre and spread and whether they are of asinh(x);
            None for a column that stays as it is.

    Guarantees:
        A scaled row is a function of that row and of the constants: the same for a training row and for one
        that arrives later. A row of zeros, which is what is left of an emptied row, stays one. An empty cell
        is 0, the middle of its column, whatever constant filled it.
    """

    scales: tuple[Scale | None, ...]

    @classmethod
    def of(cls, columns: Columns, released: Mapping[str, tuple[float, float]]) -> Scaler:
        """The scaler with the declared constants of `columns`, and those that were released."""
        declared = {name: _transform_centre(scale) for name, scale in columns.scale.items()}
        known = declared | {
            name: Scale(centre=centre, spread=spread, log=True) for name, (centre, spread) in released.items()
        }
        return cls(scales=tuple(known.get(name) for name in columns.features or ()))

    def apply(self, x: Any, filled: npt.NDArray[np.bool_] | None = None) -> Any:
        """Return features with these columns scaled.

        Args:
            x: float32 [R, d], dense or CSR, as the result is.
            filled: bool [R, numbers], which cells were empty; None if none was.
        """
        places = [place for place, scale in enumerate(self.scales) if scale is not None]
        if not places or not x.shape[0]:
            return x
        if not sparse.issparse(x):
            scaled = _arrays.empty(x.shape, np.float32)
            step = max(1, _CELLS // x.shape[1])
            for begin in range(0, len(scaled), step):
                rows = slice(begin, begin + step)
                scaled[rows] = x[rows]
                scaled[rows, places] = self._scale(x[rows][:, places], (x[rows] != 0).any(axis=1))
            return self._clear(scaled, filled)
        width = len(self.scales)
        numbers = x[:, :width].toarray()
        kept = sparse.csr_array(x)
        kept.eliminate_zeros()
        numbers[:, places] = self._scale(numbers[:, places], np.diff(kept.indptr) > 0)
        numbers = self._clear(numbers, filled)
        return sparse.csr_array(sparse.hstack([sparse.csr_array(numbers), x[:, width:]], format="csr"))

    def _clear(
        self, scaled: npt.NDArray[np.float32], filled: npt.NDArray[np.bool_] | None
    ) -> npt.NDArray[np.float32]:
        """Put 0 into the cells of scaled columns that were empty."""
        if filled is not None and filled.size:
            numbers = scaled[:, : len(self.scales)]
            numbers[filled & [scale is not None for scale in self.scales]] = 0.0
        return scaled

    def _scale(
        self, values: npt.NDArray[np.float32], is_used: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float32]:
        # Contiguous, since NumPy may compute strided values by other instructions.
        exact = np.ascontiguousarray(values, np.float64)
        scales = [scale for scale in self.scales if scale is not None]
        has_log = np.array([scale.log for scale in scales])
        exact = np.where(has_log, np.arcsinh(exact), exact)
        exact = (exact - [scale.centre for scale in scales]) / [scale.spread for scale in scales]
        cut: npt.NDArray[np.float32] = np.clip(exact, -LARGEST, LARGEST).astype(np.float32)
        cut[~is_used] = 0.0
        return cut


def _transform_centre(scale: Scale) -> Scale:
    """Declared constants name the centre in the units of the column."""
    if not scale.log:
        return scale
    return Scale(centre=float(np.arcsinh(scale.centre)), spread=scale.spread, log=True)
