"""Peak memory of whole default runs, beside the bytes of the data.

    python benchmarks/bench_memory.py DATA.npz... [--record FILE]

Each run is a process of its own: `hushgraph.train(DATA, epsilon=4, symmetrize=True)`, loading included. The
peak is that of the resident set (VmHWM of Linux), less what the process had before. "imported" is before:
everything is imported, nothing loaded. "warm" is before: a graph of 300 nodes has been trained on, so that
compiled kernels, pages of libraries and stacks of threads are there. "data" are the arrays of the graph as
loaded: reads in both directions, features and labels. "board" is one float32 number a node and class: the run
holds two boards and one table of readings of that size, which are no copies of the data.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MIB = 2.0**20
SPLIT = "0.6/0.2/0.2"
# Optional parts that need other packages.
LEFT_OUT = ("spark", "duck", "__main__")


def read_status(name: str) -> float:
    """A figure of /proc/self/status, MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"{name} is missing in /proc/self/status: this benchmark needs Linux")


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def import_everything() -> None:
    import hushgraph

    for module in pkgutil.walk_packages(hushgraph.__path__, "hushgraph."):
        if not any(part in module.name for part in LEFT_OUT):
            importlib.import_module(module.name)


def measure(path: str) -> dict[str, float]:
    """Figures of one run, MiB."""
    import numpy as np
    from scipy import sparse

    import hushgraph as hg
    from hushgraph.datasets.loading import load_graph

    import_everything()
    imported = read_status("VmRSS")
    with tempfile.TemporaryDirectory() as folder:
        small = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        hg.train(small, epsilon=4.0, out=f"{folder}/warm")
        warm = read_status("VmRSS")
        split = None if "train_idx" in np.load(path).files else SPLIT
        reset_peak()
        graph = load_graph(path, symmetrize=True, split=split)
        loading = read_status("VmHWM")
        reset_peak()
        hg.train(graph, epsilon=4.0, out=f"{folder}/run")
        training = read_status("VmHWM")
    x: Any = graph.x
    features = [x.data, x.indices, x.indptr] if sparse.issparse(x) else [x]
    data = sum(array.nbytes for array in [graph.indptr, graph.indices, graph.y, *features])
    return {
        "data": data / MIB,
        "board": 4 * graph.num_nodes * graph.num_classes / MIB,
        "imported": imported,
        "warm": warm,
        "loading": loading,
        "training": training,
    }


def measure_apart(path: Path) -> dict[str, float]:
    """The figures, from a process of its own."""
    source = Path(__file__).parent.parent / "src"
    environment = {"PYTHONPATH": str(source)} | os.environ
    command = [sys.executable, "-W", "ignore", __file__, str(path), "--one"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def describe(name: str, figures: dict[str, float]) -> str:
    data, warm = figures["data"], figures["warm"]
    peak = max(figures["loading"], figures["training"])
    return (
        f"{name:20} {data:6.1f} {figures['board']:6.1f} {figures['imported']:9.0f} {warm:6.0f} "
        f"{figures['loading'] - warm:8.0f} {figures['training'] - warm:8.0f} {(peak - warm) / data:6.2f} "
        f"{peak - figures['imported']:9.0f} {(peak - figures['imported']) / data:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--record", type=Path, help="append the table to this file")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(str(arguments.data[0]))))
        return
    lines = [
        f"{'MiB':20} {'data':>6} {'board':>6} {'imported':>9} {'warm':>6} {'loading':>8} {'training':>8} "
        f"{'/ data':>6} {'all added':>9} {'/ data':>6}"
    ]
    for path in arguments.data:
        lines.append(describe(path.stem, measure_apart(path)))
    print("\n".join(lines))
    if arguments.record is not None:
        with arguments.record.open("a") as record:
            print("\n".join(lines), file=record)


if __name__ == "__main__":
    main()
