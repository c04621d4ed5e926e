"""Plans around a plan: every combination of a few values of each choice, with the noise that each needs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from hushgraph.errors import PlanError
from hushgraph.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from concurrent.futures import Executor

AXES = ("max_readers", "max_reads", "epsilon", "steps", "batch_size")
# Beyond this many changed trees the noise drowns any gradient, and pricing takes seconds a point.
_MOST_TREES = 1000
# What one processor may take for all points of a page, in seconds, by a rough estimate.
_SECONDS = 70
# Below this many points, starting other processes takes longer than the pricing.
_FEW = 40
# Two values of epsilon closer than this are not worth pricing both.
_APART = 1.3


@dataclass(frozen=True, kw_only=True)
class PlanGrid:
    """Which values each choice takes; the other fields are those of `plan`.

    Args:
        plan: the plan in the middle, with or without noise.
        epsilon: the targets; `target` is one of them.
        target: the epsilon that belongs to `plan`.
        max_readers, max_reads, steps, batch_size: their values; those of `plan` are among them.
    """

    plan: PrivacyPlan
    target: float
    max_readers: tuple[int, ...]
    max_reads: tuple[int | None, ...]
    epsilon: tuple[float, ...]
    steps: tuple[int, ...]
    batch_size: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in AXES:
            values, middle = self.values(name), self._middle(name)
            if middle not in values or len(set(values)) != len(values):
                raise PlanError(f"{name}={values}: expected distinct values with {middle} among them")

    @classmethod
    def around(cls, plan: PrivacyPlan, *, target: float) -> PlanGrid:
        """Values below and above those of a plan, few enough for two processors to price in a minute."""
        K, D, T, m = plan.max_readers, plan.max_reads, plan.steps, plan.batch_size
        bounds_reads = plan.edge_owner == "reader" and plan.sampler == "stable"
        values: dict[str, set[Any]] = {
            "max_readers": {K},
            "max_reads": {D},
            "epsilon": _epsilons(target),
            "steps": {max(1, T // 4), max(1, T // 2), T, 2 * T, 4 * T},
            "batch_size": {max(1, m // 4), m, min(4 * m, plan.num_train_nodes)},
        }
        if plan.num_layers > 0 and not (bounds_reads and D is None):
            readers = {K, 0, K // 2, 2 * K, 4 * K} if K else {0, 1, 2, 5, 10}
            values["max_readers"] = {k for k in readers if k <= K or _trees(plan, k) <= _MOST_TREES}
            if bounds_reads and D is not None:
                values["max_reads"] |= {max(1, D // 2), max(1, 2 * D)}
        droppable = [
            ("steps", (T // 2, 2 * T)),
            ("max_readers", (4 * K,)),
            ("epsilon", (max(values["epsilon"]),)),
            ("max_reads", ((D or 0) // 2,)),
            ("batch_size", (m // 4,)),
        ]
        while True:
            grid = cls(plan=plan, target=target, **{name: tuple(sorted(v)) for name, v in values.items()})
            if not droppable or grid._seconds() <= _SECONDS:
                return grid
            name, less = droppable.pop(0)
            values[name] -= set(less) - {grid._middle(name)}

    def _seconds(self) -> float:
        """About how long one processor needs for all points; full batches have a price at once."""
        parts = [size for size in self.batch_size if size < self.plan.num_train_nodes]
        trees = {
            replace(self.plan, max_readers=k, max_reads=d).changed_trees
            for k, d in product(self.max_readers, self.max_reads)
        }
        each = len(self.epsilon) * len(self.steps) * len(parts)
        return each * sum(0.25 + 0.0014 * min(n, _MOST_TREES) for n in trees)

    def values(self, name: str) -> tuple[Any, ...]:
        """The values of one of the AXES."""
        values: tuple[Any, ...] = getattr(self, name)
        return values

    def chosen(self, name: str) -> int:
        """Where the value of the plan is among them."""
        return self.values(name).index(self._middle(name))

    def _middle(self, name: str) -> Any:
        return self.target if name == "epsilon" else getattr(self.plan, name)

    def combinations(self) -> Iterator[tuple[PrivacyPlan, float]]:
        """Every plan without noise, and its target; the last of the AXES changes fastest."""
        for values in product(*(self.values(name) for name in AXES)):
            fields = dict(zip(AXES, values, strict=True))
            target = fields.pop("epsilon")
            yield replace(self.plan, noise_multiplier=None, **fields), target


@dataclass(frozen=True, kw_only=True)
class Point:
    """The figures of one solved plan, or why it cannot be priced, in which case there are none."""

    changed_trees: int
    noise_multiplier: float | None = None
    sigma_over_clip: float | None = None
    noise_on_mean: float | None = None
    epsilon: float | None = None
    epsilon_group_of_two: float | None = None
    refused: str | None = None

    @classmethod
    def of(cls, plan: PrivacyPlan) -> Point:
        """What a finished plan says."""
        return cls(
            changed_trees=plan.changed_trees,
            noise_multiplier=plan.noise_multiplier,
            sigma_over_clip=plan.sigma_over_clip,
            noise_on_mean=noise_on_mean(plan),
            epsilon=plan.epsilon,
            epsilon_group_of_two=plan.epsilon_group_of_two,
        )


def noise_on_mean(plan: PrivacyPlan) -> float:
    """Standard deviation of the noise on each coordinate of the mean gradient of a step, in units of C."""
    return plan.sigma_over_clip / plan.batch_size


def solve_point(task: tuple[PrivacyPlan, float]) -> Point:
    """The smallest safe noise for one plan and its target."""
    plan, target = task
    try:
        return Point.of(plan.calibrated(epsilon=target))
    except PlanError as error:
        return Point(changed_trees=plan.changed_trees, refused=str(error))


def solve_grid(
    grid: PlanGrid, *, processes: int = 1, observer: Callable[[int, int], None] | None = None
) -> list[Point]:
    """The point of every combination, in their order.

    Args:
        grid: what to solve.
        processes: how many may work at once; more than one only from a program whose main module can be
            imported without starting it again.
        observer: called with how many points are solved, and of how many.
    """
    combinations = list(grid.combinations())
    # K and D matter only through the changed trees, so that many combinations have one answer.
    keys = [(p.changed_trees, p.batch_size, p.steps, target) for p, target in combinations]
    tasks = dict(zip(keys, combinations, strict=True))
    solved: dict[tuple[int, int, int, float], Point] = {}
    with _workers(processes if len(tasks) >= _FEW else 1) as workers:
        found = (
            map(solve_point, tasks.values())
            if workers is None
            else workers.map(solve_point, tasks.values(), chunksize=2)
        )
        for key, point in zip(tasks, found, strict=True):
            solved[key] = point
            if observer is not None:
                observer(len(solved), len(tasks))
    return [solved[key] for key in keys]


def usable_processes() -> int:
    """How many processors this process may use."""
    counts = getattr(os, "sched_getaffinity", None)
    return len(counts(0)) if counts is not None else os.cpu_count() or 1


@contextmanager
def _workers(processes: int) -> Iterator[Executor | None]:
    if processes < 2:
        yield None
        return
    import signal
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Ctrl-C reaches every process of a terminal; this one answers it for all.
    pool = ProcessPoolExecutor(
        processes,
        mp_context=get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _trees(plan: PrivacyPlan, max_readers: int) -> int:
    return replace(plan, max_readers=max_readers).changed_trees


def _epsilons(target: float) -> set[float]:
    """The target, two powers of two below it and two above."""
    low = math.floor(math.log2(target / _APART))
    high = math.ceil(math.log2(target * _APART))
    return {target, *(2.0**power for power in (low - 1, low, high, high + 1))}
