"""Plans around a plan: all combinations of a few values of each setting, with the noise that each needs."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from hushgraph.errors import PlanError
from hushgraph.privacy.defaults import choose_billboard
from hushgraph.privacy.plan import BillboardPlan, PrivacyPlan

if TYPE_CHECKING:
    from concurrent.futures import Executor

AXES = ("max_readers", "max_reads", "epsilon", "steps", "batch_size")
# With more changed trees the noise dominates any gradient, and pricing takes seconds per point.
_MOST_TREES = 1000
# The most seconds that one processor may take for all points of a page, by a rough estimate.
_SECONDS = 30
# With fewer points, starting other processes takes longer than pricing.
_FEWEST_FOR_PROCESSES = 40
# Read by numpy's libraries when they are loaded.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Values of epsilon differ by at least this factor.
_EPSILON_FACTOR = 1.3


@dataclass(frozen=True, kw_only=True)
class PlanGrid:
    """The values of each setting; all other fields are those of `plan`.

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
        """Choose values below and above those of a plan; two processors can price them in fifteen seconds."""
        K, D, T, m = plan.max_readers, plan.max_reads, plan.steps, plan.batch_size
        bounds_reads = plan.edge_owner == "reader" and plan.sampler == "stable"
        values: dict[str, set[Any]] = {
            "max_readers": {K},
            "max_reads": {D},
            "epsilon": _choose_epsilons(target),
            "steps": {max(1, T // 4), max(1, T // 2), T, 2 * T, 4 * T},
            "batch_size": {max(1, m // 4), m, min(4 * m, plan.num_train_nodes)},
        }
        if plan.num_layers > 0 and not (bounds_reads and D is None):
            readers = {K, 0, K // 2, 2 * K, 4 * K} if K else {0, 1, 2, 5, 10}
            values["max_readers"] = {k for k in readers if k <= K or _count_trees(plan, k) <= _MOST_TREES}
            if bounds_reads and D is not None:
                values["max_reads"] |= {max(1, D // 2), max(1, 2 * D)}
        if plan.method == "billboard":
            # Its step takes all rows where it can; noise on the mean gradient is then least.
            values["batch_size"] = {m}
        droppable = [
            ("steps", (T // 2, 2 * T)),
            ("max_readers", (4 * K,)),
            ("epsilon", (max(values["epsilon"]),)),
            ("max_reads", ((D or 0) // 2,)),
            ("batch_size", (m // 4,)),
            ("max_readers", (2 * K,)),
            ("steps", (4 * T,)),
        ]
        while True:
            grid = cls(plan=plan, target=target, **{name: tuple(sorted(v)) for name, v in values.items()})
            if not droppable or grid._estimate_seconds() <= _SECONDS:
                return grid
            name, less = droppable.pop(0)
            values[name] -= set(less) - {grid._middle(name)}

    def _estimate_seconds(self) -> float:
        """Estimate the seconds that one processor needs for all points; full batches take no time."""
        from hushgraph.accounting.accountants import gaussian_shift

        plan = self.plan
        trees = {
            replace(plan, max_readers=k, max_reads=d).changed_trees
            for k, d in product(self.max_readers, self.max_reads)
        }
        parts = [size for size in self.batch_size if size < plan.num_train_nodes]
        shifts = [gaussian_shift(epsilon, plan.delta) for epsilon in self.epsilon]
        return sum(
            _estimate_point(min(n, _MOST_TREES), size / plan.num_train_nodes, steps, shift)
            for n, size, steps, shift in product(trees, parts, self.steps, shifts)
        )

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the values of one of the AXES."""
        values: tuple[Any, ...] = getattr(self, name)
        return values

    def chosen(self, name: str) -> int:
        """Return the index of the plan's value among the values of a setting."""
        return self.values(name).index(self._middle(name))

    def _middle(self, name: str) -> Any:
        return self.target if name == "epsilon" else getattr(self.plan, name)

    def combinations(self) -> Iterator[tuple[PrivacyPlan, float]]:
        """Yield every plan without noise and its target; the last of the AXES changes fastest."""
        for values in product(*(self.values(name) for name in AXES)):
            fields = dict(zip(AXES, values, strict=True))
            target = fields.pop("epsilon")
            fields |= self._list_board_fields(target)
            yield replace(self.plan, noise_multiplier=None, **fields), target

    def _list_board_fields(self, target: float) -> dict[str, Any]:
        """The fields of boards that follow from epsilon, as a run chooses them; none for trees."""
        plan = self.plan
        if not isinstance(plan, BillboardPlan):
            return {}
        if target == self.target:
            return {"board_noise": ()}
        chosen = choose_billboard(
            num_train_nodes=plan.num_train_nodes,
            num_classes=plan.num_classes,
            epsilon=target,
            delta=plan.delta,
        )
        return {"board_noise": (), "board_share": chosen.board_share}


@dataclass(frozen=True, kw_only=True)
class Point:
    """The figures of one solved plan, or the reason why it cannot be priced."""

    changed_trees: int
    noise_multiplier: float | None = None
    sigma_over_clip: float | None = None
    noise_on_mean: float | None = None
    board_noise: float | None = None
    epsilon: float | None = None
    epsilon_group_of_two: float | None = None
    refused: str | None = None

    @classmethod
    def of(cls, plan: PrivacyPlan) -> Point:
        """Collect the figures of a plan with noise."""
        return cls(
            changed_trees=plan.changed_trees,
            noise_multiplier=plan.noise_multiplier,
            sigma_over_clip=plan.sigma_over_clip,
            noise_on_mean=noise_on_mean(plan),
            board_noise=max(plan.board_noise) if isinstance(plan, BillboardPlan) else None,
            epsilon=plan.epsilon,
            epsilon_group_of_two=plan.epsilon_group_of_two,
        )


def noise_on_mean(plan: PrivacyPlan) -> float:
    """Return the standard deviation of the noise on each coordinate of the mean gradient, in units of C."""
    return plan.sigma_over_clip / plan.batch_size


def solve_point(task: tuple[PrivacyPlan, float]) -> Point:
    """Find the smallest safe noise for one plan and its target."""
    plan, target = task
    try:
        return Point.of(plan.calibrated(epsilon=target))
    except PlanError as error:
        return Point(changed_trees=plan.changed_trees, refused=str(error))


def solve_grid(
    grid: PlanGrid, *, processes: int = 1, observer: Callable[[int, int], None] | None = None
) -> list[Point]:
    """Solve all combinations of a grid; return their points in order.

    Args:
        grid: what to solve.
        processes: how many processes to use; more than one requires a main module that can be imported
            without side effects.
        observer: called with the number of points solved and the number of all points.
    """
    combinations = list(grid.combinations())
    # K and D matter only through the changed trees, so many combinations share one answer.
    keys = [(p.changed_trees, p.batch_size, p.steps, target) for p, target in combinations]
    tasks = dict(zip(keys, combinations, strict=True))
    solved: dict[tuple[int, int, int, float], Point] = {}
    with _start_workers(processes if len(tasks) >= _FEWEST_FOR_PROCESSES else 1) as workers:
        points = (
            map(solve_point, tasks.values())
            if workers is None
            else workers.map(solve_point, tasks.values(), chunksize=2)
        )
        for key, point in zip(tasks, points, strict=True):
            solved[key] = point
            if observer is not None:
                observer(len(solved), len(tasks))
    return [solved[key] for key in keys]


def usable_processes() -> int:
    """Return the number of processors that this process may use."""
    counts = getattr(os, "sched_getaffinity", None)
    return len(counts(0)) if counts is not None else os.cpu_count() or 1


@contextmanager
def _start_workers(processes: int) -> Iterator[Executor | None]:
    if processes < 2:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_prepare_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    # Ctrl-C reaches all processes of a terminal; only the first handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Threads of linear algebra wait by spinning, and every processor has a worker already.
    os.environ |= dict.fromkeys(_THREADS, "1")


def _count_trees(plan: PrivacyPlan, max_readers: int) -> int:
    return replace(plan, max_readers=max_readers).changed_trees


def _estimate_point(changed_trees: int, rate: float, steps: int, shift: float) -> float:
    """Estimate the seconds for one point, where all steps together may shift the sum by `shift` sigma."""
    sigma = rate * (2 * changed_trees - 1) * math.sqrt(steps) / shift
    # With little noise and few roots the losses of one step are spread wide, and need many grid points.
    wide = min(1.5, 0.003 / rate) if sigma < 2 else 0.0
    return 0.17 + 0.001 * changed_trees + wide


def _choose_epsilons(target: float) -> set[float]:
    """Return the target, two powers of two below it and two above."""
    low = math.floor(math.log2(target / _EPSILON_FACTOR))
    high = math.ceil(math.log2(target * _EPSILON_FACTOR))
    return {target, *(2.0**power for power in (low - 1, low, high, high + 1))}
