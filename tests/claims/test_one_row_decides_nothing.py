"""Promise: whether a run is refused, goes on or stops never depends on one row.

Pairs (G, G with a row emptied) at the borders of every limit, 950: both run or both are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from bounded_lists import rows_of
from effort import choose
from hushgraph.errors import HushgraphError, PlanError
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.sums import CHUNK
from hushgraph.graph.graph import Graph
from hushgraph.inputs import features
from hushgraph.inputs.features import Features
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.plans import PrivacyPlan, bound_tree_size
from hushgraph.sampling import trees
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import tree_sizes
from hushgraph.training import tree_batches
from hushgraph.training.distributed import Group
from hushgraph.training.prepare import prepare
from hushgraph.training.tree_batches import TreeBatches
from plans import make_plan as make_noisy_plan

TREE_PAIRS, BOUND_PAIRS, PLAN_PAIRS, PIECE_PAIRS, RUN_PAIRS = 400, 100, 250, 190, choose(12, 60)
CLASSES = 3


def make_graph(rng: np.random.Generator, *, symmetrize: bool) -> Graph:
    """A small graph with hubs, so that sizes of trees differ."""
    n = int(rng.integers(8, 30))
    count = int(rng.integers(n, 5 * n))
    hubs = rng.integers(0, 3, count)
    others = rng.integers(0, n, count)
    ends = np.stack([others, np.where(rng.random(count) < 0.6, hubs, rng.integers(0, n, count))])
    order = rng.permutation(n)
    return Graph.from_arrays(
        edge_index=ends,
        x=rng.normal(size=(n, 4)).astype(np.float32),
        y=rng.integers(-1, CLASSES, n),
        train_idx=order[: max(2, n // 2)],
        val_idx=order[max(2, n // 2) :],
        num_classes=CLASSES,
        symmetrize=symmetrize,
    )


def without_row(graph: Graph, v: int, owner: str) -> Graph:
    """The adjacent graph, of which nothing is remembered: `is_directed` is looked up anew."""
    emptied = graph.with_row_emptied(v, owner)  # type: ignore[arg-type]
    sources, targets = (
        (np.concatenate(ends) for ends in zip(*emptied.edge_chunks(), strict=True))
        if (emptied.num_edges)
        else (np.empty(0, np.int64), np.empty(0, np.int64))
    )
    return Graph.from_arrays(
        edge_index=np.stack([sources, targets]),
        x=emptied.x,
        y=emptied.y,
        train_idx=emptied.train_idx,
        val_idx=emptied.val_idx,
        num_classes=CLASSES,
    )


def pairs(
    count: int, seed: int, *, symmetrize: bool | None = None
) -> Iterator[tuple[Graph, Graph, str, int]]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        both_ways = bool(number % 2) if symmetrize is None else symmetrize
        graph = make_graph(rng, symmetrize=both_ways)
        owner = "sender" if both_ways else "reader"
        # Hubs are the rows that decide most.
        v = int(rng.integers(0, 3 if rng.random() < 0.7 else graph.num_nodes))
        yield graph, without_row(graph, v, owner), owner, v


def make_plan(graph: Graph, owner: str, depth: int, readers: int, reads: int | None) -> PrivacyPlan:
    return make_noisy_plan(
        num_train_nodes=len(graph.train_idx),
        num_layers=depth,
        max_readers=readers,
        max_reads=reads,
        edge_owner=owner,  # type: ignore[arg-type]
        batch_size=len(graph.train_idx),
        steps=2,
        paper_noise_multiplier=1.0,
    )


def make_lists(graph: Graph, plan: PrivacyPlan) -> BoundedLists:
    return stable_lists(
        (graph.indptr, graph.indices),
        train_mask=graph.train_mask,
        max_readers=plan.max_readers,
        max_reads=plan.max_reads,
        edge_owner=plan.edge_owner,
        seed=7,
    )


def count_rows(lists: BoundedLists, depth: int) -> np.ndarray:
    """Rows of the deepest level of every node's tree, by s_r(v) = s_(r-1)(v) + sum over v's reads."""
    sizes = np.ones(len(lists.indptr) - 1, np.int64)
    for _ in range(depth):
        before = np.concatenate([[0], np.cumsum(sizes[lists.indices])])
        sizes = sizes + before[lists.indptr[1:]] - before[lists.indptr[:-1]]
    return sizes


def cut(graph: Graph, plan: PrivacyPlan, lists: BoundedLists) -> list[TreeBatch]:
    """The pieces of a whole batch."""
    batches = TreeBatches(
        graph=graph,
        features=Features(graph),
        plan=plan,
        rng=np.random.default_rng(0),
        group=Group(),
        resample_every=1,
    )
    return list(batches.cut_pieces(lists, graph.train_idx))


def labels_of(pieces: list[TreeBatch]) -> np.ndarray:
    return np.concatenate([piece.labels.numpy() for piece in pieces] or [np.empty(0, np.int64)])


def test_a_tree_that_is_too_large_contributes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is at, above or below the largest tree of G, so that the row decides which side it is on."""
    rng = np.random.default_rng(5)
    differ = 0
    for number, (graph, neighbour, owner, _) in enumerate(pairs(TREE_PAIRS, seed=1)):
        depth = 1 + number % 3
        plan = make_plan(graph, owner, depth, int(rng.integers(1, 5)), int(rng.integers(1, 9)))
        lists = [make_lists(each, plan) for each in (graph, neighbour)]
        sizes = [count_rows(each, depth)[graph.train_idx] for each in lists]
        limit = max(1, int(sizes[0].max()) + int(rng.integers(-1, 1)))
        for module in (trees, tree_batches):
            monkeypatch.setattr(module, "LARGEST_TREE", limit)
        for each, its_lists, size in zip((graph, neighbour), lists, sizes, strict=True):
            labels = labels_of(cut(each, plan, its_lists))
            # A root without a label contributes zero, and keeps its place.
            expected = np.where(size <= limit, each.y[each.train_idx], -1)
            assert (labels == expected).all() if len(labels) else (size > limit).all()
        differ += (sizes[0].max() > limit) != (sizes[1].max() > limit)
    # The row often decides whether any tree is too large, or these pairs would not be at the border.
    assert differ > TREE_PAIRS // 10


def test_public_figures_bound_every_tree() -> None:
    rng = np.random.default_rng(6)
    tight = 0
    for number, (graph, neighbour, owner, _) in enumerate(pairs(BOUND_PAIRS, seed=2)):
        depth, readers = 1 + number % 4, int(rng.integers(0, 5))
        reads = None if owner == "sender" and number % 5 == 0 else int(rng.integers(0, 9))
        plan = make_plan(graph, owner, depth, readers, reads)
        bound = bound_tree_size(readers, reads, depth, graph.num_nodes)
        for each in (graph, neighbour):
            sizes = tree_sizes(make_lists(each, plan), depth, each.train_idx)
            assert sizes.max() <= bound
            assert sizes.mean() <= plan.mean_lines_per_root(each.num_nodes) + 1e-9
            levels = [
                tree_sizes(make_lists(each, plan), level, each.train_idx).sum() for level in range(depth + 1)
            ]
            assert sum(levels) <= plan.most_lines(each.num_nodes)
            tight += int(sizes.max() == bound)
    assert tight > 0


@pytest.mark.parametrize(
    ("readers", "reads", "depth", "nodes", "rows"),
    [
        (0, None, 3, 10**9, 1),
        (3, 0, 3, 10**9, 1),
        (2, 4, 1, 100, 5),
        (2, 4, 2, 100, 1 + 2 * 4 + 16),
        # 100 nodes, each at most twice two reads down.
        (2, None, 2, 100, 1 + 2 * 100 + 200),
        (10, 10**9, 3, 100, 1 + 3 * 100 + 3 * 1_000 + 10_000),
    ],
)
def test_bounds_by_hand(readers: int, reads: int | None, depth: int, nodes: int, rows: int) -> None:
    assert bound_tree_size(readers, reads, depth, nodes) == rows


def test_hubs_come_near_the_bound() -> None:
    """Two hubs that everybody lets read them: a tree near the bound."""
    n = 40
    everybody = np.arange(n)
    edges = np.concatenate([np.stack([everybody, np.full(n, hub)]) for hub in (0, 1)], axis=1)
    lists = stable_lists(
        rows_of(edges[0], edges[1], n),
        train_mask=np.ones(n, bool),
        max_readers=2,
        max_reads=None,
        edge_owner="sender",
        seed=1,
    )
    size = tree_sizes(lists, 2, np.array([0]))[0]
    # Hub 1 is among what hub 0 reads, and a self-loop is not: two rows fewer a level than N.
    assert 0.5 * bound_tree_size(2, None, 2, n) < size <= bound_tree_size(2, None, 2, n)


def outcome(graph: Graph, **arguments: Any) -> str:
    """The plan that a run would have, or why it is refused."""
    try:
        return prepare(graph, epsilon=4.0, **arguments).plan.to_json()
    except PlanError as error:
        return str(error)


def test_pairs_have_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undirected graphs that look directed without a row, and limits right at the public bound."""
    cases: list[dict[str, Any]] = [
        {"model": "mlp"},
        {"model": "gcn", "max_readers": 0},
        {"model": "gcn", "max_readers": 3, "max_reads": 0},
        {"model": "gcn", "num_layers": 0},
        # On so few nodes the rule for defaults reads no edge, whoever owns it.
        {"model": "gcn"},
        {"model": "gcn", "num_layers": 2, "max_readers": 2},
        {"method": "billboard"},
    ]
    refused = turned = 0
    for number, (graph, neighbour, _, _) in enumerate(pairs(PLAN_PAIRS, seed=3, symmetrize=True)):
        arguments = {"steps": 5, "delta": 1e-3, **cases[number % len(cases)]}
        limit = bound_tree_size(2, 12, 2, graph.num_nodes) - number % 2
        monkeypatch.setattr("hushgraph.methods.trees.LARGEST_TREE", limit)
        outcomes = [outcome(each, **arguments) for each in (graph, neighbour)]
        assert outcomes[0] == outcomes[1], arguments
        refused += "too many to train on" in outcomes[0]
        turned += graph.is_directed != neighbour.is_directed
    assert refused > 10
    assert turned > PLAN_PAIRS // 2


def shape_of(piece: TreeBatch, graph: Graph) -> tuple[Any, ...]:
    """What decides how a piece is computed, apart from how many rows it has."""
    shares_all = piece.x.data_ptr() == graph.x.ctypes.data
    return piece.num_roots, piece.may_read, piece.is_shared, len(piece.blocks), shares_all


def test_pieces_at_the_border_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that just fit one piece, or just do not: both graphs are cut and computed in the same way."""
    rng = np.random.default_rng(8)
    monkeypatch.setattr(tree_batches, "CHUNK", 2)
    many = of_all = 0
    for number, (graph, neighbour, owner, _) in enumerate(pairs(PIECE_PAIRS, seed=4)):
        plan = make_plan(graph, owner, 1 + number % 2, 3, 6 if number % 3 else int(rng.integers(0, 2)))
        lists = [make_lists(each, plan) for each in (graph, neighbour)]
        rows = int(count_rows(lists[0], plan.num_layers)[graph.train_idx].sum())
        # At the border of a memory limit, and of taking the features of all nodes.
        monkeypatch.setitem(tree_batches.PIECE_ROWS, "cpu", max(1, rows - int(rng.integers(0, 2))))
        monkeypatch.setitem(features._DISTINCT_BELOW, "cpu", rows / graph.num_nodes)
        shapes = []
        for each, its_lists in zip((graph, neighbour), lists, strict=True):
            pieces = cut(each, plan, its_lists)
            assert sum(piece.num_roots for piece in pieces) == len(graph.train_idx)
            shapes.append([shape_of(piece, each) for piece in pieces])
        assert shapes[0] == shapes[1]
        many += len(shapes[0]) > 1
        of_all += shapes[0][0][-1]
    assert many > PIECE_PAIRS // 4
    assert PIECE_PAIRS // 10 < of_all < PIECE_PAIRS


def border_graph(kind: str, rng: np.random.Generator) -> tuple[Graph, int]:
    """A graph at a border, and the node whose row decides on which side of it the graph is."""
    n = {"chunk": CHUNK, "chunk and one": CHUNK + 1}.get(kind, 14)
    v = int(rng.integers(0, n // 2))
    others = np.array([u for u in range(n) if u != v])
    x = rng.normal(size=(n, 4)).astype(np.float32)
    y = rng.integers(0, CLASSES - 1, n)
    train = rng.permutation(np.append(rng.choice(others, n // 2, replace=False), v))
    ends = rng.choice(others, (2, 2 * n))
    # Who reads v, and whom v reads.
    own = np.stack([np.full(3, v), rng.choice(others, 3, replace=False)])
    if kind == "only lister":
        place = int(rng.choice(others))
        ends, own = ends[:, (ends != place).all(0)], np.array([[v], [place]])
    elif kind == "only member of its class":
        y[v] = CLASSES - 1
    elif kind == "only training row":
        train = np.array([v])
    elif kind == "only label":
        y[others] = -1
    elif kind == "only row":
        x[others], y[others], ends = 0, -1, ends[:, :0]
    elif kind == "only edges":
        ends = ends[:, :0]
    elif kind == "one more than K":
        own = np.stack([np.full(3, v), rng.choice(train[train != v], 3, replace=False)])
    elif kind == "huge":
        x[v] = 3e38
    elif kind == "denormal":
        x[v] = 1e-45
    elif kind == "a million times the others":
        x[v] *= 1e6
    graph = Graph.from_arrays(
        edge_index=np.concatenate([ends, own], axis=1),
        x=x,
        y=y,
        train_idx=train,
        val_idx=np.setdiff1d(np.arange(n), train),
        num_classes=CLASSES,
        symmetrize=True,
    )
    return graph, v


BORDERS = (
    "only lister",
    "only member of its class",
    "only training row",
    "only label",
    "only row",
    "only edges",
    "one more than K",
    "huge",
    "denormal",
    "a million times the others",
    "chunk",
    "chunk and one",
)
METHODS: dict[str, dict[str, Any]] = {
    "billboard": {},
    "trees": {"model": "gcn", "max_readers": 2},
    "trees, two layers": {"model": "gin", "num_layers": 2, "max_readers": 1},
    "rows alone": {"model": "mlp"},
    "half batches": {"model": "gcn", "max_readers": 2, "batch_size": 1},
}


def run_to_the_end(graph: Graph, v: int, tmp_path: Path, **arguments: Any) -> tuple[Any, ...]:
    """Everything about a run that is not noise or a figure about labels: the same for both graphs."""
    path = tmp_path / "people.ledger"
    path.unlink(missing_ok=True)
    # A total that the run just meets.
    DataBudget.create(path, epsilon=4.0, delta=1e-3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run = hg.train(
                graph,
                epsilon=4.0,
                delta=1e-3,
                steps=2,
                hidden=4,
                device="cpu",
                edge_owner="sender",
                budget=path,
                **arguments,
            )
            predicted = run.predict(graph)
        except HushgraphError as error:
            return type(error), str(error)
    public = {name: run.result[name] for name in ("guarantee", "epsilon", "delta", "steps", "steps_lost")}
    shapes = [tuple(parameter.shape) for parameter in run.model.parameters()]
    words = sorted(str(warning.message) for warning in caught)
    return run.plan.to_json(), public, shapes, predicted.shape, words, DataBudget.open(path).spent


def test_both_graphs_of_a_pair_run_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    for number in range(RUN_PAIRS):
        kind = BORDERS[number % len(BORDERS)]
        method = list(METHODS)[number // len(BORDERS) % len(METHODS)]
        graph, v = border_graph(kind, rng)
        emptied = without_row(graph, v, "sender")
        both = [run_to_the_end(each, v, tmp_path, **METHODS[method]) for each in (graph, emptied)]
        assert both[0] == both[1], (kind, method)
        # Not both refused: a border that nothing passes is none.
        assert len(both[0]) > 2, (kind, method, both[0])
