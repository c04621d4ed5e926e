"""Where a step of workload A goes: the parts of a batch, the step on a kept batch, kernels and their time.

python benchmarks/profile_step.py --device cuda > benchmarks/records/profile_h200.txt
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from bench_step import CLASSES, FEATURES, NODES, TRAINING, WORKLOADS, arxiv_shaped
from hushgraph.gradients import ghost, plain
from hushgraph.gradients.batch import Features, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.memory import freed_memory_kept
from hushgraph.models.gnn import GNN
from hushgraph.sampling.batches import PoissonBatches
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    device, w = torch.device(args.device), WORKLOADS["A"]
    rng = np.random.default_rng(0)
    graph = arxiv_shaped(rng, FEATURES)
    features = Features(graph, device)
    lists = stable_lists(
        graph,
        num_nodes=NODES,
        train_mask=graph.train_mask,
        max_readers=w["max_readers"],
        max_reads=w["max_reads"],
        edge_owner="sender",
        seed=1,
    )
    model = GNN(FEATURES, CLASSES, num_layers=w["layers"], hidden=256, decoder_layers=2).to(device)
    draws = PoissonBatches(num_slots=TRAINING, rate=w["roots"] / TRAINING, rng=rng)
    roots = graph.train_idx[draws.draw()]
    trees = grow(lists, roots, w["layers"])
    batch = tree_batch(trees, features, graph.y)
    parts: dict[str, Callable[[], object]] = {
        "draw the roots": lambda: graph.train_idx[draws.draw()],
        "grow the trees": lambda: grow(lists, roots, w["layers"]),
        "tensors of the batch": lambda: tree_batch(trees, features, graph.y),
        "plain, batch kept": lambda: plain.gradient_sum(model, batch),
        "private, batch kept": lambda: ghost.clipped_sum(model, batch, Clipping()),
    }

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for name, part in parts.items():
        times = []
        for _ in range(args.repeats + 3):
            wait()
            begin = time.perf_counter()
            part()
            wait()
            times.append(time.perf_counter() - begin)
        print(f"{name:22} {1e3 * statistics.median(times[3:]):7.2f} ms")
    for name in ("private, batch kept", "plain, batch kept"):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiled:
            parts[name]()
            wait()
        kernels = [e for e in profiled.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        if kernels:
            busy = sum(e.time_range.elapsed_us() for e in kernels) / 1e3
            print(f"{name}: {len(kernels)} kernels, {busy:.2f} ms of the GPU")
        order = "cuda_time_total" if kernels else "self_cpu_time_total"
        print(profiled.key_averages().table(sort_by=order, row_limit=15, max_name_column_width=60))


if __name__ == "__main__":
    with freed_memory_kept():
        main()
