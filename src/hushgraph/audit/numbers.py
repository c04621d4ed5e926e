"""Attacks on released numbers as floating-point numbers, not as reals.

The accountant prices real Gaussian noise. A computer draws from finitely many values, and which ones they are
may depend on the sum that they are added to. Each attack here takes a released number, subtracts the sum of
one world, and asks whether the remainder looks like noise that a generator of float32 can draw. How large the
numbers are is paid for, and is what the other attacks look at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hushgraph.accounting.accountants import make_accountant
from hushgraph.audit.runs import Plant, Rerun, choose_config, plant_nothing, watch_run
from hushgraph.audit.scene import Scene, move_plan, plant_rows, plant_trees
from hushgraph.audit.statistics import Floats, check_can_audit, rate_at_least
from hushgraph.audit.weights import spread
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.folder import RunFolder

_WEIGHTS_SEED = 5
_MOST_STEPS = 4
# Enough numbers to find rings in: without layers a model has few, unless it is wide.
_HIDDEN, _HIDDEN_WITHOUT_LAYERS, _HIDDEN_OF_ROWS = 32, 512, 64
# torch fills tensors of at least 16 numbers in blocks of 16; number j of a block pairs with j + 8.
_BLOCK = 16
# torch draws a radius r from a uniform number of 24 bits, so that 2^24 exp(-r^2 / 2) is an integer. Larger
# integers than this are lost to rounding.
_RADII, _LARGEST_RING = 2.0**24, 3e4
# How many bits of evidence against a world one impossible number is.
_IMPOSSIBLE_BITS = 40.0

_Float32 = npt.NDArray[np.float32]
_Score = Callable[[Floats, Floats, float, int], Floats]


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """How often one attack was right about which world it saw.

    Attributes:
        attack: "rings", "support" or "low-bits".
        view: "updates" where the attacker saw every noisy gradient, "checkpoint" where it saw the weights.
        right, trials: right guesses, and all of them.
        rate_at_least: the true rate of right guesses is above this, at the confidence of the audit.
    """

    attack: str
    view: str
    right: int
    trials: int
    rate_at_least: float


@dataclass(frozen=True, kw_only=True)
class NumbersAudit:
    """What attacks on numbers found.

    Attributes:
        plan: the plan that was attacked: the noise of the one given, on one row and a few steps.
        guesses: one entry for every attack and view.
        limit: how often anybody may be right under the plan's guarantee.
        confidence: with which all `rate_at_least` hold together.
        seconds: how long it took.
    """

    plan: PrivacyPlan
    guesses: tuple[Guesses, ...]
    limit: float
    confidence: float
    seconds: float

    @property
    def strongest(self) -> Guesses:
        """The attack that was right most often."""
        return max(self.guesses, key=lambda guesses: guesses.right)

    @property
    def exceeds(self) -> bool:
        """Whether some attack is right more often than the guarantee allows, at `confidence`."""
        return any(guesses.rate_at_least > self.limit for guesses in self.guesses)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "exceeds": self.exceeds,
            "limit": self.limit,
            "confidence": self.confidence,
            "steps": self.plan.steps,
            "sigma_over_clip": self.plan.sigma_over_clip,
            "guesses": [asdict(guesses) for guesses in self.guesses],
            "seconds": round(self.seconds, 2),
        }


def attack_numbers(
    plan: PrivacyPlan,
    *,
    model: str = "gcn",
    trials: int = 400,
    confidence: float = 0.9999,
    plant: Plant = plant_nothing,
    seed: int | None = None,
) -> NumbersAudit:
    """Guess from the digits of released numbers whether one row is empty.

    Half of the trials are steps of a real run on a graph with the canary's row, the others on the graph with
    that row emptied. The row lists nothing and nobody reads it, so that it changes one root. Three attacks
    guess which graph it was, from the noisy gradients and again from the weights after every step:

    - "rings": two numbers of torch's normal noise share a radius that takes one of 2^24 values;
    - "support": float32 noise times sigma, rounded, leaves out many floating-point numbers;
    - "low-bits": the last bits of a small released number are those of what it is the sum of.

    Args:
        plan: with noise. Its noise, its sampling rate and up to four of its steps are attacked.
        model: "gcn", "gin", "gat" or "mlp"; a billboard has the model that the default trains.
        trials: guesses of each attack.
        confidence: of all statements together. High, because an attack that works is nearly always right, and
            a clean audit should raise no alarm.
        plant: a planted fault.
        seed: of the coins that decide ties.

    Guarantees:
        With probability at least `confidence` every `rate_at_least` is below the true rate of right guesses.

    Examples:
        >>> from hushgraph import TreePlan
        >>> from hushgraph.audit.faults import plant_float_noise
        >>> from hushgraph.audit.numbers import attack_numbers
        >>> plan = TreePlan(num_train_nodes=100, num_layers=1, max_readers=2, batch_size=100, steps=2)
        >>> plan = plan.calibrated(epsilon=1.0)
        >>> attack_numbers(plan, trials=40).exceeds
        False
        >>> attack_numbers(plan, trials=40, plant=plant_float_noise).exceeds
        True
    """
    begin = time.monotonic()
    check_can_audit(plan, trials, confidence)
    plan, scene = _move_plan(plan)
    each = math.ceil(trials / 2)
    there, empty = (_run_world(plan, scene, is_there, model, each, plant) for is_there in (True, False))
    rng = np.random.default_rng(seed)
    right = {
        (attack, view): _count_right((there, empty), view, score, plan.batch_size, rng)
        for view in there.views
        for attack, score in _ATTACKS.items()
    }
    trials = 2 * each
    error = (1 - confidence) / len(right)
    return NumbersAudit(
        plan=plan,
        guesses=tuple(
            Guesses(
                attack=attack,
                view=view,
                right=count,
                trials=trials,
                rate_at_least=float(rate_at_least(count, trials, error)),
            )
            for (attack, view), count in right.items()
        ),
        limit=right_guesses_at_most(plan),
        confidence=confidence,
        seconds=time.monotonic() - begin,
    )


def right_guesses_at_most(plan: PrivacyPlan) -> float:
    """How often a guess between two equally likely worlds is right at most, by the plan's accountant.

    Total variation is the delta at epsilon 0; at the plan's own epsilon it is at most
    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
    """
    books = make_accountant(plan.accountant)
    for event, count in plan.events:
        books.compose(event, count=count)
    odds = math.exp(-plan.epsilon)
    variation = min(books.delta(0.0), (1 - odds + 2 * plan.delta * odds) / (1 + odds))
    return min(1.0, (1 + variation) / 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Candidate:
    """A sum that a step of a world may release, by parameter, and the logarithm of its probability."""

    sums: dict[str, Floats]
    log_weight: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _World:
    """What real runs of one world showed.

    Attributes:
        views: the noisy sums that the attacker saw, by view and parameter: float64 [trials, steps, size].
        candidates: what a step may have summed up to.
        sigmas: the noise of every parameter.
    """

    views: dict[str, dict[str, Floats]]
    candidates: list[_Candidate]
    sigmas: dict[str, float]


def _move_plan(plan: PrivacyPlan) -> tuple[PrivacyPlan, Scene]:
    """One row in the graph or not, and nothing to read: noise is all that hides it."""
    steps = min(plan.steps, _MOST_STEPS)
    if plan.num_boards:
        plan = replace(plan, protects="node")
        scene = plant_rows(plan, copies=1, degree=0)
        return replace(move_plan(plan, scene), steps=steps), scene
    plan = replace(plan, max_readers=0, max_reads=None, sampler="stable", steps=steps)
    scene = plant_trees(plan, copies=1, temperatures=(1.0, 0.0))
    return move_plan(plan, scene), scene


def _run_world(
    plan: PrivacyPlan, scene: Scene, is_there: bool, model: str, trials: int, plant: Plant
) -> _World:
    """One long run: every few steps are a trial, since each starts from the same weights."""
    graph = scene.graph(np.array([is_there]))
    wide = _HIDDEN_OF_ROWS if plan.num_boards else _HIDDEN_WITHOUT_LAYERS
    config = choose_config(plan, hidden=_HIDDEN if plan.num_layers else wide, model=model)
    long_plan = replace(plan, steps=plan.steps * trials)
    module = RunFolder.describe("", graph, long_plan, config, data="").build_model()
    phases = spread(module, seed=_WEIGHTS_SEED)
    start = phases[0]
    with watch_run(graph, long_plan, config, phases=phases, plant=plant) as seen:
        world = Rerun(seen=seen, graph=graph)
        view = world.view(0)
        sums = world.clipped_sums(view, phases)[0]
        sigmas = world.trainer(view).sigmas
    # A faulty ledger allows more steps than were planned.
    shape, size, count = (trials, plan.steps, -1), plan.batch_size, long_plan.steps
    views = {
        "updates": {n: torch.stack([s[n] for s in seen.sums[:count]]).reshape(shape).numpy() for n in start},
        "checkpoint": {
            n: torch.stack([start[n] - w[n] for w in seen.moved[:count]]).reshape(shape).double().numpy()
            * size
            for n in start
        },
    }
    full = {name: value.double().numpy().ravel() for name, value in sums.items()}
    return _World(views=views, candidates=_list_candidates(full, plan.sampling_rate), sigmas=sigmas)


def _list_candidates(full: dict[str, Floats], rate: float) -> list[_Candidate]:
    """The sums that a step may have: that of all roots and, where batches are drawn, 0 as well.

    In drawn batches only the canary has a label.
    """
    if rate == 1:
        return [_Candidate(sums=full, log_weight=0.0)]
    nothing = {name: np.zeros_like(value) for name, value in full.items()}
    if not any(value.any() for value in full.values()):
        return [_Candidate(sums=nothing, log_weight=0.0)]
    return [
        _Candidate(sums=nothing, log_weight=math.log1p(-rate)),
        _Candidate(sums=full, log_weight=math.log(rate)),
    ]


def _count_right(
    worlds: tuple[_World, _World], view: str, score: _Score, batch_size: int, rng: np.random.Generator
) -> int:
    """How often the world whose sums score higher is the true one; ties are decided by a coin."""
    right = 0
    for number, world in enumerate(worlds):
        seen = world.views[view]

        def weighted_score(candidate: _Candidate, seen: dict[str, Floats] = seen) -> Floats:
            sigmas = worlds[0].sigmas
            parts = [score(seen[n], candidate.sums[n], sigmas[n], batch_size) for n in seen]
            return np.asarray(np.sum(parts, axis=0) + candidate.log_weight)

        there, empty = (
            np.logaddexp.reduce([weighted_score(candidate) for candidate in each.candidates]).sum(axis=1)
            for each in worlds
        )
        guesses = np.where(there == empty, rng.random(len(there)) < 0.5, there > empty)
        right += int((guesses == (number == 0)).sum())
    return right


def _score_rings(seen: Floats, sums: Floats, sigma: float, batch_size: int) -> Floats:
    """[trials, steps]: how nearly 2^24 exp(-r^2 / 2) are integers, r the radius of two numbers of noise."""
    size = len(sums) // _BLOCK * _BLOCK
    noise = ((seen[..., :size] - sums[:size]) / sigma).reshape(*seen.shape[:2], -1, 2, _BLOCK // 2)
    rings = _RADII * np.exp(-np.square(noise).sum(-2) / 2)
    # Rings that are farther in are too close to each other to tell.
    near = np.where(rings < _LARGEST_RING, np.cos(2 * np.pi * rings), 0.0)
    return np.asarray(near.sum((-1, -2)))


def _score_support(seen: Floats, sums: Floats, sigma: float, batch_size: int) -> Floats:
    """[trials, steps]: minus how many numbers cannot be sum + sigma * (a float32) over the batch size."""
    total, width, size = sums.astype(np.float32), np.float32(sigma), np.float32(batch_size)
    summed = seen.astype(np.float32)
    # Dividing by a power of two is exact; otherwise neighbours may become the same number.
    is_exact = batch_size & (batch_size - 1) == 0
    released = (seen / batch_size).astype(np.float32)
    possible = np.zeros(seen.shape, dtype=bool)
    for noisy in (summed,) if is_exact else _neighbours(summed):
        divides = noisy / size == released
        for noise in _neighbours((noisy.astype(np.float64) - total).astype(np.float32)):
            adds = divides & (total + noise == noisy)
            # Where many values of noise give the same sum, one of them is surely possible.
            possible |= adds & (_last_digit(noisy) > 2 * _last_digit(noise))
            for unit in _neighbours((noise / width).astype(np.float32)):
                possible |= adds & (width * unit == noise)
    return np.asarray(possible.sum(axis=-1) - float(seen.shape[-1]))


def _score_low_bits(seen: Floats, sums: Floats, sigma: float, batch_size: int) -> Floats:
    """[trials, steps]: log-likelihood of the last bits if noise of any distribution is added in float32.

    The sum of two float32 is a multiple of the last digit of the smaller one. A number that is smaller than
    what was added shows it: it ends in zeros, or it cannot be such a sum.
    """
    released, total = seen.astype(np.float32), sums.astype(np.float32)
    finest = np.minimum(_last_digit(total), _last_digit((released - total).astype(np.float32)))
    step = np.maximum(_last_digit(released), finest).astype(np.float64)
    is_multiple = np.remainder(released.astype(np.float64), step) == 0
    return np.asarray((np.log2(step) - np.where(is_multiple, 0.0, _IMPOSSIBLE_BITS)).sum(-1))


def _last_digit(values: _Float32) -> _Float32:
    """What the last binary digit of a float32 is worth."""
    return np.spacing(np.abs(values))


def _neighbours(values: _Float32) -> tuple[_Float32, _Float32, _Float32]:
    """The float32 below, the number itself and the one above."""
    return np.nextafter(values, np.float32(-np.inf)), values, np.nextafter(values, np.float32(np.inf))


_ATTACKS: dict[str, _Score] = {
    "rings": _score_rings,
    "support": _score_support,
    "low-bits": _score_low_bits,
}
