"""How long tables take to be read and checked, against a bare count of their cells by DuckDB.

    python benchmarks/bench_tables.py [--lines 1000000 10000000] [--files 4] [--threads 2] [--record FILE]

A tenth of the lines are nodes, with a number with a decimal comma, a date, a boolean and a category; the
others are edges in several files. Seconds are those of the clock and, in brackets, of all processors
together, which a busy machine changes less. A record is added to.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.datasets.tables import reading

COLUMNS = {
    "id": "account",
    "label": "fraud",
    "source": "payer",
    "target": "payee",
    "decimal": ",",
    "dates": {"opened": "2000-01-01"},
    "booleans": ["active"],
    "hashed": {"sector": 16},
}


def write_tables(folder: Path, lines: int, files: int) -> tuple[Path, list[Path]]:
    """Write nodes and edges, `lines` lines together; return their files."""
    nodes, edges = folder / "accounts.csv", [folder / f"tx_{number}.csv" for number in range(files)]
    people, each = lines // 10, (lines - lines // 10) // files
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT 'A' || i AS account, (i % 977) || ',' || (i % 10) AS balance, DATE '2010-01-01' + "
            "CAST(i % 4000 AS INTEGER) AS opened, ['yes', 'no'][1 + i % 2] AS active, 'sector ' || (i % 13) "
            f"AS sector, i % 2 AS fraud FROM range({people}) AS t(i)) TO '{nodes}' (HEADER, DELIMITER ';')"
        )
        for number, path in enumerate(edges):
            connection.execute(
                f"COPY (SELECT 'A' || (hash(i) % {people}) AS payer, 'A' || (hash(i + 1000000007) % "
                f"{people}) AS payee, (i % 5000) / 100.0 AS amount FROM "
                f"range({number * each}, {(number + 1) * each}) AS t(i)) TO '{path}' (HEADER)"
            )
    return nodes, edges


def count_cells(nodes: Path, edges: list[Path]) -> None:
    """Let DuckDB read every cell and keep nothing."""
    with duckdb.connect() as connection:
        for paths in ([str(nodes)], [str(path) for path in edges]):
            connection.execute(
                f"SELECT count(COLUMNS(*)) FROM read_csv({paths}, all_varchar = true)"
            ).fetchall()


def measure(function: Callable[[], object]) -> str:
    """Return seconds by the clock and of all processors."""
    clock, processors = time.perf_counter(), time.process_time()
    function()
    return f"{time.perf_counter() - clock:8.1f} ({time.process_time() - processors:5.1f})"


def tabulate(lines: list[int], files: int) -> list[str]:
    """Measure and return lines of text."""
    rows = [f"{'lines':>12}{'DuckDB alone':>18}{'load_graph':>18}{'check':>18}"]
    for count in lines:
        with tempfile.TemporaryDirectory() as place:
            nodes, edges = write_tables(Path(place), count, files)
            pair = (nodes, edges)
            taken = [
                measure(lambda: count_cells(nodes, edges)),  # noqa: B023
                measure(lambda: load_graph(pair, columns=COLUMNS, split="0.6/0.2/0.2")),  # noqa: B023
                measure(lambda: hg.check(pair, columns={"label": "fraud"})),  # noqa: B023
            ]
        rows.append(f"{count:12,}" + "".join(f"{each:>18}" for each in taken))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--files", type=int, default=4, help="files of edges")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="processors to keep to")
    parser.add_argument("--record", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    busy = os.getloadavg()[0]
    words = [
        f"python benchmarks/bench_tables.py --lines {' '.join(map(str, arguments.lines))} --files "
        f"{arguments.files} --threads {arguments.threads}",
        f"{arguments.threads} processors, load {busy:.1f} before; DuckDB {duckdb.__version__} with "
        f"{reading.MEMORY}; seconds, in brackets of all processors together",
        *tabulate(arguments.lines, arguments.files),
    ]
    print("\n".join(words))
    if arguments.record is not None:
        with arguments.record.open("a") as record:
            record.write("\n".join([*words, "", ""]))


if __name__ == "__main__":
    main()
