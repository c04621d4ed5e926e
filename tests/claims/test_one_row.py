"""Emptying one row changes at most n terms of the clipped sum: others by at most 2C, the node's own by C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from effort import choose
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.privacy.bounds import changed_trees
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow

Sums = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, the node whose row will be emptied, and everything the step is made of."""

    graph: Graph
    owner: str
    emptied: int
    K: int
    D: int | None
    model: GNN
    clipping: Clipping
    seed: int

    @property
    def bound(self) -> int:
        return changed_trees(self.K, self.D, self.model.depth, self.owner)

    def step(self, graph: Graph, *, seed: int | None = None) -> tuple[dict[int, Tensor], Tensor]:
        """Every training root's clipped gradient as one vector, and their sum computed as one batch."""
        lists = stable_lists(
            (graph.indptr, graph.indices),
            train_mask=graph.train_mask,
            max_readers=self.K,
            max_reads=self.D,
            edge_owner=self.owner,
            seed=self.seed if seed is None else seed,
        )
        features = Features(graph)

        def clipped_sum(roots: list[int]) -> Tensor:
            batch = tree_batch(grow(lists, roots, self.model.depth), features, graph.y)
            sums = ghost.clipped_sum(self.model, batch, self.clipping)
            return torch.cat([value.flatten() for value in sums.values()]).double()

        roots = graph.train_idx.tolist()
        return {root: clipped_sum([root]) for root in roots}, clipped_sum(roots)

    def differences(
        self, *, other_seed: int | None = None
    ) -> tuple[dict[int, Tensor], Tensor, dict[int, Tensor]]:
        """Per root, term in G minus term in G'; that of the sums; and the terms in G'."""
        terms, total = self.step(self.graph)
        emptied = self.graph.with_row_emptied(self.emptied, self.owner)
        terms_emptied, total_emptied = self.step(emptied, seed=other_seed)
        return {v: terms[v] - terms_emptied[v] for v in terms}, total - total_emptied, terms_emptied


def cases(owner: str, count: int) -> Iterator[Case]:
    """Small graphs, even or with hubs, directed or not, some nodes outside training or without label.

    Every third is a crowd: node 0, whose row is emptied, is read by some and reads what others wait to read.
    """
    rng = np.random.default_rng(17)
    for seed in range(count):
        num_nodes = int(rng.integers(4, 13))
        size = int(rng.integers(num_nodes, 5 * num_nodes))
        labels = rng.integers(0, 3, num_nodes)
        crowd = seed % 9 > 5
        if crowd:
            read, fans, waiting = np.split(np.arange(1, num_nodes), [num_nodes // 4, num_nodes // 2])
            source = np.concatenate([read, np.zeros_like(fans), rng.choice(read, len(waiting))])
            edges = np.stack([source, np.concatenate([np.zeros_like(read), fans, waiting])])
            emptied, train = 0, np.arange(num_nodes)
        else:
            skew = rng.choice([1.0, 3.0], 2)
            edges = np.stack([(num_nodes * rng.random(size) ** power).astype(np.int64) for power in skew])
            labels[rng.random(num_nodes) < 0.1] = -1
            train = np.flatnonzero(rng.random(num_nodes) < rng.choice([0.6, 1.0]))
            emptied = int(rng.integers(0, num_nodes))
            if emptied not in train and seed % 4:
                train = np.append(train, emptied)
        graph = Graph.from_arrays(
            edge_index=edges,
            x=3 * rng.standard_normal((num_nodes, 3)).astype(np.float32),
            y=labels,
            train_idx=train,
            num_classes=3,
            symmetrize=not crowd and bool(rng.random() < 0.5),
        )
        depth = seed % 3
        torch.manual_seed(seed)
        kind = ("gcn", "gin", "gat")[seed // 9 % 3]
        model = GNN(3, 3, model=kind, num_layers=depth, hidden=4, attends=seed % 2 == 0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3)
        D = (
            int(rng.integers(1, 3) if crowd else rng.integers(0, 4))
            if owner == "reader" or rng.random() < 0.5
            else None
        )
        yield Case(
            graph=graph,
            owner=owner,
            emptied=emptied,
            K=int(rng.integers(1, 3) if crowd or depth == 2 else rng.integers(0, 4)),
            D=D,
            model=model,
            clipping=Clipping(kind=("normalised", "flat", "groups")[seed % 5 % 3], clip=0.3),
            seed=seed,
        )


def changed(differences: dict[int, Tensor]) -> int:
    return sum(float(difference.norm()) > 1e-9 for difference in differences.values())


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_one_row_changes_at_most_n_terms_by_at_most_2c(owner: str) -> None:
    attained = more_than_own = far = 0
    for case in cases(owner, choose(63, 200)):
        differences, of_sums, terms_emptied = case.differences()
        C, n, v = case.clipping.clip, case.bound, case.emptied
        assert changed(differences) <= n
        assert changed({u: d for u, d in differences.items() if u != v}) <= n - 1
        assert all(float(term.norm()) <= 2 * C * (1 + 1e-6) for term in differences.values())
        if v in differences:
            assert float(differences[v].norm()) <= C * (1 + 1e-6)
            assert not terms_emptied[v].any()
        # What the step releases, before noise: the whole batch at once, roots that did not change included.
        assert float(of_sums.norm()) <= (2 * n - 1) * C + 1e-5
        torch.testing.assert_close(of_sums, sum(differences.values()), rtol=0, atol=1e-5)
        attained += changed(differences) == n > 1
        more_than_own += changed({u: d for u, d in differences.items() if u != v}) > 0
        far += any(float(d.norm()) > C for u, d in differences.items() if u != v)
    # The graphs are worth something: bounds are met, and terms of other roots move, by more than C too.
    assert attained > 0
    assert more_than_own > 20
    assert far > 0


def test_nothing_but_the_own_term_changes_without_reads() -> None:
    seen = own = 0
    for case in cases("sender", 30):
        if case.bound == 1:
            differences, _, _ = case.differences()
            assert all(
                not difference.any() for root, difference in differences.items() if root != case.emptied
            )
            seen += len(differences) > 1
            own += case.emptied in differences and bool(differences[case.emptied].any())
    # There were other terms to change, and emptying the row did something.
    assert seen > 5
    assert own > 5


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_lists_drawn_anew_would_be_caught(owner: str) -> None:
    assert any(
        changed(case.differences(other_seed=case.seed + 1)[0]) > case.bound for case in cases(owner, 60)
    )
