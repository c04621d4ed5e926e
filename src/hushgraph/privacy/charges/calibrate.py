"""Noise for charges that share a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hushgraph.errors import PlanError
from hushgraph.privacy.changes import rows_emptied
from hushgraph.privacy.charges.charge import Charge, epsilon


def calibrate(
    charges: Sequence[Charge], shares: Sequence[float], *, budget: float, delta: float
) -> tuple[Charge, ...]:
    """The same charges with the noise that makes one row cost `budget`, split by shares.

    Let M be the shift of the one Gaussian that costs (budget, delta). A charge of share a, of a total A,
    gets a / A of M^2. This uses up the budget where all rates are 1. Where a rate is below 1, boards get the
    same, and the noise of the trainings is made smaller, by one common factor, until the budget is used up.

    Args:
        charges: releases in order; their noise is replaced.
        shares: one positive number for each charge.
        budget: epsilon for one training row, above 0.
        delta: the budget's delta, between 0 and 1.

    Raises:
        PlanError: if a share is not positive, a charge has no release, or no noise meets the target.

    Guarantees:
        The function `epsilon`, asked for one row of what is returned, answers at most `budget`.

    Examples:
        >>> from hushgraph.accounting.events import PoissonDraw
        >>> from hushgraph.privacy.charges import BoardCharge, RowSteps, calibrate
        >>> board, steps = calibrate(
        ...     [BoardCharge(name="board-1"), RowSteps(draw=PoissonDraw(rate=1.0), times=600)],
        ...     [0.5, 0.5],
        ...     budget=4.0,
        ...     delta=1e-6,
        ... )
        >>> round(board.noise_std, 3), round(steps.sigma_over_clip, 3)
        (1.688, 41.345)
    """
    from hushgraph.accounting.accountants import gaussian_shift
    from hushgraph.accounting.calibrate import check_budget, smallest_scale

    _check_split(charges, shares)
    check_budget(budget, delta)
    total = gaussian_shift(budget, delta) / math.sqrt(math.fsum(shares))
    shifts = [total * math.sqrt(share) for share in shares]
    if all(charge.rate == 1.0 for charge in charges):
        return _calibrate_full_batches(charges, shifts, budget, delta)

    def scaled(scale: float) -> tuple[Charge, ...]:
        return tuple(
            charge.with_shift(shift, scale=scale) for charge, shift in zip(charges, shifts, strict=True)
        )

    scale = smallest_scale(
        spent=lambda scale: epsilon(scaled(scale), rows_emptied(), delta=delta),
        # Many steps of little cost each are nearly a Gaussian of shift q sqrt(T) C / sigma: a scale of 1.
        start=1.1,
        epsilon=budget,
        delta=delta,
    )
    noisy = scaled(scale)
    for charge in noisy:
        charge.check_noise(budget)
    return noisy


def _check_split(charges: Sequence[Charge], shares: Sequence[float]) -> None:
    if not charges or len(charges) != len(shares):
        raise PlanError(f"shares={list(shares)}: expected one for each of {len(charges)} charges, at least 1")
    if not all(0.0 < share < math.inf for share in shares):
        raise PlanError(f"shares={list(shares)}: expected finite numbers above 0")
    if any(charge.times < 1 for charge in charges):
        raise PlanError("steps=0: expected 1 or more; without a step no noise is needed")


def _calibrate_full_batches(
    charges: Sequence[Charge], shifts: Sequence[float], budget: float, delta: float
) -> tuple[Charge, ...]:
    """Exact noise, made larger by no more than rounding asks for."""
    excess = 0.0
    while True:
        noisy = tuple(
            charge.with_shift(shift * (1 - excess)) for charge, shift in zip(charges, shifts, strict=True)
        )
        # Noise beyond the grid may also be beyond what can be priced, and the search would not end.
        for charge in noisy:
            charge.check_noise(budget)
        if epsilon(noisy, rows_emptied(), delta=delta) <= budget:
            return noisy
        excess = max(1e-13, 2 * excess)
