"""What a plan guarantees: one value that everybody asks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from hushgraph._text import json_number
from hushgraph.errors import PlanError
from hushgraph.privacy.statement import FIXED_SEED, Reason, Statement, find_reasons, write_statement

if TYPE_CHECKING:
    from hushgraph.privacy.plan import PrivacyPlan

GuaranteeKind = Literal["holds", "claimed by the paper", "none"]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What training by a plan guarantees; `Guarantee.of` is the only place that decides it.

    Attributes:
        kind: "holds" where every part is covered by a proof, "claimed by the paper" where a part is not, and
            "none" where there is no noise, or something undoes it.
        why: the reasons it does not hold; empty exactly where it holds.
        priced_epsilon: what the accountant charges for one emptied row; the ledger shows it as spent.
        priced_group_of_two: the same for two rows emptied together.
        priced_edge: an upper bound for one undirected edge removed; None where no bound is derived.
        delta: of all three.
        adjacency: the relation between neighbouring data sets.
        statement: the guarantee in words.

    Guarantees:
        `epsilon`, `epsilon_group_of_two` and `epsilon_edge` are infinite where `kind` is "none".

    Examples:
        >>> from hushgraph import PrivacyPlan
        >>> from hushgraph.privacy.guarantee import Guarantee
        >>> plan = PrivacyPlan(num_train_nodes=1000, num_layers=1, max_readers=3, batch_size=100, steps=10)
        >>> plan = plan.calibrated(epsilon=4.0)
        >>> Guarantee.of(plan).kind, Guarantee.of(plan).epsilon <= 4.0
        ('holds', True)
        >>> seeded = Guarantee.of(plan, seed_is_fixed=True)
        >>> seeded.kind, seeded.epsilon, seeded.priced_epsilon <= 4.0, seeded.why[0].code
        ('none', inf, True, 'fixed-seed')
    """

    kind: GuaranteeKind
    why: tuple[Reason, ...]
    priced_epsilon: float
    priced_group_of_two: float
    priced_edge: float | None
    delta: float
    adjacency: str
    statement: Statement = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse a guarantee that contradicts itself."""
        if (self.kind == "holds") != (not self.why):
            codes = ", ".join(reason.code for reason in self.why) or "none"
            raise PlanError(
                f"kind={self.kind!r} with reasons {codes}: expected reasons exactly where it does not hold"
            )
        if self.kind != "none" and math.isinf(self.priced_epsilon):
            raise PlanError(f"kind={self.kind!r} with an infinite epsilon: expected kind 'none'")

    @classmethod
    def of(
        cls, plan: PrivacyPlan, *, seed_is_fixed: bool = False, broken_by: tuple[Reason, ...] = ()
    ) -> Guarantee:
        """Decide what training by a plan guarantees.

        Args:
            plan: what the run may see and spend.
            seed_is_fixed: whether the noise can be drawn again by whoever knows the seed.
            broken_by: further reasons that undo the noise; any of them makes the kind "none".
        """
        if seed_is_fixed and plan.is_private:
            broken_by = (FIXED_SEED, *broken_by)
        why = (*broken_by, *find_reasons(plan))
        kind = "none" if broken_by else cast("GuaranteeKind", plan.guarantee)
        return cls(
            kind=kind,
            why=why,
            priced_epsilon=plan.epsilon,
            priced_group_of_two=plan.epsilon_group_of_two,
            priced_edge=None if math.isinf(plan.epsilon_edge) and plan.is_private else plan.epsilon_edge,
            delta=plan.delta,
            adjacency=plan.adjacency,
            statement=write_statement(plan, broken_by),
        )

    @property
    def epsilon(self) -> float:
        """Epsilon for one emptied row: guaranteed, or claimed, as `kind` says; infinite for "none"."""
        return math.inf if self.kind == "none" else self.priced_epsilon

    @property
    def epsilon_group_of_two(self) -> float:
        """Epsilon for two rows emptied together; infinite for "none"."""
        return math.inf if self.kind == "none" else self.priced_group_of_two

    @property
    def epsilon_edge(self) -> float | None:
        """Epsilon for one undirected edge; infinite for "none", None where no bound is derived."""
        return math.inf if self.kind == "none" else self.priced_edge

    @property
    def best_guess(self) -> float:
        """How often an attacker can be right at most about whether one row is empty, at even prior odds.

        The total variation between the two distributions of the weights is at most
        (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and the best guess is right with probability 1/2 plus
        half of that. It is 1 unless the guarantee holds.
        """
        if self.kind != "holds":
            return 1.0
        odds = math.exp(-self.epsilon)
        return min(1.0, (1.0 + self.delta * odds) / (1.0 + odds))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the statement as JSON values; infinity is "inf"."""
        names = ("epsilon", "epsilon_group_of_two", "epsilon_edge", "priced_epsilon", "priced_group_of_two")
        figures = {name: getattr(self, name) for name in names}
        return {
            "kind": self.kind,
            "why": [asdict(reason) for reason in self.why],
            **{name: None if value is None else json_number(value) for name, value in figures.items()},
            "delta": self.delta,
            "adjacency": self.adjacency,
        }


def sentence(plan: PrivacyPlan) -> str:
    """Return one sentence: what this plan guarantees, or that it guarantees nothing."""
    return Guarantee.of(plan).statement.sentence


def statement(plan: PrivacyPlan) -> str:
    """Return the statement of a plan as text for a terminal.

    Guarantees:
        Epsilon is rounded up. A figure that no proof covers is called a claim, with the reasons.
    """
    return Guarantee.of(plan).statement.to_text()


def describe_guarantee(guarantee: Guarantee) -> dict[str, Any]:
    """The keys of a result that say what is guaranteed: where nothing is, epsilon is infinite.

    What was charged all the same is `epsilon_spent`.
    """
    keys: dict[str, Any] = {
        "guarantee": guarantee.kind,
        "epsilon": json_number(guarantee.epsilon),
        "epsilon_spent": json_number(guarantee.priced_epsilon),
    }
    if guarantee.kind == "none" and not math.isinf(guarantee.priced_epsilon):
        edge = guarantee.epsilon_edge
        keys |= {
            "epsilon_group_of_two": json_number(guarantee.epsilon_group_of_two),
            "epsilon_edge": None if edge is None else json_number(edge),
            "epsilon_label": "inf",
            "predictions": "not covered",
            "why_none": " ".join(reason.sentence for reason in guarantee.why),
        }
    return keys
