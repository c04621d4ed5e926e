"""Roots against SciPy's, bit for bit."""

from __future__ import annotations

import math

import pytest
from scipy import optimize

from hushgraph.accounting.accountants import find_root
from hushgraph.errors import PlanError

FUNCTIONS = [
    (lambda x: x**3 - 2, 0.0, 5.0),
    (lambda x: math.exp(x) - 7, -4.0, 9.0),
    (lambda x: math.log(x) + x, 1e-6, 3.0),
    (lambda x: math.atan(x - 0.3), -50.0, 80.0),
    (lambda x: -1.0 if x < 1.7 else 2.0, 0.0, 4.0),
    (lambda x: x, 0.0, 1.0),
]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
@pytest.mark.parametrize("tolerances", [{}, {"xtol": 1e-6}, {"rtol": 1e-9}])
def test_roots_are_those_of_scipy(number: int, tolerances: dict[str, float]) -> None:
    function, low, high = FUNCTIONS[number]
    assert find_root(function, low, high, **tolerances) == optimize.brentq(function, low, high, **tolerances)


def test_a_range_without_a_change_of_sign_is_refused() -> None:
    with pytest.raises(PlanError, match="same sign at both; widen"):
        find_root(lambda x: x + 10, 0.0, 1.0)
