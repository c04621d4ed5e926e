"""The batches of a run: roots drawn for every step, with the trees that they read."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from hushgraph._arrays import find_ends
from hushgraph.accounting.events import Draw
from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.gradients.sums import CHUNK
from hushgraph.graph.graph import Graph
from hushgraph.graph.persons import gather
from hushgraph.graph.shares import find_shares
from hushgraph.inputs.features import Features
from hushgraph.privacy.plans import LARGEST_TREE, PrivacyPlan, bound_tree_size
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.paper import paper_lists
from hushgraph.sampling.random import RandomSource
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow, tree_sizes
from hushgraph.training.distributed import Group
from hushgraph.training.row_batches import choose_roots

# Rows of trees whose numbers one piece of a batch holds: bounds memory for every batch size.
PIECE_ROWS = {"cpu": 1 << 18, "cuda": 1 << 22}

Pieces: TypeAlias = Iterable[TreeBatch]
MakeLists: TypeAlias = Callable[[Graph, PrivacyPlan, int], BoundedLists]


class _Sample(NamedTuple):
    """Bounded lists, and the trees of all roots where every batch contains them all."""

    lists: BoundedLists
    full_batch: list[TreeBatch] | None


def draw_lists(graph: Graph, plan: PrivacyPlan, seed: int) -> BoundedLists:
    """Bounded lists by the sampler of the plan, with the keys of `seed`, and what their reads count.

    A pair of nodes in several relations is one read. Weights choose nothing.
    """
    lists = _choose_reads(graph, plan, seed)
    return replace(lists, shares=find_shares(graph.relations, lists.indptr, lists.indices))


def _choose_reads(graph: Graph, plan: PrivacyPlan, seed: int) -> BoundedLists:
    reads = graph.indptr, graph.indices
    if plan.sampler == "paper":
        return paper_lists(reads, train_mask=graph.train_mask, max_readers=plan.max_readers, seed=seed)
    return stable_lists(
        reads,
        train_mask=graph.train_mask,
        max_readers=plan.max_readers,
        max_reads=plan.max_reads,
        edge_owner=plan.edge_owner,
        seed=seed,
    )


@dataclass(eq=False)
class TreeBatches:
    """Draws the roots of every step and grows their trees.

    Attributes:
        graph, features: the data, and its features on the device of the run.
        plan: bounds, batch size and sampler.
        rng: of batches and keys, the same in every process. Noise has a generator of its own.
        group: the processes that share the roots of a batch.
        resample_every: steps between fresh lists.
        holds_entries: whether the model holds numbers for every row of a tree, and not only for those that
            read rows; chooses the size of pieces.
        make_lists: bounded lists of the graph, by the plan and the seed of their keys.

    Guarantees:
        `draw` describes exactly how the roots of every step are drawn.
        A root keeps its place in the batch whatever its row holds, and pieces begin at multiples of `CHUNK`
        roots, so that no row changes which others it is added up with. A root whose tree is too large
        contributes zero: nothing stops because of one row.
        Where people have several nodes, a root is a person with the trees of all their training nodes, and
        persons are drawn.
    """

    graph: Graph
    features: Features
    plan: PrivacyPlan
    rng: RandomSource
    group: Group
    resample_every: int
    make_lists: MakeLists = draw_lists
    holds_entries: bool = True

    has_own_threads = False

    def __post_init__(self) -> None:
        graph = self.graph
        self._members = None if graph.persons is None else gather(graph.persons, graph.train_idx)
        self._roots = choose_roots(self.plan, self.rng)

    @property
    def draw(self) -> Draw:
        """How the roots of one step are drawn, for the accountant."""
        return self._roots.draws

    def iterate(self, first_step: int) -> Generator[Pieces, None, None]:
        """Yield the batches from `first_step` on; on a GPU, prepare the next one while the last is used."""
        batches = self._iterate(first_step)
        if self.features.device.type == "cpu":
            yield from batches
            return
        with contextlib.closing(batches), ThreadPoolExecutor(1) as worker:
            upcoming = worker.submit(lambda: list(next(batches)))
            while True:
                pieces = upcoming.result()
                upcoming = worker.submit(lambda: list(next(batches)))
                yield pieces

    def _iterate(self, first_step: int) -> Generator[Pieces, None, None]:
        """Yield batches without end; on a GPU, draw the next lists while the last are used."""
        draws_ahead = self.features.device.type != "cpu"
        upcoming: Future[_Sample] | None = None
        with ThreadPoolExecutor(1) as worker:
            for step in itertools.count(first_step):
                if step == first_step or step % self.resample_every == 0:
                    sample = self._sample(self._draw_seed()) if upcoming is None else upcoming.result()
                    next_change = step - step % self.resample_every + self.resample_every
                    if draws_ahead and next_change < self.plan.steps:
                        upcoming = worker.submit(self._sample, self._draw_seed())
                if sample.full_batch is not None:
                    yield sample.full_batch
                else:
                    # One draw over all roots, the same in every process; only then is it shared out.
                    yield self._cut(sample.lists, self.group.share(self._roots.draw()))

    def _sample(self, seed: int) -> _Sample:
        lists = self.sample_lists(seed)
        if self.plan.sampling_rate < 1:
            return _Sample(lists, None)
        # All roots are in every batch, so their trees serve until the lists change.
        slots = self.group.share(np.arange(self.plan.num_train_nodes))
        return _Sample(lists, list(self._cut(lists, slots)))

    def _cut(self, lists: BoundedLists, slots: np.ndarray) -> Iterator[TreeBatch]:
        """The pieces of a batch of training nodes, or of persons, by their places in the training split."""
        if self._members is None:
            yield from self.cut_pieces(lists, self.graph.train_idx[slots])
            return
        (nodes, starts), sizes = self._members, self._members.sizes
        for part in _cut_persons(slots, sizes, self._roots_per_piece()):
            each = [nodes[starts[slot] : starts[slot + 1]] for slot in part]
            roots = np.concatenate([nodes[:0], *each])
            ends = find_ends(sizes[part])
            depth = self.plan.num_layers
            piece = tree_batch(grow(lists, roots, depth), self.features, self.graph.y, may_read=False)
            yield piece.by_person(ends)

    def sample_lists(self, seed: int | None = None) -> BoundedLists:
        """Bounded lists with the keys of `seed`, or of a fresh one."""
        return self.make_lists(self.graph, self.plan, self._draw_seed() if seed is None else seed)

    def cut_pieces(self, lists: BoundedLists, roots: np.ndarray) -> Iterator[TreeBatch]:
        """Cut a batch into pieces that fit memory, of at least `CHUNK` roots.

        Where they are cut, and how each is computed, follows from the plan and the number of roots.
        """
        depth, plan = self.plan.num_layers, self.plan
        roots, is_kept = _replace_large_trees(roots, tree_sizes(lists, depth, roots))
        size = self._roots_per_piece()
        for begin in range(0, len(roots), size):
            part = slice(begin, begin + size)
            piece = tree_batch(
                grow(lists, roots[part], depth),
                self.features,
                self.graph.y,
                may_read=plan.reads_edges,
                expected_rows=len(roots[part]) * plan.mean_lines_per_root(self.graph.num_nodes),
            )
            yield _drop_labels(piece, ~is_kept[part])

    def _roots_per_piece(self) -> int:
        """How many roots have trees that fit memory, by public figures: a multiple of `CHUNK`."""
        plan, limit = self.plan, PIECE_ROWS[self.features.device.type]
        depth = plan.num_layers if self.holds_entries else plan.num_layers - 1
        largest = bound_tree_size(plan.max_readers, plan.max_reads, depth, self.graph.num_nodes)
        # Of trees of very different sizes, few are as large as the largest.
        mean = plan.mean_lines_per_root(self.graph.num_nodes)
        return max(CHUNK, int(limit / min(largest, 4 * mean)) // CHUNK * CHUNK)

    def _draw_seed(self) -> int:
        return int(self.rng.integers(2**63))


def _cut_persons(slots: np.ndarray, sizes: np.ndarray, most: int) -> list[np.ndarray]:
    """Persons in parts of about `most` nodes; whose a node is, is public."""
    return np.split(slots, np.flatnonzero(np.diff(np.cumsum(sizes[slots]) // most)) + 1)


def _replace_large_trees(roots: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put another root in the place of each whose tree is too large; return also which were kept."""
    is_kept = sizes <= LARGEST_TREE
    if is_kept.all():
        return roots, is_kept
    kept = np.flatnonzero(is_kept)
    if not len(kept):
        return roots[:0], is_kept[:0]
    return np.where(is_kept, roots, roots[kept[0]]), is_kept


def _drop_labels(piece: TreeBatch, is_dropped: np.ndarray) -> TreeBatch:
    """The piece without the labels of some roots, which then contribute zero."""
    if not is_dropped.any():
        return piece
    mask = torch.from_numpy(is_dropped).to(piece.labels.device)
    return replace(piece, labels=piece.labels.masked_fill(mask, -1))
