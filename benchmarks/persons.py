"""People with three nodes each: protecting persons, against protecting nodes at the price of a group.

    python benchmarks/persons.py

Every person has a class and three nodes; what a node shows of the class is weak, and most of its list is
nodes of its class. A run that protects nodes protects a person with three nodes only as a group. So that this
costs what the run that protects persons costs, it has to take a smaller epsilon: `group_price` finds it.
One line for every run is written to benchmarks/records/persons.jsonl, with exact test accuracies: the data is
generated, and nothing of it is private.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.privacy.changes import rows_emptied

RECORD = Path(__file__).parent / "records" / "persons.jsonl"
PERSONS, NODES_EACH, CLASSES, FEATURES = 2_000, 3, 5, 16
EPSILONS, SEEDS = (2.0, 4.0, 8.0), (1, 2, 3)
SETTINGS: dict[str, Any] = {"device": "cpu", "steps": 200, "hidden": 32, "exact_figures": True}


def generate(seed: int) -> Graph:
    """A graph of persons with three nodes each."""
    rng = np.random.default_rng(seed)
    count = PERSONS * NODES_EACH
    persons = np.repeat(np.arange(PERSONS), NODES_EACH)
    labels = rng.integers(0, CLASSES, PERSONS)[persons]
    x = rng.normal(size=(count, FEATURES))
    x[:, :CLASSES] += 0.8 * np.eye(CLASSES)[labels]
    source = rng.integers(0, count, 4 * count)
    by_class = [np.flatnonzero(labels == each) for each in range(CLASSES)]
    same = np.array([rng.choice(by_class[label]) for label in labels[source]])
    target = np.where(rng.random(len(source)) < 0.6, same, rng.integers(0, count, len(source)))
    graph = Graph.from_arrays(
        edge_index=np.stack([source, target]),
        x=x,
        y=labels,
        train_idx=[0],
        num_classes=CLASSES,
        symmetrize=True,
        persons=persons,
    )
    return hg.datasets.load_graph(graph, split="0.6/0.2/0.2", split_seed=seed)


def group_price(graph: Graph, epsilon: float) -> float:
    """The epsilon of a run that protects nodes at which three of them, emptied together, cost `epsilon`."""
    low, high = 0.0, epsilon
    while high - low > 1e-3 * epsilon:
        middle = (low + high) / 2
        plan = hg.prepare(graph, epsilon=middle, steps=SETTINGS["steps"]).plan
        low, high = (middle, high) if plan.price(rows_emptied(NODES_EACH)) <= epsilon else (low, middle)
    return low


def train(graph: Graph, **settings: Any) -> dict[str, Any]:
    run = hg.train(graph, **SETTINGS, **settings)
    exact = run.result.get("exact_figures", run.result)
    return {
        "unit": run.plan.protects,
        "units": run.plan.num_train_nodes,
        "epsilon": None if run.epsilon == float("inf") else round(run.epsilon, 4),
        "boards": getattr(run.plan, "num_boards", 0),
        "test_accuracy": round(float(exact["test_accuracy"]), 4),
    }


def main() -> None:
    """Run everything and write the record."""
    lines = []
    for seed in SEEDS:
        persons = generate(seed)
        # The same splits and the same records, with every node protected by itself.
        nodes = Graph(**{**vars(persons), "persons": None})
        for epsilon in EPSILONS:
            about = {"seed": seed, "epsilon_of_a_person": epsilon}
            lines.append(about | {"run": "persons"} | train(persons, epsilon=epsilon))
            price = group_price(nodes, epsilon)
            lines.append(about | {"run": "nodes, group price"} | train(nodes, epsilon=price))
            lines.append(about | {"run": "persons, MLP"} | train(persons, epsilon=epsilon, model="mlp"))
            print(*(json.dumps(line) for line in lines[-3:]), sep="\n", flush=True)
        line = {"seed": seed, "run": "no privacy"} | train(persons, private=False)
        lines.append(line)
        print(json.dumps(line), flush=True)
    RECORD.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
