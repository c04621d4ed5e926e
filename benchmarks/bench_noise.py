"""What exact noise costs: a training step against the same step of another version, interleaved in one run.

    python benchmarks/bench_noise.py --against OTHER/src [--device cpu|cuda] [--repeats N] [--threads N]
        [--only WORKLOAD] [--seconds S] [--clock wall|cpu]

A step is what the training loop does: draw the batch and grow its trees, or take those that are kept; clipped
sum, noise, optimiser. "trees" is an arxiv-shaped graph with one GCN layer, hidden 256, K = 7 and D = 16;
"billboard" is a ReadingMLP over 128 features and 40 classes, hidden 128, which reads no edges. Each has
batches of 10,000 roots and of all 90,941.

With `--against`, steps of the package in that folder, in a process of its own and with its own default noise,
take turns with the steps of this one. Without it, this version's steps take turns with float32 noise and the
same sums. Ratios are medians of ratios within a turn. `--clock cpu` counts processor time, noise that other
threads draw ahead included: on a busy machine, with one thread, it is what can be compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import torch
from torch import nn

from bench_step import CLASSES, FEATURES, NODES, TRAINING, arxiv_shaped
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN, ReadingMLP
from hushgraph.privacy.plans import PrivacyPlan, TreePlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.sampling.random import KeyedGenerator
from hushgraph.training.distributed import Group
from hushgraph.training.trainer import State, Trainer
from hushgraph.training.tree_batches import TreeBatches

DRAWS = 150_000
WORKLOADS: dict[str, tuple[str, int]] = {
    "trees, 10,000 roots": ("trees", 10_000),
    "trees, all roots": ("trees", TRAINING),
    "billboard, 10,000 roots": ("billboard", 10_000),
    "billboard, all roots": ("billboard", TRAINING),
}
# A run has more steps than any measurement takes.
STEPS = 100_000
Step = Callable[[], None]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def default_noise(plan: PrivacyPlan, device: torch.device) -> object:
    """The noise that training has by default in the version that is imported."""
    try:
        from hushgraph.gradients.sums import sum_error
        from hushgraph.noise.source import ExactNoise
    except ImportError:
        from hushgraph.noise.gaussian import GaussianNoise

        return GaussianNoise(device)
    error = sum_error(num_roots=plan.num_train_nodes, num_rows=plan.most_lines(NODES))
    return ExactNoise(sigma_over_clip=plan.sigma_over_clip, sum_error=error)


def float_noise(plan: PrivacyPlan, device: torch.device) -> object:
    from hushgraph.audit.faults import FloatNoise

    return FloatNoise(torch.Generator(device))


def make_batches(
    graph: Graph, plan: PrivacyPlan, model: nn.Module, device: torch.device, *, feature_norm: float = 0.0
) -> tuple[Any, dict[str, Any]]:
    """Batches and how their sums are computed, as a run has them in the version that is imported."""
    common: dict[str, Any] = {
        "graph": graph,
        "features": Features(graph, device),
        "plan": plan,
        "rng": KeyedGenerator(1),
        "group": Group(),
    }
    try:
        from hushgraph.gradients.rows import RowSums
        from hushgraph.gradients.rows_torch import RecordedRowSums
        from hushgraph.training.row_batches import RowBatches
        from hushgraph.training.steps import takes_rows

        if takes_rows(plan, model):
            sums = RowSums() if device.type == "cpu" else RecordedRowSums(device)
            return RowBatches(**common, feature_norm=feature_norm), {"clipped_sum": sums}
    except ImportError:
        pass
    try:
        from hushgraph.training.steps import choose_tree_sums, holds_entries

        common["holds_entries"] = holds_entries(model)
    except ImportError:
        return TreeBatches(**common, resample_every=STEPS), {}
    batches = TreeBatches(**common, resample_every=STEPS)
    return batches, {"clipped_sum": choose_tree_sums(plan, graph.num_nodes, device)}


def make_optimizer(model: nn.Module) -> Any:
    """The optimiser that training has by default."""
    from hushgraph.training.optimizers import Adam

    parameters = dict(model.named_parameters())
    return Adam(parameters, {name: p.detach().clone() for name, p in parameters.items()}, lr=0.01)


class Steps:
    """The training loop of each workload, a step at a time."""

    def __init__(self, device: torch.device, clock: Callable[[], float]) -> None:
        self.device, self._clock = device, clock
        rng = np.random.default_rng(0)
        self._graph = arxiv_shaped(rng, FEATURES)
        # Columns of the features, then those of the reading.
        rows = rng.standard_normal((NODES, FEATURES + CLASSES), dtype=np.float32) / 10
        self._table = Graph.from_arrays(
            edge_index=np.empty((2, 0), np.int64),
            x=rows,
            y=self._graph.y,
            train_idx=self._graph.train_idx,
            num_classes=CLASSES,
        )
        self._steps: dict[tuple[str, str], Step] = {}

    def take(self, workload: str, noise: str) -> float:
        """Seconds of one step."""
        key = (workload, noise)
        if key not in self._steps:
            self._steps[key] = self._new(workload, noise)
            for _ in range(3):
                self._steps[key]()
        self._wait()
        begin = self._clock()
        self._steps[key]()
        self._wait()
        return self._clock() - begin

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _new(self, workload: str, noise: str) -> Step:
        method, roots = WORKLOADS[workload]
        reads = method == "trees"
        graph = self._graph if reads else self._table
        plan = TreePlan(
            num_train_nodes=TRAINING,
            num_layers=1 if reads else 0,
            max_readers=7 if reads else 0,
            max_reads=16 if reads else 0,
            batch_size=roots,
            steps=STEPS,
        ).with_paper_noise(1.0)
        torch.manual_seed(0)
        model = (
            GNN(FEATURES, CLASSES, num_layers=1, hidden=256, decoder_layers=2)
            if reads
            else ReadingMLP(FEATURES, CLASSES, hidden=128)
        ).to(self.device)
        batches, sums = make_batches(graph, plan, model, self.device)
        source = default_noise if noise == "default" else float_noise
        trainer = Trainer(
            plan=plan,
            config=TrainingConfig(),
            state=State(
                model,
                make_optimizer(model),
                {name: p.detach().clone() for name, p in model.named_parameters()},
            ),
            batches=batches,
            clipping=Clipping(),
            # Steps are taken one by one, so that nothing is charged.
            ledger=None,
            noise=source(plan, self.device),  # type: ignore[arg-type]
            **sums,
        )
        pieces = batches.iterate(0)
        return lambda: trainer.take_step(next(pieces))


def serve(steps: Steps) -> None:
    """Take a step for every line of input and say how long it took."""
    for line in sys.stdin:
        print(steps.take(line.strip(), "default"), flush=True)


@contextmanager
def other_version(
    source: str, arguments: list[str], *, script: str = __file__
) -> Iterator[Callable[[str], float]]:
    """Seconds of a step of the version in the folder `source`."""
    command = [sys.executable, script, "--serve", *arguments]
    environment = os.environ | {"PYTHONPATH": source}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        pipe_in, pipe_out = process.stdin, process.stdout
        if pipe_in is None or pipe_out is None:
            raise RuntimeError("the other process has no pipes")

        def step(workload: str) -> float:
            print(workload, file=pipe_in, flush=True)
            return float(pipe_out.readline())

        yield step
        pipe_in.close()


def report(workload: str, takers: Mapping[str, Callable[[], float]], repeats: int, seconds: float) -> None:
    """Medians, taking turns so that a busy machine slows all of them; ratios are within a turn."""
    times: dict[str, list[float]] = {name: [] for name in takers}
    for turn in range(repeats + 1):
        if turn == 1:
            begin = time.monotonic()
        for name, take in takers.items():
            taken = take()
            # The first turn builds what is kept.
            if turn:
                times[name].append(taken)
        if turn > 3 and time.monotonic() - begin > seconds:
            break
    base = next(iter(times.values()))
    print(f"{workload}, {len(base)} turns")
    for name, values in times.items():
        ratio = statistics.median(one / other for one, other in zip(values, base, strict=True))
        print(f"  {name:<24} {1e3 * statistics.median(values):10.2f} ms   x {ratio:.3f}", flush=True)


def report_draws() -> None:
    from hushgraph.noise import normal

    def nanoseconds(work: Callable[[], object]) -> float:
        times = []
        for _ in range(10):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        return 1e9 / DRAWS * statistics.median(times[1:])

    key, out = bytes(32), torch.empty(DRAWS)
    works: dict[str, Callable[[], object]] = {
        "operating system, 8 bytes": lambda: os.urandom(8 * DRAWS),
        "ChaCha20, 8 bytes": lambda: normal.WordStream(key).take(DRAWS),
        "exact draw, all included": lambda: normal.draw(DRAWS),
        "torch.randn": lambda: out.normal_(),
    }
    print("nanoseconds, on one thread")
    for name, work in works.items():
        print(f"  {name:<28} {nanoseconds(work):8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=20.0, help="begin no turn of a workload after this")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--against", metavar="SRC", help="the folder src of another version")
    parser.add_argument("--only", choices=list(WORKLOADS), help="one workload")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    numba.set_num_threads(min(arguments.threads, numba.config.NUMBA_NUM_THREADS))
    name = arguments.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    steps = Steps(torch.device(name), CLOCKS[arguments.clock])
    if arguments.serve:
        serve(steps)
        return
    print(f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, {arguments.clock} clock")
    report_draws()
    workloads = [arguments.only] if arguments.only else list(WORKLOADS)
    if arguments.against is None:
        for workload in workloads:
            takers = {
                kind: lambda kind=kind, workload=workload: steps.take(workload, kind)
                for kind in ("float", "default")
            }
            report(workload, takers, arguments.repeats, arguments.seconds)
        return
    others = ["--device", name, "--threads", str(arguments.threads), "--clock", arguments.clock]
    with other_version(arguments.against, others) as other:
        for workload in workloads:
            takers = {
                "other version": lambda workload=workload: other(workload),
                "this version": lambda workload=workload: steps.take(workload, "default"),
            }
            report(workload, takers, arguments.repeats, arguments.seconds)


if __name__ == "__main__":
    main()
