"""Kill a run 200 times, at random moments of training, saving and resuming, and look at what is left.

    python benchmarks/kills.py --kills 200

Every life of a run is a forked child that is ended by SIGKILL after a random time; the next life resumes it.
After each kill the ledger must show at least the steps that were begun, and each run must end with weights
that load, all steps paid for and the epsilon of its plan. The counts go to benchmarks/records/kills.json.
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
from pathlib import Path
from typing import Any

# Threads of OpenMP and TBB do not outlive a fork.
os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}

import torch

import hushgraph as hg
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training import trainer as loop
from hushgraph.training import watch

STEPS = 120
SETTINGS: dict[str, Any] = {
    "hidden": 8,
    "max_readers": 2,
    "batch_size": 40,
    "device": "cpu",
    "paper_noise_multiplier": 1.0,
}
RECORD = Path(__file__).parent / "records" / "kills.json"
take = loop.Trainer.take_step
write, save = watch.write_checkpoint, RunFolder.finish


def start(path: Path, graph: Any, *, often: bool) -> int:
    """One life of the run in a child, which notes every step it begins and what else it is at."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(os.open(path.with_suffix(".err"), os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        log = os.open(path.with_suffix(".begun"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        at = os.open(path.with_suffix(".at"), os.O_WRONLY | os.O_CREAT)

        def say(what: bytes) -> None:
            os.pwrite(at, what.ljust(8), 0)

        def step(self: Any, pieces: Any) -> None:
            say(b"step")
            os.write(log, b"%d\n" % self.state.step)
            take(self, pieces)

        def checkpoint(*given: Any, **named: Any) -> None:
            say(b"saving")
            write(*given, **named)
            say(b"step")

        def weights(self: Any, *given: Any) -> dict[str, Any]:
            say(b"ending")
            return save(self, *given)

        loop.Trainer.take_step, watch.write_checkpoint, RunFolder.finish = step, checkpoint, weights  # type: ignore
        if often:
            watch.CHECKPOINT_SECONDS = 0.0
        say(b"starting" if not (path / "run.json").exists() else b"resuming")
        if (path / "run.json").exists():
            hg.resume(path, graph, device="cpu")
        else:
            # A kill before run.json was there leaves a folder in which no step was ever paid for.
            shutil.rmtree(path, ignore_errors=True)
            hg.train(graph, out=path, steps=STEPS, **SETTINGS)
        status = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def begun(path: Path) -> int:
    file = path.with_suffix(".begun")
    return len(file.read_text().split()) if file.exists() else 0


def look(path: Path) -> dict[str, int]:
    """What a kill left; AssertionError where the ledger shows less than what happened."""
    if not (path / "ledger.jsonl").exists():
        assert begun(path) == 0, f"{path}: steps without a ledger"
        return {"begun": 0, "charged": 0}
    charged = Ledger.open(path / "ledger.jsonl", read_only=True).steps_charged
    assert begun(path) <= charged <= STEPS, f"{path}: {begun(path)} steps begun, {charged} paid for"
    return {"begun": begun(path), "charged": charged}


def last_look(path: Path, graph: Any) -> int:
    """A run that ended: everything is there and adds up. How many steps it lost."""
    run = hg.Run.load(path, device="cpu")
    ledger = Ledger.open(path / "ledger.jsonl", plan=run.plan, read_only=True)
    assert ledger.steps_charged == STEPS
    assert ledger.spent_epsilon() == run.plan.epsilon == run.epsilon
    assert run.predict(graph).shape == (graph.num_nodes,)
    assert all(bool(torch.isfinite(p).all()) for p in run.model.parameters())
    assert run.metrics[-1]["step"] == STEPS
    lost = int(run.result["steps_lost"])
    assert STEPS - begun(path) <= lost <= STEPS
    return lost


def kill_all(kills: int, seed: int, root: Path) -> dict[str, Any]:
    rng = random.Random(seed)
    graph = hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5)
    # Once through, so that compiling is no part of any life, and to know how long a life is.
    hg.train(graph, steps=STEPS, **SETTINGS)
    length = {}
    for often in (False, True):
        begin = time.monotonic()
        os.waitpid(start(root / f"measured-{often}", graph, often=often), 0)
        length[often] = time.monotonic() - begin
    moments: Counter[str] = Counter()
    killed = lives = number = lost = 0
    while killed < kills:
        number += 1
        often, path = bool(number % 2), root / f"run-{number}"
        left = rng.choice((1, 2, 4))
        while True:
            child = start(path, graph, often=often)
            lives += 1
            if left:
                # Early moments too, since a resumed life is shorter.
                time.sleep(rng.uniform(0, rng.choice((0.2, 1.1)) * length[often]))
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if os.WIFSIGNALED(status):
                left, killed = left - 1, killed + 1
                at = path.with_suffix(".at")
                moments[at.read_text().strip() if at.exists() else "starting"] += 1
                look(path)
                continue
            assert os.waitstatus_to_exitcode(status) == 0, path.with_suffix(".err").read_text()
            break
        lost += last_look(path, graph)
    return {
        "kills": killed,
        "lives": lives,
        "runs": number,
        "steps_a_run": STEPS,
        "killed_while": dict(sorted(moments.items())),
        "runs_that_finished": number,
        "ledgers_that_showed_too_little": 0,
        "steps_paid_for_and_lost": lost,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="kills-"))
    begin = time.monotonic()
    try:
        found = kill_all(given.kills, given.seed, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    record = {**found, "seed": given.seed, "seconds": round(time.monotonic() - begin)}
    given.record.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
