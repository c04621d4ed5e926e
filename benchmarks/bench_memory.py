"""Peak memory of whole default runs, beside the bytes of the data.

    python benchmarks/bench_memory.py [DATA.npz...] [--generated dense|sparse|edges|wide]... [--record FILE]

Each run is a process of its own: `hushgraph.train(DATA, epsilon=4, symmetrize=True)`, loading included. The
peak is that of the resident set (VmHWM of Linux), less what the process had before. "imported" is before:
everything is imported, nothing loaded. "warm" is before: a graph of 300 nodes has been trained on, so that
compiled kernels, pages of libraries and stacks of threads are there. "data" are the arrays of the graph as
loaded: reads in both directions, features and labels. "board" is one float32 number a node and class: the run
holds two of them at a time, of boards and readings, which are no copies of the data.

Generated graphs have gigabytes of random data and 8 classes. "dense": 2 million nodes, 200 columns and
20 million edges. "sparse": as many nodes and edges, 100 of 5,000 columns in every row. "edges": as many
nodes, 20 dense columns, 150 million edges. "wide": 280,000 nodes, 714 of 4,998 columns in every row,
3 million edges; every step uses all training nodes, where those with 2 million nodes draw 200,000 of them.
Another process writes them to an uncompressed .npz first. Their runs take 8 steps instead of 300 (`--steps`):
a step needs the same memory whether it is the first or the last.
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
GENERATED_STEPS = 8
CLASSES = 8
# Nodes, edges, columns and, of sparse features, of how many columns one is not zero.
GENERATED = {
    "dense": (2_000_000, 20_000_000, 200, 0),
    "sparse": (2_000_000, 20_000_000, 5_000, 50),
    "edges": (2_000_000, 150_000_000, 20, 0),
    "wide": (280_000, 3_000_000, 4_998, 7),
}
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


def generate(kind: str, path: Path) -> None:
    """Write a graph of random data."""
    import numpy as np

    nodes, edges, columns, among = GENERATED[kind]
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "edge_index": random.integers(0, nodes, (2, edges)),
        "y": random.integers(0, CLASSES, nodes),
    }
    if among:
        # One of every few columns: ascending, and none twice.
        firsts = np.arange(0, columns, among, dtype=np.int32)
        entries = firsts + random.integers(0, among, (nodes, len(firsts)), dtype=np.int32)
        arrays |= {
            "x_indptr": np.arange(0, entries.size + 1, len(firsts)),
            "x_indices": entries.reshape(-1),
            "x_data": random.random(entries.size, dtype=np.float32),
            "x_shape": np.array([nodes, columns]),
        }
    else:
        arrays["x"] = random.random((nodes, columns), dtype=np.float32)
    np.savez(path, **arrays)


def measure(path: str, steps: int | None) -> dict[str, float]:
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
        hg.train(graph, epsilon=4.0, steps=steps, out=f"{folder}/run")
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


def call_apart(*arguments: str) -> str:
    """Call this script in a process of its own; return what it prints."""
    source = Path(__file__).parent.parent / "src"
    environment = {"PYTHONPATH": str(source)} | os.environ
    command = [sys.executable, "-W", "ignore", __file__, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure_apart(path: Path, steps: int | None) -> dict[str, float]:
    """The figures, from a process of its own."""
    given = [] if steps is None else ["--steps", str(steps)]
    figures: dict[str, float] = json.loads(call_apart(str(path), "--one", *given).splitlines()[-1])
    return figures


def measure_generated(kind: str, steps: int | None) -> dict[str, float]:
    """The figures of a generated graph, whose file is removed again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.npz"
        call_apart(str(path), "--write", kind)
        return measure_apart(path, steps or GENERATED_STEPS)


def describe(name: str, figures: dict[str, float]) -> str:
    data, warm = figures["data"], figures["warm"]
    peak = max(figures["loading"], figures["training"])
    return (
        f"{name:20} {data:7.1f} {figures['board']:6.1f} {figures['imported']:9.0f} {warm:6.0f} "
        f"{figures['loading'] - warm:8.0f} {figures['training'] - warm:8.0f} {(peak - warm) / data:6.2f} "
        f"{peak - figures['imported']:9.0f} {(peak - figures['imported']) / data:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--generated", action="append", default=[], choices=list(GENERATED))
    parser.add_argument("--steps", type=int, help="steps of every run")
    parser.add_argument("--record", type=Path, help="append the table to this file")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        generate(arguments.write, arguments.data[0])
        return
    if arguments.one:
        print(json.dumps(measure(str(arguments.data[0]), arguments.steps)))
        return
    lines = [
        f"{'MiB':20} {'data':>7} {'board':>6} {'imported':>9} {'warm':>6} {'loading':>8} {'training':>8} "
        f"{'/ data':>6} {'all added':>9} {'/ data':>6}"
    ]
    for path in arguments.data:
        lines.append(describe(path.stem, measure_apart(path, arguments.steps)))
    for kind in arguments.generated:
        lines.append(describe(f"generated {kind}", measure_generated(kind, arguments.steps)))
    print("\n".join(lines))
    if arguments.record is not None:
        with arguments.record.open("a") as record:
            print("\n".join(lines), file=record)


if __name__ == "__main__":
    main()
