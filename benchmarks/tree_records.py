"""A search for graphs with weights or relations where one emptied row changes more training trees than n.

    python benchmarks/tree_records.py [--graphs N] --out benchmarks/records/tree_records.jsonl

Every graph is small and random. One row is emptied; a training tree counts as changed if its nodes, what it
reads of whom, or what any read counts differs by a bit, or if it holds the emptied node.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation
from hushgraph.privacy.bounds import changed_trees
from hushgraph.privacy.plans import TreePlan
from hushgraph.runs.versions import versions
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow
from hushgraph.training.tree_batches import draw_lists

MODES = ("weights", "relations", "both")
OWNERS = ("sender", "reader")
# Negative weights and those that are not finite count as 0, as reading leaves them.
ODD = (0.0, 1e-300, 1e-8, 1e8, 1e300)
Sampler = Callable[[Graph, TreePlan, int], BoundedLists]


@dataclass(frozen=True)
class Searched:
    """The most changed trees of one graph, and the bound there.

    Attributes:
        changed, bound: how many trees changed, and n.
        plan: of the graph.
    """

    changed: int
    bound: int
    plan: TreePlan


def draw_graph(rng: np.random.Generator, mode: str) -> Graph:
    """Few nodes, so that lists are cut and rows share places; pairs may be in several relations."""
    n = int(rng.integers(4, 14))
    power = rng.choice([1.0, 2.5])
    relations = []
    for number in range(1 if mode == "weights" else int(rng.integers(2, 4))):
        edges = (n * rng.random((2, int(rng.integers(n, 5 * n)))) ** power).astype(np.int64)
        weights = None
        if mode != "relations":
            size = edges.shape[1]
            weights = np.where(rng.random(size) < 0.2, rng.choice(ODD, size), rng.lognormal(0, 3, size))
        relations.append(
            Relation.between_people(
                f"r{number}", edges, num_nodes=n, weights=weights, symmetrize=rng.random() < 0.3
            )
        )
    train = np.flatnonzero(rng.random(n) < rng.choice([0.6, 1.0]))
    return Graph.from_arrays(
        edge_index=None,
        relations=relations,
        x=np.eye(n),
        y=rng.integers(0, 2, n),
        train_idx=train if len(train) else [0],
        num_classes=2,
    )


def describe_trees(
    graph: Graph, plan: TreePlan, sample: Sampler, seed: int, v: int
) -> list[tuple[object, ...]]:
    """Per training root: whether its tree holds node `v`, and the bytes of everything that the tree is."""
    lists = sample(graph, plan, seed)
    trees = grow(lists, graph.train_idx, plan.num_layers)
    ends = [np.arange(len(trees.roots) + 1)]
    for block in trees.blocks:
        ends.append(block.indptr[ends[-1]])
    described = []
    for root in range(len(graph.train_idx)):
        parts: list[object] = []
        for upper, lower, block in zip(ends[:-1], ends[1:], trees.blocks, strict=True):
            begin, end = lower[root], lower[root + 1]
            parts.append(np.diff(block.indptr)[upper[root] : upper[root + 1]].tobytes())
            if block.shares is not None:
                parts.append(block.shares[:, begin:end].tobytes())
        nodes = trees.nodes[ends[-1][root] : ends[-1][root + 1]]
        described.append((v in nodes, nodes.tobytes(), *parts))
    return described


def search(
    mode: str, owner: str, count: int, *, sample: Sampler = draw_lists, seed: int = 0
) -> list[Searched]:
    """The changed trees of `count` random graphs, with what bounds them."""
    rng = np.random.default_rng([seed, MODES.index(mode), OWNERS.index(owner)])
    results = []
    for number in range(count):
        graph = draw_graph(rng, mode)
        plan = TreePlan(
            num_train_nodes=len(graph.train_idx),
            num_layers=int(rng.integers(1, 4)),
            max_readers=int(rng.integers(1, 4)),
            max_reads=int(rng.integers(1, 5)),
            batch_size=1,
            steps=1,
            edge_owner=owner,  # type: ignore[arg-type]
            is_weighted=mode != "relations",
            num_relations=len(graph.relations),
        )
        v = int(rng.integers(graph.num_nodes))
        emptied = graph.with_row_emptied(v, plan.edge_owner)
        before, after = (describe_trees(each, plan, sample, number, v) for each in (graph, emptied))
        changed = sum(a != b or bool(a[0]) for a, b in zip(before, after, strict=True))
        bound = changed_trees(plan.max_readers, plan.max_reads, plan.num_layers, plan.edge_owner)
        results.append(Searched(changed, bound, plan))
    return results


def main() -> None:
    """Write a record for every kind of records and every owner."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=2_000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    records = []
    for mode in MODES:
        for owner in OWNERS:
            results = search(mode, owner, args.graphs)
            record = {
                "records": mode,
                "owner": owner,
                "graphs": len(results),
                "above_n": sum(each.changed > each.bound for each in results),
                "at_n": sum(each.changed == each.bound for each in results),
                "most_changed": max(each.changed for each in results),
            }
            records.append({**record, "versions": dict(versions())})
            print(json.dumps(record), flush=True)
    args.out.write_text("".join(json.dumps(each, sort_keys=True) + "\n" for each in records))


if __name__ == "__main__":
    main()
