"""Promise: a run killed at any moment can go on; its ledger shows all that happened, its noise is new."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hushgraph as hg
from effort import choose
from hushgraph.errors import RunError
from hushgraph.graph.graph import Graph
from hushgraph.noise import source
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training import trainer as loop

KILLS, STEPS = choose(5, 200), 40
SETTINGS: dict[str, Any] = {"hidden": 8, "max_readers": 2, "batch_size": 40, "device": "cpu"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5)


# Every life of a run is a forked child, so that it need not import anything and can be killed at once.
DRIVER = """
import gc, json, os, random, signal, sys, time
from pathlib import Path

# Imports make no garbage.
gc.disable()

import torch
torch.set_num_threads(1)
import hushgraph as hg
from hushgraph.training import trainer as loop
from hushgraph.training import watch

root, kills, steps, settings = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
graph = hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5)
rng = random.Random(int(sys.argv[5]))
take = loop.Trainer.take_step


def start(path, often):
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        log = os.open(path.with_suffix(".begun"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def step(self, pieces):
            os.write(log, b"%d\\n" % self.state.step)
            take(self, pieces)

        loop.Trainer.take_step = step
        if often:
            watch.CHECKPOINT_SECONDS = 0.0
        if (path / "run.json").exists():
            hg.resume(path, graph, device="cpu")
        else:
            hg.train(graph, out=path, paper_noise_multiplier=1.0, steps=steps, **settings)
        status = 0
    finally:
        os._exit(status)


def begun(path):
    log = path.with_suffix(".begun")
    return len(log.read_text().split()) if log.exists() else 0


def charged(path):
    from hushgraph.privacy.ledger import Ledger

    return Ledger.open(path / "ledger.jsonl", read_only=True).steps_charged


# Kills the child soon after it began so many steps; whether it had not ended before.
def kill(child, path, steps_begun, delay):
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.WIFSIGNALED(status)
        if (path / "run.json").exists() and begun(path) >= steps_begun:
            break
        time.sleep(0.0005)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


hg.train(graph, paper_noise_multiplier=1.0, steps=steps, **settings)
gc.freeze()
gc.enable()
runs, moments = [], []
while sum(run["kills"] for run in runs) < kills:
    often = bool(len(runs) % 2)
    path = root / f"run-{len(runs)}"
    lives = []
    # No moment twice before all were there: any step, and while the result is written.
    moments = moments or rng.sample(range(steps + 1), steps + 1)
    moment = moments.pop()
    # The second life of some runs is killed too.
    for life in range(1 + (len(runs) % 4 == 3)):
        # The delay decides where in a step; with a checkpoint after every step one takes longer.
        delay = rng.uniform(0, 0.02 if often else 0.004)
        killed = kill(start(path, often), path, moment, delay)
        moment = begun(path) + rng.randrange(4)
        lives.append({"killed": killed, "begun": begun(path), "charged": charged(path),
                      "left": sorted(file.name for file in path.iterdir())})
    status = os.waitstatus_to_exitcode(os.waitpid(start(path, often), 0)[1])
    runs.append({"path": str(path), "kills": sum(life["killed"] for life in lives), "lives": lives,
                 "status": status, "begun": begun(path), "charged": charged(path)})
print(json.dumps(runs))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Runs killed at random moments, each then resumed to its end."""
    # numba's own thread pool outlives a fork; OpenMP does not.
    quiet = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}
    root = tmp_path_factory.mktemp("killed")
    arguments = [str(root), str(KILLS), str(STEPS), json.dumps(SETTINGS), str(secrets.randbits(32))]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | quiet,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_killed_run_finishes(killed: list[dict[str, Any]], graph: Graph) -> None:
    assert sum(run["kills"] for run in killed) >= KILLS
    for run in killed:
        assert run["status"] == 0
        loaded = hg.Run.load(run["path"])
        assert loaded.predict(graph).shape == (150,)
        assert all(torch.isfinite(p).all() for p in loaded.model.parameters())
        assert loaded.epsilon == loaded.plan.epsilon
        assert loaded.metrics[-1]["step"] == STEPS
        assert not list(Path(run["path"]).glob("checkpoint*"))


def test_the_moments_were_different_ones(killed: list[dict[str, Any]]) -> None:
    """Otherwise the other tests would show less than they seem to."""
    lives = [life for run in killed for life in run["lives"] if life["killed"]]
    assert len({life["begun"] for life in lives}) > KILLS // 3
    assert any("checkpoint.safetensors" in life["left"] for life in lives)
    assert any("checkpoint.safetensors" not in life["left"] for life in lives)


def test_the_ledger_never_shows_less_than_what_happened(killed: list[dict[str, Any]]) -> None:
    for run in killed:
        for life in run["lives"]:
            assert life["begun"] <= life["charged"] <= STEPS
        assert run["begun"] <= run["charged"] == STEPS
        lost = hg.Run.load(run["path"]).result["steps_lost"]
        assert STEPS - run["begun"] <= lost <= STEPS


def test_killed_runs_spent_no_more_than_planned(killed: list[dict[str, Any]]) -> None:
    folder = RunFolder.open(killed[-1]["path"])
    ledger = Ledger.open(folder.ledger_path, plan=folder.plan, read_only=True)
    assert ledger.spent_epsilon() == folder.plan.epsilon


def record_draws(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The draws of every step of all sessions, as integers of the grid, in order."""
    drawn: list[np.ndarray] = []

    real = source._Drawer.take

    def take(drawer: source._Drawer) -> torch.Tensor:
        draw = real(drawer)
        drawn.append(draw.numpy().copy())
        return draw

    monkeypatch.setattr(source._Drawer, "take", take)
    return drawn


@pytest.mark.parametrize("seed", [None, 5])
def test_two_resumed_runs_never_share_noise(
    graph: Graph, tmp_path: Path, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
    drawn = record_draws(monkeypatch)

    def stop(done: int, *others: Any) -> None:
        if done == 6:
            raise KeyboardInterrupt

    settings = SETTINGS | {"paper_noise_multiplier": 1.0, "steps": 12, "seed": seed}
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, out=tmp_path / "first", observer=stop, **settings)
    for name in ("second", "third"):
        shutil.copytree(tmp_path / "first", tmp_path / name)
    runs = [hg.resume(tmp_path / name, graph) for name in ("first", "second", "third")]
    assert len(drawn) == 6 + 3 * 6
    assert len({draw.tobytes() for draw in drawn}) == len(drawn)
    stacked = [torch.cat([p.flatten() for p in run.model.parameters()]) for run in runs]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(stacked[one], stacked[two])
    # Were draws not recorded as they are, a seed would not show either.
    drawn.clear()
    for name in ("fourth", "fifth"):
        hg.train(graph, out=tmp_path / name, **settings)
    assert len({draw.tobytes() for draw in drawn}) == (24 if seed is None else 12)


def test_first_draws_of_a_resumed_run_are_new_even_with_a_seed(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
    drawn = record_draws(monkeypatch)

    def stop(*told: Any) -> None:
        raise KeyboardInterrupt

    def first_draw(do: Callable[[], Any]) -> np.ndarray:
        drawn.clear()
        with contextlib.suppress(KeyboardInterrupt):
            do()
        return drawn[0]

    settings = SETTINGS | {"paper_noise_multiplier": 1.0, "steps": 4, "seed": 5}
    one, two = (
        first_draw(partial(hg.train, graph, out=tmp_path / name, observer=stop, **settings))
        for name in ("one", "two")
    )
    assert np.array_equal(one, two)
    firsts = [one]
    for name in ("one", "one", "two"):
        firsts.append(first_draw(partial(hg.resume, tmp_path / name, graph, observer=stop)))
    assert len(one) > 100
    # A draw is one of 2^40 a standard deviation: two that agree are the same word.
    for i, first in enumerate(firsts):
        assert not any(np.isin(first, other).any() for other in firsts[:i])


def test_a_resumed_seeded_run_stays_not_private(graph: Graph, tmp_path: Path) -> None:
    def stop(*told: Any) -> None:
        raise KeyboardInterrupt

    settings = SETTINGS | {"paper_noise_multiplier": 1.0, "steps": 2_000, "seed": 5, "batch_size": 1}
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, out=tmp_path / "run", observer=stop, **settings)
    folder = RunFolder.open(tmp_path / "run")
    with Ledger.open(folder.ledger_path, plan=folder.plan) as ledger:
        ledger.charge(folder.plan.step_charge, count=1_990 - ledger.steps_charged)
    run = hg.resume(tmp_path / "run", graph)
    assert run.result["guarantee"] == "none"
    assert "not private" in run.result["why_none"]
    assert run.result["steps_lost"] > 0


def test_a_finished_run_is_no_answer_about_other_data(graph: Graph, tmp_path: Path) -> None:
    hg.train(graph, out=tmp_path / "run", epsilon=4.0, steps=2, hidden=4, device="cpu")
    assert hg.resume(tmp_path / "run", graph, device="cpu").epsilon <= 4.0
    other = hg.datasets.synthetic(num_nodes=graph.num_nodes + 1, num_classes=3, num_features=6)
    with pytest.raises(RunError, match="give the data it began with"):
        hg.resume(tmp_path / "run", other, device="cpu")
