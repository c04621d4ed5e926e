"""What noise costs: a step with exact noise against one with torch's, interleaved in one run.

    python benchmarks/bench_noise.py [--repeats N] [--device auto|cpu|cuda] [--against SRC]
        [--clock wall|cpu] [--threads N] [--hidden N]

First random words and draws. Then a step (clipped sum and noise) of one GCN layer on an arxiv-shaped graph:
without edges (K = 0) and with (K = 3), of 10,000 roots and of all, with exact noise and with torch's. With
`--against` the same steps of the version of this package in the folder SRC take turns with them, in a process
of their own, with the noise that version had by default. Last, what exact noise allows for rounding.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numba
import numpy as np
import torch
from torch import Tensor

from bench_step import CLASSES, FEATURES, arxiv_shaped
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import Features, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.models.device import keep_freed_memory
from hushgraph.models.gnn import GNN
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow

SIGMA = 16.0
DRAWS = 150_000
Step = Callable[[], object]
# Processor time does not see what else a busy machine does; it counts what other threads draw ahead.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock_name = "wall"


def seconds(work: Step, device: torch.device) -> float:
    clock = CLOCKS[clock_name]
    begin = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - begin


def old_noise(device: torch.device) -> Callable[[dict[str, Tensor], dict[str, float]], object]:
    """The default noise of a version that has no exact one by default."""
    from hushgraph.noise.gaussian import noise_generator, noisy

    generator = noise_generator(device)
    return lambda sums, sigmas: noisy(sums, sigmas, generator)


def new_noise(
    name: str, device: torch.device, roots: int
) -> Callable[[dict[str, Tensor], dict[str, float]], object]:
    from hushgraph.gradients.sums import sum_error
    from hushgraph.noise.source import ExactNoise, FloatNoise

    if name == "float":
        return FloatNoise(torch.Generator(device)).add_noise
    error = sum_error(num_roots=roots, rows_per_root=18)
    return ExactNoise(sigma_over_clip=SIGMA, sum_error=error).add_noise


class Steps:
    """Steps by the number of readers, of roots and the noise, each on a batch that is kept."""

    def __init__(self, device: torch.device, hidden: int) -> None:
        self.device = device
        self.graph = arxiv_shaped(np.random.default_rng(0), FEATURES)
        self.features = Features(self.graph, device)
        torch.manual_seed(0)
        self.model = GNN(FEATURES, CLASSES, hidden=hidden, feature_norm=1.0).to(device)
        self.sigmas = {name: SIGMA for name, _ in self.model.named_parameters()}
        self._steps: dict[tuple[int, int, str], Step] = {}

    def step(self, readers: int, roots: int, noise: str) -> Step:
        key = (readers, roots, noise)
        if key not in self._steps:
            self._steps[key] = self._new(*key)
            self._steps[key]()
        return self._steps[key]

    def _new(self, readers: int, roots: int, noise: str) -> Step:
        lists = stable_lists(
            self.graph,
            num_nodes=self.graph.num_nodes,
            train_mask=self.graph.train_mask,
            max_readers=readers,
            max_reads=16 if readers else 0,
            edge_owner="sender",
            seed=1,
        )
        batch = tree_batch(grow(lists, self.graph.train_idx[:roots], 1), self.features, self.graph.y)
        add = old_noise(self.device) if noise == "old" else new_noise(noise, self.device, roots)
        return lambda: add(ghost.clipped_sum(self.model, batch, Clipping()), self.sigmas)


def serve(steps: Steps) -> None:
    """Take a step for every line of input and say how long it took."""
    for line in sys.stdin:
        readers, roots = map(int, line.split())
        print(seconds(steps.step(readers, roots, "old"), steps.device), flush=True)


@contextmanager
def other_version(source: str, arguments: list[str]) -> Iterator[Callable[[int, int], float]]:
    """Seconds of a step of the version in the folder `source`."""
    command = [sys.executable, __file__, "--serve", *arguments]
    environment = os.environ | {"PYTHONPATH": source}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        pipe_in, pipe_out = process.stdin, process.stdout
        if pipe_in is None or pipe_out is None:
            raise RuntimeError("the other process has no pipes")

        def step(readers: int, roots: int) -> float:
            print(readers, roots, file=pipe_in, flush=True)
            return float(pipe_out.readline())

        yield step
        pipe_in.close()


def report(title: str, works: dict[str, Callable[[], float]], repeats: int) -> None:
    """Medians, taking turns so that a busy machine slows all of them; ratios are within a turn."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            taken = work()
            # The first turn builds what is kept.
            if turn:
                times[name].append(taken)
    print(title)
    first = next(iter(times.values()))
    for name, found in times.items():
        ratio = statistics.median(one / base for one, base in zip(found, first, strict=True))
        print(f"  {name:<24} {1e3 * statistics.median(found):10.2f} ms   x {ratio:.3f}", flush=True)


def report_draws(device: torch.device) -> None:
    from hushgraph.noise import normal

    def nanoseconds(work: Step, count: int) -> float:
        work()
        return 1e9 / count * statistics.median(seconds(work, device) for _ in range(9))

    key, none = bytes(32), torch.empty(DRAWS)
    works: dict[str, tuple[Step, int]] = {
        "operating system, 8 bytes": (lambda: os.urandom(8 * DRAWS), DRAWS),
        "ChaCha20, 8 bytes": (lambda: normal.random_words(key, 0, DRAWS), DRAWS),
        "exact draw, all included": (lambda: normal.draw(DRAWS), DRAWS),
        "torch.randn": (lambda: none.normal_(), DRAWS),
    }
    print("nanoseconds, on one thread")
    for name, (work, count) in works.items():
        print(f"  {name:<28} {nanoseconds(work, count):8.2f}", flush=True)


def report_widening() -> None:
    from hushgraph.gradients.sums import sum_error
    from hushgraph.noise.source import ExactNoise

    print("standard deviation as a part of the planned one: sigma / C = 16, 200,000 parameters")
    for roots in (1_000, 10_000, 90_941, 200_000):
        for rows in (1, 18, 300):
            error = sum_error(num_roots=roots, rows_per_root=rows)
            wider = ExactNoise(sigma_over_clip=SIGMA, sum_error=error).widening(200_000)
            print(f"  {roots:7,} roots of at most {rows:3} rows: {wider:.5f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--against", metavar="SRC", help="the folder src of another version")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    global clock_name
    clock_name = arguments.clock
    torch.set_num_threads(arguments.threads)
    numba.set_num_threads(arguments.threads)
    name = arguments.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    torch.backends.cuda.matmul.allow_tf32 = False
    with keep_freed_memory():
        steps = Steps(device, arguments.hidden)
        if arguments.serve:
            serve(steps)
            return
        print(
            f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, hidden {arguments.hidden}"
        )
        report_draws(device)
        report_widening()
        others = ["--device", name, "--hidden", str(arguments.hidden), "--clock", arguments.clock]
        others += ["--threads", str(arguments.threads)]
        if arguments.against is None:
            report_steps(steps, arguments.repeats, None)
            return
        with other_version(arguments.against, others) as step:
            report_steps(steps, arguments.repeats, step)


def report_steps(steps: Steps, repeats: int, other: Callable[[int, int], float] | None) -> None:
    for readers in (0, 3):
        for roots in (10_000, len(steps.graph.train_idx)):
            works: dict[str, Callable[[], float]] = {}
            if other is not None:
                works["other version"] = lambda K=readers, n=roots: other(K, n)
            for noise in ("float", "exact"):
                step = steps.step(readers, roots, noise)
                works[noise] = lambda step=step: seconds(step, steps.device)
            size = sum(p.numel() for p in steps.model.parameters())
            report(f"a step, K = {readers}, {roots:,} roots, {size:,} parameters", works, repeats)


if __name__ == "__main__":
    main()
