"""Steps and whole default runs on a GPU, for data whose training reads no edges.

    python benchmarks/bench_gpu_rows.py DATA.npz... [--record FILE]

Of each file: two whole default runs at epsilon 4 after imports, the start of the GPU and loading; the mean
time of a step in the second; and the time of the clipped sum alone. The first run of a process loads
libraries and kernels, and in a new environment it compiles them.
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from pathlib import Path

import torch

import hushgraph as hg
from hushgraph.datasets.loading import load_graph
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows_torch import RecordedRowSums
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN

SPLIT = "0.6/0.2/0.2"
# Between looks at the validation split, which follow every fiftieth step, and before the second board.
TIMED_STEPS = ((50, 99), (100, 149))


def measure_run(graph: hg.Graph, device: str) -> tuple[float, float, float]:
    """Seconds of a whole default run, mean seconds of a step, test accuracy.

    A step is started before the GPU has done the last, so steps are timed together: from one point where
    everything is done to another.
    """
    times: dict[int, float] = {}
    ends = [step for steps in TIMED_STEPS for step in steps]

    def observe(done: int, *_: object) -> None:
        if done in ends:
            torch.cuda.synchronize()
            times[done] = time.perf_counter()

    begin = time.perf_counter()
    run = hg.train(graph, epsilon=4.0, device=device, observer=observe)
    seconds = time.perf_counter() - begin
    timed = sum(times[last] - times[first] for first, last in TIMED_STEPS)
    count = sum(last - first for first, last in TIMED_STEPS)
    return seconds, timed / count, run.result["test_accuracy"]


def measure_sum(graph: hg.Graph, device: torch.device) -> float:
    """Seconds of one clipped sum over all training rows, features alone."""
    model = GNN(graph.num_features, graph.num_classes, model="mlp", hidden=64, feature_norm=6.0).to(device)
    rows = Features(graph, "cpu").take(graph.train_idx, norm=6.0)
    sums, clipping = RecordedRowSums(device), Clipping()
    for _ in range(10):
        sums(model, rows, clipping)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(100):
        sums(model, rows, clipping)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU is visible to torch: nothing is measured")
        return
    # What `hg.train` imports when it is called first.
    import_module("hushgraph.training.train")
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}; seconds, milliseconds"]
    for path in options.data:
        try:
            graph = load_graph(path, symmetrize=True)
        except hg.HushgraphError:
            graph = load_graph(path, symmetrize=True, split=SPLIT)
        first = measure_run(graph, "cuda")[0]
        seconds, step, accuracy = measure_run(graph, "cuda")
        alone = measure_sum(graph, torch.device("cuda"))
        lines.append(
            f"{path.stem:22} first run {first:6.2f} s, second {seconds:5.2f} s, step {1e3 * step:5.2f} ms, "
            f"sum {1e3 * alone:5.2f} ms, test accuracy {100 * accuracy:.1f}%"
        )
        print(lines[-1], flush=True)
    if options.record is not None:
        options.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
