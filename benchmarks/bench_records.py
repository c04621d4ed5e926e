"""A board with weights beside one without, and boards of several relations beside one, on one thread.

    python benchmarks/bench_records.py [--nodes 200000] [--edges 5000000] [--record FILE]

What is measured is what a run does for a board: lists and ballots of labels, the tally, its noise, and the
reading of every row. Seconds are those of the process, so that other processes on the machine matter less;
the kinds of records alternate, and a ratio is the median of those of the rounds. "R relations" have all edges
in each of them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numba
import numpy as np

from hushgraph.billboard.ballots import label_ballots
from hushgraph.billboard.board import cast_and_release
from hushgraph.billboard.reading import read
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation

CLASSES, RELATIONS, ROUNDS, NOISE = 8, (2, 4), 5, 1.0
PLAIN, WEIGHTED, ONE = "plain edges", "weights", "1 relation"


def make_graphs(nodes: int, edges: int) -> dict[str, Graph]:
    """The same edges, plain, with weights, and in several relations."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, nodes, (2, edges))
    common = {
        "x": np.zeros((nodes, 1), np.float32),
        "y": rng.integers(0, CLASSES, nodes),
        "train_idx": np.arange(nodes // 2),
        "num_classes": CLASSES,
    }
    amounts = rng.lognormal(size=edges)
    relations = {
        WEIGHTED: [Relation.between_people("pays", ends, num_nodes=nodes, weights=amounts)],
        ONE: [Relation.between_people("calls", ends, num_nodes=nodes)],
    }
    for count in RELATIONS:
        relations[f"{count} relations"] = [
            Relation.between_people(f"kind {number}", ends, num_nodes=nodes) for number in range(count)
        ]
    graphs = {PLAIN: Graph.from_arrays(edge_index=ends, directed=True, **common)}
    for name, each in relations.items():
        graphs[name] = Graph.from_arrays(edge_index=None, relations=each, directed=True, **common)
    return graphs


def measure(graph: Graph) -> dict[str, float]:
    """Seconds of one board, by part."""
    marks = [time.process_time()]
    ballots = label_ballots(graph, "sender", task=graph.task)
    marks.append(time.process_time())
    board = cast_and_release(graph, ballots, noise_std=NOISE)
    marks.append(time.process_time())
    read(board, graph, "sender", own=ballots)
    marks.append(time.process_time())
    return dict(zip(("ballots", "board", "reading"), np.diff(marks).tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    numba.set_num_threads(1)
    graphs = make_graphs(options.nodes, options.edges)
    # The first round compiles.
    rounds = [{name: measure(graph) for name, graph in graphs.items()} for _ in range(options.rounds + 1)][1:]
    lines = []
    for name in graphs:
        parts = {part: float(np.median([each[name][part] for each in rounds])) for part in rounds[0][name]}
        base = ONE if name.endswith("relations") else PLAIN
        ratios = [sum(each[name].values()) / sum(each[base].values()) for each in rounds]
        line = {"records": name, **{part: round(value, 3) for part, value in parts.items()}}
        line |= {"beside": base, "ratio": round(float(np.median(ratios)), 2)}
        lines.append(json.dumps({**line, "nodes": options.nodes, "edges": options.edges}))
        print(lines[-1], flush=True)
    if options.record is not None:
        options.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
