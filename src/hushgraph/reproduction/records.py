"""Records on disk: one line of JSON per finished run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError, RunError

# Offsets in the lock file: the file of records, the results made of it, and from there on the runs.
_FILE, _RESULTS, _RUNS = 0, 1, 2
_LABELS = ("experiment", "column", "row", "mode", "axes", "seed")


class Records:
    """The records in a folder, which several processes may share.

    Guarantees:
        A record is on disk before `append` returns. Only a line that a crash cut short is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[dict[str, Any]] = []
        self._locks = _Locks(path.with_name(path.name + ".lock"))
        self._size = 0
        self._created_folder = False
        self.refresh()

    def of_run(self, run: str) -> dict[str, Any] | None:
        """Return a record of this run, whichever table it was made for."""
        return next((record for record in reversed(self.all) if record.get("run") == run), None)

    def find(self, **labels: Any) -> dict[str, Any] | None:
        """Return the last record with these labels."""
        return next(
            (r for r in reversed(self.all) if all(r.get(name) == value for name, value in labels.items())),
            None,
        )

    def append(self, record: dict[str, Any]) -> None:
        """Append a record, after those that other processes have appended."""
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
        """Read the records of other processes; skip a line that is still being written."""
        self._read(repair=False)

    @contextlib.contextmanager
    def claimed(self, run: str) -> Iterator[bool]:
        """Yield whether this process may train the run; no other process can within the context."""
        try:
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._created_folder = True
            self._locks.open()
        except OSError as error:
            # Raised before hours of training, not after them.
            raise RunError(
                f"{self.path.parent}: cannot be written to ({error.strerror}); choose another --out"
            ) from None
        with self._locks.held(_RUNS + int(run[:15], 16), wait=False) as is_mine:
            yield is_mine

    @contextlib.contextmanager
    def results(self) -> Iterator[None]:
        """Lock tables and figures, so that one process writes them at a time."""
        with self._locks.held(_RESULTS):
            yield

    def tidy(self) -> None:
        """Remove the lock file, and a folder that this object created, if there is no record."""
        if not self.path.exists():
            self._locks.remove()
            if self._created_folder:
                # The folder may contain other files by now.
                with contextlib.suppress(OSError):
                    self.path.parent.rmdir()

    def _read(self, *, repair: bool) -> None:
        """Read all records; skip an incomplete last line, and remove it from the file if asked to."""
        if not self.path.exists() or self.path.stat().st_size == self._size:
            return
        content = self.path.read_bytes()
        lines = content.split(b"\n")
        torn = lines.pop()
        records = []
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
            records.append(record)
        self.all, self._size = records, len(content) - len(torn)
        if torn and repair:
            os.truncate(self.path, self._size)


class _Locks:
    """Locks on bytes of a file, each held by one process; they are released when the process ends.

    Where the system or the file system has no locks, every lock succeeds: use the folder in one process only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def open(self) -> int:
        """Open the file, creating it if needed; raise OSError if that fails."""
        if self._descriptor is None:
            # Kept open: closing any descriptor of the file releases all locks of the process.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        return self._descriptor

    def remove(self) -> None:
        """Remove the file, unless another process holds a lock."""
        if self._descriptor is None:
            return
        with self.held(0, length=0, wait=False) as is_alone:
            if is_alone:
                self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def held(self, offset: int, *, length: int = 1, wait: bool = True) -> Iterator[bool]:
        """Yield whether the lock is held within the context; length 0 locks all bytes from `offset` on."""
        try:
            import fcntl

            descriptor = self.open()
            fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), length, offset)
        except ImportError:
            yield True
            return
        except OSError as error:
            yield error.errno not in (errno.EAGAIN, errno.EACCES) or wait
            return
        try:
            yield True
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, length, offset)


def relabel(record: dict[str, Any], labels: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the record of a run with the labels of another table that shares the run."""
    shared = f"{record['experiment']}: {record['column']}, {record['row']}, {record['mode']}"
    return {**record, **dict(labels), "shared_with": record.get("shared_with", shared)}
