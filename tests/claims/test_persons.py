"""People with several nodes: emptying a person, all their nodes, is what emptying a row is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch

import hushgraph as hg
from effort import choose
from hushgraph.billboard.ballots import GRID, Ballots, label_ballots, owned_records, with_predictions
from hushgraph.billboard.board import Board, cast
from hushgraph.billboard.combined import place_weights
from hushgraph.billboard.reading import read
from hushgraph.figures.tables import Scored, choose_grids, count_rows
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.persons import PERSON_GRID, share_count
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import ReadingMLP
from hushgraph.privacy.changes import TRAINING_ROW, Change
from hushgraph.privacy.charges import ScalingCharge
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow
from hushgraph.scaling.histograms import count_numbers
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task

GRAPHS = choose(300, 2000)
NEARLY = 1 - 1e-5
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A random graph with persons, and what a released model says of its nodes."""

    graph: Graph
    owner: EdgeOwner
    task: Task
    outputs: torch.Tensor
    rng: np.random.Generator

    def ballots(self, graph: Graph, place: int) -> Ballots:
        labels = label_ballots(graph, self.owner, task=self.task)
        return labels if place == 0 else with_predictions(labels, self.outputs, self.task)

    def tally(self, graph: Graph, place: int) -> Int64Array:
        return cast(graph, self.ballots(graph, place))

    def empty(self) -> tuple[int, Graph]:
        """A node, and the graph in which its person is empty."""
        v = int(self.rng.integers(self.graph.num_nodes))
        return v, self.graph.with_row_emptied(v, self.owner)


def cases(*, count: int = GRAPHS, directed: bool | None = None) -> Iterator[Case]:
    """Small graphs: persons with one node and with many, nodes outside every split, two tasks."""
    for number in range(count):
        rng = np.random.default_rng(number)
        nodes, classes = int(rng.integers(2, 12)), int(rng.integers(2, 6))
        is_directed = number % 2 == 0 if directed is None else directed
        task: Task = Number(low=-1.0, high=1.0) if number % 5 == 0 else Classes(num_classes=classes)
        labels = rng.integers(-1, classes, nodes)
        # Of one label and few places, nodes of a person cast the same.
        labels = np.where(rng.random() < 0.3, np.minimum(labels, 0), labels)
        size = int(rng.integers(0, 4 * nodes))
        splits = rng.choice(4, nodes, p=[0.6, 0.15, 0.15, 0.1])
        splits[0] = 0
        graph = Graph.from_arrays(
            edge_index=(nodes * rng.random((2, size)) ** rng.choice([1.0, 2.5])).astype(np.int64),
            x=np.zeros((nodes, 1)),
            y=np.where(labels < 0, np.nan, 1 - labels).astype(np.float32) if number % 5 == 0 else labels,
            **{f"{name}_idx": np.flatnonzero(splits == i) for i, name in enumerate(("train", "val", "test"))},
            task=task,
            symmetrize=not is_directed,
            directed=is_directed or None,
            persons=rng.integers(-1, max(1, int(nodes * rng.choice([0.3, 0.8]))), nodes),
        )
        yield Case(
            graph=graph,
            owner="sender" if rng.random() < 0.5 else "reader",
            task=task,
            outputs=torch.from_numpy(rng.normal(size=(nodes, task.num_outputs))).float(),
            rng=rng,
        )


def square(moved: Int64Array) -> int:
    return sum(int(value) ** 2 for value in moved.flat)


def test_an_emptied_person_moves_a_board_by_at_most_one_ballot_and_no_other_reading() -> None:
    """Both boards: that of labels, and that onto which everybody casts."""
    largest = {"one": 0, "several": 0}
    for number, case in enumerate(cases()):
        v, emptied = case.empty()
        persons, place = case.graph.persons, number // 2 % 2
        assert persons is not None
        ballots, others = case.ballots(case.graph, place), persons != persons[v]
        tally = cast(case.graph, ballots)
        moved = square(tally - case.tally(emptied, place))
        assert moved <= GRID**2, number
        casts = ballots.is_cast & (ballots.list_sizes > 0) & ~others
        if not casts.any():
            assert moved == 0, number
        kind = "several" if casts.sum() > 1 else "one"
        largest[kind] = max(largest[kind], moved)
        noisy = tally / GRID + case.rng.normal(size=tally.shape)
        board = Board(values=noisy.astype(np.float32), noise_std=1.0)
        before = read(board, case.graph, case.owner, own=ballots)
        after = read(board, emptied, case.owner, own=case.ballots(emptied, place))
        assert np.array_equal(before[others], after[others]), number
        assert not after[~others].any()
    assert min(largest.values()) > NEARLY * GRID**2


def test_1_over_the_root_of_k_would_not_do() -> None:
    """k nodes that list one place would move it by the root of k."""
    graph = Graph.from_arrays(
        edge_index=[[0, 1, 2, 3], [4] * 4],
        x=np.eye(5),
        y=[0] * 5,
        train_idx=[0, 1, 2, 3],
        persons=[0] * 4 + [1],
        num_classes=3,
    )
    ballots = label_ballots(graph, "sender", task=graph.task)
    moved = square(cast(graph, ballots))
    assert NEARLY * GRID**2 < moved <= GRID**2
    alone = label_ballots(replace(graph, persons=None), "sender", task=graph.task)
    assert square(cast(graph, alone)) > 15 * GRID**2


def test_what_any_node_of_a_person_cast_is_taken_off() -> None:
    for number, case in enumerate(cases(count=150)):
        graph, persons = case.graph, case.graph.persons
        assert persons is not None
        ballots = case.ballots(graph, number % 2)
        shape = (graph.num_nodes, ballots.width)
        board = Board(values=case.rng.normal(size=shape).astype(np.float32), noise_std=1.0)
        seen = read(board, graph, case.owner, own=ballots)
        lists: list[list[int]] = [[] for _ in range(graph.num_nodes)]
        for owners, places in owned_records(graph, case.owner):
            for v, u in zip(owners, places, strict=True):
                lists[v].append(int(u))
        dense, weights = ballots.dense(np.arange(graph.num_nodes)) / GRID, place_weights(board)
        for v, listed in enumerate(lists):
            own = [w for w in range(graph.num_nodes) if persons[w] == persons[v]]
            total = np.zeros(ballots.width)
            for u in listed:
                total += weights[u] * (board.values[u] - sum(dense[w] for w in own if u in lists[w]))
            total /= np.sqrt(sum(weights[u] ** 2 for u in listed) or 1.0)
            assert np.allclose(seen[v], total, atol=1e-5), (number, v)


@pytest.mark.parametrize("directed", [False, True])
def test_one_edge_moves_the_first_board_by_what_is_charged(directed: bool) -> None:
    """Every edge of every graph: 4 squared for an undirected one, 1 for a directed record."""
    largest = 0
    for number, case in enumerate(cases(count=150, directed=directed)):
        graph = case.graph
        chunks = list(graph.edge_chunks())
        if not chunks:
            continue
        source, target = (np.concatenate(each) for each in zip(*chunks, strict=True))
        before = case.tally(graph, 0)
        for u, w in {(min(e), max(e)) if not directed else e for e in zip(source, target, strict=True)}:
            gone = (source == u) & (target == w)
            if not directed:
                gone |= (source == w) & (target == u)
            moved = square(before - case.tally(graph._filter_reads(~gone), 0))
            assert moved <= (1 if directed else 4) * GRID**2, number
            largest = max(largest, moved)
    # Two nodes that list each other alone reach 2; the charge of 4 allows for what no small graph shows.
    assert largest > (1 if directed else 2) * NEARLY * GRID**2


def person_batch(graph: Graph, model: ReadingMLP, clipping: Clipping) -> dict[str, torch.Tensor]:
    """The clipped sum over all training persons."""
    from hushgraph.graph.persons import gather

    assert graph.persons is not None
    members = gather(graph.persons, graph.train_idx)
    lists = BoundedLists(indptr=np.zeros(graph.num_nodes + 1, np.int64), indices=np.zeros(0, np.int32))
    batch = tree_batch(grow(lists, members.nodes, 0), Features(graph), graph.y, may_read=False)
    return ghost.clipped_sum(model, batch.by_person(members.pointers), clipping)


def row_gradient(model: ReadingMLP, graph: Graph, v: int) -> dict[str, torch.Tensor]:
    loss = graph.task.loss(model(torch.from_numpy(graph.x[[v]]), ()), torch.from_numpy(graph.y[[v]])).sum()
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return {
        name: torch.zeros_like(p).double() if g is None else g.double()
        for (name, p), g in zip(model.named_parameters(), found, strict=True)
    }


def norm(parts: dict[str, torch.Tensor]) -> float:
    return float(torch.sqrt(sum((value.double() ** 2).sum() for value in parts.values())))  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [None, (1.0, 0.3, 0.05)])
@pytest.mark.parametrize("kind", ["normalised", "flat"])
def test_gradients_of_a_person_are_summed_and_the_sum_is_clipped(
    kind: str, weights: tuple[float, ...] | None
) -> None:
    rng = np.random.default_rng(3)
    torch.manual_seed(0)
    for _ in range(20):
        nodes = 12
        graph = Graph.from_arrays(
            edge_index=np.zeros((2, 0), np.int64),
            x=rng.normal(size=(nodes, 5)) * rng.choice([0.01, 1.0, 50.0], (nodes, 1)),
            y=rng.integers(-1, 3, nodes),
            train_idx=np.flatnonzero(rng.random(nodes) < 0.8),
            num_classes=3,
            persons=rng.integers(0, 5, nodes),
        )
        model = ReadingMLP(2, 3, hidden=4)
        torch.nn.init.normal_(model.decoder.weight)
        clipping = Clipping(kind=kind, clip=0.7, class_weights=weights)
        expected: dict[str, torch.Tensor] = {}
        assert graph.persons is not None
        for person in np.unique(graph.persons[graph.train_idx]):
            total: dict[str, torch.Tensor] = {}
            for v in graph.train_idx[graph.persons[graph.train_idx] == person]:
                own = row_gradient(model, graph, v)
                factor = 1.0
                if weights is not None:
                    clip = clipping.factors(torch.tensor([[norm(own) ** 2]], dtype=torch.float64))
                    factor = float(clip[0, 0]) * (weights[graph.y[v]] if graph.y[v] >= 0 else 0.0)
                total = {name: total.get(name, 0.0) + factor * g for name, g in own.items()}
            after = clipping if weights is None else Clipping(kind="flat", clip=0.7)
            scale = float(after.factors(torch.tensor([[norm(total) ** 2]], dtype=torch.float64))[0, 0])
            assert scale * norm(total) <= 0.7 * (1 + 1e-9)
            expected = {name: expected.get(name, 0.0) + scale * g for name, g in total.items()}
        found = person_batch(graph, model, clipping)
        size = norm(expected)
        assert norm({name: found[name] - expected[name] for name in expected}) <= 1e-3 * size + 1e-9


def test_an_emptied_person_removes_one_example_of_norm_c() -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(1)
    model, largest = ReadingMLP(2, 3, hidden=4), 0.0
    torch.nn.init.normal_(model.decoder.weight)
    for number in range(60):
        graph = Graph.from_arrays(
            edge_index=np.zeros((2, 0), np.int64),
            x=rng.normal(size=(9, 5)) * 10 ** rng.uniform(-3, 3),
            y=rng.integers(-1, 3, 9),
            train_idx=np.arange(9),
            num_classes=3,
            persons=rng.integers(0, 3, 9),
        )
        clipping = Clipping(class_weights=(1.0, 0.5, 0.2) if number % 2 else None, stability=1e-9)
        before = person_batch(graph, model, clipping)
        after = person_batch(graph.with_row_emptied(int(rng.integers(9)), "sender"), model, clipping)
        moved = norm({name: before[name] - after[name] for name in before})
        assert moved <= 1 + 1e-6
        largest = max(largest, moved)
    assert largest > 0.999


@pytest.mark.parametrize("number", [False, True])
def test_an_emptied_person_moves_tables_by_what_is_charged(number: bool) -> None:
    """Validation and test split together: a person may have nodes in both."""
    largest = 0.0
    for case in cases(count=400):
        if isinstance(case.task, Number) != number:
            continue
        graph, task = case.graph, case.task
        shown = task.show(case.outputs).numpy()
        v, emptied = case.empty()
        shares = share_count(graph.persons, np.concatenate([graph.val_idx, graph.test_idx]), graph.num_nodes)
        assert shares is not None
        grids = choose_grids(task, by_person=True)
        moved = 0.0
        for nodes in (graph.val_idx, graph.test_idx):
            before, after = (
                count_rows(task, [Scored(shown[nodes], each.y[nodes], None, shares[nodes])])
                for each in (graph, emptied)
            )
            moved += sum(square(a - b) / grid**2 for a, b, grid in zip(before, after, grids, strict=True))
        assert moved <= task.num_tables
        largest = max(largest, moved / task.num_tables)
        assert graph.persons is not None
        if graph.persons[v] in graph.persons[graph.train_idx]:
            assert moved == 0
    # What the six numbers of a row reach depends on its label and prediction.
    assert largest > (0.5 if number else 0.999)


def test_an_emptied_person_moves_histograms_by_what_is_charged() -> None:
    rng = np.random.default_rng(5)
    largest = 0.0
    for _ in range(200):
        graph = Graph.from_arrays(
            edge_index=np.zeros((2, 0), np.int64),
            x=np.round(rng.normal(size=(8, 2)) * rng.choice([0, 1, 100])) + rng.integers(0, 2),
            y=rng.integers(-1, 2, 8),
            train_idx=np.flatnonzero(np.append(True, rng.random(7) < 0.7)),
            num_classes=2,
            persons=rng.integers(0, 4, 8),
            columns=Columns(features=("a", "b")),
        )
        v = int(rng.integers(8))
        emptied = graph.with_row_emptied(v, "sender")
        moved = square(count_numbers(graph, ["a", "b"]) - count_numbers(emptied, ["a", "b"]))
        assert moved <= 2 * PERSON_GRID**2
        largest = max(largest, moved / (2 * PERSON_GRID**2))
    assert largest == 1.0


@pytest.mark.parametrize("numbers", [0, 2])
def test_an_emptied_person_moves_the_histogram_of_targets_by_what_is_charged(numbers: int) -> None:
    """`bounds="private"`: one line more than numeric columns, in which a person adds at most 1 as well."""
    rng = np.random.default_rng(6)
    names = [f"n{k}" for k in range(numbers)]
    charge = ScalingCharge(num_columns=numbers + 1, noise_std=1.0, has_target=True)
    claimed, label = numbers + 1, 2
    assert charge.move(TRAINING_ROW) ** 2 == pytest.approx(claimed)
    assert charge.move(Change("label", ("training",))) ** 2 == pytest.approx(label)
    largest = {"person": 0.0, "label": 0.0}
    for _ in range(150):
        graph = Graph.from_arrays(
            edge_index=np.zeros((2, 0), np.int64),
            x=np.round(rng.normal(size=(8, numbers + 1)) * rng.choice([1, 100])) + 1,
            y=rng.choice([0.0, 3e38, -7.5, 40_000.0, np.inf, np.nan], 8).astype(np.float32),
            train_idx=np.flatnonzero(np.append(True, rng.random(7) < 0.7)),
            task=Number(bounds="private"),
            persons=rng.integers(0, 4, 8),
            columns=Columns(features=names, categorical={"c": ["a"]}) if numbers else None,
        )
        before = count_numbers(graph, names)
        assert len(before) == numbers + 1
        v = int(rng.integers(8))
        moved = square(before - count_numbers(graph.with_row_emptied(v, "sender"), names)) / PERSON_GRID**2
        assert moved <= claimed
        largest["person"] = max(largest["person"], moved / claimed)
        y = graph.y.copy()
        y[v] = 1.0
        if not np.isnan(graph.y[v]):
            moved = square(before - count_numbers(replace(graph, y=y), names)) / PERSON_GRID**2
            assert moved <= label
            largest["label"] = max(largest["label"], moved / label)
    assert largest == {"person": 1.0, "label": 1.0}


@cache
def small_data(nodes_each: int, persons: int = 40) -> Graph:
    """Persons with so many nodes each, all of a class."""
    rng = np.random.default_rng(nodes_each)
    count = persons * nodes_each
    labels = np.repeat(rng.integers(0, 3, persons), nodes_each)
    return Graph.from_arrays(
        edge_index=rng.integers(0, count, (2, 6 * count)),
        x=rng.normal(size=(count, 4)) + labels[:, None],
        y=labels,
        train_idx=np.arange(count // 2),
        val_idx=np.arange(count // 2, 3 * count // 4),
        test_idx=np.arange(3 * count // 4, count),
        num_classes=3,
        symmetrize=True,
        persons=np.repeat(np.arange(persons), nodes_each),
    )


def test_a_person_with_1_2_5_or_100_nodes_has_the_same_epsilon() -> None:
    plans = [hg.prepare(small_data(size), epsilon=4.0, steps=5).plan for size in (1, 2, 5, 100)]
    assert {plan.num_train_nodes for plan in plans} == {20}
    assert {plan.protects for plan in plans} == {"person"}
    for name in ("epsilon", "epsilon_group_of_two", "epsilon_edge", "epsilon_label", "delta", "board_noise"):
        assert len({getattr(plan, name) for plan in plans}) == 1, name


@pytest.mark.parametrize("settings", [{}, {"batch_size": 7}, {"model": "mlp"}], ids=str)
def test_predictions_for_other_persons_do_not_change(settings: dict[str, object]) -> None:
    graph = small_data(3)
    run = hg.train(graph, epsilon=4.0, steps=4, hidden=4, device="cpu", **settings)
    assert run.result["unit"] == "person"
    v = 10
    before, after = (run.predict_outputs(each) for each in (graph, graph.with_row_emptied(v, "sender")))
    assert graph.persons is not None
    others = graph.persons != graph.persons[v]
    assert np.array_equal(before[others], after[others])
    assert not np.array_equal(before[~others], after[~others])


def test_steps_draw_persons_and_noise_is_divided_by_persons() -> None:
    graph = small_data(5)
    _, plan, _ = hg.prepare(graph, epsilon=4.0, batch_size=5, steps=3)
    assert (plan.num_train_nodes, plan.sampling_rate) == (20, 0.25)
    assert plan.delta == 1 / 200
