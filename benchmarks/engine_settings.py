"""Runs on DuckDB, or on Spark, against runs in memory, number for number, on 50 generated settings.

    python benchmarks/engine_settings.py [--count 50] [--record benchmarks/records/engine_settings.jsonl]
    python benchmarks/engine_settings.py --engine spark [--record FILE]

Tasks, owners of edges, kinds of identifiers, scaling, column rules and kinds of records take turns. Both runs
draw their keys from one stream that follows from the number of the setting. Compared are the boards, the
histograms and the tables of figures, bit for bit; weights and predictions, by their largest difference, of
predicted numbers as a part of the largest one; and what the ledgers charge. Arrays of all sizes are in files.

With Spark, executors also score these rows, and rows that were not there at training, which list places of
the board and each other, and write files; these are compared with what memory writes.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import random
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

import hushgraph as hg
from hushgraph import _arrays
from hushgraph._files import read_tensors
from hushgraph.inference import executors
from hushgraph.noise.normal import KEY_BYTES
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.consistency import BOARD_FILES
from hushgraph.runs.folder import RunFolder

NODES, EDGES = 240, 1_500
TASKS: tuple[dict[str, Any], ...] = (
    {"label": "colour", "classes": ["red", "green", "blue"]},
    {"label": "flag", "task": "binary", "classes": ["no", "yes"], "positive": "yes"},
    {"label": "flag", "task": "binary", "classes": ["no", "yes"], "positive": "yes", "rare": True},
    {"label": "tags", "task": "labels", "classes": ["a", "b", "c"], "separator": "|"},
    {"label": "income", "task": "number", "bounds": (0.0, 100.0), "decimal": {"income": ","}},
    # By default, only runs about several classes have two boards.
    {"label": "colour", "classes": ["blue", "green", "red", "other"]},
    {"label": "number", "num_classes": 3},
)
OWNERS: tuple[dict[str, Any], ...] = (
    {"edge_owner": "sender"},
    {"edge_owner": "reader"},
    {"symmetrize": True},
)
SCALINGS: tuple[dict[str, Any], ...] = (
    {"numbers": "private"},
    {"numbers": "declared", "scale": {"age": {"centre": 40, "spread": 15}}},
    {"numbers": "as-is"},
)
COLUMNS: tuple[dict[str, Any], ...] = (
    {"features": ["age"]},
    {"features": ["age"], "categorical": {"city": ["a", "b"]}, "unknown_category": "zeros"},
    {"features": ["age", "born"], "dates": {"born": "2000-01-01"}, "cycles": {"born": ["month"]}},
    {"features": ["age", "member"], "booleans": ["member"], "hashed": {"city": 2048}},
    {"features": ["age", "gap"], "fill": {"gap": 0.0}, "indicators": ["gap"]},
)
RECORDS: tuple[dict[str, Any], ...] = (
    {},
    {"edge_weight": "weight:log1p"},
    {"edge_date": "day", "since": "2020-01-05", "until": "2020-01-25"},
    {"relation": {"kind": ["x", "y"]}},
    {"person": "owner"},
    {"places": "hash:32", "unknown_ids": "drop"},
    {"group": {"city": ["a", "b"]}},
    {"split": "0.5/0.2/0.3"},
    {"exact_figures": True, "setting": "inductive"},
)
EPSILONS = (8.0, 1.0)
# Of Parquet; other columns are text.
TYPES = {
    "id": "BIGINT",
    "source": "BIGINT",
    "target": "BIGINT",
    "age": "DOUBLE",
    "gap": "DOUBLE",
    "weight": "DOUBLE",
}


def write_tables(folder: Path, number: int) -> tuple[Path, Path]:
    """Tables of people: CSV with texts as identifiers, or Parquet with integers, by turns."""
    import duckdb

    rng = np.random.default_rng(number)
    is_text = number % 2 == 0
    y = rng.integers(0, 3, NODES)
    numbers = rng.permutation(NODES) * 3 + 1
    ids = [f"p{each}" if is_text else int(each) for each in numbers]
    nodes = {
        "id": ids,
        "age": [f"{each:.3f}" for each in rng.normal(40, 15, NODES) + 5 * y],
        "gap": [f"{each:.2f}" if each > 0 else None for each in rng.normal(1, 1, NODES)],
        "born": [f"19{50 + day % 50}-0{1 + day % 9}-1{day % 9}" for day in rng.integers(0, 900, NODES)],
        "city": rng.choice(["a", "b", "c"], NODES).tolist(),
        "member": rng.choice(["yes", "no"], NODES).tolist(),
        "owner": [f"o{each // 2 if each < 60 else each}" for each in range(NODES)],
        "colour": [("red", "green", "blue", None)[each] for each in np.where(rng.random(NODES) < 0.9, y, 3)],
        "number": [int(each) for each in y],
        "flag": ["yes" if each == 0 else "no" for each in y],
        "tags": [
            "|".join(t for t, has in zip("abc", row, strict=True) if has)
            for row in rng.random((NODES, 3)) < 0.4
        ],
        "income": [f"{each:.1f}".replace(".", ",") for each in rng.uniform(0, 90, NODES)],
        "split": rng.choice(["train", "val", "test"], NODES, p=[0.6, 0.2, 0.2]).tolist(),
    }
    ends = rng.integers(0, NODES, (2, EDGES))
    ends[1, :200] = 5
    edges = {
        "source": [ids[each] for each in ends[0]],
        "target": [ids[each] for each in ends[1]],
        "weight": [f"{each:.3f}" for each in rng.exponential(2, EDGES)],
        "day": [f"2020-01-{1 + each:02d}" for each in rng.integers(0, 30, EDGES)],
        "kind": rng.choice(["x", "y", "z"], EDGES).tolist(),
    }
    paths = []
    for name, table in (("nodes", nodes), ("edges", edges)):
        path = folder / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
        if not is_text:
            numbers = [f"CAST({key} AS {kind}) AS {key}" for key, kind in TYPES.items() if key in table]
            rows = f"SELECT * REPLACE ({', '.join(numbers)}) FROM read_csv('{path}', all_varchar = true)"
            path = path.with_suffix(".parquet")
            duckdb.execute(f"COPY ({rows}) TO '{path}'")
        paths.append(path)
    return paths[0], paths[1]


def write_new_tables(folder: Path, tables: tuple[Path, Path]) -> tuple[Path, Path]:
    """Tables of 100 new people, who list and are listed by people of the graph and by each other."""
    import duckdb

    nodes, edges = tables
    is_text, kind = nodes.suffix == ".csv", nodes.suffix
    options = "(HEADER)" if is_text else ""

    def rename(name: str) -> str:
        return f"'n' || {name} AS {name}" if is_text else f"{name} + 1000000 AS {name}"

    def read(path: Path) -> str:
        return f"read_csv('{path}', all_varchar = true)" if is_text else f"'{path}'"

    paths = folder / f"new{kind}", folder / f"lists{kind}"
    rows = f"SELECT * REPLACE ({rename('id')}) FROM {read(nodes)} LIMIT 100"
    duckdb.execute(f"COPY ({rows}) TO '{paths[0]}' {options}")
    ends = rename("source"), rename("target"), f"{rename('source')}, {rename('target')}"
    parts = [f"(SELECT * REPLACE ({each}) FROM {read(edges)} LIMIT 500)" for each in ends]
    duckdb.execute(f"COPY ({' UNION ALL '.join(parts)}) TO '{paths[1]}' {options}")
    return paths


def make_setting(number: int) -> dict[str, Any]:
    """The settings of one run; all parts take turns, at lengths that have no common factor."""
    own: dict[str, Any] = {"epsilon": EPSILONS[number // 3 % 2], "steps": 4, "hidden": 4, "device": "cpu"}
    own |= OWNERS[number % 3] | TASKS[number % 7] | SCALINGS[number // 2 % 3]
    own |= COLUMNS[number // 5 % 5] | RECORDS[number % 9]
    if number % 9 == 0 and "classes" in own and own.get("task") != "labels":
        own["class_weight"] = {own["classes"][0]: 0.5}
    if number % 14 == 4:
        own["bounds"] = "private"
    return own


@contextmanager
def test_keys(number: int) -> Iterator[None]:
    """Draw keys from a stream of the setting, one for every thread in the order of their first draws."""
    streams, numbers = threading.local(), itertools.count()
    real, sequence = (os.urandom, secrets.randbits), np.random.SeedSequence

    def stream() -> random.Random:
        if not hasattr(streams, "own"):
            streams.own = random.Random(f"{number} {next(numbers)}")
        found: random.Random = streams.own
        return found

    stream()
    os.urandom = lambda size: stream().randbytes(size) if size == KEY_BYTES else real[0](size)
    secrets.randbits = lambda bits: stream().getrandbits(bits)
    # Of the first weights, which are public.
    np.random.SeedSequence = lambda seed=None: sequence(number if seed is None else seed)  # type: ignore
    try:
        yield
    finally:
        os.urandom, secrets.randbits = real
        np.random.SeedSequence = sequence  # type: ignore[misc]


@contextmanager
def small_files() -> Iterator[None]:
    """Keep arrays of all sizes in files."""
    real = _arrays._LEAST_MAPPED
    _arrays._LEAST_MAPPED = 1
    try:
        yield
    finally:
        _arrays._LEAST_MAPPED = real


@contextmanager
def small_parts() -> Iterator[None]:
    """Let executors score few rows at a time, so that tables are cut."""
    real = executors._PART_ROWS
    executors._PART_ROWS = 90
    try:
        yield
    finally:
        executors._PART_ROWS = real


def run_both(folder: Path, number: int, engine: str = "duckdb") -> dict[str, Any]:
    """Train and predict in memory and by an engine; what is the same, and how far scores are apart."""
    tables, setting = write_tables(folder, number), make_setting(number)
    runs, scores = [], []
    for each in ("memory", engine):
        with test_keys(number), small_files():
            run = hg.train(tables, engine=each, out=folder / each, progress=False, **setting)
        runs.append(run)
        scores.append(run.predict_table(tables, engine=each).probabilities)
    first, second = runs
    in_executors = {}
    if engine == "spark":
        with small_parts():
            in_executors = compare_executors(folder, second, tables)
    left = sorted(path.name for path in folder.iterdir() if path.name.endswith(".work"))
    weights = [dict(run.model.state_dict()) for run in runs]
    return {
        "setting": number,
        "boards": first.plan.num_boards,
        "releases equal": {
            path.name: same_release(path, second.folder.path / path.name)
            for path in list_releases(first.folder)
            if path.exists()
        },
        "charges equal": charges(first) == charges(second),
        "figures equal": first.figures == second.figures,
        "weights": max(float((value - weights[1][name]).abs().max()) for name, value in weights[0].items()),
        "scores": distance(*scores),
        **in_executors,
        "left": left,
    }


def compare_executors(folder: Path, run: hg.Run, tables: tuple[Path, Path]) -> dict[str, Any]:
    """What executors write against what memory writes: how far apart, and whether rows and counts differ."""

    given = {"known": (tables, False)}
    if run.plan.num_boards:
        given["new"] = (write_new_tables(folder, tables), True)
    return {f"{kind} rows": compare_files(folder, run, *each) for kind, each in given.items()}


def compare_files(folder: Path, run: hg.Run, tables: tuple[Path, Path], new: bool) -> dict[str, Any]:
    """Two files of predictions, in memory's order of identifiers."""
    import duckdb

    written, counts = [], []
    for engine in ("memory", "spark"):
        out = folder / f"{engine}-{new}.parquet"
        about = run.write_predictions(tables, out, probabilities=True, new=new, engine=engine).to_json()
        counts.append({name: value for name, value in about.items() if name != "unknown_names"})
        files = f"{out}/*.parquet" if out.is_dir() else str(out)
        written.append(duckdb.execute(f"SELECT * FROM '{files}' ORDER BY 1").fetchnumpy())
    (one, other), is_folder = written, out.is_dir()
    numbers = [name for name, values in one.items() if values.dtype.kind == "f"]
    same = [np.array_equal(values, other[name]) for name, values in one.items() if name not in numbers]
    columns = run.folder.columns
    for each in counts if columns is not None and columns.edge_date is not None else ():
        # Spark counts edges out of time too, where no row owns them.
        each.pop("edges_skipped", None)
    return {
        "in executors": is_folder,
        "scores": max(distance(one[name], other[name]) for name in numbers),
        "rows equal": [*one] == [*other] and all(same),
        "counts equal": counts[0] == counts[1],
    }


def distance(one: Any, other: Any) -> float:
    """The largest difference, as a part of the largest number where that is above 1: bounds are far apart."""
    return float(np.abs(one - other).max() / max(1.0, np.abs(one).max()))


def list_releases(folder: RunFolder) -> list[Path]:
    """Files of noisy numbers that a run may have."""
    boards = [folder.path / name for name in BOARD_FILES]
    return [*boards, folder.scaling_path, folder.figures_path]


def same_release(one: Path, other: Path) -> bool:
    """Whether two files hold the same, bit for bit; that of tensors names its texts in any order."""
    if one.suffix == ".json":
        return one.read_bytes() == other.read_bytes()
    (first, about), (second, too) = read_tensors(one), read_tensors(other)
    same = all(first[name].numpy().tobytes() == second[name].numpy().tobytes() for name in first)
    return first.keys() == second.keys() and about == too and same


def charges(run: hg.Run) -> tuple[int, int, float]:
    """Releases and steps that are charged, and what they cost."""
    ledger = Ledger.open(run.folder.ledger_path, plan=run.plan, read_only=True)
    return ledger.releases_charged, ledger.steps_charged, ledger.spent_epsilon()


def is_same(result: dict[str, Any]) -> bool:
    """Whether nothing differs by more than scores may."""
    same = [*result["releases equal"].values(), result["charges equal"], result["figures equal"]]
    written = [each for name, each in result.items() if name in ("known rows", "new rows")]
    same += [each["rows equal"] and each["counts equal"] for each in written]
    apart = max(result["weights"], result["scores"], *(each["scores"] for each in written))
    return all(same) and apart <= 1e-5 and not result["left"]


def open_session() -> None:
    """A session that all runs use; each would open one of its own."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    settings = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2, "spark.log.level": "OFF"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    builder.config("spark.ui.showConsoleProgress", False).getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    # Threads would draw keys in another order each time.
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    if arguments.engine == "spark":
        open_session()
    lines, wrong = [], 0
    for number in range(arguments.count):
        with tempfile.TemporaryDirectory() as folder:
            result = run_both(Path(folder), number, arguments.engine)
        wrong += not is_same(result)
        lines.append(json.dumps(result))
        print(lines[-1], flush=True)
    print(f"{arguments.count - wrong} of {arguments.count} settings are the same")
    if arguments.record:
        arguments.record.write_text("\n".join(lines) + "\n")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
