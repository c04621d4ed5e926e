"""Small runs that are watched in detail, each beside what a second computation expects of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse, stats

from hushgraph._files import read_tensors
from hushgraph.audit.expected import expect_boards, expect_counts, expect_sum, list_records
from hushgraph.audit.runs import (
    Plant,
    Rerun,
    Seen,
    Weights,
    choose_config,
    flatten,
    use,
    watch_run,
)
from hushgraph.audit.statistics import Floats
from hushgraph.audit.weights import spread
from hushgraph.billboard.ballots import GRID
from hushgraph.figures.tables import Counts, NoisyTables
from hushgraph.graph.graph import Graph
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.training.memory import GraphView
from hushgraph.training.running import Begin
from hushgraph.training.trainer import Trainer

# Of the random graph, and of runs on it.
_NODES, _CLASSES, _FEATURES, _EDGES, STEPS = 240, 4, 12, 1200, 12
# Rows without a label in each evaluated split.
_UNLABELLED = 5
# So many parameters that noise is drawn ahead, as in most runs.
HIDDEN = 200
# The chance of a false alarm of one check.
ERROR = 1e-9
# Further tables at most.
MOST_TABLES = 400
# Of the weights under which single rows are clipped.
_WEIGHTS_SEED, _TINY = 5, 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched:
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
        owners, places = list_records(self.graph, self.plan)
        np.add.at(tally, places, self.ballots[place][owners])
        return tally

    def board_noise(self) -> list[Floats]:
        """[N, c] of every board that was visible: what is left of it, in units of its planned noise."""
        planned = self.plan.board_noise
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


def watch_data(graph: Graph, plan: PrivacyPlan, begin: Begin, hidden: int) -> Watched:
    """One run of whole batches, and what its rows cast."""
    plan = replace(plan, batch_size=plan.num_train_nodes)
    config = choose_config(plan, hidden=hidden)
    with watch_run(graph, plan, config, begin=begin, in_detail=True) as seen:
        charges = read_charges(seen)
        world = Rerun(seen=seen, graph=graph)
        view = world.view(len(plan.segment_ends) - 1)
        probes = _probe_rows(world.trainer(view), view, plan)
        nodes = np.arange(graph.num_nodes)
        cast = [world.ballots(place, None) for place in range(seen.folder.num_boards)]
    ballots = [each.dense(nodes) / GRID for each in cast]
    return Watched(plan=plan, seen=seen, graph=graph, charges=charges, ballots=ballots, probes=probes)


def _make_graph(*, is_sparse: bool) -> Graph:
    """A random graph with labels in every split, and rows whose features are zero, tiny or huge."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(_NODES, _FEATURES)) * (rng.random((_NODES, _FEATURES)) < 0.4)
    x *= rng.choice([0.0, 1e-6, 1.0, 1.0, 1e4], size=(_NODES, 1))
    x = x.astype(np.float32)
    train, val, test = np.split(rng.permutation(_NODES), [_NODES // 2, 3 * _NODES // 4])
    y = rng.integers(_CLASSES, size=_NODES)
    # Rows without a label are counted nowhere.
    y[val[:_UNLABELLED]] = y[test[:_UNLABELLED]] = -1
    return Graph.from_arrays(
        edge_index=rng.integers(_NODES, size=(2, _EDGES)),
        x=sparse.csr_matrix(x) if is_sparse else x,
        y=y,
        train_idx=np.sort(train),
        val_idx=np.sort(val),
        test_idx=np.sort(test),
        num_classes=_CLASSES,
        symmetrize=True,
    )


def watch(plan: PrivacyPlan, plant: Plant, *, is_sparse: bool) -> Watched:
    """One run of whole batches on the random graph, and the second computation."""
    graph = _make_graph(is_sparse=is_sparse)
    nodes = len(graph.train_idx)
    alone = replace(plan.with_evaluation(0), protects="node")
    moved = replace(alone, num_train_nodes=nodes, batch_size=nodes, steps=STEPS)
    plan = moved.with_classes(_CLASSES).with_evaluation(len(graph.task.tables))
    config = choose_config(plan, hidden=HIDDEN)
    with watch_run(graph, plan, config, plant=plant, in_detail=True) as seen:
        charges = read_charges(seen)
        world = Rerun(seen=seen, graph=graph)
        view = world.view(plan.num_boards - 1)
        trainer = world.trainer(view)
        probes = _probe_rows(trainer, view, plan)
        ballots, readings = expect_boards(seen, graph, plan)
        weights, _ = read_tensors(seen.folder.path / "weights.safetensors")
        counts, unsure = expect_counts(weights, graph, readings[-1])
        more = _draw_more_tables(seen, plan)
    sums = [
        expect_sum(weights, graph, readings[segment_of(plan, step)], trainer.clipping)
        for step, weights in enumerate(seen.starts)
    ]
    return Watched(
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
    """Draw so many tables that no cell with noise is 0 in all of them: rounded noise often is 0."""
    cells = sum(table.size for tables in seen.counts[-1].values() for table in tables)
    is_zero = stats.norm.cdf(0.5 / plan.table_noise) - stats.norm.cdf(-0.5 / plan.table_noise)
    count = min(MOST_TABLES, math.ceil(math.log(ERROR / cells) / math.log(is_zero)))
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


def read_charges(seen: Seen) -> dict[Any, int]:
    """Every planned charge, and how often the ledger on disk shows it."""
    ledger = Ledger.open(seen.folder.ledger_path, read_only=True)
    return {charge: ledger.count_charged(charge) for charge in seen.folder.plan.charges}


def segment_of(plan: PrivacyPlan, step: int) -> int:
    """After which board a step comes; steps beyond the plan belong to the last."""
    segment = int(np.searchsorted(plan.segment_ends, step, side="right"))
    return min(segment, len(plan.segment_ends) - 1)
