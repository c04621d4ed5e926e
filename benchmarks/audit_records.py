"""What attacks on persons show, beside what is claimed: records of every kind, the private MLP and K = 0.

    python benchmarks/audit_records.py --out benchmarks/records/audit_records.jsonl
    python benchmarks/audit_records.py --again places 1 emptied 4 --out FILE
    python benchmarks/audit_records.py --table benchmarks/records/audit_records.jsonl

The canary is a person with three nodes, all emptied together. Estimates and intervals are those of
`audit_tasks.py`. A cell that was measured again has a line for every time, and the table shows their mean;
no line is taken out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from audit_tasks import COPIES, DELTA, DIFFERENCES, compare
from hushgraph.audit.attack import Effort, stage_boards, stage_trees
from hushgraph.audit.runs import plant_nothing
from hushgraph.audit.scene import Difference
from hushgraph.billboard.lists import Block
from hushgraph.privacy.changes import TRAINING_ROW
from hushgraph.privacy.choices import Unit
from hushgraph.privacy.plans import BillboardPlan, RowPlan, TreePlan

RUNS, STEPS_TRIALS = 5, 10_000
RECORDS = {
    "plain": (),
    "weights": (Block(name="pays", size=0, is_weighted=True),),
    "relations": (Block(name="calls", size=0), Block(name="pays", size=0)),
    "places": (Block(name="uses", size=0, kind="places"),),
    "hashed places": (Block(name="uses", size=0, kind="hashed"),),
    "together": (
        Block(name="pays", size=0, is_weighted=True),
        Block(name="calls", size=0),
        Block(name="shops", size=0, kind="places", is_weighted=True),
        Block(name="devices", size=0, kind="hashed"),
    ),
}
STEPS = {"private MLP": (RowPlan, "mlp"), "trees with K = 0": (TreePlan, "gcn")}
CLAIMS = (1.0, 4.0)
# A training row, or person, and an evaluated one.
SHOWN: tuple[Difference, ...] = ("emptied", "evaluated")


def attack_boards(name: str, claim: float, difference: Difference, unit: Unit) -> dict[str, Any]:
    """One record of boards and steps."""
    blocks = RECORDS[name]
    plan = BillboardPlan(
        num_train_nodes=1_000,
        batch_size=1_000,
        steps=2,
        num_classes=3,
        num_boards=2,
        delta=DELTA,
        is_weighted=any(block.is_weighted for block in blocks),
        num_relations=max(1, len(blocks)),
        protects=unit,
    )
    plan = plan.calibrated(epsilon=claim).with_evaluation(2)
    stage = stage_boards(plan, plant_nothing, COPIES, difference=difference, blocks=blocks)
    return compare(stage, DIFFERENCES[difference][1], RUNS)


def attack_steps(name: str, claim: float, unit: Unit) -> dict[str, Any]:
    """One record of steps alone."""
    kind, model = STEPS[name]
    shape = {} if kind is RowPlan else {"num_layers": 1, "max_readers": 0}
    plan = kind(num_train_nodes=1_000, batch_size=1_000, steps=2, delta=DELTA, protects=unit, **shape)
    effort = Effort(trials=STEPS_TRIALS, rng=np.random.default_rng(1))
    stage = stage_trees(
        plan.calibrated(epsilon=claim), plant_nothing, effort, model=model, canary="strongest"
    )
    return compare(stage, TRAINING_ROW, -(-STEPS_TRIALS // stage.trials_per_run))


def measure() -> Iterator[dict[str, Any]]:
    """Every cell."""
    for name in RECORDS:
        for claim in CLAIMS:
            for difference in SHOWN:
                about = {"records": name, "claim": claim, "difference": difference, "unit": "person"}
                yield {**about, **attack_boards(name, claim, difference, "person")}
    for name in STEPS:
        for claim in CLAIMS:
            about = {"records": name, "claim": claim, "difference": "emptied", "unit": "person"}
            yield {**about, **attack_steps(name, claim, "person")}


def repeat(name: str, claim: str, difference: Any, times: str) -> Iterator[dict[str, Any]]:
    """One cell of boards, so many times."""
    for _ in range(int(times)):
        about = {"records": name, "claim": float(claim), "difference": difference, "unit": "person"}
        yield {**about, **attack_boards(name, float(claim), difference, "person")}


def write_table(records: Sequence[dict[str, Any]]) -> str:
    """What docs/persons.md shows: claimed, and shown with its interval."""
    words = {"emptied": "person with training nodes", "evaluated": "evaluated person"}
    heads = [f"{words[difference]}, claim {claim:g}" for claim in CLAIMS for difference in SHOWN]
    lines = ["| attacked | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in (*RECORDS, *STEPS):
        cells = []
        for claim in CLAIMS:
            for difference in SHOWN:
                found = [
                    r
                    for r in records
                    if (r["records"], r["claim"], r["difference"]) == (name, claim, difference)
                ]
                cells.append(show_cell(found))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def show_cell(found: Sequence[dict[str, Any]]) -> str:
    """Claimed, and the mean of all measurements with its interval; nothing where there is none."""
    if not found:
        return ""
    shown = sum(r["shown"] for r in found) / len(found)
    half = sum(r["interval"][1] - r["interval"][0] for r in found) / 2 / len(found) ** 1.5
    return f"{found[0]['claimed']:.2f}: {shown:.2f} ({shown - half:.2f} to {shown + half:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", nargs=4, metavar=("RECORDS", "CLAIM", "DIFFERENCE", "TIMES"))
    parser.add_argument("--table", type=Path, help="print the table of a record, and run nothing")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(write_table([json.loads(line) for line in arguments.table.read_text().splitlines()]))
        return
    with arguments.out.open("w") as file:
        for record in measure() if arguments.again is None else repeat(*arguments.again):
            file.write(json.dumps(record) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
