"""Where a step of workload A goes: the parts of a batch, the step on a kept batch, kernels and their time.

python benchmarks/profile_step.py --device cuda > profile.txt
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from bench_step import Work
from hushgraph.gradients import ghost
from hushgraph.gradients import unclipped as plain
from hushgraph.gradients.clip import Clipping


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    device = torch.device(args.device)
    work = Work.of("A", device, np.random.default_rng(0))
    model = work.model
    roots = work.roots()
    trees = work.trees(roots)
    batch = work.tensors(trees)
    parts: dict[str, Callable[[], object]] = {
        "draw the roots": work.roots,
        "grow the trees": lambda: work.trees(roots),
        "tensors of the batch": lambda: work.tensors(trees),
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
    main()
