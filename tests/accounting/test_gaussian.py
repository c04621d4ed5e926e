"""The exact Gaussian price against high-precision arithmetic and dp_accounting."""

from __future__ import annotations

import dp_accounting
import mpmath
import pytest

from hushgraph.accounting.accountants import gaussian_delta, gaussian_epsilon, gaussian_shift


def exact_delta(shift: float, epsilon: float) -> float:
    with mpmath.workdps(60):
        mu, eps = mpmath.mpf(shift), mpmath.mpf(epsilon)
        return float(mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu))


@pytest.mark.parametrize("shift", [1e-3, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("multiple", [0.0, 0.3, 1.0, 3.0, 8.0])
def test_delta_agrees_with_sixty_digits(shift: float, multiple: float) -> None:
    epsilon = multiple * shift
    assert gaussian_delta(shift, epsilon) == pytest.approx(exact_delta(shift, epsilon), rel=1e-9)


@pytest.mark.parametrize("shift", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-15])
def test_epsilon_agrees_with_dp_accounting_from_above(shift: float, delta: float) -> None:
    epsilon = gaussian_epsilon(shift, delta)
    assert epsilon == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / shift, delta), rel=1e-8, abs=1e-9)
    assert gaussian_delta(shift, epsilon) <= delta


def test_extremes() -> None:
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_epsilon(1e-9, 1e-6) == 0.0
    assert gaussian_epsilon(1e6, 1e-15) == pytest.approx(0.5e12, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0, 100.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_the_largest_shift_is_found_from_below(epsilon: float, delta: float) -> None:
    shift = gaussian_shift(epsilon, delta)
    assert gaussian_delta(shift, epsilon) <= delta < gaussian_delta(shift * (1 + 1e-8), epsilon)
    assert gaussian_epsilon(shift, delta) == pytest.approx(epsilon, rel=1e-8)
