"""Kill processes that charge one budget at the same time, 200 times, and look at what it shows.

    python benchmarks/kills_budget.py --kills 200

Two children charge the same file, again and again, and note every run that begins; one of them is ended by
SIGKILL after a random time. After each kill every run that began must be in the budget once, and a copy whose
last line is cut at a random byte must not show less. A quarter of the kills ends whole trainings, which are
resumed until they are done: each is charged once. The counts go to benchmarks/records/kills_budget.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Threads of OpenMP and TBB do not outlive a fork.
os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}

import torch

import hushgraph as hg
from hushgraph.accounting.accountants import gaussian_epsilon
from hushgraph.errors import BudgetExceededError
from hushgraph.privacy.budget import DataBudget, make_run_id
from hushgraph.privacy.charges import BoardCharge
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.run_charge import RunCharge, compose_charges
from hushgraph.runs.folder import RunFolder

RECORD = Path(__file__).parent / "records" / "kills_budget.json"
KILLS_PER_FILE = 10
TOTAL, DELTA, SHIFT = 6.0, 1e-6, 0.05
SETTINGS: dict[str, Any] = {
    "hidden": 8,
    "max_readers": 2,
    "batch_size": 40,
    "steps": 20,
    "device": "cpu",
    "epsilon": 1.0,
}


def start(life: Callable[[], None], errors: Path) -> int:
    """Call `life` in a child."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        life()
        status = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def charge_again_and_again(path: Path) -> None:
    """Charge run after run until nothing is left, and note each that begins."""
    log = os.open(path.with_suffix(".begun"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        charge = make_charge()
        try:
            with DataBudget.open(path).charging(charge):
                pass
        except BudgetExceededError:
            return
        os.write(log, f"{charge.run}\n".encode())


def make_charge() -> RunCharge:
    return RunCharge(
        run=make_run_id("kills"),
        epsilon=gaussian_epsilon(SHIFT, DELTA / 1000),
        delta=DELTA / 1000,
        accountant="pair",
        charges=(BoardCharge(name="board-1", noise_std=1 / SHIFT),),
        command="train",
        data="people",
    )


def check_budget(path: Path, rng: random.Random) -> int:
    """Compare the budget with what began; return how many charges it shows."""
    file = path.with_suffix(".begun")
    # What began is read first: it may only grow until the budget is read.
    begun = file.read_text().split() if file.exists() else []
    budget = DataBudget.open(path)
    shown = Counter(charge.run for charge in budget.charges)
    assert all(shown[run] == 1 for run in begun), f"{path}: a run that began is not shown once"
    assert budget.spent <= TOTAL, f"{path}: {budget.spent} of {TOTAL} are spent"
    content = path.read_bytes()
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    if last and content.endswith(b"\n"):
        full = DataBudget.open(_write(path.with_suffix(".full"), content)).spent
        cut = rng.randrange(last + 1, len(content))
        torn = DataBudget.open(_write(path.with_suffix(".torn"), content[:cut])).spent
        assert torn >= full * (1 - 1e-9), f"{path}: cut at {cut} it shows {torn}, not {full}"
    return len(shown)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def kill_charges(kills: int, rng: random.Random, root: Path) -> dict[str, int]:
    """Kill one of two processes that charge the same file, and see what is shown."""
    shown = begun = 0
    errors = root / "errors"
    for number in range(-(-kills // KILLS_PER_FILE)):
        path = root / f"budget-{number}.ledger"
        DataBudget.create(path, epsilon=TOTAL, delta=DELTA)
        children = [start(partial(charge_again_and_again, path), errors) for _ in range(2)]
        for kill in range(min(KILLS_PER_FILE, kills - number * KILLS_PER_FILE)):
            time.sleep(rng.uniform(0.0, 0.03))
            victim = children.pop(kill % 2)
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            check_budget(path, rng)
            children.insert(kill % 2, start(partial(charge_again_and_again, path), errors))
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        shown += check_budget(path, rng)
        file = path.with_suffix(".begun")
        begun += len(file.read_text().split()) if file.exists() else 0
    text = errors.read_text() if errors.exists() else ""
    assert not text, text
    return {"charges_shown": shown, "runs_that_began": begun}


def kill_trainings(kills: int, rng: random.Random, root: Path) -> dict[str, int]:
    """Kill trainings until they are done; each is charged once, before its first step."""
    graph = hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5)
    # Once through, so that compiling is no part of any life, and again to know how long a life is.
    for _ in range(2):
        begin = time.monotonic()
        hg.train(graph, **SETTINGS)
        length = time.monotonic() - begin
    budget = DataBudget.create(root / "trainings.ledger", delta=DELTA).path
    killed = number = 0
    while killed < kills:
        number += 1
        path, left = root / f"run-{number}", rng.choice((1, 2, 4))
        while True:
            child = start(partial(train_or_resume, path, graph, budget), root / "errors")
            if left:
                time.sleep(rng.uniform(0, rng.choice((0.3, 1.1)) * length))
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            check_run(path, budget)
            if not os.WIFSIGNALED(status):
                assert os.waitstatus_to_exitcode(status) == 0, (root / "errors").read_text()
                break
            left, killed = left - 1, killed + 1
    charges = len(DataBudget.open(budget).charges)
    return {"trainings": number, "trainings_killed": killed, "trainings_charged": charges}


def train_or_resume(path: Path, graph: Any, budget: Path) -> None:
    if (path / "run.json").exists():
        hg.resume(path, graph, device="cpu")
    else:
        # A kill before run.json was there leaves a folder in which no step was ever paid for.
        shutil.rmtree(path, ignore_errors=True)
        hg.train(graph, out=path, budget=budget, **SETTINGS)


def check_run(path: Path, budget: Path) -> None:
    """A run that has charged a step is in the budget, and no run is in it twice."""
    shown = Counter(charge.run for charge in DataBudget.open(budget).charges)
    assert set(shown.values()) <= {1}, "a run is charged twice"
    if (path / "run.json").exists():
        entry = RunFolder.open(path).budget
        assert entry is not None
        steps = Ledger.open(path / "ledger.jsonl", read_only=True).steps_charged
        assert shown[entry.run] == 1 or steps == 0, f"{path}: {steps} steps, and the budget shows nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(given.seed)
    root = Path(tempfile.mkdtemp(prefix="kills-"))
    begin = time.monotonic()
    # Once here, so that no child spends its life on imports.
    compose_charges([make_charge()], DELTA)
    of_trainings = given.kills // 4
    try:
        counts = kill_charges(given.kills - of_trainings, rng, root)
        counts |= kill_trainings(of_trainings, rng, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    record = {
        "kills": given.kills - of_trainings + counts["trainings_killed"],
        **counts,
        "budgets_that_showed_too_little": 0,
        "seed": given.seed,
        "seconds": round(time.monotonic() - begin),
    }
    given.record.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
