"""Boards, training and predictions from tables larger than memory, by DuckDB on one machine.

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
BATCH = 200_000


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


def tables(folder: Path) -> tuple[str, str]:
    return f"{folder}/nodes/*.parquet", f"{folder}/edges/*.parquet"


def train(folder: Path, num_nodes: int, num_edges: int, options: dict[str, Any]) -> dict[str, Any]:
    """Read the tables, cast and read both boards, take the steps; when each of them was done."""
    import hushgraph as hg

    begin, done = time.monotonic(), dict[str, float]()

    def note(what: str) -> None:
        done.setdefault(f"{what} s", round(time.monotonic() - begin, 1))

    run = hg.train(
        tables(folder),
        engine="duckdb",
        memory=options["memory"],
        out=folder / "run",
        edge_owner="sender",
        num_classes=CLASSES,
        epsilon=4.0,
        steps=STEPS,
        batch_size=min(BATCH, num_nodes // 4),
        on_start=lambda _: note("tables are read"),
        observer=lambda step, *_: note("first step") if step == 1 else None,
    )
    figures = {"boards": run.plan.num_boards, "epsilon": run.plan.epsilon, "steps": run.plan.steps}
    return done | figures | {"test accuracy": round(run.result["test_accuracy"], 4)}


def predict(folder: Path, num_nodes: int, num_edges: int, options: dict[str, Any]) -> dict[str, Any]:
    """Score all nodes into a file."""
    from hushgraph.cli.app import main as command

    nodes, edges = tables(folder)
    limits = ["--engine", "duckdb", "--memory", options["memory"], "--quiet"]
    code = command(
        ["predict", str(folder / "run"), nodes, "--edges", edges, "--out", f"{folder}/p.parquet", *limits]
    )
    return {"exit code": code, "disk": (folder / "p.parquet").stat().st_size}


PHASES = {each.__name__: each for each in (generate, train, predict)}


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
        for phase in PHASES:
            result = in_process(phase, folder, arguments)
            lines.append(f"  {phase}: " + ", ".join(f"{name} {value}" for name, value in result.items()))
            print(lines[-1], flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.record:
        arguments.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
