"""Plain checks of what real runs released: noise is there at all, everywhere and anew, and was paid for.

A few small runs of the default method are watched in detail (`watched.py`). What they released is compared
with a second computation (`expected.py`): ballots, tallies, readings, clipped sums, counts of evaluated rows.
What is left is noise, and is looked at number by number. A check that holds proves nothing; all of them
together raise a false alarm less than once in a million audits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import stats
from scipy.spatial.distance import pdist

from hushgraph.audit.runs import (
    Plant,
    quiet_process,
    watch_run,
)
from hushgraph.audit.statistics import Floats
from hushgraph.audit.trials import Stage
from hushgraph.audit.watched import (
    ERROR,
    HIDDEN,
    MOST_TABLES,
    STEPS,
    Watched,
    read_charges,
    segment_of,
    watch,
    watch_data,
)
from hushgraph.billboard.ballots import GRID
from hushgraph.graph.graph import Graph
from hushgraph.inputs.rows import Rows
from hushgraph.noise.source import NORM_EXCESS
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.training.running import Begin, begin_in_memory

# What rounding to float32 may add to a number.
_ROUNDING = 1e-3
# Two draws that agree so well are one; vectors of fewer numbers are not compared.
_EQUAL, _FEWEST = 1e-3, 16
# Standard errors that a mean of squares of rounded noise stays within.
_FAR = 7.0


@dataclass(frozen=True, kw_only=True)
class Check:
    """One plain check.

    Attributes:
        name: what was looked at.
        failure: what is wrong; empty where the check holds.
    """

    name: str
    failure: str = ""


def check_runs(plan: PrivacyPlan, plant: Plant) -> tuple[Check, ...]:
    """Watch a few runs of the default method with the noise of `plan`, and check what they released."""
    with quiet_process():
        runs = [watch(plan, plant, is_sparse=is_sparse) for is_sparse in (False, False, True)]
    checks: Checks = [
        *_OF_BOARDS,
        ("rows read the released boards", _check_readings),
        ("clipped sums, by a second method", _check_sums),
        ("no row adds more than C", _check_probes),
        ("tables count every evaluated row once", _check_counts),
        ("noise in every cell of the tables", _check_cells),
        ("noise of tables has the planned size", _check_table_size),
        *_OF_STEPS,
    ]
    return _apply(checks, runs)


def check_data(
    graph: Graph, plan: PrivacyPlan, *, begin: Begin = begin_in_memory, hidden: int = HIDDEN
) -> tuple[Check, ...]:
    """Watch two runs on made data, of any task and any source of rows, and check what they released.

    These are the checks of `check_runs` that need no second computation of a task.

    Args:
        graph: made for the purpose; what the checks say about it is not paid for.
        plan: whose training reads no edges.
        begin: as in `hushgraph.training.running.run_plan`. It gets `graph` as it is.
        hidden: units of the model.

    Examples:
        >>> import hushgraph as hg
        >>> graph, plan, _ = hg.prepare(hg.datasets.synthetic(num_nodes=200, seed=1), epsilon=4.0, steps=4)
        >>> [check.name for check in check_data(graph, plan) if check.failure]
        []
    """
    runs = [watch_data(graph, plan, begin, hidden) for _ in range(2)]
    return _apply([*_OF_BOARDS, ("no row adds more than C", _check_probes), *_OF_STEPS], runs)


def check_noise_of_steps(stage: Stage) -> tuple[Check, ...]:
    """Check the noise of the steps of another method, on the graph of its trials."""
    runs = []
    plan = replace(stage.plan, steps=max(STEPS, stage.plan.steps))
    if plan.noise != "common" or stage.plan.steps > 100:
        return ()
    for graph in stage.scene.graphs:
        with watch_run(
            graph, plan, stage.config, phases=stage.phases, plant=stage.plant, in_detail=True
        ) as seen:
            charges = read_charges(seen)
        runs.append(Watched(plan=plan, seen=seen, graph=graph, charges=charges))
    return _apply([*_OF_BOARDS[:1], *_OF_STEPS], runs)


def _apply(checks: Checks, runs: list[Watched]) -> tuple[Check, ...]:
    return tuple(Check(name=name, failure=check(runs)) for name, check in checks)


def _check_ledger(runs: list[Watched]) -> str:
    for run in runs:
        releases = steps = 0
        for kind, releases_charged, steps_charged in run.seen.charged:
            releases, steps = releases + (kind != "step"), steps + (kind == "step")
            if releases_charged < releases or steps_charged < steps:
                return (
                    f"{releases} boards or tables and {steps} steps were released when "
                    f"{releases_charged} and {steps_charged} were in the ledger"
                )
        for charge, count in run.charges.items():
            planned = sum(each.times for each in run.plan.charges if each.once == charge.once)
            if count != planned:
                return f"the ledger shows {count} of {charge.name}, the plan {planned}"
    return ""


def _check_once(runs: list[Watched]) -> str:
    for run in runs:
        places = [place for place, _ in run.seen.boards]
        if places != list(range(run.seen.folder.num_boards)):
            return f"boards were visible in this order: {', '.join(str(place + 1) for place in places)}"
        if len(run.seen.tables) != bool(run.plan.num_tables):
            return f"tables of figures were visible {len(run.seen.tables)} times"
    return ""


def _check_ballots(runs: list[Watched]) -> str:
    for run in runs:
        nodes = np.arange(run.graph.num_nodes)
        for place, (cast, expected) in enumerate(zip(run.seen.ballots, run.ballots, strict=False)):
            dense = cast.dense(nodes)
            norms = cast.list_sizes * np.square(dense).sum(axis=1)
            if (norms > GRID**2).any():
                return f"board {place + 1}: a ballot has norm {math.sqrt(norms.max()) / GRID:.3f}; at most 1"
            wrong = np.abs(dense / GRID - expected).max(axis=1) > _ROUNDING
            if wrong.any():
                return f"board {place + 1}: {int(wrong.sum())} rows cast what they may not"
    return ""


def _check_readings(runs: list[Watched]) -> str:
    for run in runs:
        for step, pieces in enumerate(run.seen.batches):
            expected = run.readings[segment_of(run.plan, step)][run.graph.train_idx]
            read = np.concatenate([piece.dense for piece in pieces if isinstance(piece, Rows)])
            wrong = np.abs(read[:, -expected.shape[1] :] - expected).max(axis=1) > _ROUNDING
            if wrong.any():
                return f"step {step + 1}: {int(wrong.sum())} rows have another reading than the boards give"
    return ""


def _check_sums(runs: list[Watched]) -> str:
    for run in runs:
        allowed = _ROUNDING * run.plan.clip * len(run.graph.train_idx)
        for step, (exact, expected) in enumerate(zip(run.seen.exact, run.sums, strict=True)):
            for name, value in expected.items():
                away = float((exact[name] - value).abs().max())
                if not away <= allowed:
                    return f"step {step + 1}: {name} is {away / run.plan.clip:.3g} C away"
    return ""


def _check_probes(runs: list[Watched]) -> str:
    largest = max(float(run.probes.max()) for run in runs)
    return "" if largest <= 1 + NORM_EXCESS else f"one row adds {largest:.4g} C"


def _check_counts(runs: list[Watched]) -> str:
    for run in runs:
        if (splits := sorted(run.seen.counts[-1])) != sorted(run.counts):
            return f"rows of these splits are counted: {', '.join(splits)}"
        for split, expected in run.counts.items():
            for place, (counted, wanted) in enumerate(zip(run.seen.counts[-1][split], expected, strict=True)):
                away = int(np.abs(counted - wanted).sum())
                # A row in another cell leaves one and enters one.
                if away > 2 * run.unsure:
                    return (
                        f"table {place + 1} of {split} counts {int(counted.sum())} of {int(wanted.sum())} "
                        f"rows, and cells differ by {away}"
                    )
    return ""


def _check_cells(runs: list[Watched]) -> str:
    """Check that noise moves every cell of the tables at least once."""
    for run in runs:
        moved = [run.table_noise(tables) for tables in (*run.seen.tables, *run.more_tables)]
        for name in moved[0]:
            still = ~np.any([noise[name] != 0 for noise in moved], axis=0)
            if still.any() and len(run.more_tables) < MOST_TABLES:
                return f"{name}: {int(still.sum())} of {still.size} cells have no noise"
    return ""


Releases = dict[str, list[Floats]]


def _list_boards(runs: list[Watched]) -> Releases:
    """The noise of the boards at each place of a run, of all runs."""
    noise: Releases = {}
    for run in runs:
        for (place, _), each in zip(run.seen.boards, run.board_noise(), strict=True):
            noise.setdefault(f"board {place + 1}", []).append(each)
    return noise


def _list_tensors(runs: list[Watched]) -> Releases:
    """The noise of every weight tensor, of all steps of all runs."""
    noise: Releases = {}
    for run in runs:
        for step in run.step_noise():
            for name, value in step.items():
                noise.setdefault(name, []).append(value)
    return noise


def _check_table_size(runs: list[Watched]) -> str:
    """Check the mean square of rounded noise against its exact distribution, in runs and further draws."""
    far = math.ceil(40 * runs[0].plan.table_noise) + 1
    counts = np.arange(-far, far + 1)
    std = runs[0].plan.table_noise
    chances = stats.norm.cdf((counts + 0.5) / std) - stats.norm.cdf((counts - 0.5) / std)
    square, fourth = (float((chances * counts.astype(np.float64) ** power).sum()) for power in (2, 4))
    for name in ("a run", "further draws"):
        values = np.concatenate(
            [
                noise.ravel()
                for run in runs
                for tables in (run.seen.tables if name == "a run" else run.more_tables)
                for noise in run.table_noise(tables).values()
            ]
        )
        size = float(np.square(values).mean())
        if abs(size - square) > _FAR * math.sqrt((fourth - square**2) / len(values)):
            return f"tables of {name}: {math.sqrt(size / square):.3f} times the planned noise"
    return ""


def _check_everywhere(list_releases: Callable[[list[Watched]], Releases], runs: list[Watched]) -> str:
    """Check that no number has noise near 0 in every release, and that few draws are near 0."""
    for name, releases in list_releases(runs).items():
        stack = np.abs(np.stack([release.ravel() for release in releases]))
        # A normal number is below t in size with probability at most 0.8 t.
        least = (ERROR / stack.shape[1]) ** (1 / len(stack)) / 0.8
        bare = int((stack.max(axis=0) < max(least, _ROUNDING / 10)).sum())
        if bare:
            return f"{name}: {bare} of {stack.shape[1]} numbers have no noise"
        near = int((stack < _ROUNDING).sum())
        if near > stats.binom.isf(ERROR, stack.size, 0.8 * _ROUNDING):
            return f"{name}: {near} of {stack.size} draws are nearly 0"
    return ""


def _check_size(list_releases: Callable[[list[Watched]], Releases], runs: list[Watched]) -> str:
    """Check that the mean square of the noise is 1, in units of the planned noise."""
    for name, releases in list_releases(runs).items():
        values = np.concatenate([release.ravel() for release in releases])
        low, high = stats.chi2.isf([1 - ERROR, ERROR], len(values)) / len(values)
        size = float(np.square(values).mean())
        if not 0.99 * low <= size <= 1.01 * high:
            return f"{name}: {math.sqrt(size):.3f} times the planned noise"
    return ""


def _check_fresh(runs: list[Watched]) -> str:
    """Check that no two releases, places or rows of a tensor have noise in common."""
    releases: list[tuple[str, Floats]] = []
    for number, run in enumerate(runs):
        for (place, _), noise in zip(run.seen.boards, run.board_noise(), strict=True):
            releases.append((f"board {place + 1} of run {number + 1}", noise.ravel()))
            if (same := _find_equal_rows(noise)) is not None:
                return f"board {place + 1}: places {same[0]} and {same[1]} have the same noise"
        drawn = [run.table_noise(tables) for tables in (*run.seen.tables, *run.more_tables)]
        for noise_of in drawn[:2]:
            flat = np.concatenate([noise.ravel() for noise in noise_of.values()])
            releases.append((f"tables of run {number + 1}", flat))
        if (pair := _find_alike(_line_up(drawn))) != "":
            return pair
        for step, tensors in enumerate(run.step_noise()):
            name = f"step {step + 1} of run {number + 1}"
            releases.append((name, np.concatenate([value.ravel() for value in tensors.values()])))
            if (pair := _find_alike([(f"{key} in {name}", v.ravel()) for key, v in tensors.items()])) != "":
                return pair
    return _find_alike(releases)


def _line_up(drawn: list[dict[str, Floats]]) -> list[tuple[str, Floats]]:
    """The noise of each table in all draws, cut to one width: rounded noise of one draw is often 0."""
    width = min((noise.size for noise_of in drawn for noise in noise_of.values()), default=0)
    return [
        (name, np.concatenate([noise_of[name].ravel()[:width] for noise_of in drawn]))
        for name in (drawn[0] if drawn else ())
    ]


def _find_alike(vectors: list[tuple[str, Floats]]) -> str:
    """Name the first two vectors that have noise in common; empty if there are none."""
    for (first, a), (second, b) in itertools.combinations(vectors, 2):
        size = min(len(a), len(b))
        if size < _FEWEST:
            continue
        a, b = a[:size], b[:size]
        scale = float(np.linalg.norm(a) * np.linalg.norm(b)) or 1.0
        # Correlations of so many normal numbers are within 8 standard deviations.
        if abs(float(a @ b)) / scale > min(0.999, 8 / math.sqrt(size)):
            return f"{first} and {second} have noise in common"
    return ""


Checks = list[tuple[str, Callable[[list[Watched]], str]]]
"""Names, and functions that say what is wrong with runs."""
_OF_BOARDS: Checks = [
    ("charges come first and are those of the plan", _check_ledger),
    ("boards and tables are released once", _check_once),
    ("rows cast what they may", _check_ballots),
    ("noise at every place of every board", partial(_check_everywhere, _list_boards)),
    ("noise of boards has the planned size", partial(_check_size, _list_boards)),
]
_OF_STEPS: Checks = [
    ("noise in every entry of every weight tensor", partial(_check_everywhere, _list_tensors)),
    ("noise of weight tensors has the planned size", partial(_check_size, _list_tensors)),
    ("no noise is used twice", _check_fresh),
]


def _find_equal_rows(noise: Floats) -> tuple[int, int] | None:
    """Find two rows that are equal; None if all differ."""
    distances = pdist(noise)
    nearest = int(np.argmin(distances))
    if noise.shape[1] < 4 or distances[nearest] > _EQUAL:
        return None
    return next(itertools.islice(itertools.combinations(range(len(noise)), 2), nearest, None))
