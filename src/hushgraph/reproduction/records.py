"""Records on disk: one line of JSON per finished run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hushgraph._files import lock_file, unlock_file
from hushgraph.errors import InputError, RunError, explain

_LABELS = ("experiment", "column", "row", "mode", "axes", "seed")


class Records:
    """The records in a folder, which several processes may share.

    Guarantees:
        A record is on disk before `append` returns. Only a line that a crash cut short is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[dict[str, Any]] = []
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
        advice = "free space or choose another folder"
        with explain(RunError, f"{self.path}: cannot be written", advice), self._lock("file"):
            self._read(repair=True)
            with self.path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                self._size = file.tell()
        self.all.append(record)

    def refresh(self) -> None:
        """Read the records of other processes; skip a line that is still being written."""
        self._read(repair=False)

    @contextlib.contextmanager
    def claimed(self, run: str) -> Iterator[bool]:
        """Yield whether this process may train the run; no other process can within the context."""
        try:
            lock = self._lock(run, wait=False)
        except BlockingIOError:
            yield False
            return
        with lock:
            yield True

    @contextlib.contextmanager
    def results(self) -> Iterator[None]:
        """Lock tables and figures, so that one process writes them at a time."""
        with self._lock("results"):
            yield

    def tidy(self) -> None:
        """Remove a folder that this object created, if there is no record."""
        if self._created_folder and not self.path.exists():
            # The folder may contain other files by now.
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()

    def _lock(self, name: str, *, wait: bool = True) -> contextlib.ExitStack:
        """Lock a file beside the records; it is removed with the lock. BlockingIOError without `wait`."""
        path = self.path.with_name(f"{self.path.name}.{name}.lock")
        held = contextlib.ExitStack()
        try:
            if not path.parent.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._created_folder = True
            held.callback(unlock_file, lock_file(path, wait=wait))
        except BlockingIOError:
            raise
        except OSError as error:
            # Raised before hours of training, not after them.
            raise RunError(
                f"{path.parent}: cannot be written to ({error.strerror}); choose another --out"
            ) from None
        held.callback(path.unlink, missing_ok=True)
        return held

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
                missing = ["valid JSON"]
            if missing:
                raise InputError(
                    f"{self.path}, line {number}: no {missing[0]}; expected a record; restore the file or "
                    "delete the line, or choose another --out"
                )
            records.append(record)
        self.all, self._size = records, len(content) - len(torn)
        if torn and repair:
            os.truncate(self.path, self._size)


def relabel(record: dict[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a run with the labels of another table that shares the run."""
    shared = f"{record['experiment']}: {record['column']}, {record['row']}, {record['mode']}"
    return {**record, **labels, "shared_with": record.get("shared_with", shared)}
