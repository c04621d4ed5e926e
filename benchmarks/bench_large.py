"""A graph larger than the memory given to it: stored, sampled, trained for one epoch and predicted from disk.

    python benchmarks/bench_large.py [--full] [--folder DIR] [--record FILE]

Without --full, two small sizes that show the script works. With it, 5 million nodes and 100 million reads,
then 20 million nodes and 400 million reads: about 12 GB of disk in DIR, an hour or so on two cores. What it
writes to DIR goes in the end.

Every phase is a process of its own, so that each peak is its own. "peak" is what the system calls the maximum
resident set: memory of the process and pages of mapped files. "anonymous" is the peak without pages of files,
which the system takes back whenever it needs them; it is read twenty times a second.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, FEATURES, HELD_OUT = 10, 32, 200_000
TRAINING = {"hidden": 64, "max_readers": 3, "num_layers": 1, "epsilon": 8.0}
BATCHES_AN_EPOCH = 200
# How often the lists are drawn in these steps, unless `resample_every` is given.
DRAWINGS = 4
SIZES = {"small": ((50_000, 1_000_000), (200_000, 4_000_000))}
SIZES["full"] = ((5_000_000, 100_000_000), (20_000_000, 400_000_000))
CHUNK = 1 << 22
LIMIT_GIB = 8.0
# The graph that the cost model is about, and the machines that it counts.
MODEL_NODES, MODEL_READS = 10**9, 10**11
MODEL_CORES = 2
GIB = 2.0**30


def pairs(num_nodes: int, num_reads: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Undirected edges, half of them within a class; a few more than asked for, since repeats will go."""
    rng = np.random.default_rng(1)
    left = num_reads // 2 + num_reads // 2000
    while left > 0:
        size = min(CHUNK, left)
        target = rng.integers(0, num_nodes, size, dtype=np.int32)
        source = rng.integers(0, num_nodes, size, dtype=np.int32)
        alike = rng.random(size, dtype=np.float32) < 0.5
        source = np.where(alike, source - source % CLASSES + target % CLASSES, source).astype(np.int32)
        yield np.minimum(source, num_nodes - 1), target
        left -= size


def write_features(path: Path, num_nodes: int) -> None:
    from hushgraph.graph.mapped import ArrayFile

    rng = np.random.default_rng(2)
    centres = rng.normal(0, 0.3, (CLASSES, FEATURES)).astype(np.float32)
    with ArrayFile(path, np.float32, FEATURES) as file:
        for begin in range(0, num_nodes, CHUNK // 4):
            nodes = np.arange(begin, min(begin + CHUNK // 4, num_nodes))
            noise = rng.standard_normal((len(nodes), FEATURES), dtype=np.float32)
            file.append(centres[nodes % CLASSES] + noise)


def generate(folder: Path, num_nodes: int, num_reads: int) -> dict[str, Any]:
    """Features in a file; the edges are drawn as they are stored."""
    write_features(folder / "features.npy", num_nodes)
    return {}


def store(folder: Path, num_nodes: int, num_reads: int) -> dict[str, Any]:
    from hushgraph.datasets import store_arrays
    from hushgraph.graph.mapped import open_mapped

    held_out = np.random.default_rng(3).choice(num_nodes, min(HELD_OUT, num_nodes // 10), replace=False)
    training = np.ones(num_nodes, np.bool_)
    training[held_out] = False
    graph = store_arrays(
        folder / "graph",
        edges=pairs(num_nodes, num_reads),
        x=open_mapped(folder / "features.npy", ndim=2, kinds="f"),
        y=(np.arange(num_nodes) % CLASSES).astype(np.int16),
        train_idx=np.flatnonzero(training),
        val_idx=held_out[::2],
        test_idx=held_out[1::2],
        num_classes=CLASSES,
        directed=False,
        symmetrize=True,
    )
    (folder / "features.npy").unlink()
    size = sum(each.stat().st_size for each in (folder / "graph").iterdir())
    return {"reads": graph.num_edges, "disk": size}


def check(folder: Path, num_nodes: int, num_reads: int) -> dict[str, Any]:
    from hushgraph.datasets import load_graph

    load_graph(folder / "graph")
    return {}


def sample(folder: Path, num_nodes: int, num_reads: int) -> dict[str, Any]:
    from hushgraph.datasets.stored_reader import open_stored
    from hushgraph.sampling.stable import stable_lists

    graph = open_stored(folder / "graph")
    begin = time.monotonic()
    lists = stable_lists(
        graph,
        num_nodes=graph.num_nodes,
        train_mask=graph.train_mask,
        max_readers=TRAINING["max_readers"],
        max_reads=None,
        edge_owner="sender",
        seed=5,
    )
    return {"sampling": time.monotonic() - begin, "kept": lists.num_kept}


def train(folder: Path, num_nodes: int, num_reads: int) -> dict[str, Any]:
    """As many steps as take every training node once on average, and the accuracy on 200,000 others."""
    import hushgraph as hg

    times: list[float] = []

    def seen(done: int, steps: int, epsilon: float, accuracy: float | None) -> None:
        times.append(time.monotonic())

    nodes = num_nodes - min(HELD_OUT, num_nodes // 10)
    run = hg.train(
        folder / "graph",
        batch_size=nodes // BATCHES_AN_EPOCH,
        steps=BATCHES_AN_EPOCH,
        evaluate_every=BATCHES_AN_EPOCH,
        device="cpu",
        observer=seen,
        out=folder / "run",
        **TRAINING,
    )
    return {
        "batch": nodes // BATCHES_AN_EPOCH,
        "steps": len(times),
        "step": float(np.median(np.diff(times))),
        "epsilon": run.epsilon,
        "test_accuracy": run.result["test_accuracy"],
    }


def predict(folder: Path, num_nodes: int, num_reads: int) -> dict[str, Any]:
    """Scores of every node from full neighbourhoods."""
    import hushgraph as hg
    from hushgraph.datasets.stored_reader import open_stored
    from hushgraph.inference.in_memory import scores

    graph = open_stored(folder / "graph")
    model = hg.Run.load(folder / "run", device="cpu").model
    begin = time.monotonic()
    best = scores(model, graph).argmax(1).numpy()
    return {"inference": time.monotonic() - begin, "accuracy": float((best == graph.y).mean())}


PHASES: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    each.__name__: each for each in (generate, store, check, sample, train, predict)
}


def anonymous() -> int:
    """Bytes of this process that are not pages of files."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split("RssAnon:")[1].split()[0])


def measured(phase: str, folder: Path, num_nodes: int, num_reads: int) -> None:
    """Run one phase in this process and print what it took as JSON."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    begin = time.monotonic()
    result = PHASES[phase](folder, num_nodes, num_reads)
    result["seconds"] = time.monotonic() - begin
    done.set()
    thread.join()
    used = resource.getrusage(resource.RUSAGE_SELF)
    result |= {"peak": 1024 * used.ru_maxrss, "anonymous": peak, "processor": used.ru_utime + used.ru_stime}
    print(json.dumps(result))


def in_process(phase: str, folder: Path, num_nodes: int, num_reads: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--phase", phase, "--folder", str(folder), "--size"]
    done = subprocess.run(
        [*command, f"{num_nodes}/{num_reads}"], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def at_size(folder: Path, num_nodes: int, num_reads: int, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {"nodes": num_nodes}
    say(f"{num_nodes:,} nodes, {FEATURES} features, {num_reads:,} reads asked for")
    for phase in PHASES:
        got = found[phase] = in_process(phase, folder, num_nodes, num_reads)
        others = {k: v for k, v in got.items() if k not in ("seconds", "peak", "anonymous", "processor")}
        rest = "  ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v:,}" for k, v in others.items())
        say(
            f"  {phase:9} {got['seconds']:8.1f} s  processor {got['processor']:8.1f} s  "
            f"peak {got['peak'] / GIB:5.2f} GiB  anonymous {got['anonymous'] / GIB:5.2f} GiB  {rest}"
        )
    worst = max(found[phase]["peak"] for phase in PHASES) / GIB
    say(f"  largest peak {worst:.2f} GiB, {'within' if worst <= LIMIT_GIB else 'OVER'} {LIMIT_GIB:g} GiB")
    return found


def cost_model(small: dict[str, Any], large: dict[str, Any], say: Callable[[str], None]) -> None:
    """Slopes between the two sizes, and what they come to for a graph that nobody here has.

    Time is counted in processor seconds, since waiting for others on a busy machine is no cost of the work.
    """

    def slope(by: Callable[[dict[str, Any]], float], of: Callable[[dict[str, Any]], float]) -> float:
        return (of(large) - of(small)) / (by(large) - by(small))

    def reads(it: dict[str, Any]) -> float:
        return float(it["store"]["reads"])

    def nodes(it: dict[str, Any]) -> float:
        return float(it["nodes"])

    def opened(phase: str) -> Callable[[dict[str, Any]], float]:
        """Processor seconds of a phase without those of opening the graph, which it begins with."""
        return lambda it: float(it[phase]["processor"] - it["check"]["processor"])

    def steps_alone(it: dict[str, Any]) -> float:
        return opened("train")(it) - DRAWINGS * opened("sample")(it)

    checking = slope(reads, lambda it: it["check"]["processor"])
    storing = slope(reads, lambda it: it["store"]["processor"])
    sampling = slope(reads, opened("sample"))
    predicting = slope(reads, opened("predict"))
    root = slope(lambda it: it["train"]["batch"] * BATCHES_AN_EPOCH, steps_alone)
    memory = {phase: slope(nodes, lambda it, p=phase: it[p]["anonymous"]) for phase in ("sample", "train")}
    say("slopes between the two sizes, processor time")
    nanoseconds = {"store": storing, "check": checking, "sample": sampling, "predict": predicting}
    say("  a read: " + ", ".join(f"{name} {value * 1e9:.0f} ns" for name, value in nanoseconds.items()))
    say(f"  a root of a step: {root * 1e6:.1f} us")
    say(f"  anonymous memory a node: sample {memory['sample']:.0f} bytes, train {memory['train']:.0f} bytes")
    disk = 4 * MODEL_READS + (8 + 4 * FEATURES + 2 + 8) * MODEL_NODES
    room = max(memory.values()) * MODEL_NODES / GIB
    say(f"model: {MODEL_NODES:.0e} nodes, {MODEL_READS:.0e} reads, {FEATURES} features, K and model as here")
    say(f"  disk {disk / 1e12:.2f} TB, and {8 * MODEL_READS / 1e12:.2f} TB more while it is stored")
    say(f"  memory {room:.0f} GiB in every process that samples or trains")
    hours = {
        "store": storing * MODEL_READS / 3600,
        "draw lists once": sampling * MODEL_READS / 3600,
        "one epoch of steps": root * MODEL_NODES / 3600,
        "predict every node": predicting * MODEL_READS / 3600,
    }
    for name, value in hours.items():
        say(f"  {name:20} {value:8.1f} core hours")
    epoch = DRAWINGS * hours["draw lists once"] + hours["one epoch of steps"]
    machines = math.ceil(epoch / MODEL_CORES)
    say(
        f"  an epoch with {DRAWINGS} drawings is {epoch:.1f} core hours: {machines} machines of "
        f"{MODEL_CORES} cores and {math.ceil(room / 32) * 32 + 32} GiB for one hour"
    )
    say("  not counted: a disk slower than the processor, and merging what the machines drew")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--full", action="store_true", help="20 million nodes and 400 million reads")
    parser.add_argument(
        "--folder", type=Path, help="where to put the graphs; a temporary folder unless given"
    )
    parser.add_argument("--record", type=Path, help="write what is printed to this file too")
    parser.add_argument("--phase", choices=list(PHASES), help=argparse.SUPPRESS)
    parser.add_argument("--size", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.phase:
        num_nodes, num_reads = (int(part) for part in given.size.split("/"))
        measured(given.phase, given.folder, num_nodes, num_reads)
        return
    lines: list[str] = []

    def say(line: str) -> None:
        print(line.rstrip(), flush=True)
        lines.append(line.rstrip() + "\n")

    say(f"{os.cpu_count()} cores, {os.environ.get('OMP_NUM_THREADS', 'as many')} threads for matrix products")
    found = []
    for size in SIZES["full" if given.full else "small"]:
        folder = Path(tempfile.mkdtemp(prefix="hushgraph-large-", dir=given.folder))
        try:
            found.append(at_size(folder, *size, say))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    cost_model(found[0], found[1], say)
    if given.record:
        given.record.write_text("".join(lines))


if __name__ == "__main__":
    main()
