"""The trials behind the defaults: one setting changed at a time, validation and test accuracy of each.

    python benchmarks/trials.py --data FOLDER --out benchmarks/records/trials.jsonl --device cuda
    python benchmarks/trials.py --table benchmarks/records/trials.jsonl

FOLDER holds ogbn_arxiv_hints.npz and facebook_32_schools.npz. A trial reads the validation labels of a public
graph; on a private graph choosing settings this way would have to be paid for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, TextIO

import hushgraph as hg
from hushgraph.datasets import load_graph

GRAPHS = ("ogbn_arxiv_hints", "facebook_32_schools")
READERS = (0, 1, 2, 3, 4, 5, 6, 8)
CHANGES: tuple[dict[str, Any], ...] = (
    {"steps": 300},
    *({"hidden": hidden} for hidden in (64, 256)),
    *({"feature_norm": norm} for norm in (0.0, 3.0, 12.0)),
    *({"stability": stability} for stability in (0.01, 1.0)),
    *({"momentum": momentum} for momentum in (0.5, 0.9)),
    *({"resample_every": steps} for steps in (20, 10_000)),
    {"decoder_layers": 2},
    {"activation": "relu"},
    {"average": 0.0},
)
RATES = (0.5, 0.75, 1.5)


def changes(usual: hg.Run, epsilon: float, budgets: list[float]) -> list[dict[str, Any]]:
    """What to try around the default settings; the settings that do not price the noise at the ends only."""
    near = [{"max_readers": k} for k in READERS if abs(k - usual.plan.max_readers) <= 2 or k == 0]
    if epsilon not in (min(budgets), max(budgets)):
        return near
    rate = usual.config.learning_rate
    return [*near, *({"learning_rate": float(f"{rate * by:.2g}")} for by in RATES), *CHANGES]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, help="print the table of these records and stop")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 4.0, 12.0])
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    args = parser.parse_args()
    if args.table is not None:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return
    if args.data is None or args.out is None:
        parser.error("give --data and --out, or --table")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w") as out:
        for name in args.graphs:
            graph = load_graph(args.data / f"{name}.npz", symmetrize=True)
            for epsilon in args.budgets:
                run = hg.train(graph, epsilon=epsilon, seed=0, device=args.device)
                note(out, name, {}, epsilon, run)
                for change in changes(run, epsilon, args.budgets):
                    run = hg.train(graph, epsilon=epsilon, seed=0, device=args.device, **change)
                    note(out, name, change, epsilon, run)


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: validation accuracy of the settings started from, and what each change did to it."""
    columns = sorted({(r["data"], r["epsilon"]) for r in records}, key=lambda c: (GRAPHS.index(c[0]), c[1]))
    found = {(r["data"], r["epsilon"], json.dumps(r["change"])): 100 * r["val_accuracy"] for r in records}
    starts = {(r["data"], r["epsilon"]): r for r in records if not r["change"]}
    lines = [
        ["changed", *(f"{name}, {epsilon:g}" for name, epsilon in columns)],
        ["---"] * (len(columns) + 1),
        ["K it started from", *(str(starts[c]["max_readers"]) for c in columns)],
        ["learning rate it started from", *(f"{starts[c]['learning_rate']:g}" for c in columns)],
        ["nothing", *(f"{found[(*c, '{}')]:.2f}" for c in columns)],
    ]
    lines += [[f"K = {k}", *cells({"max_readers": k}, columns, found)] for k in READERS]
    for by in RATES:
        changed = [{"learning_rate": float(f"{starts[c]['learning_rate'] * by:.2g}")} for c in columns]
        lines.append(
            [
                f"learning rate x {by:g}",
                *(cells(change, [c], found)[0] for change, c in zip(changed, columns, strict=True)),
            ]
        )
    for change in CHANGES:
        ((name, value),) = change.items()
        lines.append([f"{name} = {value}", *cells(change, columns, found)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines if set(line[1:]) != {""})


def cells(
    change: dict[str, Any], columns: list[tuple[str, float]], found: dict[tuple[str, float, str], float]
) -> list[str]:
    differences = []
    for column in columns:
        value = found.get((*column, json.dumps(change)))
        differences.append("" if value is None else f"{value - found[(*column, '{}')]:+.2f}")
    return differences


def note(out: TextIO, name: str, change: dict[str, Any], epsilon: float, run: hg.Run) -> None:
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
