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

from hushgraph.accounting import make_accountant
from hushgraph.audit.collaborators import Plant, plant_nothing
from hushgraph.audit.scene import move_plan, scene_for
from hushgraph.audit.statistics import Floats, check_confidence, rate_at_least
from hushgraph.audit.trials import RememberedSums, World, quiet_process
from hushgraph.audit.weights import Weights, new_model, spread, use
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.training.optimizers import SGD

_WEIGHTS_SEED = 5
_MOST_STEPS = 4
# Enough numbers to find rings in: without layers a model has few, unless it is wide.
_HIDDEN, _HIDDEN_WITHOUT_LAYERS = 32, 512
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
    secure_noise: bool = True,
    seed: int | None = None,
) -> NumbersAudit:
    """Guess from the digits of released numbers whether one row is empty.

    Every trial trains on one of two graphs, by a fair coin: one with the canary's row, one with that row
    emptied. No edges are read, so that the canary changes one tree. Three attacks guess which graph it was,
    from the noisy gradients and again from the weights after every step:

    - "rings": two numbers of torch's normal noise share a radius that takes one of 2^24 values;
    - "support": float32 noise times sigma, rounded, leaves out many floating-point numbers;
    - "low-bits": the last bits of a small released number are those of what it is the sum of.

    Args:
        plan: with noise. Its noise, its sampling rate and up to four of its steps are attacked.
        model: "gcn", "gin", "gat" or "mlp".
        trials: guesses of each attack.
        confidence: of all statements together. High, because an attack that works is nearly always right, and
            a clean audit should raise no alarm.
        plant: a planted fault.
        secure_noise: attack exact noise; False attacks torch's.
        seed: of coins and batches, and of torch's noise.

    Guarantees:
        With probability at least `confidence` every `rate_at_least` is below the true rate of right guesses.

    Examples:
        >>> from hushgraph import PrivacyPlan
        >>> from hushgraph.audit.numbers import attack_numbers
        >>> plan = PrivacyPlan(num_train_nodes=100, num_layers=1, max_readers=2, batch_size=100, steps=2)
        >>> plan = plan.calibrated(epsilon=1.0)
        >>> attack_numbers(plan, trials=40).exceeds
        False
        >>> attack_numbers(plan, trials=40, secure_noise=False).exceeds
        True
    """
    begin = time.monotonic()
    check_confidence(confidence)
    if trials < 10:
        raise InputError(f"trials={trials}: expected at least 10")
    if not plan.is_private or plan.steps == 0:
        raise PlanError("the plan has no noise or no steps, so there is nothing to audit; give both")
    plan, worlds = _build_worlds(plan, model, plant, secure_noise)
    rng = np.random.default_rng(seed)
    coins = rng.random(trials) < 0.5
    views = _View.of_trials(worlds, coins, seed)
    candidates = [_candidates(world) for world in worlds]
    right = {
        (attack, view): _count_right(views[view], candidates, coins, score, worlds[0], rng)
        for view in views
        for attack, score in _ATTACKS.items()
    }
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


def _build_worlds(
    plan: PrivacyPlan, model: str, plant: Plant, secure: bool
) -> tuple[PrivacyPlan, tuple[World, World]]:
    """One row in the graph or not: no reads, so that noise is all that hides it."""
    noise = plan.sigma_over_clip
    plan = replace(plan, max_readers=0, max_reads=None, sampler="stable", steps=min(plan.steps, _MOST_STEPS))
    plan = replace(plan, sigma_over_clip=noise)
    scene = scene_for(plan)
    plan = move_plan(plan, scene)
    hidden = _HIDDEN if plan.num_layers else _HIDDEN_WITHOUT_LAYERS
    phases = spread(new_model(model, plan, hidden=hidden), seed=_WEIGHTS_SEED)
    there, empty = (
        World(
            graph=graph,
            plan=plan,
            model=model,
            key_seed=scene.key_seed,
            phases=phases,
            plant=plant,
            secure=secure,
            hidden=hidden,
        )
        for graph in (scene.graph, scene.emptied)
    )
    return plan, (there, empty)


@dataclass(frozen=True, kw_only=True, eq=False)
class _View:
    """What the attacker saw of the noisy sums: float64 [trials, steps, size] by parameter."""

    sums: dict[str, Floats]

    @classmethod
    def of_trials(cls, worlds: tuple[World, World], coins: np.ndarray, seed: int | None) -> dict[str, _View]:
        """Train once for every coin, in the first world where it is heads."""
        start = worlds[0].phases[0]
        module = worlds[0].new_model()
        optimizer = SGD(module.parameters(), lr=1.0)
        # The weights are the same before every step, and so are the clipped sums of a piece.
        real = [world.collaborators(seed, RememberedSums(module)) for world in worlds]
        rng = worlds[0].new_rng(seed)
        batch_size = worlds[0].plan.batch_size
        seen: dict[str, list[Weights]] = {"updates": [], "checkpoint": []}

        def look(_: int) -> None:
            parameters = dict(module.named_parameters())
            seen["updates"].append({n: p.grad.clone() for n, p in parameters.items() if p.grad is not None})
            seen["checkpoint"].append({n: start[n] - p.detach() for n, p in parameters.items()})
            use(module, start)

        with quiet_process():
            for heads in coins:
                number = 0 if heads else 1
                use(module, start)
                given = worlds[number].plant(real[number])
                worlds[number].new_trainer(module, optimizer, given, rng).run(look)
        shape = (len(coins), worlds[0].plan.steps, -1)
        return {
            view: cls(
                sums={
                    name: torch.stack([each[name] for each in steps]).reshape(shape).double().numpy()
                    * batch_size
                    for name in start
                }
            )
            for view, steps in seen.items()
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Candidate:
    """A sum that a step of a world may release, by parameter, and the logarithm of its probability."""

    sums: dict[str, Floats]
    log_weight: float


def _candidates(world: World) -> list[_Candidate]:
    """All roots, or none where batches are drawn: only the canary has a label then."""
    full = {name: value.double().numpy().ravel() for name, value in world.sums()[0].items()}
    rate = world.plan.sampling_rate
    if rate == 1:
        return [_Candidate(sums=full, log_weight=0.0)]
    nothing = {name: np.zeros_like(value) for name, value in full.items()}
    if world.roots == 0:
        return [_Candidate(sums=nothing, log_weight=0.0)]
    return [
        _Candidate(sums=nothing, log_weight=math.log1p(-rate)),
        _Candidate(sums=full, log_weight=math.log(rate)),
    ]


def _count_right(
    view: _View,
    candidates: list[list[_Candidate]],
    coins: np.ndarray,
    score: _Score,
    world: World,
    rng: np.random.Generator,
) -> int:
    """How often the world whose sums score higher is the true one; ties are decided by a coin."""
    sigmas = world.sigmas()

    def weighted_score(candidate: _Candidate) -> Floats:
        parts = [
            score(seen, candidate.sums[name], sigmas[name], world.plan.batch_size)
            for name, seen in view.sums.items()
        ]
        return np.asarray(np.sum(parts, axis=0) + candidate.log_weight)

    there, empty = (
        np.logaddexp.reduce([weighted_score(candidate) for candidate in each]).sum(axis=1)
        for each in candidates
    )
    guesses = np.where(there == empty, rng.random(len(coins)) < 0.5, there > empty)
    return int((guesses == coins).sum())


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
