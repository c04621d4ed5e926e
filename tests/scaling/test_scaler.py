"""Scaled features: by hand, sparse as dense, one row as many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from hushgraph.graph.columns import Columns, Scale
from hushgraph.scaling.scaler import Scaler

COLUMNS = Columns(
    features=["income", "age", "raw", "debt"],
    categorical={"city": ["x", "y"]},
    scale={"age": {"centre": 40, "spread": 10}, "debt": {"centre": 100.0, "spread": 2, "log": True}},
)
SCALER = Scaler.of(COLUMNS, {"income": (10.0, 0.5)})


def test_columns_are_scaled_by_their_constants() -> None:
    row = np.array([[math.sinh(10.4), 55.0, 123.0, 7.0, 0.0, 1.0]], np.float32)
    debt = (math.asinh(7.0) - math.asinh(100.0)) / 2
    assert SCALER.apply(row)[0] == pytest.approx([0.8, 1.5, 123.0, debt, 0.0, 1.0], rel=1e-6)


def test_values_are_cut_at_4_and_zeros_are_values_unless_the_row_is_empty() -> None:
    rows = np.array([[1e30, -500, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]], np.float32)
    debt = -math.asinh(100.0) / 2
    assert SCALER.apply(rows).tolist() == [
        [4.0, -4.0, 0.0, pytest.approx(debt), 0.0, 0.0],
        [-4.0, -4.0, 0.0, pytest.approx(debt), 1.0, 0.0],
        [0.0] * 6,
    ]


def test_empty_cells_of_scaled_columns_are_the_middle_whatever_filled_them() -> None:
    rows = np.array([[7.0, 40.0, 9.0, 1.0, 1.0, 0.0]] * 2, np.float32)
    filled = np.array([[True, False, True, True], [False] * 4])
    income = (math.asinh(7.0) - 10) / 0.5
    debt = (math.asinh(1.0) - math.asinh(100.0)) / 2
    expected = [[0.0, 0.0, 9.0, 0.0, 1.0, 0.0], [max(income, -4.0), 0.0, 9.0, debt, 1.0, 0.0]]
    for table in (rows, sparse.csr_array(rows)):
        scaled = SCALER.apply(table, filled)
        dense = scaled.toarray() if sparse.issparse(scaled) else scaled
        assert dense.tolist() == [pytest.approx(row) for row in expected]
    # A table whose cells may not be empty has none marked.
    assert (SCALER.apply(rows, np.zeros((0, 4), np.bool_)) == SCALER.apply(rows)).all()


def test_what_is_given_is_not_changed() -> None:
    rows = np.ones((3, 6), np.float32)
    SCALER.apply(rows)
    assert (rows == 1).all()


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.lognormal(5, 3, (1_001, 4)), rng.integers(0, 2, (1_001, 2))], axis=1)
    x[::7, :] = 0
    x[3::11, 0] = 0
    return x.astype(np.float32)


def test_sparse_rows_are_scaled_as_dense_ones(rows: np.ndarray) -> None:
    scaled = SCALER.apply(sparse.csr_array(rows))
    assert sparse.issparse(scaled)
    assert (scaled.toarray() == SCALER.apply(rows)).all()


def test_a_row_is_scaled_alone_as_among_others(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    together = SCALER.apply(rows)
    alone = np.concatenate([SCALER.apply(row[None]) for row in rows])
    assert alone.tobytes() == together.tobytes()
    monkeypatch.setattr("hushgraph.scaling.scaler._CELLS", 30)
    assert SCALER.apply(rows).tobytes() == together.tobytes()


def test_nothing_to_scale_is_nothing_done(rows: np.ndarray) -> None:
    assert Scaler.of(Columns(features=["a"]), {}).apply(rows) is rows
    assert Scaler(scales=(Scale(centre=0, spread=1),)).apply(rows[:0]).shape == (0, 6)
