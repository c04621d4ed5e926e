"""Test accuracy with default settings, only epsilon given: one JSON record a run.

    python benchmarks/accuracy.py --data FOLDER --out benchmarks/records/accuracy.jsonl

FOLDER holds ogbn_arxiv_hints.npz and facebook_32_schools.npz. Runs are seeded so that a record can be made
again; a seeded run is reproducible, not private.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.runs.folder import versions

GRAPHS = ("ogbn_arxiv_hints", "facebook_32_schools")
BUDGETS = (None, 12.0, 4.0, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    args = parser.parse_args()
    graphs = {name: load_graph(args.data / f"{name}.npz", symmetrize=True) for name in args.graphs}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, float | None], list[float]] = {}
    with args.out.open("w") as out:
        for name, graph in graphs.items():
            for epsilon in BUDGETS:
                for seed in range(args.seeds):
                    begin = time.monotonic()
                    budget = {"private": False} if epsilon is None else {"epsilon": epsilon}
                    run = hg.train(graph, seed=seed, device=args.device, **budget)
                    record = {
                        "data": name,
                        "asked": budget,
                        "seed": seed,
                        "seconds_in_all": round(time.monotonic() - begin, 2),
                        "result": run.result,
                        "plan": json.loads(run.plan.to_json()),
                        "config": json.loads(run.config.to_json()),
                        "versions": versions(),
                    }
                    out.write(json.dumps(record, sort_keys=True) + "\n")
                    out.flush()
                    found.setdefault((name, epsilon), []).append(100 * run.result["test_accuracy"])
                    print(
                        name, budget, seed, f"{found[name, epsilon][-1]:.2f}", f"{record['seconds_in_all']} s"
                    )
    for (name, epsilon), values in found.items():
        label = "not private" if epsilon is None else f"epsilon {epsilon:g}"
        print(f"{name:22} {label:12} {np.mean(values):.2f} +- {np.std(values):.2f}  ({len(values)} seeds)")


if __name__ == "__main__":
    main()
