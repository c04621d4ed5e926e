"""Two classes and a number with default settings: exact and covered figures, beside the private MLP.

    python benchmarks/tasks.py --data FOLDER --out benchmarks/records/tasks.jsonl

FOLDER holds tolokers.npz, on its own split, and twitch_de.npz, on random 60/20/20 splits, whose views are
predicted as log10(1 + views) between 0 and 8. Every record is one run; nothing is seeded but the splits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.graph.graph import Graph
from hushgraph.runs.versions import versions
from hushgraph.tasks.number import Number

REPEATS = 3


def load_tolokers(folder: Path, repeat: int) -> Graph:
    """Crowd workers, banned or not."""
    return load_graph(folder / "tolokers.npz", symmetrize=True, num_classes=2)


def load_twitch(folder: Path, repeat: int) -> Graph:
    """Streamers and how often their channel was viewed."""
    task = Number(low=0.0, high=8.0)
    with np.load(folder / "twitch_de.npz") as file:
        values = np.broadcast_to(file["x_data"], file["x_indices"].shape).astype(np.float32)
        x = sparse.csr_array((values, file["x_indices"], file["x_indptr"]), shape=tuple(file["x_shape"]))
        order = np.random.default_rng(repeat).permutation(x.shape[0])
        train, val, test = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
        return Graph.from_arrays(
            edge_index=file["edge_index"],
            x=x,
            y=task.scale(np.log10(1 + file["views"])),
            train_idx=np.sort(train),
            val_idx=np.sort(val),
            test_idx=np.sort(test),
            symmetrize=True,
            task=task,
        )


DATA = {"tolokers": (load_tolokers, (1.0, 4.0, 8.0), "auc"), "twitch_de": (load_twitch, (1.0, 4.0), "r2")}


def measure(folder: Path) -> Iterator[dict[str, Any]]:
    """One record for every run."""
    for name, (load, epsilons, figure) in DATA.items():
        for repeat in range(REPEATS):
            graph = load(folder, repeat)
            for epsilon in epsilons:
                for model in (None, "mlp"):
                    begin = time.perf_counter()
                    run = hg.train(
                        graph, epsilon=epsilon, model=model, device="cpu", progress=False, exact_figures=True
                    )
                    yield {
                        "data": name,
                        "repeat": repeat,
                        "epsilon": epsilon,
                        "model": model or "billboard",
                        "figure": figure,
                        "exact": run.result["exact_figures"][f"test_{figure}"],
                        "exact_validation": run.result["exact_figures"][f"val_{figure}"],
                        "covered": run.result[f"test_{figure}"],
                        "seconds": round(time.perf_counter() - begin, 1),
                        "versions": dict(versions()),
                    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with arguments.out.open("w") as file:
        for record in measure(arguments.data):
            file.write(json.dumps(record) + "\n")
            file.flush()
            print({name: value for name, value in record.items() if name != "versions"})


if __name__ == "__main__":
    main()
