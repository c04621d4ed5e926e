"""How long a loaded run takes to answer for new nodes, and a fresh command for one of them.

    python benchmarks/bench_serving.py [--places 30000 1500000] [--threads 4] [--record FILE]

Nodes have text as names, 16 features, 40 classes and three records each; a new node lists 20 places. A run of
three steps is trained on them first. `first_call_s` loads the board and sorts the names; later calls for one
row are given as median and 99th percentile of 500, those for 10,000 rows as the median of 5. `command_s` is
`hushgraph predict RUN new.csv --edges lists.csv --new --out p.csv` for one node, in a process of its own, the
median of 5 after one that is not counted. One line of JSON for every number of places; a record is replaced.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import hushgraph as hg

FEATURES, CLASSES, LISTED, MANY = 16, 40, 20, 10_000


def write_tables(folder: Path, places: int) -> None:
    """Write nodes and edges as Parquet files, and one new node with its list as CSV files."""
    numbers = ", ".join(f"random() AS f{i}" for i in range(FEATURES))
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT 'person-' || i AS id, CAST(hash(i) % {CLASSES} AS INTEGER) AS label, "
            f"['train', 'train', 'val', 'test'][1 + i % 4] AS split, {numbers} FROM range({places}) AS t(i)) "
            f"TO '{folder / 'nodes.parquet'}' (FORMAT parquet)"
        )
        connection.execute(
            f"COPY (SELECT 'person-' || (i % {places}) AS source, 'person-' || (hash(i) % {places}) AS "
            f"target FROM range({3 * places}) AS t(i)) TO '{folder / 'edges.parquet'}' (FORMAT parquet)"
        )
    names = ",".join(f"f{i}" for i in range(FEATURES))
    (folder / "new.csv").write_text(f"id,{names}\nnewcomer,{','.join(['0.5'] * FEATURES)}\n")
    listed = "\n".join(f"newcomer,person-{7 * i}" for i in range(LISTED))
    (folder / "lists.csv").write_text(f"source,target\n{listed}\n")


def take_time(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def time_command(folder: Path) -> float:
    """Seconds of one fresh command."""
    words = [sys.executable, "-m", "hushgraph", "predict", "run", "new.csv", "--edges", "lists.csv"]
    words += ["--new", "--force", "--quiet", "--out", "p.csv"]
    return take_time(lambda: subprocess.run(words, cwd=folder, check=True))


def read_memory(name: str) -> float:
    """MiB of this process by the kernel's own count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def measure(places: int, threads: int) -> dict[str, Any]:
    """All figures for one number of places."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, places)
        tables = (folder / "nodes.parquet", folder / "edges.parquet")
        hg.train(tables, epsilon=4.0, steps=3, device="cpu", num_classes=CLASSES, out=folder / "run")
        # In a process of its own: training leaves much behind.
        words = [sys.executable, __file__, "--serve", str(folder / "run"), "--places", str(places)]
        words += ["--threads", str(threads)]
        served = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        time_command(folder)
        command = statistics.median(time_command(folder) for _ in range(5))
    return {"places": places, **json.loads(served.splitlines()[-1]), "command_s": round(command, 3)}


def serve(run_folder: Path, places: int, threads: int) -> dict[str, Any]:
    """Figures of one loaded run."""
    rng = np.random.default_rng(0)

    def draw(rows: int) -> tuple[Any, list[list[str]]]:
        listed = rng.integers(places, size=(rows, LISTED))
        return rng.random((rows, FEATURES), np.float32), [[f"person-{n}" for n in row] for row in listed]

    begin = time.perf_counter()
    run = hg.Run.load(run_folder, device="cpu")
    loaded = time.perf_counter() - begin
    single, many = [draw(1) for _ in range(500)], [draw(MANY) for _ in range(5)]
    first = take_time(lambda: run.predict_new(*draw(1)))
    calls = np.array([take_time(lambda: run.predict_new(*each)) for each in single])  # noqa: B023
    batches = [take_time(lambda: run.predict_new(*each)) for each in many]  # noqa: B023
    with ThreadPoolExecutor(threads) as pool:
        together = take_time(lambda: list(pool.map(lambda each: run.predict_new(*each), single)))
    return {
        "load_s": round(loaded, 3),
        "first_call_s": round(first, 3),
        "one_row_ms": round(1e3 * float(np.median(calls)), 3),
        "one_row_ms_99": round(1e3 * float(np.quantile(calls, 0.99)), 3),
        f"rows_{MANY}_s": round(statistics.median(batches), 3),
        "threads": threads,
        "one_row_per_s_by_threads": round(len(single) / together),
        "resident_mib": round(read_memory("VmRSS")),
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--places", type=int, nargs="+", default=[30_000, 1_500_000])
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        print(json.dumps(serve(arguments.serve, arguments.places[0], arguments.threads)))
        return
    lines = []
    for places in arguments.places:
        lines.append(json.dumps(measure(places, arguments.threads)))
        print(lines[-1], flush=True)
    if arguments.record is not None:
        arguments.record.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
