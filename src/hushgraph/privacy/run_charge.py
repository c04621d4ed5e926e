"""RunCharge: what a budget is charged for one run, and what several runs cost together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
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

# Beyond so many sequences of kinds, a row is priced as if it were of every kind in every run.
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
    """
    charges = list(charges)
    if any(math.isinf(charge.epsilon) for charge in charges):
        return math.inf
    groups = _group_by_accountant(charges)
    opaque = [charge for charge in charges if not charge.charges]
    rest = delta - math.fsum(charge.delta for charge in opaque)
    if rest < 0 or (groups and rest == 0):
        return math.inf
    share = rest / max(1, len(groups))
    return math.fsum(
        [
            *(charge.epsilon for charge in opaque),
            *(_price_runs(name, runs, share) for name, runs in groups.items()),
        ]
    )


def describe_composition(charges: Iterable[RunCharge]) -> str:
    """How `compose_charges` adds up these charges, in words."""
    charges = list(charges)
    if any(math.isinf(charge.epsilon) for charge in charges):
        return "a run without a guarantee is among them, so nothing bounds the total"
    groups = [f"all events by the '{name}' accountant" for name in _group_by_accountant(charges)]
    opaque = sum(not charge.charges for charge in charges)
    if opaque:
        groups.append(f"{opaque} of which only epsilon and delta are known")
    if len(groups) < 2:
        return groups[0] if groups else "nothing was charged"
    return f"basic composition of {len(groups)} parts, which divide delta: {'; '.join(groups)}"


def _group_by_accountant(charges: Iterable[RunCharge]) -> dict[str, list[RunCharge]]:
    groups: dict[str, list[RunCharge]] = {}
    for charge in charges:
        if charge.charges:
            groups.setdefault(charge.accountant, []).append(charge)
    return groups


def _price_runs(accountant: str, runs: list[RunCharge], delta: float) -> float:
    """The largest price over sequences of kinds."""
    # Imported here: opening a budget should not wait for the accountants' libraries.
    from hushgraph.accounting.accountants import price

    return max(price(counts.items(), delta=delta, accountant=accountant) for counts in _list_sequences(runs))


def _list_sequences(runs: Iterable[RunCharge]) -> Iterator[Counter[Event]]:
    """What is composed for one row, for every sequence of the kinds that it may be of in each run."""
    from hushgraph.accounting.accountants import drop_dominated

    # Runs of the same charges may be exchanged.
    numbers = Counter(run.charges for run in runs)
    columns = {
        charges: drop_dominated([list_column(charges, change) for change in rows_emptied()])
        for charges in numbers
    }
    sequences = math.prod(
        math.comb(len(columns[charges]) + number - 1, number) for charges, number in numbers.items()
    )
    if sequences > _MOST_SEQUENCES:
        yield _count_events(
            column for charges, number in numbers.items() for column in columns[charges] * number
        )
        return
    for sequence in product(
        *(combinations_with_replacement(columns[charges], number) for charges, number in numbers.items())
    ):
        yield _count_events(column for part in sequence for column in part)


def _count_events(columns: Iterable[Column]) -> Counter[Event]:
    counts: Counter[Event] = Counter()
    for column in columns:
        for event, times in column:
            if event is not None and times:
                counts[event] += times
    return counts
