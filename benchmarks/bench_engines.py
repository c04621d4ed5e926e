"""A board, its readings and training from tables larger than memory, by DuckDB on one machine.

    python benchmarks/bench_engines.py [--full] [--folder DIR] [--threads 2] [--memory 8GiB] [--record FILE]

Without --full, 500,000 nodes and 10 million edges. With it, 50 million nodes and 1,000 million edges: about
40 GB of disk in DIR. The tables are drawn from fixed seeds; what is written to DIR goes in the end.

Tables: integer identifiers, 4 features, 8 classes; of ten nodes eight are in training, one has no label. An
edge is a record of its sender; half of them stay within a class. Every phase is a process of its own. "peak"
is the maximum resident set, pages of mapped files included; "anonymous" is the peak without these.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, FEATURES = 8, 4
SIZES = {"small": (500_000, 10_000_000), "full": (50_000_000, 1_000_000_000)}
# Steps that are trained, of about 200,000 rows each.
STEPS = 50
CHUNK = 1 << 23
GIB = 2.0**30
# The graph that the cost model is about.
MODEL_NODES, MODEL_EDGES = 10**9, 10**11
IS_RIGHT = (
    f"list_position([{', '.join(f'reading_{k}' for k in range(CLASSES))}], "
    f"greatest({', '.join(f'reading_{k}' for k in range(CLASSES))})) - 1 = label"
)


def write_parquet(connection: Any, path: Path, columns: dict[str, np.ndarray], select: str = "*") -> None:
    connection.register("chunk", columns)
    connection.execute(f"COPY (SELECT {select} FROM chunk) TO '{path}' (FORMAT parquet)")
    connection.unregister("chunk")


def generate(folder: Path, num_nodes: int, num_edges: int, options: dict[str, Any]) -> dict[str, Any]:
    """Write nodes/*.parquet and edges/*.parquet."""
    import duckdb

    rng = np.random.default_rng(1)
    for name in ("nodes", "edges"):
        (folder / name).mkdir()
    split = "CASE WHEN id % 10 < 8 THEN 'train' WHEN id % 10 = 8 THEN 'val' ELSE 'test' END AS split"
    with duckdb.connect(config={"threads": options["threads"], "memory_limit": "2GiB"}) as connection:
        for begin in range(0, num_nodes, CHUNK):
            ids = np.arange(begin, min(begin + CHUNK, num_nodes), dtype=np.int32)
            columns = {"id": ids, "label": ids // 10 % CLASSES}
            for k in range(FEATURES):
                shift = (columns["label"] == k) | (columns["label"] == k + FEATURES)
                columns[f"x{k}"] = rng.standard_normal(len(ids), np.float32) + shift.astype(np.float32)
            select = f"* REPLACE (CASE WHEN id % 10 <> 7 THEN label END AS label), {split}"
            write_parquet(connection, folder / "nodes" / f"{begin // CHUNK:05d}.parquet", columns, select)
        for begin in range(0, num_edges, CHUNK):
            size = min(CHUNK, num_edges - begin)
            source = rng.integers(0, num_nodes, size, dtype=np.int32)
            target = rng.integers(0, num_nodes, size, dtype=np.int32)
            alike = rng.random(size, dtype=np.float32) < 0.5
            # Classes are ten nodes in a row, and repeat: the target moves to the class of the source.
            near = target + 10 * (source // 10 % CLASSES - target // 10 % CLASSES)
            target = np.where(alike & (near >= 0) & (near < num_nodes), near, target).astype(np.int32)
            columns = {"source": source, "target": target}
            write_parquet(connection, folder / "edges" / f"{begin // CHUNK:05d}.parquet", columns)
    return {"disk": disk_use(folder)}


def disk_use(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def make(folder: Path, num_nodes: int, num_edges: int, options: dict[str, Any]) -> dict[str, Any]:
    """Cast and read within the limit; how long each phase took."""
    from hushgraph.engines import make_rows

    phases: list[tuple[str, float]] = []
    run = make_rows(
        f"{folder}/nodes/*.parquet",
        f"{folder}/edges/*.parquet",
        folder / "run",
        edge_owner="sender",
        num_classes=CLASSES,
        epsilon=4.0,
        steps=STEPS,
        memory=options["memory"],
        threads=options["threads"],
        on_phase=lambda name: phases.append((name, time.monotonic())),
    )
    ends = [begin for _, begin in phases[1:]] + [time.monotonic()]
    took = {f"{name} s": round(end - begin, 1) for (name, begin), end in zip(phases, ends, strict=True)}
    return took | {"epsilon": run.plan.epsilon, "disk": disk_use(folder / "run")}


def check(folder: Path, num_nodes: int, num_edges: int, options: dict[str, Any]) -> dict[str, Any]:
    """Count what was written, and how often the largest reading is that of a test node's own class."""
    import duckdb

    with duckdb.connect(config={"threads": options["threads"], "memory_limit": "2GiB"}) as connection:
        board, rows = (f"'{folder}/{name}/*.parquet'" for name in ("run/board", "run.rows"))
        (places,) = connection.execute(f"SELECT count(*) FROM {board}").fetchone()
        count, right = connection.execute(
            f"SELECT count(*), avg(CAST({IS_RIGHT} AS INTEGER)) FILTER (split = 'test') FROM {rows}"
        ).fetchone()
    return {"places": places, "rows": count, "test nodes whose own class reads loudest": round(right, 4)}


def train(folder: Path, num_nodes: int, num_edges: int, options: dict[str, Any]) -> dict[str, Any]:
    """Take the steps on rows that are streamed, and measure the accuracy on all validation and test rows."""
    from hushgraph.engines import train_rows

    run = train_rows(folder / "run", memory=options["memory"], threads=options["threads"])
    figures = {"steps": run.plan.steps, "batch": run.plan.batch_size}
    return figures | {"test accuracy": round(run.result["test_accuracy"], 4)}


PHASES = {each.__name__: each for each in (generate, make, check, train)}


def anonymous() -> int:
    """Bytes of this process that are not pages of files."""
    return 1024 * int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])


def measured(phase: str, folder: Path, num_nodes: int, num_edges: int, options: dict[str, Any]) -> None:
    """Run one phase in this process and print what it took as JSON."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    begin = time.monotonic()
    result = PHASES[phase](folder, num_nodes, num_edges, options)
    result["seconds"] = round(time.monotonic() - begin, 1)
    done.set()
    thread.join()
    used = resource.getrusage(resource.RUSAGE_SELF)
    result |= {
        "processor": round(used.ru_utime + used.ru_stime, 1),
        "peak GiB": round(1024 * used.ru_maxrss / GIB, 2),
        "anonymous GiB": round(peak / GIB, 2),
    }
    print(json.dumps(result))


def in_process(phase: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [
        sys.executable,
        __file__,
        "--phase",
        phase,
        "--folder",
        str(folder),
        "--memory",
        arguments.memory,
    ]
    command += ["--threads", str(arguments.threads)] + (["--full"] if arguments.full else [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{phase} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def model_cost(made: dict[str, Any], num_nodes: int, num_edges: int) -> list[str]:
    """What 10^9 nodes and 10^11 edges would take at the measured rate: computed, not run."""
    a_record = 1e9 * made["processor"] / num_edges
    hours = made["processor"] / num_edges * MODEL_EDGES / 3600
    disk = 16 * MODEL_EDGES / 1e12
    memory = 2 * 24 * MODEL_NODES / GIB
    return [
        f"rate: {a_record:.0f} ns of processor time an edge, {num_edges / num_nodes:.0f} edges a node",
        f"computed from it, not run: {MODEL_NODES:.0e} nodes, {MODEL_EDGES:.0e} edges of the same kind",
        f"  {hours:.0f} core hours, {disk:.1f} TB of work space, {memory:.0f} GiB of memory",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    num_nodes, num_edges = SIZES["full" if arguments.full else "small"]
    options = {"memory": arguments.memory, "threads": arguments.threads}
    if arguments.phase:
        measured(arguments.phase, arguments.folder, num_nodes, num_edges, options)
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-engines-", dir=arguments.folder))
    lines = [
        f"{os.cpu_count()} cores, {arguments.threads} threads of DuckDB, limit {arguments.memory}",
        f"{num_nodes:,} nodes, {num_edges:,} edges, {CLASSES} classes, {FEATURES} features",
    ]
    print("\n".join(lines), flush=True)
    try:
        made: dict[str, Any] = {}
        for phase in PHASES:
            result = in_process(phase, folder, arguments)
            made = result if phase == "make" else made
            lines.append(f"  {phase}: " + ", ".join(f"{name} {value}" for name, value in result.items()))
            print(lines[-1], flush=True)
        lines += model_cost(made, num_nodes, num_edges)
        print("\n".join(lines[-3:]), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.record:
        arguments.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
