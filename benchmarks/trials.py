"""The trials behind the defaults: one setting changed at a time, validation and test accuracy of each.

    python benchmarks/trials.py --data FOLDER --out benchmarks/records/trials.jsonl --device cuda

FOLDER holds ogbn_arxiv_hints.npz and facebook_32_schools.npz. A trial reads the validation labels of a public
graph; on a private graph choosing settings this way would have to be paid for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import hushgraph as hg
from hushgraph.datasets import load_graph

GRAPHS = ("ogbn_arxiv_hints", "facebook_32_schools")
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    *({"max_readers": k} for k in (0, 1, 2, 3, 4, 5, 6, 8, 10)),
    *({"learning_rate": rate} for rate in (0.005, 0.01, 0.02, 0.04)),
    *({"steps": steps} for steps in (150, 300, 1200)),
    *({"hidden": hidden} for hidden in (64, 256)),
    *({"feature_norm": norm} for norm in (0.0, 3.0, 12.0)),
    *({"stability": stability} for stability in (0.01, 1.0)),
    *({"momentum": momentum} for momentum in (0.5, 0.9)),
    {"resample_every": 10_000},
    {"decoder_layers": 2},
    {"activation": "relu"},
    {"average": 0.0},
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 4.0, 12.0])
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w") as out:
        for name in GRAPHS:
            graph = load_graph(args.data / f"{name}.npz", symmetrize=True)
            for epsilon in args.budgets:
                for change in CHANGES:
                    run = hg.train(graph, epsilon=epsilon, seed=0, device=args.device, **change)
                    record = {
                        "data": name,
                        "epsilon": epsilon,
                        "change": change,
                        "max_readers": run.plan.max_readers,
                        "learning_rate": run.config.learning_rate,
                        "val_accuracy": run.result["val_accuracy"],
                        "test_accuracy": run.result["test_accuracy"],
                        "seconds": run.result["seconds"],
                    }
                    out.write(json.dumps(record) + "\n")
                    out.flush()
                    print(json.dumps(record))


if __name__ == "__main__":
    main()
