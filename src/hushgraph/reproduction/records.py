"""Records on disk: one line of JSON a finished run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError, RunError

# Among the places that are locked: the file of records, what is made of it, and from there on the runs.
_FILE, _RESULTS, _RUNS = 0, 1, 2
_LABELS = ("experiment", "column", "row", "mode", "axes", "seed")


class Records:
    """The records of a folder, which several processes may share.

    Guarantees:
        A record is on disk before `append` returns. A line that a crash cut short is dropped, nothing else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[dict[str, Any]] = []
        self._locks = _Locks(path.with_name(path.name + ".lock"))
        self._size = 0
        self._made_folder = False
        self.refresh()

    def of_run(self, run: str) -> dict[str, Any] | None:
        """Any record of this very run, whichever table asked for it."""
        return next((record for record in reversed(self.all) if record.get("run") == run), None)

    def find(self, **labels: Any) -> dict[str, Any] | None:
        """The last record with these labels."""
        return next(
            (r for r in reversed(self.all) if all(r.get(name) == value for name, value in labels.items())),
            None,
        )

    def append(self, record: dict[str, Any]) -> None:
        """Add a record, after those that other processes have added."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locks.held(_FILE):
                self._read(repair=True)
                with self.path.open("ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                    self._size = file.tell()
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written ({error.strerror}); free space or choose another folder"
            ) from None
        self.all.append(record)

    def refresh(self) -> None:
        """Read what other processes have added; a line that one of them is still writing is left out."""
        self._read(repair=False)

    @contextlib.contextmanager
    def claimed(self, run: str) -> Iterator[bool]:
        """Whether this process may train the run: no other one does so while the block lasts."""
        try:
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._made_folder = True
            self._locks.open()
        except OSError as error:
            # Before hours of training, not after them.
            raise RunError(
                f"{self.path.parent}: cannot be written to ({error.strerror}); choose another --out"
            ) from None
        with self._locks.held(_RUNS + int(run[:15], 16), wait=False) as is_mine:
            yield is_mine

    @contextlib.contextmanager
    def results(self) -> Iterator[None]:
        """For writing tables and figures: one process at a time."""
        with self._locks.held(_RESULTS):
            yield

    def tidy(self) -> None:
        """Leave nothing of ours behind where there is no record."""
        if not self.path.exists():
            self._locks.remove()
            if self._made_folder:
                # It may hold something by now.
                with contextlib.suppress(OSError):
                    self.path.parent.rmdir()

    def _read(self, *, repair: bool) -> None:
        """Read all records; a last line that was cut short is left out, and removed where asked."""
        if not self.path.exists() or self.path.stat().st_size == self._size:
            return
        content = self.path.read_bytes()
        lines = content.split(b"\n")
        torn = lines.pop()
        found = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                missing = [name for name in _LABELS if name not in record]
            except (ValueError, TypeError):
                missing = ["JSON"]
            if missing:
                raise InputError(
                    f"{self.path}, line {number}: no {missing[0]}; expected a record; restore the file or "
                    "delete the line, or choose another --out"
                )
            found.append(record)
        self.all, self._size = found, len(content) - len(torn)
        if torn and repair:
            os.truncate(self.path, self._size)


class _Locks:
    """Places of a file, each held by one process at a time; they go with the process, however that ends.

    Where the system or the folder has no locks every place is free: such a folder is for one process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def open(self) -> int:
        """The file, made where it is missing; OSError where it cannot be."""
        if self._descriptor is None:
            # Kept open: closing any descriptor of the file gives up all of a process's places.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        return self._descriptor

    def remove(self) -> None:
        """Remove the file, unless another process holds a place."""
        if self._descriptor is None:
            return
        with self.held(0, length=0, wait=False) as is_alone:
            if is_alone:
                self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def held(self, place: int, *, length: int = 1, wait: bool = True) -> Iterator[bool]:
        """Whether the place is ours within the block, and with length 0 all places from it on."""
        try:
            import fcntl

            descriptor = self.open()
            fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), length, place)
        except ImportError:
            yield True
            return
        except OSError as error:
            yield error.errno not in (errno.EAGAIN, errno.EACCES) or wait
            return
        try:
            yield True
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, length, place)


def relabelled(record: dict[str, Any], labels: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The record of a run that another table has asked for too."""
    shared = f"{record['experiment']}: {record['column']}, {record['row']}, {record['mode']}"
    return {**record, **dict(labels), "shared_with": record.get("shared_with", shared)}
