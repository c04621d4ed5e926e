"""Figures: how far one row, edge or label moves boards and tables, what that costs, and how well it hides.

Boards and weights are the same for both graphs: that is how releases compose.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import optimize, stats

import hushgraph as hg
from effort import choose
from hushgraph.audit.attack import stage_boards
from hushgraph.audit.faults import get_fault
from hushgraph.audit.runs import Plant, plant_nothing
from hushgraph.billboard.ballots import GRID, Ballots, label_ballots, with_predictions
from hushgraph.billboard.board import Board, cast
from hushgraph.billboard.combined import combine_boards
from hushgraph.billboard.reading import read_scaled
from hushgraph.figures.tables import Counts, count_rows, release_tables
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, scores
from hushgraph.inputs.features import Features, RowTable
from hushgraph.models.gnn import ReadingMLP
from hushgraph.privacy.changes import KINDS, ONE_EDGE, ONE_LABEL, ONE_RECORD, Change, Kind
from hushgraph.privacy.charges import BoardCharge, EvaluationCharge
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan, RowPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder
from hushgraph.tasks.classes import Classes
from hushgraph.training.evaluation import SPLITS
from hushgraph.training.memory import GraphView

GRAPHS = choose(300, 2000)
# Rounding towards zero loses less than this much of a squared norm on such small graphs.
NEARLY = 1 - 1e-5
FEATURES, NORM = 2, 1.0


@dataclass(frozen=True, eq=False)
class World:
    """A graph, and what its rows cast and are counted as, given boards and weights."""

    graph: Graph
    case: Case

    @cached_property
    def casts(self) -> list[Ballots]:
        """Onto every board."""
        case = self.case
        labels = label_ballots(self.graph, "sender", task=case.task)
        if len(case.boards) < 2:
            return [labels]
        table = self._read([case.boards[0]], [labels])
        outputs = scores(case.halfway, WholeGraph(self.graph, table), depth=0)
        return [labels, with_predictions(labels, outputs, case.task)]

    def _read(self, boards: list[Board], own: list[Ballots]) -> RowTable:
        board, parts = combine_boards(boards)
        readings = read_scaled(
            board, self.graph, "sender", own=list(zip(parts, own, strict=True)), scale=1.0, radius=10.0
        )
        return RowTable(self.graph, readings, "cpu", feature_norm=NORM)

    @cached_property
    def tallies(self) -> list[npt.NDArray[np.int64]]:
        return [cast(self.graph, ballots) for ballots in self.casts]

    @cached_property
    def tables(self) -> dict[str, Counts]:
        """Of both evaluated splits, as a session counts them."""
        case = self.case
        view = GraphView(case.folder, WholeGraph(self.graph, self._read(case.boards, self.casts)))
        return {
            split: count_rows(case.task, view.score(case.final, split), num_groups=case.num_groups)
            for split in SPLITS
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A random graph with released boards and weights; `num_groups` is 0 where there are none."""

    graph: Graph
    boards: list[Board]
    halfway: ReadingMLP
    final: ReadingMLP
    folder: RunFolder
    num_groups: int
    twins: list[int]
    rng: np.random.Generator

    @property
    def task(self) -> Classes:
        return Classes(num_classes=self.graph.num_classes)

    @cached_property
    def world(self) -> World:
        return World(self.graph, self)

    def kind(self, v: int) -> Kind:
        if v in self.graph.train_idx:
            return "training"
        return "evaluated" if v in self.graph.val_idx or v in self.graph.test_idx else "other"

    def without(self, *records: tuple[int, int]) -> Graph:
        """The graph less these records, (row, place that it lists)."""
        source, target = next(self.graph.edge_chunks())
        kept = np.ones(len(source), np.bool_)
        for u, w in records:
            kept &= (source != u) | (target != w)
        return self.graph._filter_reads(kept)

    def compare(self, changed: Graph) -> tuple[list[int], int]:
        """Squared moves of every board, in squared units, and of all tables together, in squared counts."""
        other = World(changed, self)
        boards = [_square(a - b) for a, b in zip(self.world.tallies, other.tallies, strict=True)]
        before, after = self.world.tables, other.tables
        tables = sum(
            _square(a - b) for split in before for a, b in zip(before[split], after[split], strict=True)
        )
        return boards, tables


def _square(moved: npt.NDArray[np.int64]) -> int:
    """The squared norm, without overflow."""
    return sum(int(value) ** 2 for value in moved.flat)


class FixedModel(ReadingMLP):
    """A model of a class of its own is used as it is; the built-in one is copied for every graph."""


@lru_cache
def _model(classes: int, seed: int) -> ReadingMLP:
    """Weights that make nearly certain predictions, from features and readings."""
    generator = torch.Generator().manual_seed(seed)
    model = FixedModel(FEATURES, classes, hidden=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(20 * torch.randn(parameter.shape, generator=generator))
    return model


@lru_cache
def _folder(classes: int) -> RunFolder:
    plan = BillboardPlan(num_train_nodes=2, batch_size=2, steps=2, num_classes=classes)
    return RunFolder(
        path=Path(),
        plan=plan,
        config=TrainingConfig(hidden=3),
        num_features=FEATURES,
        asked=Classes(num_classes=classes),
        split_id="",
        data="",
    )


def cases(count: int = GRAPHS) -> Iterator[Case]:
    """Small graphs, directed and undirected, with rows that have no label, no list, no group or no split."""
    for number in range(count):
        rng = np.random.default_rng(number)
        nodes, classes = int(rng.integers(6, 11)), int(rng.integers(2, 5))
        is_directed = number % 2 == 0
        train, val, test, _ = np.split(rng.permutation(nodes), [2, 3, int(rng.integers(5, nodes))])
        edges = rng.integers(nodes, size=(2, int(rng.integers(2, 3 * nodes))))
        x = rng.normal(size=(nodes, FEATURES))
        y = np.where(rng.random(nodes) < 0.85, rng.integers(classes, size=nodes), -1)
        num_groups = int(rng.choice([0, 0, 2]))
        groups = rng.integers(-1, max(1, num_groups), nodes)
        boards = rng.normal(size=(int(rng.integers(1, 3)), nodes, classes)).astype(np.float32)
        if number % 8 == 1:
            # Twins, who list nobody but each other: they leave one cell and enter one other, together.
            twins = test[:2]
            edges = np.concatenate([edges[:, ~np.isin(edges, twins).any(axis=0)], twins[:, None]], axis=1)
            x[twins], y[twins], groups[twins], boards[:, twins] = x[test[0]], 0, 0, boards[:, test[:1]]
        graph = Graph.from_arrays(
            edge_index=edges,
            x=x,
            y=y,
            train_idx=np.sort(train),
            val_idx=np.sort(val),
            test_idx=np.sort(test),
            num_classes=classes,
            symmetrize=not is_directed,
            directed=is_directed or None,
            groups=groups if num_groups else None,
        )
        yield Case(
            graph=graph,
            boards=[Board(values=v, noise_std=std) for v, std in zip(boards, (1.0, 0.7), strict=False)],
            halfway=_model(classes, number % 7),
            final=_model(classes, 7 + number % 5),
            folder=_folder(classes),
            num_groups=num_groups,
            twins=test[:2].tolist() if number % 8 == 1 else [],
            rng=rng,
        )


@dataclass(eq=False)
class Largest:
    """The largest squared moves seen for a change, in units of one ballot and of one count.

    Attributes:
        boards: by place.
        tables: by m, the number of tables.
    """

    boards: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    tables: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def note(self, boards: list[int], tables: int, m: int) -> None:
        for place, moved in enumerate(boards):
            self.boards[place] = max(self.boards[place], moved / GRID**2)
        self.tables[m] = max(self.tables[m], tables)


@pytest.fixture(scope="module")
def largest() -> dict[Change, Largest]:
    """Of every change, over all graphs: a row of each kind, an edge or a record, a label."""
    seen: dict[Change, Largest] = defaultdict(Largest)
    for case in cases():
        graph, m = case.graph, len(case.task.tables)
        kinds = [case.kind(v) for v in range(graph.num_nodes)]
        for kind in KINDS:
            rows = [v for v, each in enumerate(kinds) if each == kind]
            if rows:
                emptied = graph.with_row_emptied(int(case.rng.choice(rows)), "sender")
                seen[Change("rows", (kind,))].note(*case.compare(emptied), m)
        if graph.num_edges:
            source, target = (ends.tolist() for ends in next(graph.edge_chunks()))
            at = case.rng.integers(len(source))
            if case.twins:
                at = source.index(case.twins[0])
            u, w = source[at], target[at]
            if graph.is_directed:
                seen[Change("record", (kinds[u],))].note(*case.compare(case.without((u, w))), m)
            else:
                ends = tuple(sorted((kinds[u], kinds[w]), key=KINDS.index))
                seen[Change("edge", ends)].note(*case.compare(case.without((u, w), (w, u))), m)
        labelled = np.flatnonzero(graph.y >= 0)
        if len(labelled):
            v, labels = int(case.rng.choice(labelled)), graph.y.copy()
            labels[v] = (labels[v] + 1 + case.rng.integers(graph.num_classes - 1)) % graph.num_classes
            seen[Change("label", (kinds[v],))].note(*case.compare(replace(graph, y=labels)), m)
    return seen


# The contract's column of every kind: first board, second board, and tables in units of m.
COLUMNS: dict[Kind, tuple[int, int, int]] = {
    "training": (1, 1, 0),
    "evaluated": (0, 1, 1),
    "other": (0, 1, 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_row_moves_boards_and_tables_by_the_column_of_its_kind(
    kind: Kind, largest: dict[Change, Largest]
) -> None:
    seen = largest[Change("rows", (kind,))]
    first, second, tables = COLUMNS[kind]
    assert NEARLY * first <= seen.boards[0] <= first
    assert NEARLY * second <= seen.boards[1] <= second
    assert seen.tables == {1: tables, 2: 2 * tables}


# Squared moves of the tables, in units of m, by the contract; 0 for every other change.
CHANGES: dict[tuple[str, tuple[Kind, ...]], int] = {
    ("edge", ("training", "evaluated")): 2,
    ("edge", ("evaluated", "evaluated")): 8,
    ("edge", ("evaluated", "other")): 2,
    ("record", ("evaluated",)): 2,
    ("label", ("evaluated",)): 2,
}


@pytest.mark.parametrize("change", [*ONE_EDGE, *ONE_RECORD, *ONE_LABEL], ids=str)
def test_an_edge_a_record_or_a_label_moves_tables_by_what_is_charged(
    change: Change, largest: dict[Change, Largest]
) -> None:
    expected = CHANGES.get((change.what, change.kinds), 0)
    tables = largest[change].tables
    assert tables == {m: expected * m for m in tables}
    # Few graphs have an edge between their two training rows.
    assert set(tables) == {1, 2} or (not expected and 2 in tables)
    for m in (1, 2):
        event = EvaluationCharge(num_tables=m, noise_std=1.0).event(change)
        charged = 0.0 if event is None else event.largest_shift**2
        assert charged == pytest.approx(expected * m)
        for place, moved in largest[change].boards.items():
            board = BoardCharge(name="board", noise_std=1.0, by_everybody=place > 0)
            event = board.event(change)
            assert moved <= (0.0 if event is None else event.largest_shift**2 * (1 + 1e-12))


def test_without_boards_no_edge_moves_a_table(tmp_path: Path) -> None:
    """Rows of a plan without boards read features alone; their labels count as everywhere."""
    case = next(case for case in cases() if case.graph.num_edges > 4 and case.num_groups == 0)
    plan = RowPlan(num_train_nodes=2, batch_size=2, steps=2)
    folder = RunFolder.describe(tmp_path, case.graph, plan, TrainingConfig(model="mlp", hidden=3), data="")
    model = folder.build_model(seed=1)

    def count(graph: Graph) -> list[npt.NDArray[np.int64]]:
        view = GraphView(folder, WholeGraph(graph, Features(graph)))
        return [table for split in SPLITS for table in count_rows(case.task, view.score(model, split))]

    before = count(case.graph)
    assert sum(int(table.sum()) for table in before) > 0
    bare = case.graph._filter_reads(np.zeros(case.graph.num_edges, np.bool_))
    for with_edges, without in zip(before, count(bare), strict=True):
        np.testing.assert_array_equal(with_edges, without)
    charge = EvaluationCharge(num_tables=2, noise_std=1.0, reads_lists=plan.predictions_read_lists)
    assert [charge.event(change) for change in (*ONE_EDGE, *ONE_RECORD)] == [None] * 9
    label = charge.event(Change("label", ("evaluated",)))
    assert label is not None
    assert label.largest_shift == 2.0


GOLDEN = json.loads((Path(__file__).parent.parent / "data" / "golden.json").read_text())["plans"]
PLANS = [hg.PrivacyPlan.from_json(json.dumps(kept["plan"])) for kept in GOLDEN]
PLANS = [plan for plan in PLANS if plan.can_evaluate]
PLANS += [
    RowPlan(num_train_nodes=5000, batch_size=size, steps=40).calibrated(epsilon=epsilon)
    for size, epsilon in ((5000, 1.0), (5000, 8.0), (500, 4.0))
]


def gaussian_epsilon(square: float, delta: float) -> float:
    """Of one Gaussian with this squared shift, from its curve alone."""
    mu = math.sqrt(square)

    def excess(epsilon: float) -> float:
        low, high = stats.norm.logcdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return math.exp(low) - math.exp(epsilon + high) - delta

    return 0.0 if not mu or excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, 1e4, xtol=1e-12))


# Squared shifts of first board, second board, tables (in units of m) and steps.
ROWS = {"training": (1, 1, 0, 1), "evaluated": (0, 1, 1, 0), "other": (0, 1, 0, 0)}
TWO_ROWS = [
    tuple((math.sqrt(a) + math.sqrt(b)) ** 2 for a, b in zip(ROWS[first], ROWS[second], strict=True))
    for first, second in itertools.combinations_with_replacement(KINDS, 2)
]
EDGES = [(2, 16, 0, 16), (1, 16, 2, 4), (0, 16, 8, 0), (1, 16, 0, 4), (0, 16, 2, 0), (0, 16, 0, 0)]


def price_table(plan: PrivacyPlan, table: Iterable[Sequence[float]], *, reads: bool = True) -> float:
    """The largest over lines of the contract's table, for whole batches; lists that nobody reads are free."""
    noise = [*getattr(plan, "board_noise", ()), math.inf, math.inf][:2]
    units = (
        *(1 / std**2 for std in noise),
        plan.num_tables / plan.table_noise**2,
        plan.steps / plan.sigma_over_clip**2,
    )
    return max(
        gaussian_epsilon(
            math.fsum(a * b for a, b in zip(line, units, strict=True)) if reads else 0.0, plan.delta
        )
        for line in table
    )


@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize(
    "bare", PLANS, ids=lambda plan: f"{plan.method}-{plan.epsilon:.0f}-{plan.batch_size}"
)
def test_figures_are_free_and_cost_evaluated_rows_what_training_costs(bare: PrivacyPlan, tables: int) -> None:
    plan = bare.with_evaluation(tables)
    assert plan.num_tables == tables
    # The last bits of two columns of the same shift may differ.
    assert plan.epsilon == pytest.approx(bare.epsilon, rel=1e-12)
    assert bare.epsilon * (1 - 1e-6) <= plan.epsilon_evaluated <= bare.epsilon
    # Nothing that an evaluated row pays for is sampled: an independent price, whatever the rate.
    assert plan.epsilon_evaluated == pytest.approx(price_table(plan, [ROWS["evaluated"]]), rel=1e-9)
    reads = plan.predictions_read_lists
    edge = plan.price([Change("edge", ("evaluated", "evaluated"))])
    assert edge == pytest.approx(price_table(plan, [EDGES[2]], reads=reads), rel=1e-9)
    if plan.sampling_rate == 1:
        assert plan.epsilon_edge == pytest.approx(price_table(plan, EDGES, reads=reads), rel=1e-9)
        assert plan.epsilon_group_of_two == pytest.approx(price_table(plan, TWO_ROWS), rel=1e-9)
    else:
        # Sampled steps cost training rows more than nothing, so that these are lower bounds.
        assert plan.epsilon_edge >= price_table(plan, EDGES[2:3], reads=reads) * (1 - 1e-9)
        assert plan.epsilon_group_of_two >= price_table(plan, [TWO_ROWS[3]]) * (1 - 1e-9)


def test_one_table_less_needs_less_noise() -> None:
    """The noise is sqrt(m) / mu where nothing else is charged: about 1.7 counts at 4, 6 at 1, for m = 2."""
    for epsilon, noise in ((4.0, 1.7), (1.0, 6.0)):
        bare = BillboardPlan(num_train_nodes=90_000, batch_size=90_000, steps=50, num_boards=1)
        plan = bare.calibrated(epsilon=epsilon).with_evaluation(2)
        assert plan.table_noise == pytest.approx(noise, rel=0.1)
        assert plan.with_evaluation(1).table_noise == pytest.approx(plan.table_noise / math.sqrt(2), rel=1e-9)


@pytest.mark.parametrize("noise_std", [0.3, 1.0, 1.7, 6.1, 1000.0])
def test_noisy_counts_are_rounded_sums_of_counts_and_normal_numbers(noise_std: float) -> None:
    """floor(count + 2^40 z / m + 1/2), exactly, for draws at which floating point rounds wrongly."""
    divisor = int(Fraction(2**40) / Fraction(noise_std))
    steps = np.arange(-40, 41)
    edges = [steps * divisor + half for half in (divisor // 2, divisor // 2 - 1, -divisor // 2 - 1, 0)]
    draws = np.concatenate([*edges, np.array([2**53 + 1, -(2**53) - 1, 2**61 - 1])])
    counts = np.arange(len(draws), dtype=np.int64) % 7
    noisy = release_tables({"val": (counts,)}, noise_std=noise_std, draws=lambda _: draws).splits["val"][0]
    half = divisor // 2
    exact = [
        math.floor(count + Fraction(draw + half, divisor))
        for count, draw in zip(counts.tolist(), draws.tolist(), strict=True)
    ]
    assert noisy.tolist() == exact
    assert 2**40 / divisor >= noise_std


@pytest.mark.parametrize(("claim", "boards"), [(1.0, 2), (4.0, 1)])
def test_the_best_attack_on_an_evaluated_row_shows_its_epsilon_and_no_more(claim: float, boards: int) -> None:
    plan = BillboardPlan(
        num_train_nodes=1000, batch_size=1000, steps=2, num_classes=3, num_boards=boards, delta=1e-5
    )
    plan = plan.calibrated(epsilon=claim).with_evaluation(2)
    copies = choose(20_000, 40_000)
    # Of a difference of two means of half of the trials each, in units of one standard deviation.
    error = 5 * math.sqrt(4 / copies)

    def guess_shift(plant: Plant, statistic: int) -> float:
        """mu, estimated by the best statistic of what real sessions release."""
        stage = stage_boards(plan, plant, copies, difference="evaluated")
        worlds = stage.run(np.random.default_rng(boards)).pair(statistic)
        spread = math.sqrt(sum(world.var() for world in worlds) / 2)
        return float(worlds[0].mean() - worlds[1].mean()) / spread

    shift = guess_shift(plant_nothing, 0)
    assert gaussian_epsilon((shift + error / 2) ** 2, plan.delta) > 0.8 * claim
    assert gaussian_epsilon(max(shift - error, 1e-9) ** 2, plan.delta) <= plan.epsilon_evaluated <= claim
    half = guess_shift(get_fault("half-noise-tables").plant, 3)
    assert half - error > 1.5 * math.sqrt(2) / plan.table_noise
