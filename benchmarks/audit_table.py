"""The audit of docs/audit.md: lower bounds on epsilon next to the claims, and faults that must be caught.

    python benchmarks/audit_table.py --out benchmarks/records/audit.jsonl
    python benchmarks/audit_table.py --table benchmarks/records/audit.jsonl

Ends with 1 where a bound exceeds its claim, a fault is not caught, or the strongest canary shows less than
seven tenths of the claim. A few minutes of processor time, shared by two processes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CLAIMS = (1.0, 4.0, 10.0)
FAULT_CLAIMS = (1.0, 4.0)
FAULTS = {
    "half-noise": "half of the noise",
    "reused-noise": "noise used twice",
    "too-few-trees": "n counted for one layer less",
    "per-layer-noise": "the paper's noise per layer",
    "paper-sampler": "the paper's sampler, readers own the edges",
    "float-noise": "float32 noise of torch",
}
DELTA = 1e-5
LEAST_PART = 0.7


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One audit: where it goes in the tables, the fields of its plan, and how it is attacked."""

    table: str
    row: str
    claim: float
    trials: int
    plan: dict[str, Any] = field(default_factory=dict)
    attack: dict[str, Any] = field(default_factory=dict)
    way: str = "loop"
    seed: int | None = None


def cells(part: float) -> list[Cell]:
    """Everything that is audited, with this part of the trials."""

    def many(count: int) -> int:
        return max(40, int(count * part))

    listed = [
        Cell(table="models", row="MLP", claim=claim, trials=many(40_000), attack={"model": "mlp"})
        for claim in CLAIMS
    ]
    for model in ("gcn", "gin", "gat"):
        for r in (1, 2):
            for K in (0, 2):
                plan = {"num_layers": r, "max_readers": K}
                row = f"{model.upper()}, r = {r}, K = {K}"
                listed += [
                    Cell(
                        table="models",
                        row=row,
                        claim=claim,
                        trials=many(40_000),
                        plan=plan,
                        attack={"model": model},
                    )
                    for claim in CLAIMS
                ]
    one, two = ({"num_layers": r, "max_readers": 2} for r in (1, 2))
    none = {"num_layers": 1, "max_readers": 0}
    by_reader = {"edge_owner": "reader", "max_reads": 2}
    half = {"batch_size": 500, "steps": 4}
    ways: list[tuple[str, int, dict[str, Any], dict[str, Any], str]] = []
    for r, plan in ((1, one), (2, two)):
        ways += [
            (f"canary outside the training split, r = {r}", 40_000, plan, {"canary": "read"}, "loop"),
            (f"hub: its readers get other reads, r = {r}", 40_000, plan, {"canary": "hub"}, "loop"),
            (f"readers own the edges, D = 2, r = {r}", 40_000, plan | by_reader, {}, "loop"),
            (
                f"readers own the edges, displaced reads alone, r = {r}",
                40_000,
                plan | by_reader,
                {"canary": "hub"},
                "loop",
            ),
        ]
    ways += [
        ("flat clipping, r = 1", 40_000, one | {"clipping": "flat"}, {}, "loop"),
        ("600 steps, K = 0", 6_000, none | {"steps": 600}, {}, "loop"),
        ("Poisson batches of half, 4 steps, K = 0", 8_000, none | half, {}, "loop"),
        ("Poisson batches of half, 4 steps, r = 1", 8_000, one | half, {}, "loop"),
        (
            "batches of half, accountant paper, r = 1",
            8_000,
            one | half | {"accountant": "paper"},
            {},
            "loop",
        ),
        ("torch's noise, r = 1", 40_000, one, {"secure_noise": False}, "loop"),
        ("every clipped sum computed anew, r = 1", 2_000, one, {"remember": False}, "loop"),
        ("hushgraph.train, final weights alone, r = 1", 300, one | {"steps": 1}, {}, "train"),
        ("one run with 2,000 canaries, K = 0", 2_000, {"steps": 1}, {}, "one run"),
    ]
    listed += [
        Cell(table="ways", row=row, claim=4.0, trials=many(count), plan=plan, attack=attack, way=way)
        for row, count, plan, attack, way in ways
    ]
    listed += [
        Cell(
            table="faults",
            row=FAULTS[fault],
            claim=claim,
            trials=many(40_000),
            plan=two if fault == "too-few-trees" else one,
            attack={"fault": fault},
        )
        for fault in FAULTS
        for claim in FAULT_CLAIMS
    ]
    return [Cell(**{**asdict(cell), "seed": number}) for number, cell in enumerate(listed)]


def audited(cell: Cell) -> dict[str, Any]:
    """The record of one cell."""
    import torch

    torch.set_num_threads(1)
    from hushgraph import PrivacyPlan
    from hushgraph.audit.attack import audit_plan, planted
    from hushgraph.audit.end_to_end import audit_training
    from hushgraph.audit.one_run import audit_one_run
    from hushgraph.runs.folder import versions

    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 0, "max_readers": 0, "steps": 2}
    plan = PrivacyPlan(**{**usual, "delta": DELTA, **cell.plan})
    if "fault" in cell.attack:
        plan = planted(plan, cell.attack["fault"])
    plan = plan.calibrated(epsilon=cell.claim)
    if cell.way == "train":
        record = audit_training(plan, trials=cell.trials).record()
    elif cell.way == "one run":
        record = audit_one_run(plan, rows=cell.trials, seed=cell.seed).record()
    else:
        # The digits of noise are attacked where the fault is in the digits.
        numbers = cell.attack.get("fault") == "float-noise"
        record = audit_plan(plan, trials=cell.trials, seed=cell.seed, numbers=numbers, **cell.attack).record()
    return {"table": cell.table, "row": cell.row, "claim": cell.claim, **record, "versions": versions()}


def tables(records: list[dict[str, Any]]) -> str:
    """Markdown: models, ways and faults."""
    found: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for record in records:
        found.setdefault((record["table"], record["row"]), {})[record["claim"]] = record

    def low(record: dict[str, Any]) -> str:
        numbers = record.get("numbers")
        if numbers is not None and numbers["exceeds"]:
            best = max(numbers["guesses"], key=lambda guesses: guesses["right"])
            return f"{best['right']} of {best['trials']} guesses"
        bounds = [record["lower_bound"], record.get("lower_bound_by_event", record["lower_bound"])]
        shown = [f"{int(100 * bound) / 100:.2f}" for bound in bounds]
        return shown[0] if bounds[0] == bounds[1] else " / ".join(shown)

    lines: list[str] = []
    for table, claims, words in (
        ("models", CLAIMS, "model"),
        ("ways", (), "at a claim of 4"),
        ("faults", FAULT_CLAIMS, "broken on purpose"),
    ):
        rows = {row: cells for (name, row), cells in found.items() if name == table}
        if claims:
            lines += [f"| {words} | " + " | ".join(f"claimed {claim:g}" for claim in claims) + " |"]
            lines += ["|---|" + "---:|" * len(claims)]
            lines += [
                f"| {row} | " + " | ".join(low(cells[claim]) for claim in claims) + " |"
                for row, cells in rows.items()
            ]
        else:
            lines += [f"| {words} | lower bounds | trials each |", "|---|---:|---:|"]
            for row, cells in rows.items():
                (record,) = cells.values()
                trials = record["trials"] if "trials" in record else record["rows"]
                lines.append(f"| {row} | {low(record)} | {trials:,} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def complaints(records: list[dict[str, Any]]) -> list[str]:
    """What is not as docs/audit.md says."""
    wrong = []
    for record in records:
        what = f"{record['row']}, claimed {record['claim']:g}: {record['lower_bound']:.3f}"
        if record["exceeds"] != (record["table"] == "faults"):
            wrong.append(f"{what} {'exceeds the claim' if record['exceeds'] else 'is not caught'}")
        if record["table"] == "models" and record["lower_bound"] < LEAST_PART * record["claimed_epsilon"]:
            wrong.append(f"{what} is less than seven tenths of the claim")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, help="print the tables of these records and stop")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", type=float, default=1.0, help="of the trials, to try it out")
    args = parser.parse_args()
    if args.table is not None:
        print(tables([json.loads(line) for line in args.table.read_text().splitlines()]))
        return 0
    if args.out is None:
        parser.error("give --out, or --table")
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    begin = time.monotonic()
    records = []
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with (
        args.out.open("w") as out,
        ProcessPoolExecutor(args.processes, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        for record in pool.map(audited, cells(args.part)):
            records.append(record)
            out.write(json.dumps(record, allow_nan=False) + "\n")
            out.flush()
            print(
                f"{record['row']}: claimed {record['claim']:g}, lower bound {record['lower_bound']:.3f}, "
                f"{record['seconds']:.0f} s",
                flush=True,
            )
    found = complaints(records)
    print(f"{len(records)} audits in {(time.monotonic() - begin) / 60:.1f} minutes")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
