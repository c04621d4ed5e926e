"""Boards, training and predictions from tables larger than memory, by DuckDB on one machine.

    python benchmarks/bench_engines.py all [--size small] [--folder DIR] [--record FILE]
    python benchmarks/bench_engines.py generate|train|predict --size full --folder DIR [--record FILE]
    python benchmarks/bench_engines.py compare --size middle [--record FILE]

`all` generates, trains, predicts and removes what it wrote. The three phases by themselves keep DIR, so that
each can be a command of its own; `--memory` is what the engine is told, `--cap` a hard limit of the system on
all memory of a phase, mapped files included (a control group, which Linux lets root make), and `--threads`
the cores that training and predictions may use.
`compare` runs the ordinary path, in memory, and the engine on the same tables with the same keys.

Sizes: see SIZES; "full" has 50 million nodes and 1,000 million edges. The tables are drawn from fixed seeds,
one for each file: integer identifiers, 4 features, 8 classes; of ten nodes eight are in training, one has no
label. An edge is a record of its sender; half of them stay within a class.

Each phase prints and appends one line of JSON. Of every part of it: seconds, seconds of all processors, the
largest resident memory in GiB, pages of mapped files included, and the largest without these ("anonymous").
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, FEATURES = 8, 4
SIZES = {
    "small": (500_000, 10_000_000),
    "middle": (1_500_000, 20_000_000),
    "full": (50_000_000, 1_000_000_000),
}
# Steps that are trained, of about 200,000 rows each.
STEPS, BATCH = 50, 200_000
# Rows of a file.
FILE_ROWS = 1 << 24
GIB = 2.0**30
SPLIT = "CASE WHEN id % 10 < 8 THEN 'train' WHEN id % 10 = 8 THEN 'val' ELSE 'test' END AS split"
UNITS = {"MiB": 2**20, "GiB": 2**30}


def write_file(folder: Path, role: str, number: int, num_nodes: int, num_edges: int) -> None:
    """Write one file of nodes or of edges, from a seed of its own."""
    import duckdb

    rng = np.random.default_rng([1, role == "edges", number])
    begin = number * FILE_ROWS
    select = "*"
    if role == "nodes":
        ids = np.arange(begin, min(begin + FILE_ROWS, num_nodes), dtype=np.int32)
        columns = {"id": ids, "label": ids // 10 % CLASSES}
        for k in range(FEATURES):
            shift = (columns["label"] == k) | (columns["label"] == k + FEATURES)
            columns[f"x{k}"] = rng.standard_normal(len(ids), np.float32) + shift.astype(np.float32)
        select = f"* REPLACE (CASE WHEN id % 10 <> 7 THEN label END AS label), {SPLIT}"
    else:
        size = min(FILE_ROWS, num_edges - begin)
        source = rng.integers(0, num_nodes, size, dtype=np.int32)
        target = rng.integers(0, num_nodes, size, dtype=np.int32)
        alike = rng.random(size, dtype=np.float32) < 0.5
        # Classes are ten nodes in a row, and repeat: the target moves to the class of the source.
        near = target + 10 * (source // 10 % CLASSES - target // 10 % CLASSES)
        target = np.where(alike & (near >= 0) & (near < num_nodes), near, target).astype(np.int32)
        columns = {"source": source, "target": target}
    with duckdb.connect(config={"threads": 1, "memory_limit": "2GiB"}) as connection:
        connection.register("chunk", columns)
        path = folder / role / f"{number:05d}.parquet"
        connection.execute(f"COPY (SELECT {select} FROM chunk) TO '{path}' (FORMAT parquet)")


def generate(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write nodes/*.parquet and edges/*.parquet, with a process for each thread."""
    num_nodes, num_edges = SIZES[arguments.size]
    files = []
    for role, rows in (("nodes", num_nodes), ("edges", num_edges)):
        (folder / role).mkdir(parents=True)
        numbers = range(-(-rows // FILE_ROWS))
        files += [(folder, role, number, num_nodes, num_edges) for number in numbers]
    with ProcessPoolExecutor(arguments.threads) as pool:
        for done in [pool.submit(write_file, *each) for each in files]:
            done.result()
    return {"files": len(files), "disk GiB": disk_use(folder)}


def disk_use(path: Path) -> float:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return round(sum(each.stat().st_size for each in files) / GIB, 2)


class Phases:
    """Splits the time of this process into parts, and watches its memory."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, float]] = {}
        self._peaks, self._begin, self._used = [0.0, 0.0], time.monotonic(), time.process_time()
        self._done, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self, name: str) -> None:
        """What has passed since the last call is `name`; only the first call of a name counts."""
        with self._lock:
            self._end(name)

    def close(self, name: str) -> None:
        self._done.set()
        self._thread.join()
        self.end(name)

    def _end(self, name: str) -> None:
        if name in self.parts:
            return
        self._sample()
        now, used = time.monotonic(), time.process_time()
        self.parts[name] = {
            "s": round(now - self._begin, 1),
            "processor s": round(used - self._used, 1),
            "resident": round(self._peaks[0] / GIB, 2),
            "anonymous": round(self._peaks[1] / GIB, 2),
        }
        self._begin, self._used, self._peaks = now, used, [0.0, 0.0]

    def _sample(self) -> None:
        text = Path("/proc/self/status").read_text()
        for place, key in enumerate(("VmRSS:", "RssAnon:")):
            size = 1024 * int(text.split(key)[1].split()[0])
            self._peaks[place] = max(self._peaks[place], size)

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            with self._lock:
                self._sample()


def tables(folder: Path) -> tuple[str, str]:
    return f"{folder}/nodes/*.parquet", f"{folder}/edges/*.parquet"


def train(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the tables, cast and read both boards, take the steps, release the figures."""
    phases = Phases()
    import hushgraph as hg

    run_path, seen = folder / f"run-{arguments.engine}", 0
    # What tells that a part has ended: a file that is there from then on.
    files = {"board-1": "board 1 on disk", "halfway": "first steps", "board-2": "board 2 on disk"}
    stop = threading.Event()

    def watch() -> None:
        waiting = list(files.items())
        while waiting and not stop.wait(0.01):
            if (run_path / f"{waiting[0][0]}.safetensors").exists():
                phases.end(waiting.pop(0)[1])

    def observe(step: int, steps: int, *_: Any) -> None:
        nonlocal seen
        seen = step
        if "board 2 on disk" in phases.parts:
            phases.end("board 2 read, a step")
        else:
            phases.end("board 1 read, a step")
        if step == steps:
            phases.end("last steps")

    def start(_: Any) -> None:
        phases.end("tables read")
        thread.start()

    thread = threading.Thread(target=watch, daemon=True)
    num_nodes, _ = SIZES[arguments.size]
    engine = {} if arguments.engine == "memory" else {"memory": arguments.memory}
    run = hg.train(
        tables(folder),
        engine=arguments.engine,
        out=run_path,
        edge_owner="sender",
        num_classes=CLASSES,
        epsilon=4.0,
        steps=STEPS,
        batch_size=min(BATCH, num_nodes // 4),
        progress=False,
        on_start=start,
        observer=observe,
        device="cpu",
        **engine,
    )
    stop.set()
    phases.close("figures and release")
    until_board = sum(phases.parts[name]["s"] for name in ("tables read", "board 1 on disk"))
    return {
        "parts": phases.parts,
        "seconds until board 1 is on disk": round(until_board, 1),
        "boards": run.plan.num_boards,
        "epsilon": run.plan.epsilon,
        "steps": seen,
        "test accuracy": run.result["test_accuracy"],
        "run GiB": disk_use(run_path),
    }


def predict(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Score all nodes, files in, a file out, with a probability for every class."""
    phases = Phases()
    from hushgraph.cli.app import main as command
    from hushgraph.inference import predicted
    from hushgraph.runs.folder import RunFolder

    read, save = RunFolder.read_graph, predicted.save_predicted

    def read_graph(*given: Any) -> Any:
        phases.end("boards checked")
        graph = read(*given)
        phases.end("tables read")
        return graph

    def save_predicted(*given: Any, **named: Any) -> None:
        phases.end("boards read, nodes scored")
        save(*given, **named)

    RunFolder.read_graph, predicted.save_predicted = read_graph, save_predicted  # type: ignore[method-assign]
    nodes, edges = tables(folder)
    out = folder / f"scores-{arguments.engine}.parquet"
    limits = [] if arguments.engine == "memory" else ["--memory", arguments.memory]
    files = [str(folder / f"run-{arguments.engine}"), nodes, "--edges", edges, "--out", str(out)]
    options = ["--engine", arguments.engine, *limits, "--probabilities", "--quiet", "--force"]
    code = command(["predict", *files, *options])
    phases.close("file written")
    return {"parts": phases.parts, "exit code": code, "file GiB": disk_use(out)}


PHASES = {each.__name__: each for each in (generate, train, predict)}


def measure(phase: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run a phase in a process of its own, which alone has the limits; print and return its line."""
    command = [sys.executable, __file__, phase, "--inside", "--folder", str(folder)]
    for name in ("size", "memory", "threads", "engine", "seed"):
        command += [f"--{name}", str(getattr(arguments, name))]
    if arguments.cap and phase != "generate":
        command += ["--cap", arguments.cap]
        with limited_group(parse_size(arguments.cap)) as group:
            command += ["--group", str(group)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    else:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{phase} failed with code {done.returncode}")
    line = done.stdout.splitlines()[-1]
    print(line, flush=True)
    if arguments.record:
        with arguments.record.open("a") as file:
            file.write(line + "\n")
    result: dict[str, Any] = json.loads(line)
    return result


def run_inside(phase: str, arguments: argparse.Namespace) -> None:
    """Run a phase in this process, under its limits."""
    if phase != "generate":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
        if arguments.group:
            (arguments.group / "cgroup.procs").write_text(str(os.getpid()))
        if arguments.seed:
            # Keys are the same in every run: for comparisons alone.
            numbers = random.Random(arguments.seed)
            secrets.randbits = numbers.getrandbits
            os.urandom = numbers.randbytes
    begin = time.monotonic()
    result = PHASES[phase](arguments.folder, arguments)
    nodes, edges = SIZES[arguments.size]
    cores = len(os.sched_getaffinity(0))
    about = {"phase": phase, "nodes": nodes, "edges": edges, "cores": cores}
    if phase != "generate":
        about |= {"engine": arguments.engine, "memory": arguments.memory, "cap": arguments.cap}
    used = resource.getrusage(resource.RUSAGE_SELF)
    about |= {"seconds": round(time.monotonic() - begin, 1)}
    about |= {"peak resident": round(1024 * used.ru_maxrss / GIB, 2)}
    if arguments.group:
        about |= {"peak of the group": round(read_peak(arguments.group) / GIB, 2)}
    if "parts" in result:
        about |= {"peak anonymous": max(part["anonymous"] for part in result["parts"].values())}
    print(json.dumps(about | result))


@contextlib.contextmanager
def limited_group(limit: int) -> Iterator[Path]:
    """A control group, of version 1 or 2, whose processes have this much memory, mapped files included."""
    first = Path("/sys/fs/cgroup/memory")
    group = (first if first.is_dir() else first.parent) / f"hushgraph-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")).write_text(str(limit))
        yield group
    finally:
        group.rmdir()


def read_peak(group: Path) -> int:
    """The most bytes that processes of a control group had at once, mapped files included."""
    names = ("memory.max_usage_in_bytes", "memory.peak")
    return next(int((group / name).read_text()) for name in names if (group / name).exists())


def parse_size(text: str) -> int:
    return int(float(text[:-3]) * UNITS[text[-3:]])


def compare(folder: Path, arguments: argparse.Namespace) -> None:
    """The ordinary path and the engine on the same tables, with the same keys; then their difference."""
    measure("generate", folder, arguments)
    for engine in ("memory", "duckdb"):
        arguments.engine = engine
        for phase in ("train", "predict"):
            measure(phase, folder, arguments)
    import duckdb

    scores = [f"'{folder}/scores-{engine}.parquet'" for engine in ("memory", "duckdb")]
    chosen = [f"abs(a.p_{k} - b.p_{k})" for k in range(CLASSES)]
    largest, differing, agree = duckdb.execute(
        f"SELECT max(greatest({', '.join(chosen)})), count(*) FILTER (a.class <> b.class), avg((a.class = "
        f"l.label)::INT) - avg((b.class = l.label)::INT) FROM {scores[0]} AS a JOIN {scores[1]} AS b USING "
        f"(id) JOIN (SELECT id, id // 10 % {CLASSES} AS label FROM '{folder}/nodes/*.parquet' WHERE split = "
        "'test') AS l USING (id)"
    ).fetchone()
    from hushgraph.billboard.board import load_board

    boards = [
        [load_board(folder / f"run-{engine}" / f"board-{place}.safetensors").values for place in (1, 2)]
        for engine in ("memory", "duckdb")
    ]
    line = {
        "phase": "compare",
        "boards are equal bit for bit": all(map(np.array_equal, *boards)),
        "largest difference of a test score": largest,
        "test nodes of another class": differing,
        "difference of exact test accuracy": agree,
    }
    print(json.dumps(line))
    if arguments.record:
        with arguments.record.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("phase", choices=[*PHASES, "all", "compare"])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--engine", choices=["duckdb", "memory"], default="duckdb")
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--cap", default="", help="such as 8GiB; none unless given")
    parser.add_argument("--group", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of all keys; 0 for those of the system")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        run_inside(arguments.phase, arguments)
    elif arguments.phase in PHASES:
        if arguments.folder is None:
            raise SystemExit("give --folder: what a phase writes stays there")
        measure(arguments.phase, arguments.folder, arguments)
    else:
        folder = Path(tempfile.mkdtemp(prefix="bench-engines-", dir=arguments.folder))
        arguments.seed = arguments.seed or int(arguments.phase == "compare")
        try:
            if arguments.phase == "compare":
                compare(folder, arguments)
            else:
                for phase in PHASES:
                    measure(phase, folder, arguments)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
