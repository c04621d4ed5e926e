"""The table of reference values in the privacy contract: five settings, three columns."""

from __future__ import annotations

import pytest

from hushgraph.accounting.accountants import make_accountant
from hushgraph.accounting.events import Draw, FixedSizeDraw, PoissonDraw, StepEvent

NODES = 90_941
DELTA = 1 / (10 * NODES)

# Layers, K, batch, the paper's multiplier, steps, and epsilon in the three columns.
TABLE = [
    (1, 7, 10_000, 2, 668, 11.99, 6.77, 14.93),
    (1, 10, 10_000, 1, 183, 11.99, 7.29, 16.35),
    (2, 3, 20_000, 2, 385, 14.98, 11.45, 26.83),
    (1, 7, 20_000, 4, 1377, 15.00, 10.38, 23.69),
    (1, 7, 90_940, 4, 67, 11.98, 10.42, 23.79),
]


def occurrences(max_readers: int, layers: int) -> int:
    return sum(max_readers**level for level in range(layers + 1))


def epsilon(accountant: str, draw: Draw, trees: int, sigma: float, steps: int) -> float:
    made = make_accountant(accountant)  # type: ignore[arg-type]
    made.compose(StepEvent(draw=draw, changed_trees=trees, sigma_over_clip=sigma), steps)
    return made.epsilon(DELTA)


@pytest.mark.parametrize(
    ("layers", "max_readers", "batch", "multiplier", "steps", "paper", "sender", "reader"), TABLE
)
def test_reference_values(
    layers: int,
    max_readers: int,
    batch: int,
    multiplier: float,
    steps: int,
    paper: float,
    sender: float,
    reader: float,
) -> None:
    trees = occurrences(max_readers, layers)
    # Reader-owned with as many reads as readers, at the noise of the other columns.
    more_trees = trees + max_readers * occurrences(max_readers, layers - 1)
    sigma = multiplier * 2 * trees
    fixed, poisson = FixedSizeDraw(size=batch, population=NODES), PoissonDraw(rate=batch / NODES)
    assert epsilon("paper", fixed, trees, sigma, steps) == pytest.approx(paper, rel=5e-3)
    assert epsilon("pair", poisson, trees, sigma, steps) == pytest.approx(sender, rel=1e-2)
    assert epsilon("pair", poisson, more_trees, sigma, steps) == pytest.approx(reader, rel=1e-2)
