"""Several processes train one model: one draw, one noise, one ledger; a lost one ends the run in one line."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.privacy.ledger import Ledger
from hushgraph.training.distributed import Group, GroupError, current_group, require_leader

COMMON = ["--hidden", "8", "--max-readers", "2", "--device", "cpu", "--epsilon", "4"]
SHORT = [*COMMON, "--steps", "12", "--batch-size", "40"]
LONG = [*COMMON, "--steps", "100000", "--batch-size", "40", "--model", "mlp"]
# Seconds that nothing takes unless it hangs, also on a busy machine; and more than a test would ever wait.
PATIENCE, NEVER = 300, 3600

# Processes are forked from one that has imported and compiled everything, as torchrun would start them: by
# what it tells them in the environment. One line of JSON starts a group, the answer is their numbers; an
# empty line waits for all of them, the answer is their exit codes.
LAUNCHER = """
import contextlib, gc, io, json, os, sys
gc.disable()
import torch
torch.set_num_threads(1)
import hushgraph as hg
from hushgraph.training import distributed
from hushgraph.training import trainer as loop
from hushgraph.training import session, tree_batches
from hushgraph.noise import source
from hushgraph.cli.app import main

graph = hg.datasets.synthetic(num_nodes=60, num_classes=3)
for method in ({"max_readers": 2, "batch_size": 10}, {"model": "mlp", "batch_size": 10}):
    hg.train(graph, epsilon=4.0, steps=2, hidden=8, device="cpu", **method)
# What the command imports when it is called is inherited too.
with contextlib.redirect_stderr(io.StringIO()):
    main(["train", "no-such-file.npz", "--epsilon", "4"])
# All this is no garbage.
gc.freeze()
gc.enable()
print("ready", flush=True)
for line in iter(sys.stdin.readline, ""):
    order = json.loads(line)
    children = []
    for rank in range(order["size"]):
        child = os.fork()
        if not child:
            os.setsid()
            for number, name in ((1, "out"), (2, "err")):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                os.dup2(os.open(f"{order['log']}.{rank}.{name}", flags), number)
            os.environ.update(order["environment"], RANK=str(rank), LOCAL_RANK=str(rank))
            code = 1
            try:
                exec(order["before"])
                code = main(order["arguments"])
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    print(json.dumps(children), flush=True)
    sys.stdin.readline()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
os._exit(0)
"""


class Launcher:
    """Starts groups of processes, one group at a time."""

    def __init__(self) -> None:
        settings = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **settings},
        )
        assert self._answer() == "ready"

    def start(
        self, size: int, log: Path, *arguments: Any, before: str = "", timeout: float = 60
    ) -> list[int]:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        environment = {
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": port,
            "HUSHGRAPH_TIMEOUT": timeout,
        }
        order = {
            "size": size,
            "log": str(log),
            "environment": {name: str(value) for name, value in environment.items()},
            "before": before,
            "arguments": [str(argument) for argument in arguments],
        }
        self._say(json.dumps(order))
        return list(json.loads(self._answer()))

    def wait(self) -> list[int]:
        self._say("")
        return list(json.loads(self._answer()))

    def run(self, size: int, log: Path, *arguments: Any, **others: Any) -> list[int]:
        self.start(size, log, *arguments, **others)
        return self.wait()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "the processes hang"
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    made = Launcher()
    yield made
    made.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("data") / "people.npz", seed=1)


def save(path: Path, *, seed: int) -> Path:
    graph = hg.datasets.synthetic(num_nodes=300, num_classes=3, num_features=8, average_degree=5, seed=seed)
    edges = np.concatenate([np.stack(chunk) for chunk in graph.edge_chunks()], axis=1)
    # The split is always the first one's, so that graphs of two seeds differ in their edges alone.
    parts = {"train_idx": np.arange(180), "val_idx": np.arange(180, 240), "test_idx": np.arange(240, 300)}
    np.savez(path, edge_index=edges, x=graph.x, y=graph.y, **parts)
    return path


def said(log: Path, rank: int, name: str = "err") -> str:
    return Path(f"{log}.{rank}.{name}").read_text()


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "weights.safetensors")


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-5)


def charged(run: Path) -> tuple[int, float]:
    ledger = Ledger.open(run / "ledger.jsonl", read_only=True)
    return ledger.steps_charged, ledger.spent_epsilon()


def steps_paid(run: Path) -> int:
    file = run / "ledger.jsonl"
    return Ledger.open(file, read_only=True).steps_charged if file.exists() else 0


# Writes down the roots of every step, the sums before and after noise, and the weights after every step.
RECORDING = """
import atexit
import numpy as np
roots, before, after, models, sources = [], [], [], [], []
batches, noise = tree_batches.TreeBatches, source.ExactNoise
cut_pieces, add_noise, take_step = batches.cut_pieces, noise.add_noise, loop.Trainer.take_step
start_noise = noise.__init__
flat = lambda tensors: np.concatenate([t.detach().numpy().ravel() for t in tensors])

def _cut_pieces(self, lists, mine):
    roots.append(mine)
    return cut_pieces(self, lists, mine)

def _add_noise(self, sums, *others):
    before.append(flat(sums.values()))
    noisy = add_noise(self, sums, *others)
    after.append(flat(noisy.values()))
    return noisy

def _take_step(self, trees):
    take_step(self, trees)
    models.append(flat(self.state.model.parameters()))
    size = sum(p.numel() for p in self.state.model.parameters())
    sigma = self.plan.sigma * (self.noise.widening(size) if self.noise else 1)
    np.savez(f"{order['log']}.{rank}", *roots, before=before, after=after, models=models, sigma=sigma,
             sources=sources)

def _start_noise(self, **arguments):
    sources.append(1)
    start_noise(self, **arguments)

batches.cut_pieces, noise.add_noise, loop.Trainer.take_step = _cut_pieces, _add_noise, _take_step
noise.__init__ = _start_noise
"""


def test_one_draw_one_noise_and_the_same_weights(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    few = [*COMMON, "--steps", "12", "--batch-size", "3", "--seed", "3", "--json"]
    recorded = {}
    for size in (1, 2):
        log = tmp_path / f"log{size}"
        codes = launcher.run(
            size, log, "train", data, *few, "--out", tmp_path / f"run{size}", before=RECORDING
        )
        assert codes == [0] * size, said(log, 0)
        recorded[size] = [dict(np.load(f"{log}.{rank}.npz")) for rank in range(size)]
        assert all(said(log, rank, "out") + said(log, rank) == "" for rank in range(1, size))
        assert json.loads(said(log, 0, "out"))["epsilon_spent"] <= 4
        assert charged(tmp_path / f"run{size}") == charged(tmp_path / "run1")
        assert_same(weights(tmp_path / "run1"), weights(tmp_path / f"run{size}"))
    alone = recorded[1][0]
    draws = [alone[f"arr_{step}"] for step in range(12)]
    assert len({len(draw) for draw in draws}) > 1
    leader, other = recorded[2]
    for step, draw in enumerate(draws):
        shares = np.concatenate([leader[f"arr_{step}"], other[f"arr_{step}"]])
        assert Counter(shares.tolist()) == Counter(draw.tolist())
    assert any(len(other[f"arr_{step}"]) == 0 for step in range(12))
    assert (len(leader["sources"]), len(other["sources"])) == (1, 0)
    assert (len(leader["before"]), len(other["before"])) == (12, 0)
    np.testing.assert_allclose(leader["before"], alone["before"], atol=1e-5)
    noise = (leader["after"] - leader["before"]).ravel() / alone["sigma"]
    assert 1e-4 < stats.chi2.cdf(float((noise**2).sum()), noise.size) < 1 - 1e-4
    np.testing.assert_array_equal(other["models"], leader["models"])


def test_a_batch_of_all_roots_is_shared_out(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    every = [*COMMON, "--steps", "3", "--batch-size", "180", "--seed", "3", "--quiet"]
    for size in (1, 2):
        before = "" if size == 1 else RECORDING
        out = tmp_path / f"run{size}"
        assert (
            launcher.run(size, tmp_path / "log", "train", data, *every, "--out", out, before=before)
            == [0] * size
        )
    assert_same(weights(tmp_path / "run1"), weights(tmp_path / "run2"))
    shares = [np.load(f"{tmp_path / 'log'}.{rank}.npz")["arr_0"] for rank in range(2)]
    assert [len(share) for share in shares] == [90, 90]
    assert sorted(np.concatenate(shares)) == list(range(180))


def test_the_published_recipe_runs_in_a_group(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    recipe = [
        "--sampler",
        "paper",
        "--accountant",
        "paper",
        "--clipping",
        "percentile",
        "--noise",
        "per-layer",
    ]
    for size in (1, 2):
        out = tmp_path / f"run{size}"
        codes = launcher.run(
            size, tmp_path / "log", "train", data, *SHORT, *recipe, "--seed", "3", "--quiet", "--out", out
        )
        assert codes == [0] * size, said(tmp_path / "log", 0)
    assert_same(weights(tmp_path / "run1"), weights(tmp_path / "run2"))


def test_without_a_seed_the_operating_system_decides_for_all(
    launcher: Launcher, data: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        log = tmp_path / name
        out = tmp_path / f"run-{name}"
        codes = launcher.run(2, log, "train", data, *SHORT, "--quiet", "--out", out, before=RECORDING)
        assert codes == [0, 0], said(log, 0)
    one, two = ([np.load(f"{tmp_path / name}.{rank}.npz") for rank in range(2)] for name in ("one", "two"))
    for leader, other in (one, two):
        np.testing.assert_array_equal(leader["models"], other["models"])
        assert not set(leader["arr_0"]) & set(other["arr_0"])
    assert not np.array_equal(one[0]["arr_0"], two[0]["arr_0"])
    assert not np.array_equal(one[0]["models"], two[0]["models"])


# In the process of this rank, something happens at the beginning of the fourth step.
AT_STEP = """
import signal
taken = loop.Trainer.take_step

def _step(self, trees):
    if rank == {rank} and self.state.step == 3:
        {what}
    taken(self, trees)

loop.Trainer.take_step = _step
"""
KILL, STOP = "os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGSTOP)"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_killed_process_ends_the_others_in_one_line(
    launcher: Launcher, data: Path, tmp_path: Path, lost: int
) -> None:
    out = tmp_path / "run"
    before = AT_STEP.format(rank=lost, what=KILL)
    arguments = ["train", data, *SHORT, "--out", out]
    codes = launcher.run(3, tmp_path / "log", *arguments, before=before, timeout=NEVER)
    for rank in {0, 1, 2} - {lost}:
        assert codes[rank] == 1
        message = said(tmp_path / "log", rank)
        assert message.startswith(f"hushgraph: process {rank} of 3: another process is gone")
        assert message.count("\n") == 1
        assert "--resume" in message
    assert codes[lost] == -signal.SIGKILL
    assert (out / "checkpoint.safetensors").exists() == (lost != 0)
    steps, spent = charged(out)
    assert 4 <= steps <= 12
    assert spent > 0
    # One process goes on where three were, within the same budget.
    assert launcher.run(1, tmp_path / "again", "train", data, "--resume", out, "--json") == [0]
    result = json.loads(said(tmp_path / "again", 0, "out"))
    assert (result["resumed"], charged(out)[0], result["epsilon"] <= 4) == (True, 12, True)


def test_a_process_that_hangs_ends_the_others_after_the_timeout(
    launcher: Launcher, data: Path, tmp_path: Path
) -> None:
    before = AT_STEP.format(rank=1, what=STOP)
    arguments = ["train", data, *SHORT, "--out", tmp_path / "run"]
    children = launcher.start(2, tmp_path / "log", *arguments, before=before, timeout=4)
    deadline = time.monotonic() + PATIENCE
    while not said_anything(tmp_path / "log", 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(children[1], signal.SIGKILL)
    assert launcher.wait() == [1, -signal.SIGKILL]
    assert "is gone or hangs" in said(tmp_path / "log", 0)
    assert said(tmp_path / "log", 0).count("\n") == 1


def said_anything(log: Path, rank: int) -> bool:
    file = Path(f"{log}.{rank}.err")
    return file.exists() and file.stat().st_size > 0


def test_an_error_in_one_process_ends_the_others(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    before = AT_STEP.format(rank=0, what="raise hg.errors.RunError('the disk is full')")
    codes = launcher.run(
        2,
        tmp_path / "log",
        "train",
        data,
        *SHORT,
        "--out",
        tmp_path / "run",
        before="import hushgraph.errors\n" + before,
    )
    assert codes == [2, 1]
    assert said(tmp_path / "log", 0) == "hushgraph: the disk is full\n"
    assert said(tmp_path / "log", 1).count("\n") == 1


def test_ctrl_c_ends_all_after_the_paid_steps(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    before = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    children = launcher.start(2, tmp_path / "log", "train", data, *LONG, "--out", out, before=before)
    deadline = time.monotonic() + PATIENCE
    while steps_paid(out) < 50:
        assert time.monotonic() < deadline, said(tmp_path / "log", 0)
        time.sleep(0.05)
    for child in children:
        os.kill(child, signal.SIGINT)
    assert launcher.wait() == [130, 130]
    message = said(tmp_path / "log", 0)
    assert message == (
        f"hushgraph: stopped after step {steps_paid(out)} of 100000; continue with: hushgraph train {data} "
        f"--resume {out}\n"
    )
    assert said(tmp_path / "log", 1) + said(tmp_path / "log", 1, "out") == ""
    checkpoint = Path(out / "checkpoint.safetensors").read_bytes()
    about = json.loads(
        json.loads(checkpoint[8 : 8 + int.from_bytes(checkpoint[:8], "little")])["__metadata__"]["about"]
    )
    assert (about["step"], about["steps_lost"]) == (steps_paid(out), 0)


def test_bad_input_is_said_once(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    def refused(*arguments: Any, before: str = "") -> str:
        codes = launcher.run(2, tmp_path / "log", "train", *arguments, before=before)
        assert codes == [2, 2]
        assert said(tmp_path / "log", 1) == ""
        return said(tmp_path / "log", 0)

    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "run.json").write_text("{}")
    assert "no-such.npz" in refused("no-such.npz", *SHORT)
    assert "it holds a run already" in refused(data, *SHORT, "--out", taken)
    assert "no run.json" in refused(data, "--resume", tmp_path / "none")
    assert "--hidden" in refused(data, "--resume", taken, "--hidden", "3")
    assert "--max-readers" in refused(data, *SHORT, "--max-readers", "-1")
    other = save(tmp_path / "other.npz", seed=2)
    moved = f"if rank == 1: order['arguments'][1] = {str(other)!r}"
    assert refused(data, *SHORT, "--out", tmp_path / "run", before=moved) == (
        "hushgraph: edges: not the same in process 0 and process 1; give all processes the same data, "
        "settings and versions\n"
    )
    gone = "if rank == 1: order['arguments'][1] = 'elsewhere.npz'"
    assert refused(data, *SHORT, before=gone).startswith("hushgraph: process 1: ")
    assert not (tmp_path / "run").exists()


def test_a_timeout_that_is_none_is_refused(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    assert launcher.run(2, tmp_path / "log", "train", data, *SHORT, timeout=-1) == [2, 2]
    assert (
        said(tmp_path / "log", 0) == "hushgraph: HUSHGRAPH_TIMEOUT=-1: expected seconds, a number above 0\n"
    )


PYTHON = """
import torch.distributed as dist
dist.init_process_group("gloo")
for again in (False, True):
    run = (hg.resume if again else hg.train)(
        *([{out!r}] if again else []), {data!r},
        **({{}} if again else dict(epsilon=4.0, steps=3, hidden=8, max_readers=2, out={out!r})), device="cpu")
    run.folder.path.joinpath(f"model.{{rank}}.{{again}}").write_bytes(
        b"".join(p.detach().numpy().tobytes() for p in run.model.parameters()))
    assert run.result["processes"] == 2 and run.epsilon <= 4
temporary = hg.train({data!r}, epsilon=4.0, steps=1, hidden=8, max_readers=2, device="cpu")
dist.barrier()
assert temporary.folder.path.is_dir()
dist.barrier()
del temporary
dist.destroy_process_group()
os._exit(0)
"""


def test_train_in_python_uses_the_group_that_is_there(launcher: Launcher, data: Path, tmp_path: Path) -> None:
    source = PYTHON.format(data=str(data), out=str(tmp_path / "run"))
    assert launcher.run(2, tmp_path / "log", before=source) == [0, 0], said(tmp_path / "log", 0)
    found = {file.read_bytes() for file in (tmp_path / "run").glob("model.*")}
    assert len(found) == 1


def torchrun(*arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [*command, "-m", "hushgraph", *(str(argument) for argument in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    )


def worker(agent: int, rank: int) -> int:
    """The process of that rank under a torchrun."""
    for number in Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        if f"\0RANK={rank}\0".encode() in b"\0" + Path(f"/proc/{number}/environ").read_bytes():
            return int(number)
    raise AssertionError(f"torchrun has no process of rank {rank}")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
def test_torchrun_and_a_kill_and_one_process_that_goes_on(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = [*LONG, "--out", out]
    with torchrun("train", data, *settings) as agent:
        deadline = time.monotonic() + PATIENCE
        while steps_paid(out) < 20:
            assert time.monotonic() < deadline
            assert agent.poll() is None, agent.communicate()
            time.sleep(0.02)
        os.kill(worker(agent.pid, 1), signal.SIGKILL)
        output, errors = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 1
    assert output.startswith("Training privately on ")
    (line,) = (line for line in errors.splitlines() if line.startswith("hushgraph: "))
    assert "process 0 of 2: another process is gone or hangs" in line
    # What follows is torchrun's own; no traceback of ours is in it.
    assert "src/hushgraph/" not in errors
    steps, spent = charged(out)
    assert 20 <= steps < 100_000
    assert 0 < spent <= 4

    def stop(*told: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.resume(out, data, observer=stop)
    assert charged(out)[0] > steps
    assert spent < charged(out)[1] <= 4


def test_a_process_alone_needs_nothing() -> None:
    group = current_group()
    assert (group, group.leads) == (Group(), True)
    roots = np.arange(5)
    tensors = {"a": torch.ones(2)}
    assert group.share(roots) is not None
    np.testing.assert_array_equal(group.share(roots), roots)
    assert group.broadcast(lambda: tensors) is tensors
    assert group.add_up(tensors)["a"] is tensors["a"]
    group.follow(list(tensors.values()))
    with pytest.raises(InputError, match="as it is"), group.share_errors():
        raise InputError("as it is")
    assert group.assign_device(torch.device("cuda")) == torch.device("cuda")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_are_the_draw(size: int) -> None:
    for count in (0, 1, 2, 20):
        draw = np.sort(np.random.default_rng(count).choice(100, count, replace=False))
        shares = [Group(rank=rank, size=size).share(draw) for rank in range(size)]
        assert sorted(np.concatenate(shares).tolist()) == draw.tolist()
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    group = Group(rank=2, size=3)
    assert group.assign_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(InputError, match="process 3 of this machine has no GPU, there are 2"):
        group.assign_device(torch.device("cuda"))


def test_every_process_works_on_the_gpu_of_its_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Group(rank=5, size=8).assign_device(torch.device("cuda")) == torch.device("cuda:1")
    monkeypatch.delenv("LOCAL_RANK")
    assert Group(rank=2, size=8).assign_device(torch.device("cuda")) == torch.device("cuda:0")
    assert chosen == [torch.device("cuda:1"), torch.device("cuda:0")]


def test_what_the_leader_has_is_asked_of_nobody_else() -> None:
    assert require_leader(3) == 3
    with pytest.raises(RuntimeError, match="only the process that leads"):
        require_leader(None)
    assert issubclass(GroupError, hg.HushgraphError)
