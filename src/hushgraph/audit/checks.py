"""Plain checks of what real runs released: noise is there at all, everywhere and anew, and was paid for.

A few small runs of the default method are watched in detail. What they released is compared with a second
computation, written down here from the privacy contract alone: ballots, tallies, readings, clipped sums,
counts of evaluated rows. What is left is noise, and is looked at number by number. A check that holds proves
nothing; all of them together raise a false alarm less than once in a million audits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse, special, stats
from scipy.spatial.distance import pdist

from hushgraph._files import read_tensors
from hushgraph.audit.runs import (
    Plant,
    Rerun,
    Seen,
    Weights,
    choose_config,
    flatten,
    quiet_process,
    use,
    watch_run,
)
from hushgraph.audit.statistics import Floats
from hushgraph.audit.trials import Stage
from hushgraph.audit.weights import spread
from hushgraph.billboard.ballots import GRID
from hushgraph.figures.tables import Counts, NoisyTables
from hushgraph.gradients.clip import Clipping, group_of
from hushgraph.graph.graph import Graph
from hushgraph.inputs.rows import Rows
from hushgraph.noise.source import NORM_EXCESS
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan
from hushgraph.tasks.class_tables import CONFIDENCE_EDGES
from hushgraph.training.memory import GraphView
from hushgraph.training.running import Begin, begin_in_memory
from hushgraph.training.trainer import Trainer

_NODES, _CLASSES, _FEATURES, _EDGES, _STEPS = 240, 4, 12, 1200, 12
# So many parameters that noise is drawn ahead, as in most runs.
_HIDDEN = 200
# The chance of a false alarm of one check, and what rounding to float32 may add to a number.
_ERROR, _ROUNDING = 1e-9, 1e-3
# Two draws that agree so well are one; vectors of fewer numbers are not compared.
_EQUAL, _FEWEST = 1e-3, 16
# Probabilities so near to each other, or to an edge of a bin, may be rounded otherwise.
_SAME = 1e-5
# Further tables at most, and the standard errors that a mean of squares of rounded noise stays within.
_MOST_TABLES, _FAR = 400, 7.0
# Of the weights under which single rows are clipped.
_WEIGHTS_SEED, _TINY = 5, 1e-6


@dataclass(frozen=True, kw_only=True)
class Check:
    """One plain check.

    Attributes:
        name: what was looked at.
        failure: what is wrong; empty where the check holds.
    """

    name: str
    failure: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Watched:
    """A run, with what a second computation expects of it.

    Attributes:
        plan: of the run.
        seen: what it released.
        graph: its data.
        charges: every planned charge, and how often its ledger shows it at the end.
        ballots: [boards] of [N, c], what every row may cast onto each place, where a ballot has norm 1.
        readings: [boards] of [N, c], what every row reads.
        sums: the clipped sum of every step.
        counts: the tables of every evaluated split.
        unsure: rows whose cells are a matter of rounding.
        more_tables: tables that were drawn once more from the counts of this run, to see the noise of single
            cells.
        probes: norms of the clipped gradients of single rows, in units of C.
    """

    plan: PrivacyPlan
    seen: Seen
    graph: Graph
    charges: dict[Any, int]
    ballots: list[Floats] = field(default_factory=list)
    readings: list[Floats] = field(default_factory=list)
    sums: list[Weights] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)
    unsure: int = 0
    more_tables: list[NoisyTables] = field(default_factory=list)
    probes: Floats = field(default_factory=lambda: np.zeros(1))

    def tally(self, place: int) -> Floats:
        """What the ballots add up to at every place."""
        tally = np.zeros_like(self.ballots[place])
        owners, places = _list_records(self.graph, self.plan)
        np.add.at(tally, places, self.ballots[place][owners])
        return tally

    def board_noise(self) -> list[Floats]:
        """[N, c] of every board that was visible: what is left of it, in units of its planned noise."""
        planned = self.plan.board_noise if isinstance(self.plan, BillboardPlan) else ()
        return [(b.values - self.tally(place)) / planned[place] for place, b in self.seen.boards]

    def table_noise(self, tables: NoisyTables) -> dict[str, Floats]:
        """What is left of every table, in counts."""
        return {
            f"table {place + 1} of {split}": (noisy[place] - exact[place]).astype(np.float64)
            for split, exact in self.seen.counts[-1].items()
            for noisy in [tables.splits[split]]
            for place in range(len(exact))
        }

    def step_noise(self) -> list[dict[str, Floats]]:
        """What is left of every released sum, by parameter, in units of its planned noise."""
        sigma = self.plan.sigma_over_clip * self.plan.clip
        return [
            {name: (released[name] - exact[name]).numpy() / sigma for name in released}
            for released, exact in zip(self.seen.sums, self.seen.exact, strict=True)
        ]


def check_runs(plan: BillboardPlan, plant: Plant) -> tuple[Check, ...]:
    """Watch a few runs of the default method with the noise of `plan`, and check what they released."""
    with quiet_process():
        runs = [_watch(plan, plant, is_sparse=is_sparse) for is_sparse in (False, False, True)]
    checks: list[tuple[str, Callable[[list[_Watched]], str]]] = [
        ("charges come first and are those of the plan", _check_ledger),
        ("boards and tables are released once", _check_once),
        ("rows cast what they may", _check_ballots),
        ("noise at every place of every board", partial(_check_everywhere, _list_boards)),
        ("noise of boards has the planned size", partial(_check_size, _list_boards)),
        ("rows read the released boards", _check_readings),
        ("clipped sums, by a second method", _check_sums),
        ("no row adds more than C", _check_probes),
        ("tables count every evaluated row once", _check_counts),
        ("noise in every cell of the tables", _check_cells),
        ("noise of tables has the planned size", _check_table_size),
        *_OF_STEPS,
    ]
    return tuple(Check(name=name, failure=check(runs)) for name, check in checks)


def check_data(
    graph: Graph, plan: PrivacyPlan, *, begin: Begin = begin_in_memory, hidden: int = _HIDDEN
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
    runs = [_watch_data(graph, plan, begin, hidden) for _ in range(2)]
    checks: list[tuple[str, Callable[[list[_Watched]], str]]] = [
        ("charges come first and are those of the plan", _check_ledger),
        ("every board is released once", _check_once),
        ("rows cast what they may", _check_ballots),
        ("noise at every place of every board", partial(_check_everywhere, _list_boards)),
        ("noise of boards has the planned size", partial(_check_size, _list_boards)),
        ("no row adds more than C", _check_probes),
        *_OF_STEPS,
    ]
    return tuple(Check(name=name, failure=check(runs)) for name, check in checks)


def _watch_data(graph: Graph, plan: PrivacyPlan, begin: Begin, hidden: int) -> _Watched:
    """One run of whole batches, and what its rows cast."""
    plan = replace(plan, batch_size=plan.num_train_nodes)
    config = choose_config(plan, hidden=hidden)
    with watch_run(graph, plan, config, begin=begin, in_detail=True) as seen:
        charges = _read_charges(seen)
        world = Rerun(seen=seen, graph=graph)
        view = world.view(len(plan.segment_ends) - 1)
        probes = _probe_rows(world.trainer(view), view, plan)
        nodes = np.arange(graph.num_nodes)
        cast = [world.ballots(place, None) for place in range(seen.folder.num_boards)]
    ballots = [each.dense(nodes) / GRID for each in cast]
    return _Watched(plan=plan, seen=seen, graph=graph, charges=charges, ballots=ballots, probes=probes)


def check_noise_of_steps(stage: Stage) -> tuple[Check, ...]:
    """The same for the noise of steps of another method, on the graph of its trials."""
    runs = []
    plan = replace(stage.plan, steps=max(_STEPS, stage.plan.steps))
    if plan.noise != "common" or stage.plan.steps > 100:
        return ()
    for graph in stage.scene.graphs:
        with watch_run(
            graph, plan, stage.config, phases=stage.phases, plant=stage.plant, in_detail=True
        ) as seen:
            charges = _read_charges(seen)
        runs.append(_Watched(plan=plan, seen=seen, graph=graph, charges=charges))
    checks = [("charges come first and are those of the plan", _check_ledger), *_OF_STEPS]
    return tuple(Check(name=name, failure=check(runs)) for name, check in checks)


def _make_graph(*, is_sparse: bool) -> Graph:
    """A random graph with labels in every split, and rows whose features are zero, tiny or huge."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(_NODES, _FEATURES)) * (rng.random((_NODES, _FEATURES)) < 0.4)
    x *= rng.choice([0.0, 1e-6, 1.0, 1.0, 1e4], size=(_NODES, 1))
    x = x.astype(np.float32)
    train, val, test = np.split(rng.permutation(_NODES), [_NODES // 2, 3 * _NODES // 4])
    return Graph.from_arrays(
        edge_index=rng.integers(_NODES, size=(2, _EDGES)),
        x=sparse.csr_matrix(x) if is_sparse else x,
        y=rng.integers(_CLASSES, size=_NODES),
        train_idx=np.sort(train),
        val_idx=np.sort(val),
        test_idx=np.sort(test),
        num_classes=_CLASSES,
        symmetrize=True,
    )


def _watch(plan: BillboardPlan, plant: Plant, *, is_sparse: bool) -> _Watched:
    """One run of whole batches on the random graph, and the second computation."""
    graph = _make_graph(is_sparse=is_sparse)
    nodes = len(graph.train_idx)
    plan = replace(
        plan.with_evaluation(0),
        num_train_nodes=nodes,
        batch_size=nodes,
        steps=_STEPS,
        num_classes=_CLASSES,
        protects="node",
    ).with_evaluation(len(graph.task.tables))
    config = choose_config(plan, hidden=_HIDDEN)
    with watch_run(graph, plan, config, plant=plant, in_detail=True) as seen:
        charges = _read_charges(seen)
        world = Rerun(seen=seen, graph=graph)
        view = world.view(plan.num_boards - 1)
        trainer = world.trainer(view)
        probes = _probe_rows(trainer, view, plan)
        ballots, readings = _expect_boards(seen, graph, plan)
        weights, _ = read_tensors(seen.folder.path / "weights.safetensors")
        counts, unsure = _expect_counts(weights, graph, readings[-1])
        more = _draw_more_tables(seen, plan)
    sums = [
        _expect_sum(weights, graph, readings[_segment_of(plan, step)], trainer.clipping)
        for step, weights in enumerate(seen.starts)
    ]
    return _Watched(
        plan=plan,
        seen=seen,
        graph=graph,
        charges=charges,
        ballots=ballots,
        readings=readings,
        sums=sums,
        counts=counts,
        unsure=unsure,
        more_tables=more,
        probes=probes,
    )


def _draw_more_tables(seen: Seen, plan: PrivacyPlan) -> list[NoisyTables]:
    """So many that a cell with noise is not 0 in all of them: rounded noise often is."""
    cells = sum(table.size for tables in seen.counts[-1].values() for table in tables)
    is_zero = stats.norm.cdf(0.5 / plan.table_noise) - stats.norm.cdf(-0.5 / plan.table_noise)
    count = min(_MOST_TABLES, math.ceil(math.log(_ERROR / cells) / math.log(is_zero)))
    return [
        seen.parts.release_tables(
            seen.counts[-1],
            noise_std=plan.table_noise,
            draws=seen.parts.table_draws(),
            groups=(),
            grids=(1,) * len(seen.counts[-1]["test"]),
            plan=plan.fingerprint(),
        )
        for _ in range(count)
    ]


def _probe_rows(trainer: Trainer, view: GraphView, plan: PrivacyPlan) -> Floats:
    """The norm of the clipped gradient of every training row, in units of C.

    The weights of the first layer are tiny, so that huge features do not saturate it and count in full.
    """
    model, table = trainer.state.model, view.graph.features
    weights = spread(model, seed=_WEIGHTS_SEED)[0]
    weights["encoder.0.weight"] *= _TINY
    use(dict(model.named_parameters()), weights)
    norms = []
    for node in view.graph.graph.train_idx:
        row = trainer.clipped_sum(model, table.take(np.array([node])), trainer.clipping)
        norms.append(float(np.linalg.norm(flatten(row))) / plan.clip)
    return np.array(norms)


def _read_charges(seen: Seen) -> dict[Any, int]:
    """Every planned charge, and how often the ledger on disk shows it."""
    ledger = Ledger.open(seen.folder.ledger_path, read_only=True)
    return {charge: ledger.count_charged(charge) for charge in seen.folder.plan.charges}


def _segment_of(plan: PrivacyPlan, step: int) -> int:
    """After which board a step comes; steps beyond the plan belong to the last."""
    segment = int(np.searchsorted(plan.segment_ends, step, side="right"))
    return min(segment, len(plan.segment_ends) - 1)


def _list_records(graph: Graph, plan: PrivacyPlan) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The row that owns every record, and the place that it lists."""
    source, target = (np.concatenate(ends) for ends in zip(*graph.edge_chunks(), strict=True))
    return (source, target) if plan.edge_owner == "sender" else (target, source)


def _expect_boards(seen: Seen, graph: Graph, plan: BillboardPlan) -> tuple[list[Floats], list[Floats]]:
    """What rows may cast onto every board and what they read after it, by the contract."""
    c, config = plan.num_classes, seen.folder.config
    owners, places = _list_records(graph, plan)
    degrees = np.bincount(owners, minlength=graph.num_nodes)
    shares = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0.0)[:, None]
    labels = np.zeros((graph.num_nodes, c))
    labels[graph.train_idx] = (np.eye(c)[graph.y[graph.train_idx]] - 1 / c) / math.sqrt(1 - 1 / c)
    has_label = np.isin(np.arange(graph.num_nodes), graph.train_idx)[:, None]
    ballots, boards = [labels * shares], []
    readings: list[Floats] = []
    for place, board in enumerate(seen.released_boards(plan.num_boards)):
        if place:
            weights, _ = read_tensors(seen.folder.halfway_path)
            scores = _compute_scores(weights, graph, readings[-1])[0]
            soft = (special.softmax(scores, axis=1) - 1 / c) / math.sqrt(1 - 1 / c)
            soft /= np.maximum(1.0, np.linalg.norm(soft, axis=1, keepdims=True))
            ballots.append(np.where(has_label, labels, soft) * shares)
        boards.append((board.values.astype(np.float64), plan.board_noise[place]))
        precisions = np.array([std**-2 for _, std in boards])
        parts = precisions / precisions.sum()
        mean = sum(part * values for part, (values, _) in zip(parts, boards, strict=True))
        mean = mean - mean.mean(axis=1, keepdims=True)
        std = precisions.sum() ** -0.5
        loudness = np.maximum(np.square(mean / std).sum(axis=1) - c, 0.0) / c
        damping = 1 / np.sqrt(1 + loudness)
        own = sum(part * cast for part, cast in zip(parts, ballots, strict=True))
        total, square = np.zeros_like(mean), np.zeros(graph.num_nodes)
        np.add.at(total, owners, damping[places, None] * (mean[places] - own[owners]))
        np.add.at(square, owners, damping[places] ** 2)
        read = total / np.sqrt(np.where(square > 0, square, 1.0))[:, None] * config.reading_scale / std
        norms = np.square(read).sum(axis=1, keepdims=True)
        readings.append(read / np.sqrt(1 + norms / config.reading_radius**2))
    return ballots, readings


def _compute_scores(weights: Weights, graph: Graph, readings: Floats) -> tuple[Floats, Floats, Floats]:
    """Scores, inputs and hidden values of all rows, by the default model."""
    w = {name: value.double().numpy() for name, value in weights.items()}
    x = graph.dense_features(np.arange(graph.num_nodes)).astype(np.float64)
    inputs = np.concatenate([x, readings], axis=1)
    hidden = np.tanh(inputs @ w["encoder.0.weight"].T + w["encoder.0.bias"])
    scores = hidden @ w["decoder.weight"].T + w["decoder.bias"] + readings @ w["skip.weight"].T
    return scores, inputs, hidden


def _expect_sum(weights: Weights, graph: Graph, readings: Floats, clipping: Clipping) -> Weights:
    """The sum of the clipped gradients of all training rows, written out layer by layer."""
    rows = graph.train_idx
    scores, inputs, hidden = (each[rows] for each in _compute_scores(weights, graph, readings))
    readings = readings[rows]
    outer = special.softmax(scores, axis=1) - np.eye(_CLASSES)[graph.y[rows]]
    inner = (outer @ weights["decoder.weight"].double().numpy()) * (1 - hidden**2)

    def square(values: Floats) -> Floats:
        return np.asarray(np.square(values).sum(axis=1))

    squares = {
        "encoder.0.weight": square(inner) * square(inputs),
        "encoder.0.bias": square(inner),
        "decoder.weight": square(outer) * square(hidden),
        "decoder.bias": square(outer),
        "skip.weight": square(outer) * square(readings),
    }
    by_group = np.zeros((3, len(rows)))
    for name, values in squares.items():
        by_group[group_of(name)] += values
    factors = clipping.factors(torch.from_numpy(by_group)).numpy()

    def add_up(name: str, left: Floats, right: Floats | None = None) -> torch.Tensor:
        scaled = left * factors[group_of(name)][:, None]
        return torch.from_numpy(scaled.sum(axis=0) if right is None else scaled.T @ right)

    return {
        "encoder.0.weight": add_up("encoder.0.weight", inner, inputs),
        "encoder.0.bias": add_up("encoder.0.bias", inner),
        "decoder.weight": add_up("decoder.weight", outer, hidden),
        "decoder.bias": add_up("decoder.bias", outer),
        "skip.weight": add_up("skip.weight", outer, readings),
    }


def _expect_counts(weights: Weights, graph: Graph, readings: Floats) -> tuple[dict[str, Counts], int]:
    """Labels against predictions, and how sure a prediction was against whether it is right, by split."""
    shown = special.softmax(_compute_scores(weights, graph, readings)[0], axis=1)
    edges, best = np.append(CONFIDENCE_EDGES, np.inf), shown.argmax(axis=1)
    counts: dict[str, Counts] = {}
    unsure = 0
    for split, rows in (("val", graph.val_idx), ("test", graph.test_idx)):
        confusion = np.zeros((_CLASSES, _CLASSES), np.int64)
        calibration = np.zeros((len(edges), 2), np.int64)
        for row in rows[graph.y[rows] >= 0]:
            sure = shown[row].max()
            confusion[graph.y[row], best[row]] += 1
            calibration[int(np.argmax(sure <= edges)), int(best[row] == graph.y[row])] += 1
            second = np.sort(shown[row])[-2]
            unsure += bool(np.abs(edges - sure).min() < _SAME or sure - second < _SAME)
        counts[split] = (confusion, calibration)
    return counts, unsure


def _check_ledger(runs: list[_Watched]) -> str:
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


def _check_once(runs: list[_Watched]) -> str:
    for run in runs:
        places = [place for place, _ in run.seen.boards]
        if places != list(range(run.seen.folder.num_boards)):
            return f"boards were visible in this order: {', '.join(str(place + 1) for place in places)}"
        if len(run.seen.tables) != bool(run.plan.num_tables):
            return f"tables of figures were visible {len(run.seen.tables)} times"
    return ""


def _check_ballots(runs: list[_Watched]) -> str:
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


def _check_readings(runs: list[_Watched]) -> str:
    for run in runs:
        for step, pieces in enumerate(run.seen.batches):
            expected = run.readings[_segment_of(run.plan, step)][run.graph.train_idx]
            read = np.concatenate([piece.dense for piece in pieces if isinstance(piece, Rows)])
            wrong = np.abs(read[:, -expected.shape[1] :] - expected).max(axis=1) > _ROUNDING
            if wrong.any():
                return f"step {step + 1}: {int(wrong.sum())} rows have another reading than the boards give"
    return ""


def _check_sums(runs: list[_Watched]) -> str:
    for run in runs:
        allowed = _ROUNDING * run.plan.clip * len(run.graph.train_idx)
        for step, (exact, expected) in enumerate(zip(run.seen.exact, run.sums, strict=True)):
            for name, value in expected.items():
                away = float((exact[name] - value).abs().max())
                if not away <= allowed:
                    return f"step {step + 1}: {name} is {away / run.plan.clip:.3g} C away"
    return ""


def _check_probes(runs: list[_Watched]) -> str:
    largest = max(float(run.probes.max()) for run in runs)
    return "" if largest <= 1 + NORM_EXCESS else f"one row adds {largest:.4g} C"


def _check_counts(runs: list[_Watched]) -> str:
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


def _check_cells(runs: list[_Watched]) -> str:
    """A cell that is never moved has no noise."""
    for run in runs:
        moved = [run.table_noise(tables) for tables in (*run.seen.tables, *run.more_tables)]
        for name in moved[0]:
            still = ~np.any([noise[name] != 0 for noise in moved], axis=0)
            if still.any() and len(run.more_tables) < _MOST_TABLES:
                return f"{name}: {int(still.sum())} of {still.size} cells have no noise"
    return ""


Releases = dict[str, list[Floats]]


def _list_boards(runs: list[_Watched]) -> Releases:
    """The noise of the boards at each place of a run, of all runs."""
    noise: Releases = {}
    for run in runs:
        for (place, _), each in zip(run.seen.boards, run.board_noise(), strict=True):
            noise.setdefault(f"board {place + 1}", []).append(each)
    return noise


def _list_tensors(runs: list[_Watched]) -> Releases:
    """The noise of every weight tensor, of all steps of all runs."""
    noise: Releases = {}
    for run in runs:
        for step in run.step_noise():
            for name, value in step.items():
                noise.setdefault(name, []).append(value)
    return noise


def _check_table_size(runs: list[_Watched]) -> str:
    """The mean square of rounded noise is that of its exact distribution, in runs and in further draws."""
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


def _check_everywhere(list_releases: Callable[[list[_Watched]], Releases], runs: list[_Watched]) -> str:
    """Noise that is nearly 0 at one number in every release is none; so is noise that often is."""
    for name, releases in list_releases(runs).items():
        stack = np.abs(np.stack([release.ravel() for release in releases]))
        # A normal number is below t in size with probability at most 0.8 t.
        least = (_ERROR / stack.shape[1]) ** (1 / len(stack)) / 0.8
        bare = int((stack.max(axis=0) < max(least, _ROUNDING / 10)).sum())
        if bare:
            return f"{name}: {bare} of {stack.shape[1]} numbers have no noise"
        near = int((stack < _ROUNDING).sum())
        if near > stats.binom.isf(_ERROR, stack.size, 0.8 * _ROUNDING):
            return f"{name}: {near} of {stack.size} draws are nearly 0"
    return ""


def _check_size(list_releases: Callable[[list[_Watched]], Releases], runs: list[_Watched]) -> str:
    """The mean square of the noise is 1, in units of the planned noise."""
    for name, releases in list_releases(runs).items():
        values = np.concatenate([release.ravel() for release in releases])
        low, high = stats.chi2.isf([1 - _ERROR, _ERROR], len(values)) / len(values)
        size = float(np.square(values).mean())
        if not 0.99 * low <= size <= 1.01 * high:
            return f"{name}: {math.sqrt(size):.3f} times the planned noise"
    return ""


def _check_fresh(runs: list[_Watched]) -> str:
    """No two releases, places or rows of a tensor have noise in common."""
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
    """The first two vectors that begin alike."""
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


_OF_STEPS: list[tuple[str, Callable[[list[_Watched]], str]]] = [
    ("noise in every entry of every weight tensor", partial(_check_everywhere, _list_tensors)),
    ("noise of weight tensors has the planned size", partial(_check_size, _list_tensors)),
    ("no noise is used twice", _check_fresh),
]


def _find_equal_rows(noise: Floats) -> tuple[int, int] | None:
    """Two rows that are the same."""
    distances = pdist(noise)
    nearest = int(np.argmin(distances))
    if noise.shape[1] < 4 or distances[nearest] > _EQUAL:
        return None
    return next(itertools.islice(itertools.combinations(range(len(noise)), 2), nearest, None))
