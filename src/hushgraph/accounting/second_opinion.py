"""Check the price of sub-sampled steps against `dp_accounting`.

`loss_grids` prices plans with the same operations, without the second that importing the package takes.
Before a run with sub-sampled batches is charged, the package itself composes its steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from hushgraph.accounting.accountants import compose_shifts, gaussian_delta
from hushgraph.accounting.events import Event
from hushgraph.accounting.loss_grids import GridLosses
from hushgraph.accounting.pair_losses import LEFT_OUT, place_on_grid
from hushgraph.errors import PlanError

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

# What two ways of rounding may differ by.
_TOLERANCE = 1e-6


def confirm_price(charges: Iterable[tuple[Event, int]], *, delta: float, epsilon: float) -> None:
    """Raise PlanError if `dp_accounting` composes these charges to more than `delta` at `epsilon`.

    Args:
        charges: events that the "pair" accountant prices, and how often each occurs; each shifts something.
        delta, epsilon: what they were priced at.
    """
    if math.isinf(epsilon):
        return
    counts: Counter[Event] = Counter()
    for event, count in charges:
        counts[event] += count
    if gaussian_delta(compose_shifts(counts), epsilon) <= delta:
        # The price is that of steps which draw every root, which needs no grid.
        return
    theirs = _compose(tuple(counts.items()), epsilon)
    if not theirs <= delta * (1 + _TOLERANCE):
        raise PlanError(
            f"epsilon={epsilon:.6g} at delta={delta:.3g}: dp_accounting computes delta={theirs:.6g} for the "
            "same steps; nothing was charged. Report this plan, and do not release runs of it"
        )


# Runs that differ in their seed alone have the same price.
@lru_cache(maxsize=64)
def _compose(counts: tuple[tuple[Event, int], ...], epsilon: float) -> float:
    """Delta at `epsilon` of all events together."""
    from dp_accounting.pld import privacy_loss_distribution

    steps = sum(count for _, count in counts)
    events = place_on_grid(dict(counts), steps=steps, precision=1.0)
    repeated = (
        privacy_loss_distribution.PrivacyLossDistribution(*map(convert_losses, directions)).self_compose(
            count, tail_mass_truncation=LEFT_OUT
        )
        for directions, (_, count) in zip(events, counts, strict=True)
    )
    composed = reduce(lambda one, other: one.compose(other, tail_mass_truncation=LEFT_OUT), repeated)
    return float(composed.get_delta_for_epsilon(epsilon))


def convert_losses(losses: GridLosses) -> DensePLDPmf:
    """Convert losses to the object that `dp_accounting` composes."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    return DensePLDPmf(
        discretization=losses.interval,
        lower_loss=losses.lowest,
        probs=losses.probs.copy(),
        infinity_mass=losses.infinite,
        pessimistic_estimate=True,
    )
