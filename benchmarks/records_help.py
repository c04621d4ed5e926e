"""Do weights, relations and places help? ROC-AUC on generated data whose truth is known, with and without.

    python benchmarks/records_help.py --out benchmarks/records/records_help.jsonl

Three made-up worlds of 4,000 people: amounts that carry the label, two relations of which one is noise, and
rings of people that share devices. Every record is one run at epsilon 4 with default settings; the data is
seeded, the noise is not. "none" is the private MLP, which reads no record.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import EdgeWeight, Relation
from hushgraph.runs.versions import versions

PEOPLE = 4_000
REPEATS = 3
EPSILON = 4.0
Array = npt.NDArray[Any]


def build(rng: np.random.Generator, y: Array, **records: Any) -> Graph:
    """A graph whose features say little about the label."""
    x = rng.normal(size=(PEOPLE, 8))
    x[:, 0] += 0.3 * y
    train, val, test = np.split(rng.permutation(PEOPLE), [int(0.6 * PEOPLE), int(0.8 * PEOPLE)])
    given = {"edge_index": None, "x": x, "y": y, "num_classes": 2, **records}
    return Graph.from_arrays(**given, train_idx=train, val_idx=val, test_idx=test)


def draw_edges(rng: np.random.Generator, y: Array, degree: int, same: float) -> Array:
    """Edges of which a share joins people of one label; the others are drawn from everybody."""
    source = np.repeat(np.arange(PEOPLE), degree)
    target = rng.integers(0, PEOPLE, len(source))
    kept = rng.random(len(source)) < same
    for label in (0, 1):
        members, mine = np.flatnonzero(y == label), kept & (y[source] == label)
        target[mine] = rng.choice(members, mine.sum())
    return np.stack([source, target])


def make_amounts(seed: int) -> dict[str, Graph]:
    """Who pays whom says nothing, how much does: ten times as much to people of the same label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, PEOPLE)
    edges = draw_edges(rng, y, 15, 0.0)
    amounts = rng.lognormal(3, 1, edges.shape[1]) * np.where(y[edges[0]] == y[edges[1]], 10, 1)
    made: dict[str, Graph] = {}
    for name, function in (("amounts", "none"), ("log1p of amounts", "log1p"), ("no weights", None)):
        rng = np.random.default_rng(seed + 100)
        weights = None
        if function is not None:
            weights = EdgeWeight.of(f"amount:{function}").apply(amounts)
        relation = Relation.between_people("pays", edges, num_nodes=PEOPLE, weights=weights, symmetrize=True)
        made[name] = build(rng, y, relations=[relation])
    return made


def make_relations(seed: int) -> dict[str, Graph]:
    """Five calls, mostly within a label, among twenty payments to anybody."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, PEOPLE)
    calls, pays = draw_edges(rng, y, 5, 0.6), draw_edges(rng, y, 20, 0.0)
    options: dict[str, Any] = {"num_nodes": PEOPLE, "symmetrize": True}
    both = [
        Relation.between_people(name, each, **options) for name, each in (("calls", calls), ("pays", pays))
    ]
    made = {"two relations": both, "the useful one alone": both[:1]}
    made["all records alike"] = [
        Relation.between_people("records", np.concatenate([calls, pays], axis=1), **options)
    ]
    return {name: build(np.random.default_rng(seed + 100), y, relations=each) for name, each in made.items()}


def make_devices(seed: int) -> dict[str, Graph]:
    """One in ten commits fraud; fraudsters log in from few devices, others from their own and public ones."""
    rng = np.random.default_rng(seed)
    y = (rng.random(PEOPLE) < 0.1).astype(np.int64)
    rings, public = 25, 300
    ring = rng.integers(0, rings, PEOPLE)
    uses = []
    for _ in range(4):
        own = rings * 3 + public + np.arange(PEOPLE)
        open_one = rings * 3 + rng.integers(0, public, PEOPLE)
        shared = 3 * ring + rng.integers(0, 3, PEOPLE)
        fraud = np.where(rng.random(PEOPLE) < 0.7, shared, open_one)
        uses.append(np.where(y == 1, fraud, np.where(rng.random(PEOPLE) < 0.5, own, open_one)))
    devices = np.concatenate(uses)
    persons = np.tile(np.arange(PEOPLE), 4)
    friends = Relation.between_people(
        "friends", draw_edges(rng, y, 5, 0.0), num_nodes=PEOPLE, symmetrize=True
    )
    num_places = rings * 3 + public + PEOPLE
    named = Relation.to_places("devices", persons, devices, num_nodes=PEOPLE, num_places=num_places)
    hashed = Relation.to_places(
        "devices", persons, devices % 1024, num_nodes=PEOPLE, num_places=1024, is_hashed=True
    )
    made = {
        "devices": [friends, named],
        "devices, hashed to 1,024": [friends, hashed],
        "friends alone": [friends],
    }
    return {name: build(np.random.default_rng(seed + 100), y, relations=each) for name, each in made.items()}


WORLDS: dict[str, Callable[[int], dict[str, Graph]]] = {
    "amounts that carry the label": make_amounts,
    "two relations, one is noise": make_relations,
    "rings that share devices": make_devices,
}


def find_auc(scores: Array, y: Array) -> float:
    """The chance that a positive node has the higher score; ties count half."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    _values, inverse = np.unique(scores, return_inverse=True)
    ranks = (np.bincount(inverse, ranks) / np.bincount(inverse))[inverse]
    positives = int(y.sum())
    return float((ranks[y == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(y) - positives)))


def measure(graph: Graph, **settings: Any) -> float:
    """ROC-AUC on the test split: exact, which made-up people allow."""
    run = hg.train(graph, epsilon=EPSILON, device="cpu", progress=False, **settings)
    return find_auc(run.predict_proba(graph)[graph.test_idx, 1], graph.y[graph.test_idx])


def main() -> None:
    """Write a record for every run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    records = []
    for world, make in WORLDS.items():
        for seed in range(REPEATS):
            graphs = make(seed)
            first = next(iter(graphs.values()))
            results = {name: measure(graph) for name, graph in graphs.items()}
            # The private MLP reads features alone.
            bare = Graph.from_arrays(
                edge_index=np.empty((2, 0), np.int64),
                **{name: getattr(first, name) for name in ("x", "y", "train_idx", "val_idx", "test_idx")},
                num_classes=2,
            )
            results["none"] = measure(bare, model="mlp")
            for records_used, auc in results.items():
                record = {"world": world, "records": records_used, "seed": seed, "auc": round(auc, 4)}
                records.append({**record, "epsilon": EPSILON, "versions": dict(versions())})
                print(json.dumps(record), flush=True)
    args.out.write_text("".join(json.dumps(each, sort_keys=True) + "\n" for each in records))


if __name__ == "__main__":
    main()
