"""One edge: the trees that one of its records changes, and a price that covers all its records.

Taking away one record changes at most 2 N(K, r - 1) trees if senders own edges, 3 if readers do. An edge is
two records, whoever owns them, unless the graph is declared directed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from bounded_lists import reads_of, rows_of
from effort import choose
from hushgraph import Graph
from hushgraph.accounting.accountants import price
from hushgraph.accounting.events import GaussianEvent, StepEvent
from hushgraph.billboard.ballots import GRID, label_ballots, owned_records
from hushgraph.billboard.board import cast
from hushgraph.privacy.bounds import changed_trees, trees_of_a_record
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import stable_lists
from hushgraph.tasks.classes import Classes
from plans import make_plan


def tree(lists: BoundedLists, node: int, depth: int) -> tuple[object, ...]:
    below = [tree(lists, int(u), depth - 1) for u in reads_of(lists, node)] if depth else []
    return node, *below


def changed(owner: str, number: int) -> tuple[int, int, int]:
    """K, depth, and how many training trees differ on one random graph without one of its records."""
    rng = np.random.default_rng(number)
    nodes, K, D, depth = int(rng.integers(5, 14)), *(int(i) for i in rng.integers(1, 4, 3))
    size = int(rng.integers(nodes, 5 * nodes))
    # Hubs are where places are taken over.
    source, target = ((nodes * rng.random(size) ** rng.choice([1.0, 2.5])).astype(np.int64) for _ in "ab")
    u, w = source[0], target[0]
    left = (source != u) | (target != w)
    train = rng.random(nodes) < rng.choice([0.7, 1.0])
    caps = {"train_mask": train, "max_readers": K, "max_reads": D, "seed": number}
    before = stable_lists(rows_of(source, target, nodes), edge_owner=owner, **caps)
    after = stable_lists(rows_of(source[left], target[left], nodes), edge_owner=owner, **caps)
    roots = np.flatnonzero(train)
    return K, depth, sum(tree(before, root, depth) != tree(after, root, depth) for root in roots)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_one_record_changes_few_trees(owner: str) -> None:
    attained = 0
    for number in range(choose(1000, 3000)):
        K, depth, trees = changed(owner, number)
        bound = trees_of_a_record(K, depth, owner)
        assert trees <= bound, f"graph {number}: {trees} trees, K={K}, depth={depth}"
        attained += trees == bound
    assert attained > 0


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("D", [1, 2, 5])
@pytest.mark.parametrize("K", [1, 2, 3, 10])
def test_the_price_of_a_row_covers_a_record(K: int, D: int, depth: int) -> None:
    for owner, is_covered in (("sender", K >= 2), ("reader", K + D >= 3)):
        trees = trees_of_a_record(K, depth, owner)
        # With no label gone, as many trees may differ on both sides: the pair of one tree more.
        assert (trees + 1 <= changed_trees(K, D, depth, owner)) == is_covered
        assert not is_covered or 2 * trees + 1 <= 2 * changed_trees(K, D, depth, owner)


def undirected(number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """The records of a small undirected graph with hubs, those of one of its edges first, and its nodes."""
    rng = np.random.default_rng(number)
    nodes = int(rng.integers(4, 10))
    size = int(rng.integers(nodes, 4 * nodes))
    ends = (nodes * rng.random((2, size)) ** rng.choice([1.0, 2.5])).astype(np.int64)
    ends = ends[:, ends[0] != ends[1]]
    first = ends[:, 0] if ends.shape[1] else np.array([0, 1])
    both = np.concatenate([first[:, None], ends, first[::-1, None], ends[::-1]], axis=1)
    others = np.unique(both, axis=1)
    is_first = (np.sort(others, axis=0) == np.sort(first)[:, None]).all(0)
    records = np.concatenate([others[:, is_first], others[:, ~is_first]], axis=1)
    return records[0], records[1], nodes


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("directed", [False, True])
def test_the_figure_of_an_edge_covers_its_records_on_trees(owner: str, directed: bool) -> None:
    """Both records of an undirected edge are taken away, and changed trees counted; or one, if declared."""
    above_one_record = 0
    for number in range(choose(400, 1500)):
        source, target, nodes = undirected(number)
        K, D, depth = (int(i) for i in np.random.default_rng(number).integers(1, 3, 3))
        caps = {"train_mask": np.ones(nodes, bool), "max_readers": K, "max_reads": D, "seed": number}
        before = stable_lists(rows_of(source, target, nodes), edge_owner=owner, **caps)
        gone = 1 if directed else 2
        after = stable_lists(rows_of(source[gone:], target[gone:], nodes), edge_owner=owner, **caps)
        trees = sum(tree(before, root, depth) != tree(after, root, depth) for root in range(nodes))
        plan = make_plan(
            num_train_nodes=nodes,
            num_layers=depth,
            max_readers=K,
            max_reads=D,
            edge_owner=owner,
            directed=directed,
            batch_size=nodes,
            steps=1,
            paper_noise_multiplier=2.0,
            delta=1e-3,
        )
        if trees == 0:
            continue
        [(event, _)] = plan.events
        assert isinstance(event, StepEvent)
        event = replace(event, changed_trees=trees, gone=0)
        assert price([(event, 1)], delta=plan.delta, accountant="pair") <= plan.epsilon_edge * (1 + 1e-9), (
            number
        )
        above_one_record += trees > trees_of_a_record(K, depth, owner)
    # Otherwise the price of one record would have done for two.
    assert (above_one_record > 0) is not directed


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_the_figure_of_an_edge_covers_both_ballots_and_readings(owner: str) -> None:
    """Boards of labelled rows move by more than one record's share, and two readings change."""
    plan = BillboardPlan(num_train_nodes=1000, batch_size=1000, steps=10, num_boards=1, edge_owner=owner)
    plan = plan.calibrated(epsilon=2.0)
    farthest = 0.0
    for number in range(choose(200, 500)):
        source, target, nodes = undirected(number)
        arrays = {"x": np.ones((nodes, 1)), "y": np.arange(nodes) % 2, "train_idx": np.arange(nodes)}
        graphs = [
            Graph.from_arrays(edge_index=np.stack([source[k:], target[k:]]), num_classes=2, **arrays)
            for k in (0, 2)
        ]
        ballots = [label_ballots(graph, owner, task=Classes(num_classes=2)) for graph in graphs]
        lists = [{v: set() for v in range(nodes)} for _ in graphs]
        for graph, of in zip(graphs, lists, strict=True):
            for owners, places in owned_records(graph, owner):
                for v, place in zip(owners.tolist(), places.tolist(), strict=True):
                    of[v].add(place)
        examples = sum(lists[0][v] != lists[1][v] for v in range(nodes))
        tallies = [cast(graph, each) / GRID for graph, each in zip(graphs, ballots, strict=True)]
        move = float(np.linalg.norm(tallies[0] - tallies[1]))
        assert examples == 2
        step = StepEvent(draw=plan.draw, changed_trees=examples, gone=0, sigma_over_clip=plan.sigma_over_clip)
        board = GaussianEvent(shift_over_sigma=move / plan.board_noise[0])
        seen = price([(board, 1), (step, plan.steps)], delta=plan.delta, accountant="pair")
        assert seen <= plan.epsilon_edge * (1 + 1e-9)
        farthest = max(farthest, move)
    assert farthest > 1.2
    assert plan.epsilon_edge > replace(plan, directed=True).epsilon_edge
