"""Records on disk: one line of JSON a finished run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError, RunError
from hushgraph.whole_file import write_whole

_LABELS = ("experiment", "column", "row", "mode", "axes", "seed")


class Records:
    """The records of a folder.

    Guarantees:
        A record is on disk before `append` returns. A line that a crash cut short is dropped, nothing else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[dict[str, Any]] = []
        if path.exists():
            self._read()

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
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written ({error.strerror}); free space or choose another folder"
            ) from None
        self.all.append(record)

    def _read(self) -> None:
        content = self.path.read_bytes()
        lines = content.split(b"\n")
        torn = lines.pop()
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                missing = [name for name in _LABELS if name not in record]
            except (ValueError, TypeError):
                missing = ["JSON"]
            if missing:
                raise InputError(
                    f"{self.path}, line {number}: no {missing[0]}; expected a record; restore the file or "
                    "choose another folder with --out"
                )
            self.all.append(record)
        if torn:
            write_whole(self.path, b"".join(line + b"\n" for line in lines))


def relabelled(record: dict[str, Any], labels: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The record of a run that another table has asked for too."""
    shared = f"{record['experiment']}: {record['column']}, {record['row']}, {record['mode']}"
    return {**record, **dict(labels), "shared_with": record.get("shared_with", shared)}
