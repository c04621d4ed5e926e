"""LedgerCopy: the copy of a run's ledger that a budget keeps, so that one charge pays for one run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from hushgraph._files import append_line, is_same, lock_file, sync_folder, unlock_file
from hushgraph.errors import RunError, WriteError, explain

SPACE = "free space, then resume the run"
"""What to do where a line cannot be written."""


class LedgerCopy:
    """The copy of a run's ledger that a budget keeps, locked for as long as a session goes on with the run.

    Use `LedgerCopy.claim`.
    """

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file: int | None = file

    @classmethod
    def claim(cls, path: Path, ledger: Path, *, budget: str) -> LedgerCopy:
        """Lock the copy and bring it up to date; RunError where the ledger does not begin with it.

        Args:
            path: the copy.
            ledger: the ledger of a run, which the caller has locked.
            budget: what keeps the copy, for messages.
        """
        run = ledger.parent
        with explain(RunError, f"run={run}: {path} cannot be opened", "check its permissions"):
            try:
                file = lock_file(path, flags=os.O_WRONLY | os.O_APPEND)
            except BlockingIOError:
                raise RunError(
                    f"run={run}: another process goes on with this run, from another folder; wait for it to "
                    "end"
                ) from None
            except FileNotFoundError:
                raise RunError(
                    f"run={run}: budget {budget} has lost {path}, its copy of the ledger of this run, so how "
                    "far the run went is unknown; restore that file, or give charge_again to charge this "
                    "folder as a run of its own"
                ) from None
        copy = cls(path, file)
        try:
            known, held = path.read_bytes(), ledger.read_bytes()
            if not held.startswith(known):
                lines = set(held.splitlines())
                lacks = sum(line not in lines for line in known.splitlines())
                raise RunError(
                    f"run={run}: its ledger lacks {lacks} line{'s' * (lacks != 1)} that budget {budget} has "
                    "of this run, so another folder went on with it, or this one is an older copy; go on in "
                    "the other folder, or give charge_again to charge this one as a run of its own"
                )
            copy.append(held[len(known) :])
        except BaseException:
            copy.close()
            raise
        return copy

    def append(self, line: bytes) -> None:
        """Write a line and sync it."""
        if self._file is None or not is_same(self._file, self._path):
            raise WriteError(
                f"budget: {self._path} was removed or replaced while the run went on, so no further step was "
                "taken; restore it and resume"
            )
        with explain(WriteError, f"{self._path}: cannot be written", SPACE):
            append_line(self._file, line)

    def close(self) -> None:
        """Release the lock."""
        if self._file is not None:
            unlock_file(self._file)
        self._file = None


def make_copy(path: Path) -> None:
    """Make an empty copy of a ledger, unless there is one: what any ledger begins with."""
    with explain(WriteError, f"{path}: cannot be written", "check its permissions and free space"):
        path.parent.mkdir(exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
        for folder in (path.parent, path.parent.parent):
            sync_folder(folder)


def discard_copies(paths: Iterable[Path]) -> None:
    """Remove copies that are still empty, and their folder with the last: their runs were not charged."""
    for path in paths:
        # The system keeps a folder that holds another copy.
        with contextlib.suppress(OSError):
            if not path.stat().st_size:
                path.unlink()
            path.parent.rmdir()
