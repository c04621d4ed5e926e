"""Kill runs 280 times around their boards, and count the boards that were ever visible under their charges.

    python benchmarks/kills_boards.py
    python benchmarks/kills_boards.py --only records --only records-duckdb

100 kills end runs in memory with two boards, 100 end runs on DuckDB, and 40 each runs of both whose records
have weights and two relations, name places, and are of people with several nodes. Every life of a run is a
forked child that is ended by SIGKILL and resumed by the next. Most kills are aimed: before or after a random
one of the calls that reach the disk (write, sync, link, rename) from the charge of a board to the first step.
A quarter of the runs is on a system without unnamed files.

Children note down every board that they make, outside of the run. While a child lives and after it was killed
all files of the run are searched for the numbers of these boards, under whatever name and in whatever part:
never may more boards have been visible than are charged. A run that refuses to go on, because nobody can tell
whether its board was seen, has ended. The counts go to benchmarks/records/kills_boards.json; with `--only`,
those of the other kinds stay as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Threads of OpenMP and TBB do not outlive a fork.
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}

import duckdb
import numpy as np
import torch

import hushgraph as hg
from hushgraph.billboard import board
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import combine_boards
from hushgraph.errors import RunError
from hushgraph.privacy.charges import FIGURES
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training import session
from hushgraph.training.parts import Parts

RECORD = Path(__file__).parent / "records" / "kills_boards.json"
NODES, CLASSES = 120, 3
SETTINGS: dict[str, Any] = {"epsilon": 2.0, "steps": 12, "hidden": 4}
# Calls that reach the disk; a kill comes before or after one of them.
CALLS = ("write", "fsync", "link", "rename", "replace", "unlink")
# Between calls, so that whoever polls sees what is between them.
PAUSE = 0.002
ENDED = 3


@dataclass(frozen=True, kw_only=True)
class Aim:
    """When a life ends: at a call while a board is made, or at any call."""

    call: int | None = None
    around_board: bool = True


class Life:
    """A child: it counts the calls that reach the disk, and kills itself where it is aimed at."""

    def __init__(self, notes: Path, aim: Aim) -> None:
        self.notes, self.aim, self.made = notes, aim, 0
        # Of all moments, and of those around a board.
        self.counts = {False: 0, True: 0}
        self.is_at_board = False
        notes.mkdir(exist_ok=True)
        self.number = sum(1 for _ in notes.glob("life-*"))
        (notes / f"life-{self.number}").touch()
        self._at = os.open(notes / "at", os.O_WRONLY | os.O_CREAT)
        # Notes are no moments of the run.
        self._rename = os.rename

    def pass_moment(self, name: str) -> None:
        """A moment that a kill may be aimed at."""
        self.counts[False] += 1
        self.counts[True] += self.is_at_board
        os.pwrite(self._at, name.ljust(80).encode(), 0)
        if self.counts[self.aim.around_board] == self.aim.call:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.is_at_board:
            time.sleep(PAUSE)

    def count_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            what = f"{name} {describe_file(given)}"
            self.pass_moment(f"before {what}")
            value = call(*given, **named)
            self.pass_moment(f"after {what}")
            return value

        return counted

    def note_board(self, make: Callable[..., Board]) -> Callable[..., Board]:
        """Note down what is made, outside of the run, before anybody else gets it."""

        def noted(*given: Any, **named: Any) -> Board:
            board = make(*given, **named)
            np.save(self.notes / "draft.npy", board.values)
            self._rename(self.notes / "draft.npy", self.notes / f"board-{self.number}-{self.made}.npy")
            self.made += 1
            self.pass_moment("before the board leaves memory")
            return board

        return noted

    def watch_board(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            self.is_at_board = True
            try:
                return make(*given, **named)
            finally:
                self.is_at_board = False

        return watched

    def install(self) -> None:
        """Put the hooks into this process."""
        noted = self.note_board(board.cast_and_release)
        begin = import_module("hushgraph.training.train")
        begin.Parts = partial(Parts, cast_and_release=noted)  # type: ignore[attr-defined]
        session.release_board = self.watch_board(session.release_board)  # type: ignore[attr-defined]
        for name in CALLS:
            setattr(os, name, self.count_call(name, getattr(os, name)))


def describe_file(given: tuple[Any, ...]) -> str:
    """What a call is about: the name of the open file, or the last path that it is given."""
    paths = [each for each in given if isinstance(each, (str, Path))]
    if not paths:
        link = os.readlink(f"/proc/self/fd/{given[0]}")
        return "an unnamed file" if "(deleted)" in link else describe_file((link,))
    # Runs are numbered.
    return re.sub(r"-[0-9]+", "", Path(paths[-1]).name)


@dataclass(kw_only=True)
class Kind:
    """One kind of runs, how often they are killed, and what became of them."""

    name: str
    begin: Callable[[Path, Life], Any]
    resume: Callable[[Path, Life], Any]
    kills: int = 100
    calls: dict[bool, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)


def start(kind: Kind, path: Path, aim: Aim, *, has_unnamed_files: bool) -> int:
    """One life of the run in a child."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(os.open(path.with_suffix(".err"), os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        if not has_unnamed_files:
            del os.O_TMPFILE
        life = Life(path.with_suffix(".notes"), aim)
        life.install()
        if (path / "run.json").exists():
            kind.resume(path, life)
        else:
            # A kill before run.json was there leaves nothing that was ever charged for a board.
            for left in (path, Path(f"{path}.work")):
                shutil.rmtree(left, ignore_errors=True)
            kind.begin(path, life)
        (path.with_suffix(".notes") / "calls").write_text(f"{life.counts[False]} {life.counts[True]}")
        status = 0
    except RunError as error:
        status = ENDED if "charges the data anew" in str(error) else 1
        print(repr(error), file=sys.stderr, flush=True)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(status)


class Watcher:
    """Looks for the numbers of boards in all files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: set[str] = set()
        self.looks = 0
        self._known: dict[str, list[tuple[str, list[bytes]]]] = {}
        self._searched: dict[Path, tuple[int, int, int]] = {}

    def look(self) -> None:
        """Search every file once."""
        self._learn()
        self.looks += 1
        num_pieces = sum(map(len, self._known.values()))
        for file in self._files():
            # It may be gone by now.
            with contextlib.suppress(OSError):
                about = file.stat()
                state = about.st_mtime_ns, about.st_size, num_pieces
                if self._searched.get(file) == state:
                    continue
                content = file.read_bytes()
                self._searched[file] = state
                for life, pieces in self._known.items():
                    if life not in self.seen and self._shows(content, file, pieces):
                        self.seen.add(life)

    def _learn(self) -> None:
        """What was made since the last look: a board is everything that one life made at one place."""
        for file in sorted(self.path.with_suffix(".notes").glob("board-*.npy")):
            life = self._board_of(file)
            if all(name != file.name for name, _ in self._known.get(life, [])):
                self._known.setdefault(life, []).append((file.name, sign(np.load(file))))

    def _board_of(self, file: Path) -> str:
        _, life, piece = file.stem.split("-")
        return f"{life}-{piece}"

    def _files(self) -> list[Path]:
        found = []
        for folder in (self.path, Path(f"{self.path}.work"), Path(f"{self.path}.rows")):
            with contextlib.suppress(OSError):
                found += [file for file in folder.rglob("*") if file.is_file()]
        return found

    @staticmethod
    def _shows(content: bytes, file: Path, pieces: list[tuple[str, list[bytes]]]) -> bool:
        contents = [content]
        if content[:4] == b"PAR1" == content[-4:]:
            contents += read_columns(file)
        return any(part in each for _, signs in pieces for part in signs for each in contents)

    @property
    def num_made(self) -> int:
        return len(self._known)


def sign(values: np.ndarray) -> list[bytes]:
    """What recognises a board in bytes: lines, and runs of columns, as they are and as they are read."""
    centred, _ = combine_boards([Board(values=values, noise_std=1.0)])
    signs = [line.tobytes() for each in (values, centred.values) for line in each]
    for column in np.ascontiguousarray(values.T):
        signs += [column[first : first + 3].tobytes() for first in range(0, len(column) - 2, 3)]
    # Zeros would be found anywhere.
    return [each for each in signs if any(each) and len(set(each)) > 4]


def read_columns(file: Path) -> list[bytes]:
    """The columns of a Parquet file as bytes; none where it cannot be read."""
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            table = connection.execute(f"SELECT * FROM read_parquet('{file}')").fetchnumpy()
    except duckdb.Error:
        return []
    return [np.asarray(column, np.float32).tobytes() for column in table.values() if column.dtype.kind == "f"]


def live(kind: Kind, path: Path, watcher: Watcher, aim: Aim, *, has_unnamed_files: bool, least: float) -> int:
    """One life, watched from outside; its status. `least` is how long it is left alone at the least."""
    child = start(kind, path, aim, has_unnamed_files=has_unnamed_files)
    begin = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        watcher.look()
        if not aim.call and time.monotonic() - begin > least:
            os.kill(child, signal.SIGKILL)
            least = float("inf")
    watcher.look()
    return status


def count_charges(path: Path) -> int:
    """The boards that the ledger of a run shows as paid for."""
    if not (path / "ledger.jsonl").exists():
        return 0
    ledger = Ledger.open(path / "ledger.jsonl", read_only=True)
    return ledger.releases_charged - ledger.is_charged(FIGURES)


def choose_aim(kind: Kind, rng: random.Random) -> Aim:
    if rng.random() < 0.25:
        return Aim()
    around_board = rng.random() < 0.8
    return Aim(call=rng.randint(1, kind.calls[around_board]), around_board=around_board)


def kill_runs(kind: Kind, rng: random.Random, root: Path) -> dict[str, Any]:
    """Kill runs of one kind until there were enough kills."""
    length = measure(kind, root)
    counts, number = kind.counts, 0
    while counts["kills"] < kind.kills:
        number += 1
        path, left = root / f"{kind.name}-{number}", rng.choice((1, 2, 4))
        watcher, has_unnamed_files = Watcher(path), number % 4 != 0
        counts["runs"] += 1
        has_more = False
        while True:
            # What cannot be reached lets the run finish.
            aim = choose_aim(kind, rng) if left else Aim(call=-1)
            least = rng.uniform(0, length)
            options: dict[str, Any] = {"has_unnamed_files": has_unnamed_files, "least": least}
            status = live(kind, path, watcher, aim, **options)
            counts["lives"] += 1
            seen, charged = len(watcher.seen), count_charges(path)
            has_more |= seen > charged
            if os.WIFSIGNALED(status):
                left, counts["kills"] = left - 1, counts["kills"] + 1
                at = path.with_suffix(".notes") / "at"
                name = at.read_text().strip() if at.exists() else ""
                kind.moments[name or "elsewhere"] += 1
                continue
            code = os.waitstatus_to_exitcode(status)
            assert code in (0, ENDED), path.with_suffix(".err").read_text()
            break
        if code == ENDED:
            counts["runs_that_ended_without_a_result"] += 1
        else:
            # The watcher sees what there is to see.
            assert seen >= charged == RunFolder.open(path).num_boards, path
            assert hg.Run.load(path, device="cpu").result["guarantee"] == "holds"
            counts["runs_that_finished"] += 1
        counts["boards_charged"] += charged
        counts["boards_visible"] += seen
        counts["boards_made_and_never_visible"] += watcher.num_made - seen
        counts["runs_that_showed_more_boards_than_charges"] += has_more
        counts["looks"] += watcher.looks
        remove(path)
    return {**counts, "killed": dict(sorted(kind.moments.items()))}


def measure(kind: Kind, root: Path) -> float:
    """How many calls there are to be killed at, and how long a life is."""
    path, begin = root / f"{kind.name}-measured", time.monotonic()
    status = os.waitpid(start(kind, path, Aim(call=-1), has_unnamed_files=True), 0)[1]
    assert status == 0, path.with_suffix(".err").read_text()
    every, around_board = map(int, (path.with_suffix(".notes") / "calls").read_text().split())
    kind.calls = {False: every, True: around_board}
    remove(path)
    return time.monotonic() - begin


def remove(path: Path) -> None:
    for left in (path, path.with_suffix(".notes"), Path(f"{path}.work"), Path(f"{path}.rows")):
        shutil.rmtree(left, ignore_errors=True)


def make_kinds(root: Path) -> list[Kind]:
    """Runs in memory, with two boards, and on DuckDB, on one small graph, with plain records and not."""
    graph = hg.datasets.synthetic(num_nodes=NODES, num_classes=CLASSES, num_features=4, seed=1)
    split = np.full(NODES, "test", object)
    split[graph.train_idx] = "train"
    nodes = {"id": np.arange(NODES).astype(str), "a": np.ascontiguousarray(np.asarray(graph.x)[:, 0])}
    nodes |= {"label": np.asarray(graph.y), "split": split.astype(str)}
    ends = [np.concatenate(parts).astype(str) for parts in zip(*graph.edge_chunks(), strict=True)]
    plain = write_tables(root / "plain", nodes, {"source": ends[0], "target": ends[1]})
    rng = np.random.default_rng(1)
    shops = np.char.add("shop", rng.integers(0, 20, NODES).astype(str))
    records = {"source": np.append(ends[0], nodes["id"]), "target": np.append(ends[1], shops)}
    count = len(records["source"])
    records |= {"amount": rng.lognormal(3, 1, count), "kind": rng.choice(["calls", "pays"], count)}
    # Two nodes of one split are one person's.
    order = np.argsort(split, kind="stable")
    nodes = nodes | {"owner": np.char.add("owner", (np.argsort(order) // 2).astype(str))}
    rich = write_tables(root / "rich", nodes, records)
    declared: dict[str, Any] = {"edge_weight": "amount:log1p", "relation": {"kind": ["calls", "pays"]}}
    declared |= {"places": "hash:64", "person": "owner"}
    settings: dict[str, Any] = {"num_classes": CLASSES, "numbers": "as-is", "progress": False, **SETTINGS}
    on_disk: dict[str, Any] = {"engine": "duckdb", "memory": "1GiB", "progress": False}
    in_memory: dict[str, Any] = {"device": "cpu", "progress": False}
    return [
        Kind(
            name="memory",
            begin=lambda path, _: hg.train(graph, out=path, **in_memory, **SETTINGS),
            resume=lambda path, _: hg.resume(path, graph, **in_memory),
        ),
        Kind(
            name="duckdb",
            begin=lambda path, _: hg.train(plain, out=path, **{**settings, **on_disk}),
            resume=lambda path, _: hg.resume(path, plain, **on_disk),
        ),
        Kind(
            name="records",
            begin=lambda path, _: hg.train(rich, out=path, device="cpu", **settings, **declared),
            resume=lambda path, _: hg.resume(path, rich, **in_memory),
            kills=40,
        ),
        Kind(
            name="records-duckdb",
            begin=lambda path, _: hg.train(rich, out=path, **{**settings, **on_disk}, **declared),
            resume=lambda path, _: hg.resume(path, rich, **on_disk),
            kills=40,
        ),
    ]


def write_tables(folder: Path, nodes: dict[str, Any], edges: dict[str, Any]) -> tuple[Path, Path]:
    """Two Parquet files."""
    folder.mkdir()
    tables = folder / "nodes.parquet", folder / "edges.parquet"
    for path, table in zip(tables, (nodes, edges), strict=True):
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY (SELECT * FROM given) TO '{path}'")
    return tables


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Forked children cannot use the threads of torch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def kill_all(only: Sequence[str] | None, seed: int, root: Path) -> dict[str, Any]:
    """Kill runs of every kind, or of these."""
    rng = random.Random(seed)
    with one_thread():
        kinds = make_kinds(root)
        # Once through, so that compiling is no part of any life.
        for kind in kinds:
            kind.begin(root / f"compiled-{kind.name}", Life(root / "compiled.notes", Aim()))
        return {kind.name: kill_runs(kind, rng, root) for kind in kinds if not only or kind.name in only}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="kinds of runs to kill again [all]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kills-"))
    (root / "runs").mkdir()
    begin = time.monotonic()
    try:
        found = kill_all(given.only, given.seed, root / "runs")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    kept = json.loads(given.record.read_text()) if given.only else {}
    seconds = round(time.monotonic() - begin)
    # Of the last run alone, whichever kinds it had.
    record = {**kept, **found, "seed": given.seed, "seconds": seconds}
    given.record.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))
    return int(any(found[kind]["runs_that_showed_more_boards_than_charges"] for kind in found))


if __name__ == "__main__":
    raise SystemExit(main())
