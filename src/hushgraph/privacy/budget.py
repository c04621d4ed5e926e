"""DataBudget: what all runs on one data set have spent together, in a file that its owner names once.

The first line of the file holds the total, every other line one charge: the whole planned cost of a run,
written before the run begins. Lines are chained by checksums, as in the ledger of a run.

One charge pays for one run, however often its folder is copied. So the budget keeps a copy of the ledger of
every run, in FILE.runs, and a session writes each line to both before it acts on it. Only a folder whose
ledger begins with that copy can go on; a session begins with a line that is like no other. A folder that was
moved has such a ledger. Of two copies of a folder the first to go on has one, and the other lacks that line.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hushgraph._files import append_line, lock_file, lock_path, unlock_file, write_whole
from hushgraph._text import rounded_up
from hushgraph._validate import as_float, show_value
from hushgraph.errors import BudgetExceededError, PlanError, RunError, WriteError, explain
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.ledger_copy import LedgerCopy, discard_copies, make_copy
from hushgraph.privacy.lines import MALFORMED, read_line, write_line
from hushgraph.privacy.plans import json_number
from hushgraph.privacy.run_charge import RunCharge, compose_charges, describe_composition

if TYPE_CHECKING:
    from hushgraph.privacy.guarantee import Guarantee
    from hushgraph.privacy.plans import PrivacyPlan

VERSION = 1
MOST_RUNS = 1 << 20
"""Runs that fit into a budget are counted up to here; a run that costs nothing fits without end."""
# A number ends with the comma after it, so that one that was cut short is never read.
_TORN = re.compile(rb'\{"epsilon": ([0-9.e+-]+), "delta": ([0-9.e+-]+), "')
# What a run may be called: it names a file.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]*")
# What a line that was cut short is recorded as.
_UNKNOWN = "unknown"
_NEW_BUDGET = "count the whole budget as spent; whether a new one is set up is its owner's decision"


@dataclass(frozen=True, kw_only=True)
class DataBudget:
    """A budget of a data set: the total that its owner set, and everything charged to it so far.

    Make one with `DataBudget.create` or `DataBudget.open`.

    Attributes:
        path: the file.
        total: the most epsilon that all runs may spend together; None only records.
        delta: of the total.
        charges: in the order in which they were made, as of when the file was opened.
        command: what later charges are recorded as.

    Guarantees:
        A charge is on disk, flushed and synced, before the run that it pays for begins.
        A charge that would exceed the total raises BudgetExceededError and writes nothing.
        A line that a crash cut short counts as the run that it was to pay for, or as infinite where what it
        was cannot be read. A damaged line anywhere else is an error, not a smaller sum.
        Processes that charge at the same time wait for each other. One run is charged once.
        One charge pays for one run: of the copies of a run folder only one can go on, and only from where
        the run was last. A second one is refused, or charged as a run of its own.

    Not guaranteed:
        A budget knows no data. Two files for one data set are two budgets, and neither knows of the other.
        What is put back as it was earlier, the folder of a run together with the budget and its FILE.runs,
        is as it was earlier: nothing shows what happened since.

    Examples:
        >>> import tempfile, pathlib
        >>> from hushgraph.privacy.budget import DataBudget
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.ledger"
        >>> budget = DataBudget.create(path, epsilon=10.0, delta=1e-6)
        >>> budget.spent, budget.left
        (0.0, 10.0)
    """

    path: Path
    total: float | None
    delta: float
    charges: tuple[RunCharge, ...] = ()
    command: str = "train"

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, epsilon: float | None = None, delta: float
    ) -> DataBudget:
        """Write a new budget.

        Args:
            path: the file, which must not exist.
            epsilon: the total of all runs; None only records.
            delta: of the total.
        """
        target = _resolve(path)
        total = None if epsilon is None else as_float(epsilon)
        if epsilon is not None and (total is None or not 0 < total < math.inf):
            raise PlanError(f"epsilon={show_value(epsilon)}: expected a finite number above 0")
        checked = as_float(delta)
        if checked is None or not 0 < checked < 1:
            raise PlanError(
                f"delta={show_value(delta)}: expected a number above 0 and below 1, at most 1 / (10 N) for N "
                "training nodes"
            )
        if not target.parent.is_dir():
            raise RunError(f"budget={target}: there is no folder {target.parent}; make it first")
        line, _ = write_line({"budget": VERSION, "epsilon": total, "delta": checked}, after="")
        with _hold_lock(target):
            if target.exists():
                raise RunError(f"budget={target}: it exists already; its total was set when it was created")
            write_whole(target, line)
        return cls(path=target, total=total, delta=checked)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> DataBudget:
        """Read a budget; RunError where it is missing or damaged."""
        target = _resolve(path)
        contents = _read(target)
        if contents.is_torn:
            # Perhaps another process is writing this line just now.
            with contextlib.suppress(RunError), _hold_lock(target):
                contents = _read(target)
        return contents.budget

    @cached_property
    def spent(self) -> float:
        """Epsilon of all charges together at `delta`, by the accountant's composition; never less."""
        return compose_charges(self.charges, self.delta)

    @property
    def left(self) -> float | None:
        """The total less what was spent; None without a total."""
        return None if self.total is None else max(0.0, self.total - self.spent)

    @property
    def composition(self) -> str:
        """How `spent` was computed, in words."""
        return describe_composition(self.charges)

    def price_alone(self, charge: RunCharge) -> float:
        """Epsilon of one charge by itself, at the delta of the budget."""
        return compose_charges([charge], self.delta)

    def price_more(self, charge: RunCharge, runs: int) -> float:
        """Epsilon of all charges and of `runs` more like this one; infinite where that cannot be priced."""
        times = Counter(self.charges)
        times[charge] += runs
        try:
            return compose_charges(times, self.delta)
        except PlanError:
            return math.inf

    def count_runs(self, charge: RunCharge) -> int | None:
        """How many more runs like this one the total allows, counted up to MOST_RUNS; None without a total.

        Prices are composed for about two numbers of runs per doubling, not for every one.
        """
        if self.total is None:
            return None
        fits, too_many = 0, 1
        while self.price_more(charge, too_many) <= self.total:
            if too_many >= MOST_RUNS:
                return MOST_RUNS
            fits, too_many = too_many, 2 * too_many
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            fits, too_many = (
                (middle, too_many) if self.price_more(charge, middle) <= self.total else (fits, middle)
            )
        return fits

    @contextlib.contextmanager
    def charging(self, *charges: RunCharge) -> Iterator[None]:
        """Check that the total allows all of `charges` together, run the body, then write them.

        The body prepares what the charges pay for, such as the folder of a run. Where it raises, nothing is
        charged. The lock is held throughout, so that what was checked is still true when it is written. A run
        that was charged before is not charged again.

        Raises:
            BudgetExceededError: the total does not allow it; the body did not run, and nothing was written.
            RunError: the file is missing or damaged, or cannot be written.
        """
        with _hold_lock(self.path):
            contents = _read(self.path)
            new = [charge for charge in charges if contents.budget.find(charge.run) is None]
            contents.budget.check(*new)
            yield
            # Made before the charge, which says that they are there.
            copies = [self.copy_path(charge.run) for charge in new if charge.has_copy]
            try:
                for copy in copies:
                    make_copy(copy)
                if new:
                    _append(self.path, contents, new)
            except RunError:
                if not self.may_hold(self.path, *(charge.run for charge in new)):
                    discard_copies(copies)
                raise

    def check(self, *charges: RunCharge) -> None:
        """Raise BudgetExceededError where the total does not allow these charges after all others.

        Also RunError where they protect nodes and others persons: epsilon of a person is not the sum of both.
        """
        for charge in charges:
            if charge.unit != (self.charges[0].unit if self.charges else charge.unit):
                raise RunError(
                    f"budget={self.path}: its runs protect each {self.charges[0].unit}, and this one each "
                    f"{charge.unit}; their epsilons do not add up: train with the same --person, or charge "
                    "another budget"
                )
        if self.total is None or not charges:
            return
        for charge in charges:
            if math.isinf(charge.epsilon):
                raise BudgetExceededError(
                    f"budget={self.path}: this run has no guarantee, so no total allows it. {charge.why} "
                    "Train with a guarantee that holds, or without this budget"
                )
        spent = compose_charges([*self.charges, *charges], self.delta)
        if spent > self.total:
            these = "this run" if len(charges) == 1 else f"these {len(charges)} runs"
            raise BudgetExceededError(
                f"budget={self.path}: its total is epsilon {self.total:g} at delta {self.delta:g}, of which "
                f"{rounded_up(self.spent)} are spent; with {these} it would be {rounded_up(spent)}; take a "
                "smaller epsilon"
            )

    def find(self, run: str) -> RunCharge | None:
        """The charge of a run, if it was charged."""
        return next((charge for charge in self.charges if charge.run == run), None)

    @staticmethod
    def may_hold(path: str | os.PathLike[str], *runs: str) -> bool:
        """Whether the file may hold a charge of these runs, if only a part of its line, after one failed."""
        try:
            charges = _read(Path(path)).budget.charges
        except RunError:
            return True
        return any(charge.run in runs or charge.command == _UNKNOWN for charge in charges)

    def copy_path(self, run: str) -> Path:
        """Where the copy of a run's ledger is."""
        return self.path.with_name(f"{self.path.name}.runs") / f"{run}.jsonl"

    def to_json(self) -> dict[str, Any]:
        """Everything that `hushgraph budget` shows, as JSON values; infinity is "inf"."""
        alone = [self.price_alone(charge) for charge in self.charges]
        return {
            "budget": str(self.path),
            "unit": self.charges[0].unit if self.charges else "node",
            "total_epsilon": self.total,
            "delta": self.delta,
            "epsilon_spent": json_number(self.spent),
            "epsilon_left": self.left,
            "epsilon_sum": json_number(math.fsum(alone)),
            "composition": self.composition,
            "charges": [
                {**charge.to_json(), "epsilon_at_budget_delta": json_number(price)}
                for charge, price in zip(self.charges, alone, strict=True)
            ],
        }


@dataclass(frozen=True, kw_only=True)
class BudgetEntry:
    """Where a run is charged, as its folder keeps it: a resumed run is the same entry.

    Attributes:
        file: the absolute path of the budget.
        run: the identifier of the run in it.
        command: what the charge is recorded as.
    """

    file: str
    run: str
    command: str

    @classmethod
    def of(cls, budget: str | os.PathLike[str] | DataBudget, plan: PrivacyPlan) -> BudgetEntry:
        """A new entry for a run by `plan`; RunError where there is no such budget."""
        opened = budget if isinstance(budget, DataBudget) else DataBudget.open(budget)
        return cls(
            file=os.path.abspath(opened.path), run=make_run_id(plan.fingerprint()), command=opened.command
        )

    @classmethod
    def from_json(cls, fields: Any) -> BudgetEntry | None:
        """The entry in a run folder, or None where the run has none."""
        if fields is None:
            return None
        entry = cls(**{name: str(value) for name, value in fields.items()})
        if not _RUN_ID.fullmatch(entry.run):
            raise ValueError(f"budget: run {entry.run!r}: expected letters, digits and hyphens")
        return entry

    def open_others(self) -> DataBudget:
        """The budget without this run."""
        budget = DataBudget.open(self.file)
        others = tuple(charge for charge in budget.charges if charge.run != self.run)
        return replace(budget, charges=others)

    def renew(self) -> BudgetEntry:
        """An entry in the same budget for a run of its own."""
        return replace(self, run=make_run_id(self.run))

    def price(self, plan: PrivacyPlan, guarantee: Guarantee, *, data: str, folder: str) -> RunCharge:
        """What the run is charged for."""
        return RunCharge.of_plan(
            plan,
            guarantee,
            run=self.run,
            command=self.command,
            data=data,
            folder=os.path.abspath(folder) if folder else "",
            has_copy=True,
        )

    def begin_session(self, ledger: Ledger) -> None:
        """Go on with the run that this ledger is of, which is charged; RunError for a copy of its folder."""
        budget = DataBudget.open(self.file)
        charge = budget.find(self.run)
        path = budget.copy_path(self.run)
        if charge is None or not charge.has_copy:
            make_copy(path)
        ledger.begin_session(LedgerCopy.claim(path, ledger.path, budget=self.file))


def _resolve(path: str | os.PathLike[str]) -> Path:
    """The file that a link leads to, so that all share its lock and its copies, and stay links."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)


def make_run_id(prefix: str) -> str:
    """A new identifier: the beginning of a fingerprint, and random digits."""
    return f"{prefix[:12]}-{secrets.token_hex(8)}"


class _Contents(NamedTuple):
    """A budget as it was read: `kept` is what the file should hold, a torn line replaced."""

    budget: DataBudget
    checksum: str
    kept: bytes
    is_torn: bool


def _read(path: Path) -> _Contents:
    """Read and check every line."""
    if path.is_dir():
        raise RunError(f"budget={path}: it is a folder; expected the file of a budget")
    with explain(RunError, f"budget={path}: cannot be read", "check its permissions"):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise RunError(
                f"budget={path}: no such file; set it up with hushgraph budget {path} --epsilon E --delta D"
            ) from None
    *lines, torn = content.split(b"\n")
    first = read_line(lines[0], after="") if lines else None
    if first is None:
        raise RunError(f"budget={path}: its first line is damaged or not a budget's; {_NEW_BUDGET}")
    header, checksum = first
    budget = _read_header(path, header)
    charges = []
    for number, raw in enumerate(lines[1:], start=2):
        entry = read_line(raw, after=checksum)
        if entry is None:
            raise RunError(
                f"budget={path}: line {number} is damaged, so what was spent is unknown; {_NEW_BUDGET}"
            )
        charges.append(_read_charge(path, number, entry[0]))
        checksum = entry[1]
    if torn:
        entry = read_line(torn, after=checksum)
        # Of a line that lacks its end alone everything is known.
        charge = _read_torn_line(torn) if entry is None else _read_charge(path, len(lines) + 1, entry[0])
        line, checksum = write_line(charge.to_json() if entry is None else entry[0], after=checksum)
        content = content.removesuffix(torn) + line
        charges.append(charge)
    return _Contents(replace(budget, charges=tuple(charges)), checksum, content, bool(torn))


def _read_header(path: Path, header: dict[str, Any]) -> DataBudget:
    try:
        if header["budget"] != VERSION:
            raise ValueError(header["budget"])
        total = None if header["epsilon"] is None else float(header["epsilon"])
        return DataBudget(path=path, total=total, delta=float(header["delta"]))
    except MALFORMED:
        raise RunError(
            f"budget={path}: its first line is not that of a budget of version {VERSION}; give the file that "
            "hushgraph budget wrote"
        ) from None


def _read_charge(path: Path, number: int, entry: dict[str, Any]) -> RunCharge:
    try:
        return RunCharge.from_json(entry)
    except MALFORMED:
        raise RunError(f"budget={path}: line {number} is not a charge; {_NEW_BUDGET}") from None


def _read_torn_line(raw: bytes) -> RunCharge:
    """What a line that was cut short counts as: the most that it can have been."""
    unreadable = RunCharge(
        run=make_run_id(_UNKNOWN),
        epsilon=math.inf,
        delta=0.0,
        accountant=_UNKNOWN,
        charges=(),
        command=_UNKNOWN,
        data=_UNKNOWN,
        why="A line of the budget was cut short, so its cost is unknown.",
    )
    begun = _TORN.match(raw)
    if begun is None:
        return unreadable
    try:
        epsilon, delta = float(begun[1]), float(begun[2])
    except ValueError:
        return unreadable
    why = "A line of the budget was cut short; epsilon and delta are what is left of it."
    return replace(unreadable, epsilon=epsilon, delta=delta, why=why)


def _append(path: Path, contents: _Contents, charges: Iterable[RunCharge]) -> None:
    """Write a line each, all at once, and sync; where that fails, leave the file as it was."""
    text, checksum = b"", contents.checksum
    for charge in charges:
        line, checksum = write_line(charge.to_json(), after=checksum)
        text += line
    if contents.is_torn:
        write_whole(path, contents.kept)
    with explain(WriteError, f"budget={path}: cannot be written", "check its permissions"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        size = os.fstat(file).st_size
        if size != len(contents.kept):
            raise WriteError(
                f"budget={path}: it was changed by something that does not lock it; nothing was charged"
            )
        with explain(WriteError, f"budget={path}: cannot be written", "free space"):
            try:
                append_line(file, text)
            except OSError:
                # The run has not begun and will not, so what reached the disk may go.
                with contextlib.suppress(OSError):
                    os.ftruncate(file, size)
                raise
    finally:
        os.close(file)


@contextlib.contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock beside the budget, after waiting for whoever holds it; it goes with the process."""
    with explain(RunError, f"budget={path}: cannot be locked", "choose a folder you can write to"):
        descriptor = lock_file(lock_path(path), wait=True)
    try:
        yield
    finally:
        unlock_file(descriptor)
