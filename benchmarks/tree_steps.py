"""How many steps trees take by default: fewer of them, each as much larger as the rule makes it.

    python benchmarks/tree_steps.py --data FOLDER --out benchmarks/records/tree_steps.jsonl --device cuda
    python benchmarks/tree_steps.py --table benchmarks/records/tree_steps.jsonl

FOLDER holds the files of GRAPHS. All else is what the rule chooses for
`--method trees`, and the noise is solved for. Graphs are symmetrized, unless `--as-given`. Accuracies are
exact: both graphs are public. Runs are seeded so that a record can be made again; a seeded run is
reproducible, not private. Records that are in the file already are kept and not made again. The table has
means over seeds, validation / test.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.privacy import defaults

GRAPHS = ("facebook_32_schools", "ogbn_arxiv_hints", "coauthor_physics")
# Of graphs that come without one.
SPLITS = {"coauthor_physics": "0.6/0.2/0.2"}
BUDGETS = (12.0, 4.0, 1.0)
STEPS = (600, 300, 200, 150)
FIGURES = ("val_accuracy", "test_accuracy")
ASKED = ("data", "symmetrize", "epsilon", "steps", "seed")


def train_one(graph: Any, asked: dict[str, Any], device: str) -> dict[str, Any]:
    # The rule divides how far weights travel by the steps, of which it then has as many for any noise.
    defaults.STEPS, defaults._NOISE_FOR_FEWER_STEPS = asked["steps"], 0.0
    run = hg.train(
        graph,
        method="trees",
        epsilon=asked["epsilon"],
        seed=asked["seed"],
        device=device,
        exact_figures=True,
    )
    exact = run.result.get("exact_figures", run.result)
    return asked | {
        "max_readers": run.plan.max_readers,
        "learning_rate": run.config.learning_rate,
        **{name: exact[name] for name in FIGURES},
        **{name: run.result[name] for name in ("seconds", "device")},
    }


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: a line for every number of steps, a column for every graph and budget."""
    columns = list(dict.fromkeys((r["data"], r["symmetrize"], r["epsilon"]) for r in records))
    heads = [f"{name}{'' if both else ' as given'}, {epsilon:g}" for name, both, epsilon in columns]
    lines = [["steps", *heads]]
    lines.append(["---"] * len(lines[0]))
    for steps in dict.fromkeys(r["steps"] for r in records):
        cells = []
        for column in columns:
            cell = dict(zip(ASKED, (*column, steps), strict=False))
            of_cell = [r for r in records if cell.items() <= r.items()]
            means = [f"{100 * statistics.fmean(r[name] for r in of_cell):.2f}" for name in FIGURES if of_cell]
            cells.append(" / ".join(means))
        lines.append([str(steps), *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, help="print the table of these records and stop")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--budgets", nargs="+", type=float, default=BUDGETS)
    parser.add_argument("--steps", nargs="+", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--as-given", action="store_true", help="leave out edges that a file does not have")
    args = parser.parse_args()
    if args.table is not None:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return
    if args.data is None or args.out is None:
        parser.error("give --data and --out, or --table")
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    done = [tuple(record[name] for name in ASKED) for record in map(json.loads, lines)]
    both = not args.as_given
    graphs = {
        name: load_graph(args.data / f"{name}.npz", symmetrize=both, split=SPLITS.get(name))
        for name in args.graphs
    }
    with args.out.open("a") as out:
        # Seeds outermost: what is stopped early has a line for every setting.
        for seed, name, epsilon, steps in product(range(args.seeds), args.graphs, args.budgets, args.steps):
            asked = dict(zip(ASKED, (name, both, epsilon, steps, seed), strict=True))
            if tuple(asked.values()) in done:
                continue
            line = json.dumps(train_one(graphs[name], asked, args.device))
            print(line, flush=True)
            out.write(line + "\n")
            out.flush()


if __name__ == "__main__":
    main()
