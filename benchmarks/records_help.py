"""Do weights, relations and places help? On generated data whose truth is known, and on two real graphs.

    python benchmarks/records_help.py --out benchmarks/records/records_help.jsonl [--only WORLD ...]

Three made-up worlds of 4,000 people, by ROC-AUC: amounts that carry the label, two relations of which one is
noise, and rings of people that share devices. Two real graphs with directions, by accuracy on the test split:
there both ends own a record of an edge, "cites" and "is cited by", of one kind or as two relations. They need
`--data`, the folder of `ogbn_arxiv_hints.npz` and `amazon_computers.npz`. Every record is one run at epsilon
4 with default settings; the data is seeded, the noise is not. "none" is the private MLP, which reads no
record. With `--only`, records of other worlds stay in the file as they are.
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
from hushgraph.datasets import load_graph
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


def make_directions(base: Graph, names: tuple[str, str]) -> dict[str, Graph]:
    """Records of both ends of every edge: alike, as two relations, and those of one end alone.

    A relation follows from the direction of the edge, which is in the record of either end: it is a function
    of one row. (A weight such as the number of common neighbours would be one of other people's rows.)
    """
    edges = np.concatenate([np.stack(chunk) for chunk in base.edge_chunks()], axis=1).astype(np.int64)
    count = base.num_nodes
    there, back = (
        Relation.between_people(name, each, num_nodes=count)
        for name, each in zip(names, (edges, edges[::-1]), strict=True)
    )
    both = Relation.between_people("either", edges, num_nodes=count, symmetrize=True)
    made = {"both directions alike": [both], "two relations": [there, back]}
    made |= {f"{names[0]} alone": [there], f"{names[1]} alone": [back]}
    kept = {name: getattr(base, name) for name in ("x", "y", "train_idx", "val_idx", "test_idx")}
    return {
        name: Graph.from_arrays(edge_index=None, relations=each, num_classes=base.num_classes, **kept)
        for name, each in made.items()
    }


def make_citations(folder: Path, seed: int) -> dict[str, Graph]:
    """ogbn-arxiv with its official split: papers cite papers."""
    return make_directions(load_graph(folder / "ogbn_arxiv_hints.npz"), ("cites", "is cited by"))


def make_listings(folder: Path, seed: int) -> dict[str, Graph]:
    """Amazon Computers: pages list other products as bought together."""
    graph = load_graph(folder / "amazon_computers.npz", split="0.6/0.2/0.2", split_seed=seed)
    return make_directions(graph, ("lists", "is listed by"))


WORLDS: dict[str, Callable[[int], dict[str, Graph]]] = {
    "amounts that carry the label": make_amounts,
    "two relations, one is noise": make_relations,
    "rings that share devices": make_devices,
}


REAL: dict[str, Callable[[Path, int], dict[str, Graph]]] = {
    "arxiv, directions": make_citations,
    "computers, directions": make_listings,
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


def measure(graph: Graph, **settings: Any) -> dict[str, float]:
    """ROC-AUC, or accuracy where there are more than two classes, on the test split: exact."""
    run = hg.train(graph, epsilon=EPSILON, device="cpu", progress=False, **settings)
    probabilities, y = run.predict_proba(graph)[graph.test_idx], graph.y[graph.test_idx]
    if graph.num_classes == 2:
        return {"auc": round(find_auc(probabilities[:, 1], y), 4)}
    return {"accuracy": round(float((probabilities.argmax(axis=1) == y)[y >= 0].mean()), 4)}


def measure_world(world: str, graphs: dict[str, Graph], seed: int) -> list[dict[str, Any]]:
    """A record for every way to read the records of a world, and for none."""
    first = next(iter(graphs.values()))
    # The private MLP reads features alone.
    bare = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        **{name: getattr(first, name) for name in ("x", "y", "train_idx", "val_idx", "test_idx")},
        num_classes=first.num_classes,
    )
    made = []
    for name, graph in {**graphs, "none": bare}.items():
        figure = measure(graph, **({"model": "mlp"} if name == "none" else {}))
        made.append({"world": world, "records": name, "seed": seed, **figure, "epsilon": EPSILON})
        print(json.dumps(made[-1]), flush=True)
    return [{**record, "versions": dict(versions())} for record in made]


def main() -> None:
    """Write a record for every run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--only", action="append", choices=[*WORLDS, *REAL])
    args = parser.parse_args()
    wanted = args.only or [*WORLDS, *REAL]
    before = args.out.read_text().splitlines() if args.out.exists() else []
    kept = [line for line in before if json.loads(line)["world"] not in wanted]
    for world in wanted:
        for seed in range(REPEATS):
            graphs = WORLDS[world](seed) if world in WORLDS else REAL[world](args.data, seed)
            kept += [json.dumps(each, sort_keys=True) for each in measure_world(world, graphs, seed)]
    args.out.write_text("".join(line + "\n" for line in kept))


if __name__ == "__main__":
    main()
