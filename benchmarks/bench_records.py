"""A board with weights beside one without, and boards of several relations beside one, on one thread.

    python benchmarks/bench_records.py [--nodes N --edges E --classes C] [--rounds 5] [--record FILE]

Two graphs unless one is named: as large as ogbn-arxiv with both directions of its citations, and of a million
people and 20 million edges. What is measured is what a run does for a board: lists and ballots of labels, the
tally, its noise, the reading of every row, scaled, with list size and own place. Seconds are those of the
process, so that other processes on the machine matter less; the kinds of records alternate, and a ratio is
the median of those of the rounds. "R relations" have all edges in each of them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from pathlib import Path

import numba
import numpy as np
import torch

from hushgraph.billboard.ballots import label_ballots
from hushgraph.billboard.board import cast_and_release
from hushgraph.billboard.combined import combine_boards
from hushgraph.billboard.reading import read_scaled
from hushgraph.billboard.scaled import add_free_inputs
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation

# Nodes, edges, classes.
SIZES = ((169_343, 2_315_598, 40), (1_000_000, 20_000_000, 8))
RELATIONS, ROUNDS, NOISE = (2, 4), 5, 1.0
# Bytes, more than a measurement takes.
_TOUCHED = 5 << 29
PLAIN, WEIGHTED, ONE = "plain edges", "weights", "1 relation"


def make_graphs(nodes: int, edges: int, classes: int = 8) -> dict[str, Graph]:
    """The same edges, plain, with weights, and in several relations."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, nodes, (2, edges))
    common = {
        "x": np.zeros((nodes, 1), np.float32),
        "y": rng.integers(0, classes, nodes),
        "train_idx": np.arange(nodes // 2),
        "num_classes": classes,
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
    # A run makes a board once, in memory that it has not used before. What a host takes to give memory to a
    # virtual machine for the first time is left out, as it is as long as the rest: the system has it before.
    np.ones(_TOUCHED, np.uint8)
    ctypes.CDLL(None).malloc_trim(0)
    marks = [time.process_time()]
    ballots = label_ballots(graph, "sender", task=graph.task)
    marks.append(time.process_time())
    board = cast_and_release(graph, ballots, noise_std=NOISE)
    marks.append(time.process_time())
    board, parts = combine_boards([board], in_place=True)
    units = {"scale": 1.0, "radius": 3.0}
    readings = read_scaled(board, graph, "sender", own=[(parts[0], ballots)], **units)
    own_places = np.arange(graph.num_nodes)
    add_free_inputs(readings, board, ballots.list_sizes, list_size=0.3, own_places=own_places, **units)
    marks.append(time.process_time())
    return dict(zip(("ballots", "board", "reading"), np.diff(marks).tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    numba.set_num_threads(1)
    # Boards and readings are made by as many threads as torch has.
    torch.set_num_threads(1)
    chosen = [(options.nodes, options.edges, options.classes)] if options.nodes else SIZES
    lines = []
    for size in chosen:
        for line in compare(*size, rounds=options.rounds):
            lines.append(json.dumps(line))
            print(lines[-1], flush=True)
    if options.record is not None:
        options.record.write_text("\n".join(lines) + "\n")


def compare(nodes: int, edges: int, classes: int, *, rounds: int) -> list[dict[str, object]]:
    """Seconds of every kind of records on a graph of this size, and ratios."""
    graphs = make_graphs(nodes, edges, classes)
    # The first round compiles.
    measured = [{name: measure(graph) for name, graph in graphs.items()} for _ in range(rounds + 1)][1:]
    lines: list[dict[str, object]] = []
    for name in graphs:
        base = ONE if name.endswith("relations") else PLAIN
        ratios = [sum(each[name].values()) / sum(each[base].values()) for each in measured]
        line: dict[str, object] = {"records": name, "nodes": nodes, "edges": edges, "classes": classes}
        for part in measured[0][name]:
            line[part] = round(float(np.median([each[name][part] for each in measured])), 3)
        lines.append({**line, "beside": base, "ratio": round(float(np.median(ratios)), 2), "rounds": rounds})
    return lines


if __name__ == "__main__":
    main()
