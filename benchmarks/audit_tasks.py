"""What attacks on real runs of every task show, beside what is claimed.

    python benchmarks/audit_tasks.py --out benchmarks/records/audit_tasks.jsonl
    python benchmarks/audit_tasks.py --table benchmarks/records/audit_tasks.jsonl

Runs have two full steps, so that all of a run is one Gaussian: the log-likelihood ratio of everything that is
released is then normal in both worlds, and how far apart they are is a shift with a known price. A point
estimate is that price; its interval has two standard errors of the shift on each side.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.accounting.accountants import gaussian_epsilon
from hushgraph.audit.attack import stage_boards
from hushgraph.audit.runs import plant_nothing
from hushgraph.audit.scene import Difference
from hushgraph.audit.trials import Shown, Stage
from hushgraph.privacy.changes import TRAINING_ROW, Change, row_emptied
from hushgraph.privacy.charges import epsilon
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.runs.versions import versions
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

DELTA, COPIES, RUNS = 1e-5, 4_000, 5
TASKS: dict[str, tuple[Task, tuple[float, ...] | None, int]] = {
    "classes": (Classes(num_classes=3), None, 2),
    "two classes": (TwoClasses(), None, 1),
    "rare, common class weighs 0.02": (TwoClasses(rare=True), (0.02, 1.0), 1),
    "several labels": (Labels(num_labels=3), None, 1),
    "a number": (Number(low=0.0, high=8.0), None, 1),
}
DIFFERENCES: dict[Difference, tuple[str, Change]] = {
    "emptied": ("training row emptied", TRAINING_ROW),
    "flipped": ("its label changed", Change("label", ("training",))),
    "evaluated": ("evaluated row emptied", next(iter(row_emptied("evaluated")))),
}


def attack(name: str, claim: float, difference: Difference) -> dict[str, Any]:
    """One record: what is claimed, and what the runs show."""
    task, weights, boards = TASKS[name]
    plan = BillboardPlan(
        num_train_nodes=1_000,
        batch_size=1_000,
        steps=2,
        num_classes=task.num_outputs,
        label_change=None if type(task) is Classes else task.label_change,
        num_boards=boards,
        delta=DELTA,
    )
    plan = plan.calibrated(epsilon=claim).with_evaluation(task.num_tables)
    stage = stage_boards(plan, plant_nothing, COPIES, difference=difference, task=task, class_weights=weights)
    words, change = DIFFERENCES[difference]
    return {"task": name, "claim": claim, "difference": words, **compare(stage, change, RUNS)}


def compare(stage: Stage, change: Change, runs: int) -> dict[str, Any]:
    """What is claimed for a change, and what so many runs of a stage show."""
    rng = np.random.default_rng(1)
    shown = Shown.join([stage.run(rng) for _ in range(runs)])
    there, empty = shown.pair(0)
    shift = (there.mean() - empty.mean()) / math.sqrt((there.var() + empty.var()) / 2)
    error = math.sqrt(2 / len(there))
    return {
        "claimed": epsilon(stage.plan.charges, [change], delta=DELTA),
        "shown": gaussian_epsilon(shift, DELTA),
        "interval": [gaussian_epsilon(max(shift + z * error, 1e-9), DELTA) for z in (-2, 2)],
        "trials": len(there),
        "others_changed": shown.changed,
        "versions": dict(versions()),
    }


def measure() -> Iterator[dict[str, Any]]:
    """Every task at claims 1 and 4."""
    for name in TASKS:
        for claim in (1.0, 4.0):
            for difference in DIFFERENCES:
                yield attack(name, claim, difference)


def write_table(records: Sequence[dict[str, Any]]) -> str:
    """What docs/audit.md shows: claimed, and shown with its interval."""
    heads = [f"{words}, claim {claim}" for claim in (1, 4) for words, _ in DIFFERENCES.values()]
    lines = ["| task | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in TASKS:
        cells = [
            f"{r['claimed']:.2f}: {r['shown']:.2f} ({r['interval'][0]:.2f} to {r['interval'][1]:.2f})"
            for claim in (1.0, 4.0)
            for words, _ in DIFFERENCES.values()
            for r in records
            if (r["task"], r["claim"], r["difference"]) == (name, claim, words)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the table of a record, and run nothing")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(write_table([json.loads(line) for line in arguments.table.read_text().splitlines()]))
        return
    with arguments.out.open("w") as file:
        for record in measure():
            file.write(json.dumps(record) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
