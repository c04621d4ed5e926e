"""Emptying one row changes at most n training trees: counted on random graphs, never above, attained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from bounded_lists import are_equal, owners_of, reads_of, rows_of
from effort import choose
from hushgraph.privacy.bounds import changed_trees
from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.paper import paper_lists
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow

KINDS = ("star", "hubs", "crowd", "clique", "power-law", "bipartite", "directed", "symmetrized")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, the caps, and the node whose row will be emptied."""

    kind: str
    num_nodes: int
    source: np.ndarray
    target: np.ndarray
    train: np.ndarray
    K: int
    D: int | None
    depth: int
    seed: int
    emptied: int

    def without_row(self, owner: str) -> tuple[np.ndarray, np.ndarray]:
        """The edges after the node's records are gone."""
        left = (self.source if owner == "sender" else self.target) != self.emptied
        return self.source[left], self.target[left]


Sampler = Callable[[Case, np.ndarray, np.ndarray], BoundedLists]
Bound = Callable[[Case], int]


def random_edges(rng: np.random.Generator, kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges of one kind among nodes 0..n-1, with the odd duplicate and self-loop."""
    if kind == "star":
        spokes = np.arange(1, n)
        ends = (np.zeros_like(spokes), spokes)
        source, target = ends if rng.random() < 0.5 else ends[::-1]
    elif kind == "hubs":
        hubs = int(rng.integers(2, 5))
        source, target = (grid.ravel() for grid in np.meshgrid(np.arange(n), np.arange(hubs)))
        kept = rng.random(len(source)) < 0.7
        source, target = source[kept], target[kept]
        turned = rng.random(len(source)) < rng.choice([0.0, 0.5, 1.0])
        source, target = np.where(turned, target, source), np.where(turned, source, target)
    elif kind == "crowd":
        # Node 0 reads nodes that others wait to read, who have no other read; and it is read itself.
        read, fans, waiting = np.split(np.arange(1, n), [n // 3, n // 3 + int(rng.integers(0, 5))])
        source = np.concatenate([read, np.zeros_like(fans), rng.choice(read, len(waiting))])
        target = np.concatenate([np.zeros_like(read), fans, waiting])
    elif kind == "clique":
        source, target = (grid.ravel() for grid in np.meshgrid(np.arange(n // 2 + 2), np.arange(n // 2 + 2)))
    elif kind == "power-law":
        size = int(rng.integers(n, 5 * n))
        source, target = ((n * rng.random(size) ** 3).astype(np.int64) for _ in range(2))
    elif kind == "bipartite":
        size = int(rng.integers(n, 5 * n))
        source, target = rng.integers(0, n // 2, size), rng.integers(n // 2, n, size)
    else:
        size = int(rng.integers(n // 2, 4 * n))
        source, target = rng.integers(0, n, size), rng.integers(0, n, size)
    if kind == "symmetrized" or (kind != "crowd" and rng.random() < 0.3):
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    extra = rng.integers(0, len(source) + 1, 2) % max(len(source), 1)
    loop = rng.integers(0, n, 1)
    source = np.concatenate([source, source[extra], loop])
    target = np.concatenate([target, target[extra], loop])
    order = rng.permutation(len(source))
    return source[order], target[order]


def cases(count: int, *, seed: int, unlimited: bool) -> Iterator[Case]:
    """Random graphs, every kind in turn; K and D from 0 to 4, depth from 0 to 3."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        connected = int(rng.integers(15, 40) if kind == "crowd" else rng.integers(4, 16))
        num_nodes = connected + int(rng.integers(0, 3))
        names = rng.permutation(num_nodes)
        source, target = random_edges(rng, kind, connected)
        D = int(rng.integers(0, 5 + unlimited))
        yield Case(
            kind=kind,
            num_nodes=num_nodes,
            source=names[source],
            target=names[target],
            train=rng.random(num_nodes) < rng.choice([0.5, 0.8, 1.0]),
            K=int(rng.integers(0, 5)),
            D=None if D == 5 else D,
            depth=int(rng.integers(0, 4)),
            seed=number,
            emptied=int(names[0] if kind == "crowd" or rng.random() < 0.5 else rng.integers(0, num_nodes)),
        )


def geometric(K: int, depth: int) -> int:
    return sum(K**level for level in range(depth + 1))


def sender_bound(case: Case) -> int:
    return geometric(case.K, case.depth)


def reader_bound(case: Case) -> int:
    if case.depth == 0 or case.K == 0 or case.D == 0:
        return 1
    return geometric(case.K, case.depth) + case.D * geometric(case.K, case.depth - 1)


BOUNDS: dict[str, Bound] = {"sender": sender_bound, "reader": reader_bound}


def signatures(lists: BoundedLists, case: Case) -> list[tuple[object, ...]]:
    """Per training root what fixes its tree: does it hold the emptied node, segment sizes, deepest nodes."""
    roots = np.flatnonzero(case.train)
    trees = grow(lists, roots, case.depth)
    cuts = [np.searchsorted(owners, np.arange(len(roots) + 1)) for owners in owners_of(trees)]
    columns = [*(np.diff(block.indptr) for block in trees.blocks), trees.nodes]
    found = []
    for i in range(len(roots)):
        parts = [column[cut[i] : cut[i + 1]] for column, cut in zip(columns, cuts, strict=True)]
        found.append((case.emptied in parts[-1], *(part.tobytes() for part in parts)))
    return found


def changes(sampler: Sampler, owner: str, some: Iterable[Case]) -> Iterator[tuple[Case, int]]:
    """How many training trees differ, or hold the node whose features and label are gone."""
    for case in some:
        before = signatures(sampler(case, case.source, case.target), case)
        after = signatures(sampler(case, *case.without_row(owner)), case)
        yield case, sum(a != b or a[0] for a, b in zip(before, after, strict=True))


def violation(sampler: Sampler, owner: str, bound: Bound) -> Case | None:
    """The first random graph on which more trees change than the bound allows."""
    some = changes(sampler, owner, cases(1600, seed=7, unlimited=False))
    return next((case for case, changed in some if changed > bound(case)), None)


def stable(owner: str) -> Sampler:
    def sample(case: Case, source: np.ndarray, target: np.ndarray) -> BoundedLists:
        return stable_lists(
            rows_of(source, target, case.num_nodes),
            train_mask=case.train,
            max_readers=case.K,
            max_reads=case.D,
            edge_owner=owner,
            seed=case.seed,
        )

    return sample


def paper(case: Case, source: np.ndarray, target: np.ndarray) -> BoundedLists:
    rows = rows_of(source, target, case.num_nodes)
    return paper_lists(rows, train_mask=case.train, max_readers=case.K, seed=case.seed)


Record = tuple[int, int]


def plain(
    owner: str, *, by_position: bool = False, caps_swapped: bool = False, more_readers: int = 0
) -> Sampler:
    """The stable sampler in plain Python, one line broken on demand."""

    def sample(case: Case, source: np.ndarray, target: np.ndarray) -> BoundedLists:
        word = seed_word(case.seed)
        records: dict[Record, int] = {}
        for u, w in zip(source.tolist(), target.tolist(), strict=True):
            if u != w and case.train[w]:
                position = len(records)
                records.setdefault(
                    (u, w), int(pair_key(0, position, word) if by_position else pair_key(u, w, word))
                )

        def smallest(kept: list[Record], end: int, cap: int | None) -> list[Record]:
            rows: dict[int, list[Record]] = {}
            for record in kept:
                rows.setdefault(record[end], []).append(record)
            return [r for row in rows.values() for r in sorted(row, key=lambda r: (records[r], r))[:cap]]

        columns = (0, case.K + more_readers)
        rows = (1, case.D)
        order = [columns, rows] if (owner == "sender") != caps_swapped else [rows, columns]
        kept = list(records)
        for end, cap in order:
            kept = smallest(kept, end, cap)
        return lists_of(kept, case.num_nodes)

    return sample


def lists_of(records: list[Record], num_nodes: int) -> BoundedLists:
    reads = [sorted(u for u, w in records if w == node) for node in range(num_nodes)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in reads])]).astype(np.int64)
    return BoundedLists(indptr=indptr, indices=np.array([u for row in reads for u in row], dtype=np.int32))


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_never_more_than_n_trees_change(owner: str) -> None:
    bound = BOUNDS[owner]
    attained, all_trees = set(), 0
    for case, changed in changes(
        stable(owner), owner, cases(choose(2000, 5000), seed=1, unlimited=owner == "sender")
    ):
        assert changed <= bound(case), case
        # The price counts on n - 1 trees of others at most, also where N trees are all there are.
        num_trees = int(case.train.sum())
        of_others = changed - int(case.train[case.emptied])
        n = changed_trees(case.K, case.D, case.depth, owner, num_trees=num_trees)
        assert of_others <= n - 1, case
        all_trees += of_others == num_trees > 0
        if changed == bound(case) and case.depth == 1 and bound(case) > 1:
            attained.add((case.K, case.D))
    assert len(attained) >= 3, attained
    assert all_trees, "no row outside the training split changed every tree"


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("K", [1, 2, 3, 4])
@pytest.mark.parametrize("D", [1, 2, 3, 4])
def test_n_is_attained_by_trees_of_depth_one(owner: str, K: int, D: int) -> None:
    # Node 0 reads 1..D, each of which K more nodes wait to read; K + 2 nodes read node 0. No node reads two.
    waiting = np.arange(D + 1, D + 1 + D * K)
    fans = np.arange(D + 1 + D * K, D + 3 + D * K + K)
    source = np.concatenate([np.arange(1, D + 1), np.repeat(np.arange(1, D + 1), K), np.zeros_like(fans)])
    target = np.concatenate([np.zeros(D, dtype=np.int64), waiting, fans])
    train = np.ones(int(fans[-1]) + 1, dtype=bool)
    edges = {"kind": "worst", "num_nodes": len(train), "source": source, "target": target, "train": train}
    worst = [Case(**edges, K=K, D=D, depth=1, seed=seed, emptied=0) for seed in range(150)]
    assert max(changed for _, changed in changes(stable(owner), owner, worst)) == BOUNDS[owner](worst[0])


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_sampler_equals_the_plain_one(owner: str) -> None:
    for case in cases(400, seed=2, unlimited=True):
        own, second = (sample(case, case.source, case.target) for sample in (stable(owner), plain(owner)))
        assert are_equal(own, second), case


def test_changed_trees_agree_with_a_plain_recursion() -> None:
    def tree(lists: BoundedLists, node: int, depth: int) -> tuple[object, ...]:
        below = [tree(lists, int(u), depth - 1) for u in reads_of(lists, node)] if depth else []
        return (node, *below)

    def holds(a_tree: tuple[object, ...], node: int) -> bool:
        return a_tree[0] == node or any(holds(below, node) for below in a_tree[1:])

    for case, changed in changes(stable("reader"), "reader", cases(150, seed=3, unlimited=False)):
        before = stable("reader")(case, case.source, case.target)
        after = stable("reader")(case, *case.without_row("reader"))
        pairs = [
            (tree(before, root, case.depth), tree(after, root, case.depth))
            for root in np.flatnonzero(case.train)
        ]
        assert changed == sum(a != b or holds(a, case.emptied) for a, b in pairs), case


def test_the_papers_sampler_holds_with_sender_owned_edges() -> None:
    assert violation(paper, "sender", sender_bound) is None


def test_the_papers_sampler_fails_with_reader_owned_edges() -> None:
    assert violation(paper, "reader", sender_bound) is not None


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_the_plain_sampler_unbroken_passes(owner: str) -> None:
    assert violation(plain(owner), owner, BOUNDS[owner]) is None


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize(
    "broken", [{"by_position": True}, {"caps_swapped": True}, {"more_readers": 1}], ids=str
)
def test_a_broken_sampler_is_caught(owner: str, broken: dict[str, int]) -> None:
    assert violation(plain(owner, **broken), owner, BOUNDS[owner]) is not None


def test_the_other_owners_bound_is_caught() -> None:
    assert violation(stable("reader"), "reader", sender_bound) is not None


def test_the_other_owners_sampler_is_caught() -> None:
    assert violation(stable("sender"), "reader", sender_bound) is not None
