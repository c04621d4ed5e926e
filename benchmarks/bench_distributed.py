"""One training step shared by processes: strong scaling on two cores, and what travels between them.

Every row is a run of the training loop of its own, ledger included: one process with one thread, two
processes with one thread each, one process with two threads. The graph has the counts of ogbn-arxiv.
Workload A: 10,000 roots a step, drawn anew. "full": all training nodes, trees kept from step to step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

SETTINGS = {
    "1 process, 1 thread": (1, 1),
    "2 processes, 1 thread each": (2, 1),
    "1 process, 2 threads": (1, 2),
}
_WARM_UP = 3


def measured(processes: int, threads: int, workload: str, steps: int) -> dict[str, float]:
    """What the leading process printed."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *launcher, __file__, "--worker", workload, "--steps", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    values: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return values


def work(workload: str, steps: int) -> None:
    """The share of one process in all steps; the leading one prints what it saw."""
    import numpy as np
    import torch

    from bench_step import CLASSES, FEATURES, TRAINING, WORKLOADS, arxiv_shaped
    from hushgraph.gradients.clip import Clipping
    from hushgraph.gradients.sums import sum_error
    from hushgraph.inputs.features import Features
    from hushgraph.models.gnn import GNN
    from hushgraph.noise.source import ExactNoise
    from hushgraph.privacy.ledger import Ledger
    from hushgraph.privacy.plans import TreePlan
    from hushgraph.runs.config import TrainingConfig
    from hushgraph.training.distributed import join_group
    from hushgraph.training.trainer import State, Trainer
    from hushgraph.training.tree_batches import TreeBatches

    given = WORKLOADS[workload]
    hidden, num_features = (128, 160) if workload == "full" else (256, FEATURES)
    graph = arxiv_shaped(np.random.default_rng(0), num_features)
    torch.manual_seed(0)
    model = GNN(num_features, CLASSES, num_layers=given["layers"], hidden=hidden, decoder_layers=2)
    plan = TreePlan(
        num_train_nodes=TRAINING,
        num_layers=given["layers"],
        max_readers=given["max_readers"],
        max_reads=given["max_reads"],
        batch_size=given["roots"],
        steps=steps + _WARM_UP,
    ).with_paper_noise(2.0)
    ends: list[float] = []
    with ExitStack() as stack:
        group = stack.enter_context(join_group())
        ledger = None
        if group.leads:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            ledger = stack.enter_context(Ledger.create(Path(folder) / "ledger.jsonl", plan))
        error = sum_error(num_roots=TRAINING, num_rows=plan.most_lines(graph.num_nodes))
        trainer = Trainer(
            plan=plan,
            config=TrainingConfig(hidden=hidden),
            state=State(
                model,
                torch.optim.Adam(model.parameters(), lr=0.01),
                {name: p.detach().clone() for name, p in model.named_parameters()},
            ),
            batches=TreeBatches(
                graph=graph,
                features=Features(graph),
                plan=plan,
                rng=np.random.default_rng(1),
                group=group,
                resample_every=plan.steps,
            ),
            clipping=Clipping(),
            ledger=ledger,
            noise=ExactNoise(sigma_over_clip=plan.sigma_over_clip, sum_error=error) if group.leads else None,
            group=group,
        )
        trainer.run(lambda done: ends.append(time.perf_counter()))
        seconds = statistics.median(
            b - a for a, b in zip(ends[_WARM_UP - 1 :], ends[_WARM_UP:], strict=False)
        )
        # Clipped sums travel to the leading process in float64, weights travel back in float32.
        weights = sum(p.numel() for p in model.parameters()) * (group.size - 1)
        if group.leads:
            print(json.dumps({"seconds": seconds, "bytes": (8 + 4) * weights}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2, help="runs of every setting, in turn")
    parser.add_argument("--workload", choices=["A", "full", "all"], default="all")
    parser.add_argument("--out", type=Path, help="also write the lines to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.steps)
        return
    lines = []
    for workload in ("A", "full") if args.workload == "all" else (args.workload,):
        seen: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
        for _ in range(args.rounds):
            for name, (processes, threads) in SETTINGS.items():
                seen[name].append(measured(processes, threads, workload, args.steps))
        medians = {name: statistics.median(one["seconds"] for one in found) for name, found in seen.items()}
        base = next(iter(medians.values()))
        lines.append(f"workload {workload}, {os.cpu_count()} cores")
        for name, seconds in medians.items():
            sent = seen[name][0]["bytes"]
            lines.append(
                f"  {name:27} {1e3 * seconds:8.1f} ms   x {base / seconds:.2f}   {sent:10,} bytes a step"
            )
        lines.append(json.dumps({"workload": workload, "seconds": medians}))
        print("\n".join(lines[-len(medians) - 2 :]), flush=True)
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
