"""Two classes, a number and several labels with default settings: exact and covered figures, beside the MLP.

    python benchmarks/tasks.py --data FOLDER --out benchmarks/records/tasks.jsonl

FOLDER holds tolokers.npz, on its own split, twitch_de.npz, on random 60/20/20 splits, whose views are
predicted as log10(1 + views) between 0 and 8, and deezer_hu.npz, whose 84 genres are predicted from the graph
alone, on random 60/20/20 splits other than those of `defaults.py`. Every record is one run; nothing is seeded
but the splits. `--only` makes the records of one graph anew and keeps the others.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.graph.graph import Graph
from hushgraph.runs.versions import versions
from hushgraph.tasks.labels import Labels
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


def load_deezer(folder: Path, repeat: int) -> Graph:
    """Listeners and the genres they like; nothing else is known of them."""
    with np.load(folder / "deezer_hu.npz") as file:
        indptr, indices = file["labels_indptr"], file["labels_indices"]
        shape = (len(indptr) - 1, len(file["label_names"]))
        y = sparse.csr_array((np.ones(len(indices), np.int64), indices, indptr), shape=shape).toarray()
        order = np.random.default_rng(10 + repeat).permutation(len(y))
        train, val, test = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
        return Graph.from_arrays(
            edge_index=file["edge_index"],
            x=np.ones((len(y), 1), np.float32),
            y=y,
            train_idx=np.sort(train),
            val_idx=np.sort(val),
            test_idx=np.sort(test),
            symmetrize=True,
            task=Labels(num_labels=shape[1]),
        )


# Listeners have no features, so that an MLP gives everybody the same scores: it would have 0.5.
DATA = {
    "tolokers": (load_tolokers, (1.0, 4.0, 8.0), "auc", (None, "mlp")),
    "twitch_de": (load_twitch, (1.0, 4.0), "r2", (None, "mlp")),
    "deezer_hu": (load_deezer, (1.0, 4.0), "macro_auc", (None,)),
}


def measure(folder: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One record for every run."""
    for name in names:
        load, epsilons, figure, models = DATA[name]
        for repeat in range(REPEATS):
            graph = load(folder, repeat)
            for epsilon in epsilons:
                for model in models:
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


def write_table(records: Sequence[dict[str, Any]]) -> str:
    """What docs/tasks.md shows: means over the runs; a covered figure only where every run shows it."""
    lines = [
        "| | epsilon | billboard, exact | covered | private MLP, exact | covered |",
        "|---|---|---|---|---|---|",
    ]
    for name, (_, epsilons, _, _) in DATA.items():
        for epsilon in epsilons:
            cells = []
            for model in ("billboard", "mlp"):
                runs = [r for r in records if (r["data"], r["epsilon"], r["model"]) == (name, epsilon, model)]
                covered = [r["covered"] for r in runs]
                is_told = bool(runs) and None not in covered
                cells += [
                    f"{np.mean([r['exact'] for r in runs]):.3f}" if runs else "no features",
                    f"{np.mean(covered):.3f}" if is_told else "hidden by noise" if runs else "",
                ]
            lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the table of docs/tasks.md, and run nothing")
    parser.add_argument("--only", choices=tuple(DATA), help="make the records of this graph anew")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(write_table([json.loads(line) for line in arguments.table.read_text().splitlines()]))
        return
    names = [arguments.only] if arguments.only else list(DATA)
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    kept = [line for line in lines if json.loads(line)["data"] not in names]
    with arguments.out.open("w") as file:
        file.writelines(f"{line}\n" for line in kept)
        for record in measure(arguments.data, names):
            file.write(json.dumps(record) + "\n")
            file.flush()
            print({name: value for name, value in record.items() if name != "versions"})


if __name__ == "__main__":
    main()
