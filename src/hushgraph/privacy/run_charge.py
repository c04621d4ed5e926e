"""RunCharge: what a budget is charged for one whole run, and what several runs cost together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any

from hushgraph.accounting.events import Event
from hushgraph.privacy.changes import rows_emptied
from hushgraph.privacy.charges import Charge, list_column, read_recorded
from hushgraph.privacy.plans import json_number

if TYPE_CHECKING:
    from hushgraph.accounting.accountants import Column
    from hushgraph.privacy.guarantee import Guarantee
    from hushgraph.privacy.plans import PrivacyPlan

# Runs of the same charges are counted in at most so many parts, and sequences of kinds are at most so many;
# where there are more, parts are made larger.
_MOST_PARTS = 16
_MOST_SEQUENCES = 200


@dataclass(frozen=True, kw_only=True)
class RunCharge:
    """The whole planned cost of one run.

    Attributes:
        run: the identifier of the run; a run that is resumed has the same.
        epsilon, delta: of the run alone; epsilon is infinite where nothing is guaranteed.
        accountant: of the plan; "unknown" where only epsilon and delta are known.
        charges: what the run releases; empty where nothing is guaranteed.
        command: what charged it: train or compare.
        data: what the data was called.
        folder: of the run.
        plan: fingerprint of the plan.
        time: of the charge, in UTC.
        why: why nothing is guaranteed; empty where a guarantee holds.
        has_copy: whether the budget keeps a copy of the run's ledger; older versions kept none.
        unit: whose row epsilon is about: that of a "node", or of a "person" with several nodes.
    """

    run: str
    epsilon: float
    delta: float
    accountant: str
    charges: tuple[Charge, ...]
    command: str
    data: str
    folder: str = ""
    plan: str = ""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    why: str = ""
    has_copy: bool = False
    unit: str = "node"

    @classmethod
    def of_plan(
        cls,
        plan: PrivacyPlan,
        guarantee: Guarantee,
        *,
        run: str,
        command: str,
        data: str,
        folder: str = "",
        has_copy: bool = False,
    ) -> RunCharge:
        """What a run by `plan` is charged for before it begins."""
        is_protected = guarantee.kind == "holds"
        return cls(
            run=run,
            epsilon=guarantee.epsilon if is_protected else math.inf,
            delta=plan.delta,
            accountant=plan.accountant,
            charges=plan.charges if is_protected else (),
            command=command,
            data=data,
            folder=folder,
            plan=plan.fingerprint(),
            why=" ".join(reason.sentence for reason in guarantee.why),
            has_copy=has_copy,
            unit=plan.protects,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values. Epsilon and delta come first: they are what is left of most lines that a crash cut."""
        fields = {
            "epsilon": json_number(self.epsilon),
            "delta": self.delta,
            "run": self.run,
            "time": self.time,
            "command": self.command,
            "data": self.data,
            "folder": self.folder,
            "plan": self.plan,
            "accountant": self.accountant,
            "charges": [[charge.to_json(), charge.times] for charge in self.charges],
            "why": self.why,
        }
        if self.unit != "node":
            fields["unit"] = self.unit
        return fields | {"has_copy": True} if self.has_copy else fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunCharge:
        """The charge that `to_json` wrote; one of several errors where something else did."""
        others = {name: value for name, value in fields.items() if name not in ("charges", "events")}
        charges = (
            tuple(Charge.from_json(charge, times=int(count)) for charge, count in fields["charges"])
            if "charges" in fields
            else tuple(read_recorded(fields["events"]))
        )
        numbers = {"epsilon": float(fields["epsilon"]), "delta": float(fields["delta"])}
        charge = cls(**{**others, **numbers, "charges": charges})
        if not charge.epsilon >= 0 or not 0 <= charge.delta < 1:
            raise ValueError(f"{charge.epsilon}, {charge.delta}: expected the cost of a run")
        return charge


def compose_charges(charges: Iterable[RunCharge], delta: float) -> float:
    """Epsilon of all runs together at `delta`: an upper bound for one emptied row.

    A row may be of one kind in one run and of another in the next: the largest over every sequence of kinds
    is taken. Runs that one accountant prices are composed by it. The two accountants, and runs of which only
    epsilon and delta are known, are added up by basic composition, which divides delta among them.

    Args:
        charges: of the runs. A Counter of them says how often each run is repeated.
        delta: of all together.
    """
    times = Counter(charges)
    if any(math.isinf(charge.epsilon) for charge in times):
        return math.inf
    groups = _group_by_accountant(times)
    opaque = [(charge, number) for charge, number in times.items() if not charge.charges]
    rest = delta - math.fsum(number * charge.delta for charge, number in opaque)
    if rest < 0 or (groups and rest == 0):
        return math.inf
    share = rest / max(1, len(groups))
    return math.fsum(
        [
            *(number * charge.epsilon for charge, number in opaque),
            *(_price_runs(name, numbers, share) for name, numbers in groups.items()),
        ]
    )


def describe_composition(charges: Iterable[RunCharge]) -> str:
    """How `compose_charges` adds up these charges, in words."""
    charges = list(charges)
    if any(math.isinf(charge.epsilon) for charge in charges):
        return "a run without a guarantee is among them, so nothing bounds the total"
    groups = [f"all events by the '{name}' accountant" for name in _group_by_accountant(Counter(charges))]
    opaque = sum(not charge.charges for charge in charges)
    if opaque:
        groups.append(f"{opaque} of which only epsilon and delta are known")
    if len(groups) < 2:
        return groups[0] if groups else "nothing was charged"
    return f"basic composition of {len(groups)} parts, which divide delta: {'; '.join(groups)}"


def _group_by_accountant(times: Mapping[RunCharge, int]) -> dict[str, Counter[tuple[Charge, ...]]]:
    """How many runs have which charges, by the accountant that prices them."""
    groups: dict[str, Counter[tuple[Charge, ...]]] = {}
    for charge, number in times.items():
        if charge.charges:
            groups.setdefault(charge.accountant, Counter())[charge.charges] += number
    return groups


def _price_runs(accountant: str, numbers: Mapping[tuple[Charge, ...], int], delta: float) -> float:
    """The largest price over sequences of kinds."""
    # Imported here: opening a budget should not wait for the accountants' libraries.
    from hushgraph.accounting.accountants import price

    return max(
        price(counts.items(), delta=delta, accountant=accountant) for counts in _list_sequences(numbers)
    )


def _list_sequences(numbers: Mapping[tuple[Charge, ...], int]) -> Iterator[Counter[Event]]:
    """What is composed for one row, for every sequence of the kinds that it may be of in each run."""
    from hushgraph.accounting.accountants import drop_dominated

    columns = {
        charges: drop_dominated([list_column(charges, change) for change in rows_emptied()])
        for charges in numbers
    }
    parts = _MOST_PARTS
    while (
        parts > 1
        and math.prod(
            _count_divisions(number, len(columns[charges]), parts) for charges, number in numbers.items()
        )
        > _MOST_SEQUENCES
    ):
        parts -= 1
    for sequence in product(
        *(_divide(number, len(columns[charges]), parts) for charges, number in numbers.items())
    ):
        yield _count_events(
            (column, times)
            for charges, division in zip(numbers, sequence, strict=True)
            for column, times in zip(columns[charges], division, strict=True)
        )


def _divide(number: int, kinds: int, parts: int) -> Iterator[tuple[int, ...]]:
    """In how many of `number` like runs a row is of each kind; runs of the same charges may be exchanged.

    Up to `parts` runs, every division. Otherwise numbers are rounded up to multiples of a part of the runs,
    so that every division has one here that counts no kind less often.
    """
    width = -(-number // parts)
    # Rounded up, a kind that has no run counts as one part, and the sum is larger by a part for each kind.
    least, free = (0, number) if width == 1 else (1, -(-number // width) - 1)
    for chosen in combinations_with_replacement(range(kinds), free):
        yield tuple(min(number, width * (least + chosen.count(kind))) for kind in range(kinds))


def _count_divisions(number: int, kinds: int, parts: int) -> int:
    free = number if number <= parts else -(-number // -(-number // parts)) - 1
    return math.comb(kinds + free - 1, free)


def _count_events(columns: Iterable[tuple[Column, int]]) -> Counter[Event]:
    counts: Counter[Event] = Counter()
    for column, runs in columns:
        for event, times in column:
            if event is not None and times and runs:
                counts[event] += runs * times
    return counts
