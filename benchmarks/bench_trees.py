"""Training steps on trees of real graphs: this version against another one, interleaved in one run.

    python benchmarks/bench_trees.py DATA.npz... --against OTHER/src [--turns N] [--seconds S]
        [--threads N] [--clock wall|cpu] [--only SETTINGS] [--epsilon E]
    python benchmarks/bench_trees.py --fill

A step is what the training loop does: draw the batch and grow its trees, or take those that are kept; clipped
sum, noise, optimiser. One GCN layer, hidden 128, features scaled to norm 6. "default" is what `hushgraph
train --method trees --epsilon E` chooses, E = 4 unless given; "K = 3" reads edges with all training nodes in
every batch, "drawn" with Poisson batches of at most 10,000 of them.

With `--fill` sparse features take turns with the same features written out, by the part that is not zero:
20,000 nodes, 512 columns, hidden 128, 10,000 roots, trees that are kept and trees that are new.

Steps of the package in the folder `--against`, in a process of its own and with its own default noise, take
turns with the steps of this one. Ratios are medians of ratios within a turn. `--clock cpu` counts processor
time: on a busy machine, with one thread, it is what can be compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from scipy import sparse

from bench_noise import CLOCKS, STEPS, make_batches, other_version, report
from hushgraph.datasets.loading import load_graph
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.privacy.plans import PrivacyPlan, TreePlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow
from hushgraph.training.trainer import State, Trainer

SPLIT = "0.6/0.2/0.2"
HIDDEN, FEATURE_NORM = 128, 6.0
SETTINGS = ("default", "K = 3", "drawn")


def make_noise(plan: PrivacyPlan, num_nodes: int) -> Any:
    """The noise that training has by default in the version that is imported."""
    try:
        from hushgraph.gradients.sums import sum_error
        from hushgraph.noise.source import ExactNoise
    except ImportError:
        from hushgraph.noise.gaussian import GaussianNoise

        return GaussianNoise(torch.device("cpu"))
    error = sum_error(num_roots=plan.num_train_nodes, num_rows=plan.most_lines(num_nodes))
    return ExactNoise(sigma_over_clip=plan.sigma_over_clip, sum_error=error)


def choose_settings(path: str, name: str, epsilon: float) -> dict[str, Any]:
    """The settings of a workload: the numbers are those of this version for both."""
    from hushgraph.privacy.defaults import choose_private

    graph = load(path)
    num_train = len(graph.train_idx)
    chosen = choose_private(
        num_train_nodes=num_train,
        epsilon=epsilon,
        delta=1 / (10 * num_train),
        num_layers=1,
        num_classes=graph.num_classes,
    )
    readers, reads = (chosen.max_readers, chosen.max_reads) if name == "default" else (3, 16)
    size = min(num_train, 10_000) if name == "drawn" else chosen.batch_size
    return {"path": path, "max_readers": readers, "max_reads": reads, "batch_size": size}


def load(path: str) -> Any:
    has_split = "train_idx" in np.load(path).files
    return load_graph(path, symmetrize=True, split=None if has_split else SPLIT)


class Steps:
    """The training loop of one workload at a time, a step at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._workload = ""
        self._step: Callable[[], None] = lambda: None

    def take(self, workload: str) -> float:
        """Seconds of one step of this workload, given as JSON."""
        if workload != self._workload:
            self._workload, self._step = workload, self._new(**json.loads(workload))
            self._step()
        begin = self._clock()
        self._step()
        return self._clock() - begin

    def _new(self, path: str, max_readers: int, max_reads: int, batch_size: int) -> Callable[[], None]:
        graph = load(path)
        plan = TreePlan(
            num_train_nodes=len(graph.train_idx),
            num_layers=1,
            max_readers=max_readers,
            max_reads=max_reads,
            batch_size=batch_size,
            steps=STEPS,
        ).with_paper_noise(1.0)
        torch.manual_seed(0)
        model = GNN(
            graph.num_features, graph.num_classes, num_layers=1, hidden=HIDDEN, feature_norm=FEATURE_NORM
        )
        batches, sums = make_batches(graph, plan, model, torch.device("cpu"), feature_norm=FEATURE_NORM)
        trainer = Trainer(
            plan=plan,
            config=TrainingConfig(),
            state=State(
                model,
                torch.optim.Adam(model.parameters(), lr=0.01),
                {name: p.detach().clone() for name, p in model.named_parameters()},
            ),
            batches=batches,
            clipping=Clipping(),
            # Steps are taken one by one, so that nothing is charged.
            ledger=None,
            noise=make_noise(plan, graph.num_nodes),
            **sums,
        )
        pieces = batches.iterate(0)
        return lambda: trainer.take_step(next(pieces))


def compare_fill(clock: Callable[[], float], turns: int) -> None:
    """Clipped sums of sparse features against dense ones."""
    rng = np.random.default_rng(0)
    nodes, columns, roots = 20_000, 512, np.arange(10_000)
    counts = rng.integers(0, 11, nodes)
    lists = BoundedLists(
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=rng.integers(0, nodes, counts.sum()).astype(np.int32),
    )
    model = GNN(columns, 10, num_layers=1, hidden=HIDDEN, feature_norm=FEATURE_NORM)
    print(f"{'fill':>5} {'kept, sparse / dense':>22} {'new, sparse / dense':>22}, ms")
    for fill in (0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0):
        x = np.where(rng.random((nodes, columns)) < fill, rng.standard_normal((nodes, columns)), 0)
        medians = []
        for is_kept in (True, False):
            takers = [_sums(model, lists, roots, given, is_kept) for given in (sparse.csr_array(x), x)]
            times: list[list[float]] = [[], []]
            for turn in range(turns + 1):
                for taker, kept in zip(takers, times, strict=True):
                    begin = clock()
                    taker()
                    if turn:
                        kept.append(clock() - begin)
            medians.append([1e3 * statistics.median(kept) for kept in times])
        cells = [f"{one:9.1f} {other:6.1f} {one / other:5.2f}" for one, other in medians]
        print(f"{fill:5.2f} {cells[0]:>22} {cells[1]:>22}", flush=True)


def _sums(model: GNN, lists: Any, roots: np.ndarray, x: Any, is_kept: bool) -> Callable[[], object]:
    num_nodes = x.shape[0]
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64), x=x, y=np.arange(num_nodes) % 10, train_idx=roots
    )
    features = Features(graph)

    def build() -> Any:
        return tree_batch(grow(lists, roots, 1), features, graph.y, may_read=True)

    batch = build()
    return lambda: ghost.clipped_sum(model, batch if is_kept else build(), Clipping())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--against", metavar="SRC", help="the folder src of another version")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20.0, help="begin no turn of a workload after this")
    parser.add_argument("--only", choices=SETTINGS)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    numba.set_num_threads(min(arguments.threads, numba.config.NUMBA_NUM_THREADS))
    steps = Steps(CLOCKS[arguments.clock])
    if arguments.serve:
        for line in sys.stdin:
            print(steps.take(line.strip()), flush=True)
        return
    print(f"{arguments.threads} threads, torch {torch.__version__}, {arguments.clock} clock")
    if arguments.fill:
        compare_fill(CLOCKS[arguments.clock], arguments.turns)
    else:
        compare(arguments, steps)


def compare(arguments: argparse.Namespace, steps: Steps) -> None:
    others = ["--threads", str(arguments.threads), "--clock", arguments.clock]
    with other_version(arguments.against, others, script=__file__) as other:
        for path in arguments.data:
            for name in [arguments.only] if arguments.only else SETTINGS:
                settings = choose_settings(str(path), name, arguments.epsilon)
                workload = json.dumps(settings)
                label = (
                    f"{path.stem}, {name}: K = {settings['max_readers']}, {settings['batch_size']:,} roots"
                )
                takers = {
                    "other version": lambda workload=workload: other(workload),
                    "this version": lambda workload=workload: steps.take(workload),
                }
                report(label, takers, arguments.turns, arguments.seconds)


if __name__ == "__main__":
    main()
