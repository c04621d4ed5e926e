"""The audit of docs/audit.md: lower bounds on epsilon next to the claims, and faults that must be caught.

    python benchmarks/audit_table.py --out benchmarks/records/audit.jsonl
    python benchmarks/audit_table.py --out benchmarks/records/audit.jsonl --only billboard --only board-faults
    python benchmarks/audit_table.py --table benchmarks/records/audit.jsonl

Ends with 1 where a bound exceeds its claim, a fault is not caught, or boards and steps, a board alone or the
strongest canary of trees show less than seven tenths of the claim. With `--only` the other tables of the
file stay as they are. About ten minutes of processor time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
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
    "unclipped-maps": "maps of relations left out of clipping",
}
# Faults of boards, and those of steps, planted in a billboard run.
BOARD_FAULTS = {
    "full-ballots": "ballots of weight 1 at every place",
    "double-share": "noise of the board for twice its share",
    "noiseless-reading": "training on the board without noise",
    "redrawn-board": "the board drawn twice for one charge",
    "features-in-reading": "features of neighbours in the reading",
    "validation-labels": "labels of the validation split cast",
    "shared-stream": "one stream of noise for boards and steps",
    "half-noise": "half of the noise of the steps",
    "reused-noise": "noise of a step used twice",
    "float-noise": "float32 noise of torch for the steps",
}
DELTA = 1e-5
LEAST_PART = {"models": 0.7, "billboard": 0.7, "boards": 0.7}
TABLES = ("billboard", "boards", "board-faults", "models", "ways", "faults")


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
        Cell(table="billboard", row=row, claim=claim, trials=many(20_000), plan=plan, way="billboard")
        for row, plan in (("two boards", {}), ("one board", {"num_boards": 1}))
        for claim in CLAIMS
    ]
    listed += [
        Cell(
            table="boards",
            row=f"a board alone, row of degree {degree:,}",
            claim=claim,
            trials=many(trials),
            # Nearly all of the budget is the board's.
            plan={"num_boards": 1, "board_share": 0.9999},
            attack={"degree": degree},
            way="board",
        )
        for degree, trials in ((1, 20_000), (1000, 2_000))
        for claim in CLAIMS
    ]
    listed += [
        Cell(
            table="board-faults",
            row=BOARD_FAULTS[fault],
            claim=claim,
            trials=many(1_000),
            attack={"fault": fault},
            way="billboard",
        )
        for fault in BOARD_FAULTS
        for claim in FAULT_CLAIMS
    ]
    listed += [
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
        ("torch's noise, r = 1", 40_000, one, {"fault": "float-noise"}, "loop"),
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
            # A canary at a time, and it shows at once.
            trials=many(2_000 if fault == "unclipped-maps" else 40_000),
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
    from hushgraph.runs.versions import versions

    attack = attack_billboard if cell.way in ("billboard", "board") else attack_trees
    record = attack(cell)
    return {"table": cell.table, "row": cell.row, "claim": cell.claim, **record, "versions": versions()}


def attack_billboard(cell: Cell) -> dict[str, Any]:
    """A plan with boards, or a board alone."""
    from hushgraph.audit.attack import Effort, attack_board, audit_plan
    from hushgraph.audit.runs import plant_nothing
    from hushgraph.privacy.plans import BillboardPlan

    usual = {"num_train_nodes": 1000, "batch_size": 1000, "steps": 2, "delta": DELTA}
    plan = BillboardPlan(**{**usual, **cell.plan}).calibrated(epsilon=cell.claim)
    if cell.way == "board":
        effort = Effort(trials=cell.trials)
        record = attack_board(plan, effort=effort, plant=plant_nothing, **cell.attack).record()
        return record | {"bound_confidence": record.pop("confidence"), "delta": DELTA}
    numbers = cell.table == "billboard" or cell.attack["fault"] == "float-noise"
    record = audit_plan(plan, trials=cell.trials, numbers=numbers, **cell.attack).record()
    return record | {"bound_confidence": 0.95}


def attack_trees(cell: Cell) -> dict[str, Any]:
    """A plan of trees."""
    from hushgraph import RowPlan, TreePlan
    from hushgraph.audit.attack import audit_plan, planted

    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 0, "max_readers": 0, "steps": 2}
    fields = {**usual, "delta": DELTA, **cell.plan}
    plan = (TreePlan if fields.get("num_layers") else RowPlan)(**fields)
    if "fault" in cell.attack:
        plan = planted(plan, cell.attack["fault"])
    plan = plan.calibrated(epsilon=cell.claim)
    # The digits of noise are attacked where the fault is in the digits.
    numbers = cell.table == "faults" and cell.attack["fault"] == "float-noise"
    record = audit_plan(plan, trials=cell.trials, seed=cell.seed, numbers=numbers, **cell.attack).record()
    return record | {"bound_confidence": 0.95}


Rows = dict[str, dict[float, dict[str, Any]]]


def tables(records: list[dict[str, Any]]) -> list[str]:
    """Markdown: two tables of the billboard, then three of trees."""
    by_table: dict[str, Rows] = {}
    for record in records:
        by_table.setdefault(record["table"], {}).setdefault(record["row"], {})[record["claim"]] = record
    return [
        billboard_table(by_table["billboard"], by_table["boards"]),
        claims_table("broken on purpose", FAULT_CLAIMS, by_table["board-faults"], show_catch),
        claims_table("model", CLAIMS, by_table["models"], show_bounds),
        ways_table(by_table["ways"]),
        claims_table("broken on purpose", FAULT_CLAIMS, by_table["faults"], show_bounds),
    ]


def down(value: float) -> str:
    """Two digits, rounded down."""
    return f"{int(100 * value) / 100:.2f}"


def show_bounds(record: dict[str, Any]) -> str:
    """By the curve / by the event, of a further attack on trees if there is one; or right guesses."""
    numbers = record.get("numbers")
    if numbers is not None and numbers["exceeds"]:
        return show_guesses(numbers)
    if record.get("attacks"):
        record = max(record["attacks"], key=lambda entry: entry["lower_bound"])
    bounds = [record["lower_bound"], record.get("lower_bound_by_event", record["lower_bound"])]
    shown = [down(bound) for bound in bounds]
    return shown[0] if bounds[0] == bounds[1] else " / ".join(shown)


def show_guesses(numbers: dict[str, Any]) -> str:
    """Of the attack on digits that was right most often."""
    best = max(numbers["guesses"], key=lambda guesses: guesses["right"])
    return f"{best['right']} of {best['trials']} guesses"


def show_one(entry: dict[str, Any]) -> str:
    """A bound beside its own claim."""
    return f"{down(entry['lower_bound'])} of {entry['claimed_epsilon']:.2f}"


def show_catch(record: dict[str, Any]) -> str:
    """The plain checks that fail, what shows most above its claim, and whether others change."""
    if record["numbers"] is not None and record["numbers"]["exceeds"]:
        return show_guesses(record["numbers"])
    failed = [check["name"] for check in record.get("checks", ()) if check["failure"]]
    entries = [record | {"name": record["attacked"]}, *record["attacks"]]
    best = max(entries, key=lambda entry: entry["lower_bound"] - entry["claimed_epsilon"])
    if best["lower_bound"] > best["claimed_epsilon"]:
        failed.append(f"{show_one(best)}: {best['name']}")
    return "; ".join([*failed, *(["others change"] if record["others_changed"] else [])])


def claims_table(words: str, claims: tuple[float, ...], rows: Rows, show: Callable[..., str]) -> str:
    lines = [f"| {words} | " + " | ".join(f"claimed {claim:g}" for claim in claims) + " |"]
    lines += ["|---|" + "---:|" * len(claims)]
    lines += [
        f"| {row} | " + " | ".join(show(cells[claim]) for claim in claims) + " |"
        for row, cells in rows.items()
    ]
    return "\n".join(lines)


def billboard_table(plans: Rows, boards: Rows) -> str:
    """Every attack beside its own claim, for plans of both kinds, and boards alone."""
    lines = ["| attack | " + " | ".join(f"claimed {claim:g}" for claim in CLAIMS) + " |"]
    lines += ["|---|" + "---:|" * len(CLAIMS)]
    for row, cells in plans.items():
        by_claim = {
            claim: [cells[claim] | {"name": "everything"}, *cells[claim]["attacks"]] for claim in CLAIMS
        }
        for number, entry in enumerate(by_claim[CLAIMS[0]]):
            shown = [show_one(by_claim[claim][number]) for claim in CLAIMS]
            lines.append(f"| {row}: {entry['name']} | " + " | ".join(shown) + " |")
    for row, cells in boards.items():
        lines.append(f"| {row} | " + " | ".join(show_one(cells[claim]) for claim in CLAIMS) + " |")
    return "\n".join(lines)


def ways_table(rows: Rows) -> str:
    lines = ["| at a claim of 4 | lower bounds | trials each |", "|---|---:|---:|"]
    for row, cells in rows.items():
        (record,) = cells.values()
        trials = record["trials"] if "trials" in record else record["rows"]
        lines.append(f"| {row} | {show_bounds(record)} | {trials:,} |")
    return "\n".join(lines)


def complaints(records: list[dict[str, Any]]) -> list[str]:
    """What is not as docs/audit.md says."""
    wrong = []
    for record in records:
        what = f"{record['row']}, claimed {record['claim']:g}: {record['lower_bound']:.3f}"
        if record["exceeds"] != record["table"].endswith("faults"):
            wrong.append(f"{what} {'exceeds the claim' if record['exceeds'] else 'is not caught'}")
        part = LEAST_PART.get(record["table"], 0.0)
        if record["lower_bound"] < part * record["claimed_epsilon"]:
            wrong.append(f"{what} is less than {part} of the claim")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, help="print the tables of these records and stop")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", type=float, default=1.0, help="of the trials, to try it out")
    parser.add_argument("--only", action="append", choices=TABLES, help="make these tables anew [all]")
    args = parser.parse_args()
    if args.table is not None:
        records = [json.loads(line) for line in args.table.read_text().splitlines()]
        print("\n\n".join(tables(records)))
        return 0
    if args.out is None:
        parser.error("give --out, or --table")
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    begin = time.monotonic()
    wanted = cells(args.part)
    kept: dict[tuple[str, str, float], dict[str, Any]] = {}
    if args.only and args.out.exists():
        for line in args.out.read_text().splitlines():
            record = json.loads(line)
            kept[record["table"], record["row"], record["claim"]] = record
    todo = [cell for cell in wanted if not args.only or cell.table in args.only]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for record in pool.map(audited, todo):
            kept[record["table"], record["row"], record["claim"]] = record
            # Written after every cell, so that an interrupted run loses none.
            keys = [(cell.table, cell.row, cell.claim) for cell in wanted]
            lines = [json.dumps(kept[key], allow_nan=False) + "\n" for key in keys if key in kept]
            args.out.write_text("".join(lines))
            print(
                f"{record['row']}: claimed {record['claim']:g}, lower bound {record['lower_bound']:.3f}, "
                f"exceeds {record['exceeds']}, {record.get('seconds', 0):.0f} s",
                flush=True,
            )
    records = [kept[key] for key in keys if key in kept]
    wrong = complaints(records)
    print(f"{len(todo)} audits in {(time.monotonic() - begin) / 60:.1f} minutes")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
