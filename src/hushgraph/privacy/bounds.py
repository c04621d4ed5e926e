"""What a change of the data moves: how many training trees, how far a board; and what that costs a billboard.

These formulas are written here and nowhere else. Trees come first, then the billboard.

A billboard run is a list of charges: boards and trainings. A question, such as "one row is emptied", is a
`Change`: how far it moves a board and how many training examples it touches. Charges and a change together
are events that an accountant composes.

Given the boards, a training example is a function of one row, so emptying a row removes one example:
Bin(1, q) over {N(0), N(C)} against N(0). For q = 1 everything is one Gaussian, and mu^2 is the sum over all
charges.

| question                       | board, labels | board, everybody | examples |
|--------------------------------|---------------|------------------|----------|
| m rows emptied                 | m             | m                | m gone   |
| a row without a training label | 0             | 1                | none     |
| one undirected edge            | sqrt 2        | 4                | 2 change |
| one directed record            | 1             | 2                | 1 changes |
| one label changed              | sqrt(2c/(c-1)) | sqrt(2c/(c-1))  | 1 changes |

An edge record of an unlabelled row changes its reading, and with it the probabilities that it casts onto a
board that everybody casts onto: a ballot of norm 1 may become any other, which is a move of 2 for each end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import PlanError


def occurrences(max_readers: int, num_layers: int, *, at_most: int | None = None) -> int:
    """Return N(K, r) = 1 + K + ... + K^r, the largest number of training trees that one node occurs in.

    Args:
        max_readers: K, the most training nodes that read one node.
        num_layers: r, the depth of a tree.
        at_most: stop counting here, if no more trees exist.

    Guarantees:
        If at most K training nodes read each node, no node is in more than N(K, r) trees of depth r.
    """
    if max_readers == 0:
        total = 1
    elif max_readers == 1:
        total = num_layers + 1
    else:
        total = 1
        for _ in range(num_layers):
            total = total * max_readers + 1
            if at_most is not None and total >= at_most:
                break
    return total if at_most is None else min(total, at_most)


def changed_trees(
    max_readers: int,
    max_reads: int | None,
    num_layers: int,
    edge_owner: str,
    *,
    num_trees: int | None = None,
) -> int:
    """Return n for the stable sampler: the trees of others that differ when a row is emptied, plus one.

    The one is the row's own tree, which a node outside the training split does not have.

    Args:
        max_readers: K, the most training nodes that read one node.
        max_reads: D, the most nodes that one training node reads; None is unlimited.
        num_layers: r, the depth of a tree.
        edge_owner: "sender" or "reader", whose row holds an edge record.
        num_trees: N, the number of training trees, if known. A node outside the training split may change
            all of them, so n is at most N + 1, not N.

    Guarantees:
        Sender-owned, n = N(K, r). Reader-owned, n = N(K, r) + D N(K, r - 1). Where nothing is read, n = 1.
    """
    if edge_owner not in ("sender", "reader"):
        raise PlanError(f"edge_owner={edge_owner!r}: expected 'sender' or 'reader'")
    if num_layers == 0 or max_readers == 0 or max_reads == 0:
        return 1
    at_most = None if num_trees is None else most_changed(num_trees)
    containing = occurrences(max_readers, num_layers, at_most=at_most)
    if edge_owner == "sender":
        return containing
    if max_reads is None:
        raise PlanError(
            "max_reads=None with edge_owner='reader': one row may then change any number of trees; "
            "give max_reads, the most nodes that one training node reads"
        )
    total = containing + max_reads * occurrences(max_readers, num_layers - 1, at_most=at_most)
    return total if at_most is None else min(total, at_most)


def most_changed(num_trees: int) -> int:
    """Return the largest possible n for N training trees: all of them, plus one for the row's own tree."""
    return num_trees + 1


def changed_by_two(changed: int, num_trees: int) -> int:
    """Return n for two rows emptied together, where `changed` is n for one row of N training trees."""
    return min(2 * changed, most_changed(num_trees))


def trees_of_a_record(max_readers: int, num_layers: int, edge_owner: str, *, sampler: str = "stable") -> int:
    """Return the largest number of training trees that differ when one edge record is removed.

    Nothing else is removed, in particular no label. With the paper's sampler no bound is known: one record
    more or less changes the probability of all other records of its sender. With K = 2 and r = 1, three trees
    can change where the stable sampler changes two.

    Args:
        max_readers: K, the most training nodes that read one node.
        num_layers: r, the depth of a tree.
        edge_owner: "sender" or "reader", whose row holds an edge record.
        sampler: the sampler of the lists.

    Raises:
        PlanError: if the sampler is not "stable".

    Guarantees:
        2 N(K, r - 1) if senders own the edges, 3 N(K, r - 1) if readers do (Lemma 4 of docs/privacy.md), for
        the stable sampler.
    """
    if sampler != "stable":
        raise PlanError(f"sampler={sampler!r}: one edge record has no bound; expected 'stable'")
    lists = 2 if edge_owner == "sender" else 3
    return lists * occurrences(max_readers, num_layers - 1)


# What the noise of a board may be: the grid that its draws are on has no finer and no coarser one.
LEAST_BOARD_NOISE, LARGEST_BOARD_NOISE = 1e-6, 2**16


@dataclass(frozen=True, kw_only=True)
class BoardCharge:
    """One board.

    Attributes:
        noise_std: s, the standard deviation of the noise where one ballot has norm 1; 0 is no noise.
        by_everybody: whether rows without a training label cast a ballot too.
    """

    noise_std: float = 0.0
    by_everybody: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise_std < math.inf:
            raise PlanError(f"noise_std={self.noise_std}: expected a finite number, 0 or more.")


@dataclass(frozen=True, kw_only=True)
class TrainingCharge:
    """Noisy clipped sums over Poisson batches of rows.

    Attributes:
        steps: how many.
        rate: q, the chance of each training row to join a batch.
        sigma_over_clip: standard deviation of the noise in units of the clipping norm; 0 is no noise.
    """

    steps: int
    rate: float = 1.0
    sigma_over_clip: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise PlanError(f"steps={self.steps}: expected 0 or more.")
        if not 0.0 < self.rate <= 1.0:
            raise PlanError(f"rate={self.rate}: expected a sampling rate above 0 and at most 1.")
        if not 0.0 <= self.sigma_over_clip < math.inf:
            raise PlanError(f"sigma_over_clip={self.sigma_over_clip}: expected a finite number, 0 or more.")


Charge = BoardCharge | TrainingCharge


@dataclass(frozen=True, kw_only=True)
class Change:
    """What differs between two datasets, as far as boards and training see it.

    Attributes:
        label_board: the most that a board cast by labelled training rows moves, where a ballot has norm 1.
        full_board: the most that a board cast by everybody moves.
        examples: how many training examples differ, at most.
        gone: how many of them are there in one of the datasets only.
    """

    label_board: float
    full_board: float
    examples: int
    gone: int = 0


UNLABELLED_ROW = Change(label_board=0.0, full_board=1.0, examples=0)
EDGE = Change(label_board=math.sqrt(2), full_board=4.0, examples=2)
RECORD = Change(label_board=1.0, full_board=2.0, examples=1)


def rows_emptied(count: int = 1) -> Change:
    """`count` rows are emptied together."""
    if count < 1:
        raise PlanError(f"count={count}: expected 1 row or more.")
    return Change(label_board=count, full_board=count, examples=count, gone=count)


def label_changed(num_classes: int) -> Change:
    """The label of one training row becomes another of `num_classes`."""
    if num_classes < 2:
        raise PlanError(f"num_classes={num_classes}: expected 2 or more; one class needs no model.")
    move = math.sqrt(2 * num_classes / (num_classes - 1))
    return Change(label_board=move, full_board=move, examples=1)


def events(charges: Sequence[Charge], change: Change) -> list[tuple[Event, int]]:
    """What an accountant composes for these charges, with counts; what the change does not reach is left out.

    Args:
        charges: the boards and trainings of a run, or of several.
        change: what differs between the two datasets.
    """
    return [priced for charge in charges if (priced := _event(charge, change)) is not None]


def epsilon(charges: Sequence[Charge], change: Change, *, delta: float) -> float:
    """Epsilon at `delta` for the charges, where two datasets differ by `change`.

    Args:
        charges: the boards and trainings of a run, or of several.
        change: `rows_emptied(1)` for the guarantee itself; others for other questions.
        delta: between 0 and 1.

    Returns:
        An upper bound; exact but for rounding where every rate is 1; infinite where noise is missing.

    Examples:
        >>> charges = [BoardCharge(noise_std=5.0), TrainingCharge(steps=100, sigma_over_clip=50.0)]
        >>> round(epsilon(charges, rows_emptied(1), delta=1e-6), 3)
        1.212
    """
    # Imported here: commands that price nothing should not wait for SciPy.
    from hushgraph.accounting.accountants import price

    return price(events(charges, change), delta=delta, accountant="pair")


def calibrate(
    charges: Sequence[Charge], shares: Sequence[float], *, epsilon: float, delta: float
) -> tuple[Charge, ...]:
    """The same charges with the noise that makes one row cost `epsilon`, split by shares.

    Let M be the shift of the one Gaussian that costs (epsilon, delta). A charge of share a, of a total A,
    gets a / A of M^2. This uses up the budget where all rates are 1. Where a rate is below 1, boards get the
    same, and the noise of the trainings is made smaller, by one common factor, until the budget is used up.

    Args:
        charges: boards and trainings in order; their noise is replaced.
        shares: one positive number for each charge.
        epsilon: the budget for one row, above 0.
        delta: the budget's delta, between 0 and 1.

    Raises:
        PlanError: if a share is not positive, a training has no step, or no noise meets the target.

    Guarantees:
        The function `epsilon`, asked for one row of what is returned, answers at most `epsilon`.

    Examples:
        >>> board, training = calibrate(
        ...     [BoardCharge(), TrainingCharge(steps=600)], [0.5, 0.5], epsilon=4.0, delta=1e-6
        ... )
        >>> round(board.noise_std, 3), round(training.sigma_over_clip, 3)
        (1.688, 41.345)
    """
    from hushgraph.accounting.accountants import gaussian_shift
    from hushgraph.accounting.calibrate import smallest_scale

    _check_split(charges, shares)
    if not 0.0 < epsilon < math.inf:
        raise PlanError(f"epsilon={epsilon}: expected a finite number above 0.")
    if not 0.0 < delta < 1.0:
        raise PlanError(f"delta={delta}: expected a probability above 0 and below 1; use 1 / (10 N).")
    total = gaussian_shift(epsilon, delta) / math.sqrt(math.fsum(shares))
    shifts = [total * math.sqrt(share) for share in shares]
    rates = [charge.rate for charge in charges if isinstance(charge, TrainingCharge)]
    if min(rates, default=1.0) == 1.0:
        return _calibrate_full_batches(charges, shifts, epsilon, delta)

    def scaled(scale: float) -> tuple[Charge, ...]:
        return tuple(_with_noise(*pair, scale) for pair in zip(charges, shifts, strict=True))

    scale = smallest_scale(
        events=lambda scale: events(scaled(scale), rows_emptied(1)),
        # Many steps of little cost each are nearly a Gaussian of shift q sqrt(T) C / sigma: a scale of 1.
        start=1.1,
        epsilon=epsilon,
        delta=delta,
        accountant="pair",
    )
    return scaled(scale)


def _check_split(charges: Sequence[Charge], shares: Sequence[float]) -> None:
    if not charges or len(charges) != len(shares):
        raise PlanError(
            f"shares={list(shares)}: expected one for each of {len(charges)} charges, at least 1."
        )
    if not all(0.0 < share < math.inf for share in shares):
        raise PlanError(f"shares={list(shares)}: expected finite numbers above 0.")
    if any(isinstance(charge, TrainingCharge) and charge.steps < 1 for charge in charges):
        raise PlanError("steps=0: expected 1 or more; without a step no noise is needed.")


def _calibrate_full_batches(
    charges: Sequence[Charge], shifts: Sequence[float], budget: float, delta: float
) -> tuple[Charge, ...]:
    """Exact noise, made larger by no more than rounding asks for."""
    excess = 0.0
    while True:
        noisy = tuple(
            _with_noise(charge, shift * (1 - excess), 1.0)
            for charge, shift in zip(charges, shifts, strict=True)
        )
        # Noise beyond the grid may also be beyond what can be priced, and the search would not end.
        check_board_noise(noisy, budget)
        if epsilon(noisy, rows_emptied(1), delta=delta) <= budget:
            return noisy
        excess = max(1e-13, 2 * excess)


def check_board_noise(charges: Sequence[Charge], epsilon: float) -> None:
    """Refuse an epsilon whose boards would have noise that the grid does not take."""
    noise = [charge.noise_std for charge in charges if isinstance(charge, BoardCharge)]
    if noise and not LEAST_BOARD_NOISE <= min(noise) <= max(noise) <= LARGEST_BOARD_NOISE:
        raise PlanError(
            f"epsilon={epsilon}: its boards would have noise of {max(noise):.3g}, and boards take from "
            f"{LEAST_BOARD_NOISE:g} to {LARGEST_BOARD_NOISE}; use another epsilon"
        )


def _with_noise(charge: Charge, shift: float, scale: float) -> Charge:
    """The charge with noise for a shift of `shift`; that of a training is taken `scale` q times."""
    if isinstance(charge, BoardCharge):
        return replace(charge, noise_std=1 / shift)
    sigma = scale * charge.rate * math.sqrt(charge.steps) / shift
    return replace(charge, sigma_over_clip=sigma)


def _event(charge: Charge, change: Change) -> tuple[Event, int] | None:
    """The event of one charge and its count; None where the change does not reach it."""
    if isinstance(charge, BoardCharge):
        move = change.full_board if charge.by_everybody else change.label_board
        if not move:
            return None
        return GaussianEvent(shift_over_sigma=move / charge.noise_std if charge.noise_std else math.inf), 1
    if not change.examples or not charge.steps:
        return None
    step = StepEvent(
        draw=PoissonDraw(rate=charge.rate),
        changed_trees=change.examples,
        gone=change.gone,
        sigma_over_clip=charge.sigma_over_clip,
    )
    return step, charge.steps
