"""The price of composed releases by another route: one integral along a line in the complex plane.

With K(z) the sum over all releases of ln E_P exp(z L), L the privacy loss, the divergence at epsilon is

    1 / (2 pi i)  times the integral of  exp(K(z) - z epsilon) / (z (z + 1))  along  Re z = a,  for any a > 0.

There is no grid of losses and nothing is rounded: K comes from the two densities by the trapezoid rule, and a
is where the integrand is smallest on the real line, so that nothing cancels. Nothing of the package is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize

Complex = npt.NDArray[np.complex128]


@dataclass(frozen=True, kw_only=True)
class Release:
    """Bin(upper, rate) over N(+i, sigma^2) against Bin(lower, rate) over N(-j, sigma^2), `count` times."""

    upper: int
    lower: int
    rate: float
    sigma: float
    count: int = 1

    def mirrored(self) -> Release:
        """The other direction."""
        return Release(upper=self.lower, lower=self.upper, rate=self.rate, sigma=self.sigma, count=self.count)

    def log_moments(self, z: Complex) -> Complex:
        """`count` times ln E_P exp(z L), for numbers of one real part."""
        tilt = float(z[0].real)
        step = self.sigma / 32
        # The tilted density P^(1 + tilt) Q^-tilt is furthest out where every root is drawn.
        furthest = (1 + tilt) * self.upper + tilt * self.lower + 12 * self.sigma
        x = np.arange(-self.lower - 12 * self.sigma, furthest, step)
        log_p, log_q = (
            log_mixture(x, trees, self.rate, self.sigma, sign)
            for trees, sign in ((self.upper, 1), (self.lower, -1))
        )
        exponent = (1 + tilt) * log_p - tilt * log_q
        top = exponent.max()
        kept = exponent > top - 45
        weights, losses = np.exp(exponent[kept] - top), (log_p - log_q)[kept]
        sums = [np.dot(weights, np.exp(1j * t * losses)) for t in z.imag]
        return self.count * (np.log(np.array(sums)) + top + math.log(step))


def log_mixture(
    x: npt.NDArray[np.float64], trees: int, rate: float, sigma: float, sign: int
) -> npt.NDArray[np.float64]:
    """The logarithm of the density of Bin(trees, rate) over N(sign i, sigma^2)."""
    weights = [math.comb(trees, i) * rate**i * (1 - rate) ** (trees - i) for i in range(trees + 1)]
    terms = [
        math.log(weight) - 0.5 * ((x - sign * i) / sigma) ** 2
        for i, weight in enumerate(weights)
        if weight > 0
    ]
    total: npt.NDArray[np.float64] = np.logaddexp.reduce(terms)
    return total - math.log(sigma * math.sqrt(2 * math.pi))


def divergences(releases: Sequence[Release], epsilons: Sequence[float]) -> list[float]:
    """The hockey-stick divergence of all releases at every epsilon, in the direction that has more there.

    The line suits the first epsilon; the others should not be far from it.
    """
    both = [_one_way(releases, epsilons), _one_way([one.mirrored() for one in releases], epsilons)]
    return [max(pair) for pair in zip(*both, strict=True)]


def _one_way(releases: Sequence[Release], epsilons: Sequence[float]) -> list[float]:
    def exponent(z: Complex, epsilon: float) -> Complex:
        moments = sum(release.log_moments(z) for release in releases)
        return np.asarray(moments - z * epsilon - np.log(z) - np.log(z + 1))

    def on_the_real_line(tilt: float) -> float:
        return float(exponent(np.array([tilt + 0j]), epsilons[0])[0].real)

    def from_logarithm(log_tilt: float) -> float:
        return on_the_real_line(math.exp(log_tilt))

    found = optimize.minimize_scalar(from_logarithm, bounds=(-6, 5), options={"xatol": 1e-2})
    tilt = math.exp(found.x)
    h = 1e-2 * tilt
    bend = (on_the_real_line(tilt + h) - 2 * on_the_real_line(tilt) + on_the_real_line(tilt - h)) / h**2
    step = 0.2 / math.sqrt(bend)
    z = tilt + 1j * step * np.arange(100)
    without_epsilon = exponent(z, 0.0)
    assert (without_epsilon[-1] - without_epsilon[0]).real < -20, (
        "the integrand does not end: take more steps"
    )
    out = []
    for epsilon in epsilons:
        # Both halves of the line are conjugate, so one is enough.
        values = np.exp(without_epsilon - z * epsilon).real
        out.append(float((values.sum() - 0.5 * values[0]) * step / math.pi))
    return out
