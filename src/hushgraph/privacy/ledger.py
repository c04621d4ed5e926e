"""Ledger: what a run has spent and released, on disk before it happens; one process writes at a time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from hushgraph._files import write_whole
from hushgraph.accounting.events import (
    Draw,
    Event,
    FixedSizeDraw,
    GaussianEvent,
    PoissonDraw,
    StepEvent,
    Terms,
)
from hushgraph.errors import BudgetExceededError, HushgraphError, RunError, WriteError

# Ledgers of version 1 have no lines about releases.
VERSION = 2
_VERSIONS = (1, VERSION)
_DRAWS: dict[str, type[Draw]] = {"poisson": PoissonDraw, "fixed": FixedSizeDraw}
_ANEW = "Restore it, or count this run as spent and train in another folder, which charges the data anew"
_RELEASE_LINE = b'{"released"'
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, HushgraphError)
# The key of a line that charges nothing: a session of a run that is in a budget begins.
_SESSION = "session"


class HasFingerprint(Protocol):
    """What a ledger needs to know of a plan to tell whether it is its own."""

    def fingerprint(self) -> str: ...


class LineCopy(Protocol):
    """A second place for every line of a ledger; it has its own lock."""

    def append(self, line: bytes) -> None: ...

    def close(self) -> None: ...


class Ledger:
    """Append-only record of what a run has paid for and released, one line of JSON per charge or release.

    Create one with `Ledger.create` or `Ledger.open`. Closing it, or leaving its `with` block, releases the
    lock.

    Attributes:
        path: the file.
        fingerprint: the fingerprint of the plan that the budget belongs to.
        budget: the largest epsilon that may be spent at `delta`; infinite for training without privacy.
        delta: the delta of the budget.
        accountant: the name of the accountant that prices the charges.
        planned_steps: the number of steps in the plan.
        planned_event: what one step of the plan costs.
        steps_charged: the number of steps paid for, of any kind.
        boards_charged: the number of boards paid for.
        releases: the boards that were released, by name, with their digests; None where the digest is
            unknown, because the release was begun and perhaps not finished.

    Guarantees:
        A charge is on disk (flushed and synced) before `charge` returns; if it raises, release nothing.
        A ledger that was removed, replaced or moved while it is open takes no charge.
        A charge beyond the budget raises BudgetExceededError and writes nothing.
        A line that a crash cut short counts as spent, although what it was to pay for was never released.
        Reopening forgets nothing; a damaged line anywhere else is an error, not a smaller sum.
        One process at a time can write.
        `check_unreleased` lets a board be made under a charge only if no board can have been visible under it
        before. Restoring an older copy of the ledger and of the folder with it cannot be seen.
        Where there is a copy, a line is in both before what it is about happens.
    """

    def __init__(self, path: Path, header: dict[str, Any], checksum: str, *, lock: int | None) -> None:
        self.path = path
        self.version = int(header["ledger"])
        self.fingerprint: str = header["plan"]
        self.budget = math.inf if header["epsilon"] == "inf" else float(header["epsilon"])
        self.delta = float(header["delta"])
        self.accountant: str = header["accountant"]
        self.planned_steps = int(header["steps"])
        self.planned_event = event_from_json(header["event"])
        self.steps_charged = self.boards_charged = 0
        self._planned = Counter({self.planned_event: self.planned_steps})
        if "charges" in header:
            self._planned = Counter(
                {event_from_json(event): int(count) for event, count in header["charges"]}
            )
        self.releases: dict[str, str | None] = {}
        # Of every board that is charged, whether something was charged after it.
        self._is_followed: list[bool] = []
        self._counts: Counter[Event] = Counter()
        self._largest_count = 1
        self._checksum = checksum
        self._lock = lock
        self._file: int | None = None
        self._copy: LineCopy | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], terms: Terms) -> Ledger:
        """Create a ledger whose budget is the epsilon of a plan; raise RunError if the file exists.

        Args:
            path: the file.
            terms: of the plan, as `PrivacyPlan.terms` gives them.
        """
        target = Path(path)
        header: dict[str, Any] = {
            "ledger": VERSION,
            "plan": terms.fingerprint,
            "epsilon": "inf" if math.isinf(terms.epsilon) else terms.epsilon,
            "delta": terms.delta,
            "accountant": terms.accountant,
            "steps": terms.steps,
            "event": event_to_json(terms.step_event),
        }
        if len(terms.charges) > 1:
            counts: Counter[Event] = Counter()
            for event, count in terms.charges:
                counts[event] += count
            header["charges"] = [[event_to_json(event), count] for event, count in counts.items()]
        line, checksum = write_line(header, after="")
        lock = _acquire_lock(target)
        if target.exists():
            _release_lock(lock)
            raise RunError(f"ledger={target}: it exists already; open it to go on, or choose another folder")
        try:
            write_whole(target, line)
            ledger = cls(target, header, checksum, lock=lock)
            ledger._start_writing()
        except BaseException:
            _remove_files(target)
            _release_lock(lock)
            raise
        return ledger

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, plan: HasFingerprint | None = None, read_only: bool = False
    ) -> Ledger:
        """Open the ledger at `path`, with everything that was ever charged to it.

        Args:
            path: the file.
            plan: if given, it must be the plan that the ledger was created for.
            read_only: read without locking, also while another process writes; `charge` then refuses.
        """
        target = Path(path)
        if not target.is_file():
            raise RunError(f"ledger={target}: no such file; expected the ledger of a run")
        lock = None if read_only else _acquire_lock(target)
        try:
            ledger = cls._read(target, lock)
            if plan is not None and plan.fingerprint() != ledger.fingerprint:
                raise RunError(
                    f"ledger={target}: it belongs to another plan; resume with the plan of this run"
                )
            if not read_only:
                ledger._start_writing()
        except BaseException:
            if lock is not None:
                _release_lock(lock)
            raise
        return ledger

    @classmethod
    def _read(cls, path: Path, lock: int | None) -> Ledger:
        """Read and check every line; replace a torn last line by what it counts as."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RunError(f"ledger={path}: cannot be read ({error.strerror}); allow it") from None
        lines = content.removesuffix(b"\n").split(b"\n")
        first = read_line(lines[0], after="")
        if first is None or first[0].get("ledger") not in _VERSIONS:
            raise RunError(f"ledger={path}: its first line is damaged or not a ledger's; restore the file")
        try:
            ledger = cls(path, *first, lock=lock)
        except _MALFORMED:
            raise RunError(f"ledger={path}: its first line is not a ledger's; restore the file") from None
        for number, raw in enumerate(lines[1:], start=2):
            line = read_line(raw, after=ledger._checksum)
            if line is None and number < len(lines):
                raise RunError(
                    f"ledger={path}: line {number} is damaged, so what was spent is unknown; restore the file"
                )
            if line is None:
                entry = ledger._interpret_torn_line(raw)
                lines[-1], checksum = write_line(entry, after=ledger._checksum)
                line = entry, checksum
            try:
                ledger._book(*line)
            except _MALFORMED:
                raise RunError(
                    f"ledger={path}: line {number} is no charge and no release; restore the file"
                ) from None
        repaired = b"\n".join(lines).removesuffix(b"\n") + b"\n"
        if lock is not None and repaired != content:
            write_whole(path, repaired)
        return ledger

    @property
    def remaining_steps(self) -> int:
        """How many more steps of the plan the budget allows, at most as many as were planned."""
        if math.isinf(self.budget) or not self._counts - self._planned:
            return max(0, self.planned_steps - self._counts[self.planned_event])
        fits, too_many = 0, self.planned_steps + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self._allows(self.planned_event, middle):
                fits = middle
            else:
                too_many = middle
        return fits

    def spent_epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of all charges at `delta`, the budget's unless given."""
        return self._price(self._counts, self.delta if delta is None else delta)

    def count_charged(self, event: Event) -> int:
        """Return how often exactly this event has been paid for."""
        return self._counts[event]

    def charge(self, event: Event, *, step: int | None = None, count: int = 1) -> None:
        """Pay for `count` releases of `event` before they happen.

        Args:
            event: what one step, or one board, costs.
            step: the number of the first step, for the record; the steps charged so far unless given.
            count: how many releases to pay for at once. They count as spent whether or not they happen.

        Raises:
            BudgetExceededError: the budget does not allow it; nothing was written.
            RunError: the charge could not be written, or the ledger is not open for writing.
        """
        if self._file is None:
            raise RunError(f"ledger={self.path}: it is not open for writing; reopen it")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise RunError(f"count={count!r}: expected a whole number of at least 1")
        if not self._allows(event, count):
            releases = "steps" if isinstance(event, StepEvent) else "boards"
            raise BudgetExceededError(
                f"epsilon={self.budget:.6g} at delta={self.delta:.6g} does not allow {count} more {releases} "
                f"after {self.steps_charged} steps; stop here, or start a run with a larger budget"
            )
        first = self.steps_charged if step is None else step
        self._append({"step": first, "count": count, "event": event_to_json(event)})

    def record_release(self, name: str, digest: str | None) -> None:
        """Note down that a release leaves the process now; call it before anything of it is visible.

        Args:
            name: of the release, as `name_board` gives it.
            digest: of what is released; None where the release is made piece by piece, so that its digest is
                known at the end, in a second call.
        """
        self._append({"released": name, "digest": digest})

    def check_unreleased(self, place: int) -> None:
        """Refuse to make a board where one may have been visible under the charge that is there.

        Args:
            place: of the board in the run, from 0.

        Raises:
            RunError: if its release is on record, if something was charged after it, or if the ledger is of
                version 1, which has no record of releases.
        """
        name = name_board(place)
        if name in self.releases:
            fault = "was released and is missing"
        elif place >= self.boards_charged:
            return
        elif self._is_followed[place]:
            fault = "is missing, although the run went on after it"
        elif self.version == 1:
            fault = "is missing, and this ledger does not tell whether it was released"
        else:
            return
        raise RunError(
            f"ledger={self.path}: {name} {fault}, and another one under the same charge would show more than "
            f"was paid for. {_ANEW}"
        )

    def check_digest(self, name: str, digest: str) -> None:
        """Refuse a file that is not the release on record under this name."""
        recorded = self.releases.get(name)
        if recorded is not None and recorded != digest:
            raise RunError(
                f"ledger={self.path}: the file of {name} is not the one that this run released. {_ANEW}"
            )

    def begin_session(self, copy: LineCopy) -> None:
        """Note that a session begins, and write this line and all that follow to `copy` too.

        The line is like no other, so that of two copies of a run folder only one can go on from it.
        """
        self._copy = copy
        self._append({_SESSION: secrets.token_hex(8)})

    def _append(self, entry: dict[str, Any]) -> None:
        """Write a line to disk, here before the copy, which never holds what the ledger lacks; count it."""
        if self._file is None:
            raise RunError(f"ledger={self.path}: it is not open for writing; reopen it")
        line, checksum = write_line(entry, after=self._checksum)
        self._check_place()
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("the line was cut short")
            os.fsync(self._file)
        except OSError as error:
            # Only reading the file again can tell what reached the disk.
            self.close()
            reason = error.strerror or error
            raise WriteError(
                f"ledger={self.path}: cannot be written ({reason}); free space, then resume the run"
            ) from None
        if self._copy is not None:
            try:
                self._copy.append(line)
            except BaseException:
                self.close()
                raise
        self._book(entry, checksum)

    def _allows(self, event: Event, count: int) -> bool:
        """Whether the budget covers `count` more of `event`."""
        total = self._counts + Counter({event: count})
        # The budget is the price of the planned charges, so there is no need to price them again.
        if math.isinf(self.budget) or not total - self._planned:
            return True
        return self._price(total, self.delta) <= self.budget

    def _price(self, counts: Counter[Event], delta: float) -> float:
        if not counts:
            return 0.0
        # Imported here: reading or creating a ledger should not wait for the libraries of the accountants.
        from hushgraph.accounting.accountants import largest_shift, price

        if any(math.isinf(largest_shift(event)) for event in counts):
            return math.inf
        return price(counts.items(), delta=delta, accountant=self.accountant)

    def _price_torn_line(self) -> tuple[Event, int]:
        """The most a torn line can have been: a planned board not yet charged, else a block of steps."""
        boards = [event for event in self._planned - self._counts if isinstance(event, GaussianEvent)]
        if boards:
            return max(boards, key=lambda board: board.shift_over_sigma), 1
        return self.planned_event, max(1, min(self._largest_count, self.planned_steps - self.steps_charged))

    def _interpret_torn_line(self, raw: bytes) -> dict[str, Any]:
        """The entry that takes the place of a torn line: the most that it can have been."""
        if raw.startswith(_RELEASE_LINE):
            # A release follows its charge at once.
            return {"released": name_board(self.boards_charged - 1), "digest": None, "torn": True}
        if raw.startswith(f'{{"{_SESSION[:2]}'.encode()):
            # It charged nothing, and its session did not begin.
            return {_SESSION: secrets.token_hex(8), "torn": True}
        event, count = self._price_torn_line()
        return {"step": self.steps_charged, "count": count, "event": event_to_json(event), "torn": True}

    def _check_place(self) -> None:
        """Refuse to write into a file that has been moved or replaced, or is no longer locked."""
        files = ((self._file, self.path), (self._lock, lock_path(self.path)))
        for descriptor, path in files:
            if descriptor is None or not is_same(descriptor, path):
                self.close()
                raise WriteError(
                    f"ledger={self.path}: {path.name} was removed or replaced while the run went on, so no "
                    "further step was taken; restore the folder and resume, or start anew"
                )

    def _book(self, entry: dict[str, Any], checksum: str) -> None:
        """Count a line; one of _MALFORMED where it is neither a charge, a release nor a session."""
        if "released" in entry:
            self._book_release(str(entry["released"]), entry["digest"])
        elif _SESSION not in entry:
            event, count = event_from_json(entry["event"]), entry["count"]
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(count)
            self._book_charge(event, count, is_torn=bool(entry.get("torn")))
        self._checksum = checksum

    def _book_charge(self, event: Event, count: int, *, is_torn: bool) -> None:
        self._counts[event] += count
        if not is_torn:
            # What a torn line was to pay for never happened.
            self._is_followed = [True] * len(self._is_followed)
        if isinstance(event, StepEvent):
            self.steps_charged += count
            self._largest_count = max(self._largest_count, count)
        else:
            self.boards_charged += count
            self._is_followed += [False] * count

    def _book_release(self, name: str, digest: str | None) -> None:
        known = self.releases.get(name)
        if not isinstance(digest, str | None) or (known is not None and known != digest):
            raise ValueError(digest)
        self.releases[name] = digest

    def _start_writing(self) -> None:
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise WriteError(f"ledger={self.path}: cannot be written ({error.strerror}); allow it") from None

    def discard(self) -> None:
        """Close a ledger whose run could not be created, and remove its files."""
        _remove_files(self.path)
        self.close()

    def close(self) -> None:
        """Stop writing and release the lock."""
        if self._file is not None:
            os.close(self._file)
        if self._lock is not None:
            _release_lock(self._lock)
        if self._copy is not None:
            self._copy.close()
        self._file = self._lock = self._copy = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def name_board(place: int) -> str:
    """What the release of a board is called, by its place in the run, from 0."""
    return f"board-{place + 1}"


def _remove_files(path: Path) -> None:
    for file in (path, lock_path(path)):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def event_to_json(event: Event) -> dict[str, Any]:
    """Convert an event to JSON values; `gone` is written only where it is not 1."""
    if isinstance(event, GaussianEvent):
        infinite = math.isinf(event.shift_over_sigma)
        return {"shift_over_sigma": "inf" if infinite else event.shift_over_sigma}
    kinds = {draw: kind for kind, draw in _DRAWS.items()}
    fields = {
        "draw": {"kind": kinds[type(event.draw)], **asdict(event.draw)},
        "changed_trees": event.changed_trees,
        "sigma_over_clip": event.sigma_over_clip,
    }
    return fields if event.gone == 1 else {**fields, "gone": event.gone}


def event_from_json(fields: dict[str, Any]) -> Event:
    """Convert the output of `event_to_json` back; raise one of _MALFORMED for anything else."""
    if "shift_over_sigma" in fields:
        shift = fields["shift_over_sigma"]
        return GaussianEvent(**{**fields, "shift_over_sigma": math.inf if shift == "inf" else _check(shift)})
    draw = {name: _check(value) for name, value in fields["draw"].items() if name != "kind"}
    numbers = {name: _check(value) for name, value in fields.items() if name != "draw"}
    return StepEvent(draw=_DRAWS[fields["draw"]["kind"]](**draw), **numbers)


def _check(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r}: expected a number of at least 0")
    return value


def write_line(entry: dict[str, Any], *, after: str) -> tuple[bytes, str]:
    """Return the line of an entry and its checksum, which also covers the checksum of the line before."""
    body = json.dumps(entry, allow_nan=False)
    checksum = hashlib.sha256(f"{after}\n{body}".encode()).hexdigest()[:32]
    return f'{body[:-1]}, "sum": "{checksum}"}}\n'.encode(), checksum


def read_line(raw: bytes, *, after: str) -> tuple[dict[str, Any], str] | None:
    """Return the entry of a line and its checksum; None if the line is torn, damaged or out of place."""
    try:
        entry = json.loads(raw)
        del entry["sum"]
        line, checksum = write_line(entry, after=after)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
    return (entry, checksum) if line == raw + b"\n" else None


def _acquire_lock(path: Path) -> int:
    """Lock the ledger at `path`; return a descriptor. The lock ends with the process at the latest."""
    try:
        import fcntl
    except ImportError:
        raise RunError(
            f"ledger={path}: this system cannot lock files, so spending cannot be guarded"
        ) from None
    try:
        descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(
            f"ledger={path}: cannot be locked ({error}); choose a folder you can write to"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = is_same(descriptor, lock_path(path))
    except OSError:
        is_held = False
    if not is_held:
        os.close(descriptor)
        raise RunError(f"ledger={path}: another process is writing to it; wait for it to end")
    return descriptor


def _release_lock(descriptor: int) -> None:
    """Release a lock, also if a forked child still has its descriptor open."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def lock_path(path: Path) -> Path:
    """Path of the lock of a ledger."""
    return path.with_name(path.name + ".lock")


def is_same(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`, neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False
