"""Test accuracy with default settings, only epsilon given, and of the ceilings without privacy.

    python benchmarks/accuracy.py --data FOLDER --out benchmarks/records/accuracy.jsonl
    python benchmarks/accuracy.py --plan ceilings --data FOLDER --out benchmarks/records/ceilings.jsonl

FOLDER holds the .npz files of the graphs. `--plan ceilings` trains GCN, GAT and MLP without privacy, with the
defaults and with one setting changed at a time. Runs are seeded so that a record can be made again; a seeded
run is reproducible, not private. Records that are in the file already are kept and not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.runs.versions import versions

# Graphs without a split in the file, and with one that has hardly any training nodes, get a random one.
SPLITS: dict[str, str | None] = {
    "ogbn_arxiv_hints": None,
    "facebook_32_schools": None,
    "amazon_computers": "0.6/0.2/0.2",
    "planetoid_pubmed": "0.6/0.2/0.2",
    "coauthor_physics": "0.6/0.2/0.2",
}
USUAL_GRAPHS = ("ogbn_arxiv_hints", "facebook_32_schools")
BUDGETS: tuple[dict[str, Any], ...] = (
    {"private": False},
    {"model": "gcn", "private": False},
    *({"epsilon": epsilon} for epsilon in (12.0, 4.0, 1.0)),
)
CEILING_MODELS = ("gcn", "gat", "mlp")
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"feature_norm": 0.0},
    {"feature_norm": 6.0},
    {"feature_norm": 12.0},
    {"learning_rate": 0.01},
    {"learning_rate": 0.003},
    {"steps": 300},
    {"steps": 600},
    {"steps": 1200},
)


def list_arguments(plan: str) -> Iterator[dict[str, Any]]:
    """The arguments of `train` of every run of a plan."""
    if plan == "defaults":
        yield from BUDGETS
        return
    for model in CEILING_MODELS:
        for change in CHANGES:
            yield {"model": model, "private": False, **change}


def train_one(graph: Any, name: str, asked: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
    begin = time.monotonic()
    run = hg.train(graph, seed=seed, device=device, **asked)
    return {
        "data": name,
        "asked": asked,
        "seed": seed,
        "seconds_in_all": round(time.monotonic() - begin, 2),
        "result": run.result,
        "plan": json.loads(run.plan.to_json()),
        "config": json.loads(run.config.to_json()),
        "versions": versions(),
    }


def is_default(graph: Any, asked: dict[str, Any]) -> bool:
    """Whether a change asks for what the defaults are."""
    change = {key: value for key, value in asked.items() if key not in ("model", "private", "epsilon")}
    if not change:
        return False
    rest = {key: value for key, value in asked.items() if key not in change}
    _, plan, config = hg.prepare(graph, **rest)
    ((key, value),) = change.items()
    usual: Any = plan.steps if key == "steps" else getattr(config, key)
    return bool(usual == value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", choices=("defaults", "ceilings"), default="defaults")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=None, help="3; 1 for the ceilings")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", default=USUAL_GRAPHS, choices=tuple(SPLITS))
    args = parser.parse_args()
    seeds = args.seeds or (1 if args.plan == "ceilings" else 3)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    records = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {(r["data"], json.dumps(r["asked"], sort_keys=True), r["seed"]) for r in records}
    with args.out.open("a") as out:
        for name in args.graphs:
            graph = load_graph(args.data / f"{name}.npz", symmetrize=True, split=SPLITS[name])
            for asked in list_arguments(args.plan):
                if is_default(graph, asked):
                    continue
                for seed in range(seeds):
                    if (name, json.dumps(asked, sort_keys=True), seed) in done:
                        continue
                    record = train_one(graph, name, asked, seed, args.device)
                    records.append(record)
                    out.write(json.dumps(record, sort_keys=True) + "\n")
                    out.flush()
                    test = record["result"]["test_accuracy"]
                    print(name, asked, seed, f"{100 * test:.2f}", f"{record['seconds_in_all']} s", flush=True)
    print_summary(records)


def print_summary(records: list[dict[str, Any]]) -> None:
    """Print the mean accuracies of every setting in percent, validation first."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for record in records:
        result = record["result"]
        key = record["data"], json.dumps(record["asked"], sort_keys=True)
        groups.setdefault(key, []).append((100 * result["val_accuracy"], 100 * result["test_accuracy"]))
    for (name, asked), pairs in groups.items():
        (val, test), spread = np.mean(pairs, axis=0), np.std(pairs, axis=0)[1]
        print(f"{name:22} {asked:60} val {val:.2f} test {test:.2f} +- {spread:.2f} ({len(pairs)} seeds)")


if __name__ == "__main__":
    main()
