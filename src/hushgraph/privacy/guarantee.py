"""What a plan guarantees: one value that everybody asks. Its words are in `statement.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from hushgraph._text import digits_up, rounded_up
from hushgraph.privacy.plans import json_number
from hushgraph.privacy.statement import Statement, write_statement

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.privacy.plans import PrivacyPlan


GuaranteeKind = Literal["holds", "claimed by the paper", "none"]
_IS_PUBLIC = " is public"
# Above the first, epsilon promises little to a single person, above the second next to nothing.
LARGE_EPSILON, HUGE_EPSILON = 10.0, 100.0


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a guarantee does not hold: a code for programs, a sentence for readers."""

    code: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """What a guarantee takes as public although nobody declared it.

    Attributes:
        code: for programs.
        clause: what is assumed, to follow "assuming that".
        sentence: the same with its reason, for readers.
    """

    code: str
    clause: str
    sentence: str


CLASSES_FROM_LABELS = Assumption(
    code="classes-from-labels",
    clause="the list of classes is public",
    sentence="The list of classes was taken from the labels, not declared, and is assumed to be public. A "
    "class that only one row has would show that row.",
)
CLASSES_NOT_RECORDED = Assumption(
    code="classes-not-recorded",
    clause="the list of classes is public",
    sentence="The run does not record whether its list of classes was declared or taken from the labels, so "
    "it is assumed to be public. A class that only one row has would show that row.",
)


def _assume_looked_up(kind: str, what: str) -> Assumption:
    return Assumption(
        code=f"{kind}-looked-up",
        clause=f"{what} is public",
        sentence=f"{what[0].upper()}{what[1:]} was read off the rows, by check or by whoever looked at "
        "them, and is assumed to be public. One row may have decided it.",
    )


LOOKED_UP = {
    kind: _assume_looked_up(kind, what)
    for kind, what in {
        "classes": "the list of classes",
        "id": "the choice of the column of ids",
        "ends": "the choice of the columns of edges",
        "split": "the choice of the column of splits",
        "person": "the choice of the column of persons",
        "roles": "the choice of columns to hash or leave out",
        "numbers": "the way numbers are written",
        "dates": "the choice of the columns of dates",
        "records": "the choice of weights, relations and places",
        "missing": "the list of texts for empty cells",
        "task": "the kind of the labels",
        "bounds": "the range of the target",
        "rare": "the choice of the rare class",
    }.items()
}
"""The assumption for each kind of thing in `Columns.looked_up`."""


def find_assumptions(graph: Graph) -> tuple[Assumption, ...]:
    """What a guarantee for training on `graph` takes as public although nobody declared it."""
    looked_up = () if graph.columns is None else graph.columns.looked_up
    assumed = () if graph.has_declared_classes else (CLASSES_FROM_LABELS,)
    return (*assumed, *(LOOKED_UP[kind] for kind in looked_up))


def name_kind(kind: str, assumptions: Sequence[Assumption]) -> str:
    """Return a kind of guarantee for readers: what one that holds assumes belongs to it."""
    return kind + name_assumed(assumptions) if kind == "holds" else kind


def write_assumptions(assumptions: Sequence[Assumption]) -> list[dict[str, str]]:
    """Return assumptions as JSON values, which `Assumption(**each)` reads."""
    return [asdict(each) for each in assumptions]


def name_assumed(assumptions: Sequence[Assumption]) -> str:
    """Return ", assuming that ..." to follow a promise; empty where nothing is assumed."""
    clauses = [each.clause for each in assumptions]
    if len(clauses) > 2 and all(clause.endswith(_IS_PUBLIC) for clause in clauses):
        *first, last = (clause.removesuffix(_IS_PUBLIC) for clause in clauses)
        return f", assuming that {', '.join(first)}, and {last} are public"
    return f", assuming that {' and that '.join(clauses)}" if clauses else ""


def merge_sentences(sentences: Iterable[str]) -> list[str]:
    """The sentences of assumptions for readers: three or more things that rows decided share one."""
    given = list(sentences)
    clauses = {each.sentence: each.clause for each in LOOKED_UP.values()}
    read_off = [clauses[each].removesuffix(_IS_PUBLIC) for each in given if each in clauses]
    if len(read_off) < 3:
        return given
    *first, last = read_off
    listed = f"{', '.join(first)}, and {last}"
    merged = (
        f"{listed[0].upper()}{listed[1:]} were read off the rows, by check or by whoever looked at them, and "
        "are assumed to be public. One row may have decided each of them."
    )
    return [*(each for each in given if each not in clauses), merged]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What training by a plan guarantees; `Guarantee.of` is the only place that decides it.

    Its kind is "holds" where every part is covered by a proof, "claimed by the paper" where a part is not,
    and "none" where there is no noise, or something undoes it.

    Attributes:
        plan: the plan itself.
        broken_by: what undoes its noise.
        assumptions: what was not declared and is taken as public, without which it does not hold.

    Guarantees:
        `epsilon`, `epsilon_group_of_two` and `epsilon_edge` are infinite where `kind` is "none".

    Examples:
        >>> from hushgraph import TreePlan
        >>> from hushgraph.privacy.guarantee import Guarantee
        >>> plan = TreePlan(num_train_nodes=1000, num_layers=1, max_readers=3, batch_size=100, steps=10)
        >>> plan = plan.calibrated(epsilon=4.0)
        >>> Guarantee.of(plan).kind, Guarantee.of(plan).epsilon <= 4.0
        ('holds', True)
        >>> seeded = Guarantee.of(plan, seed_is_fixed=True)
        >>> seeded.kind, seeded.epsilon, seeded.priced_epsilon <= 4.0, seeded.why[0].code
        ('none', inf, True, 'fixed-seed')
    """

    plan: PrivacyPlan = field(repr=False)
    broken_by: tuple[Reason, ...] = field(default=(), repr=False)
    assumptions: tuple[Assumption, ...] = ()

    @classmethod
    def of(
        cls,
        plan: PrivacyPlan,
        *,
        seed_is_fixed: bool = False,
        broken_by: tuple[Reason, ...] = (),
        assumptions: tuple[Assumption, ...] = (),
    ) -> Guarantee:
        """Decide what training by a plan guarantees.

        Args:
            plan: what the run may see and spend.
            seed_is_fixed: whether the noise can be drawn again by whoever knows the seed.
            broken_by: further reasons that undo the noise; any of them makes the kind "none".
            assumptions: what was not declared and is taken as public.
        """
        if seed_is_fixed and plan.is_private:
            broken_by = (FIXED_SEED, *broken_by)
        return cls(plan=plan, broken_by=broken_by, assumptions=assumptions)

    @property
    def kind(self) -> GuaranteeKind:
        """What holds: see above."""
        return "none" if self.broken_by else cast("GuaranteeKind", self.plan.guarantee)

    @property
    def why(self) -> tuple[Reason, ...]:
        """The reasons that it does not hold; empty exactly where it holds."""
        return (*self.broken_by, *self.why_unbroken)

    @property
    def why_unbroken(self) -> tuple[Reason, ...]:
        """Those of them that are the plan's own, apart from what undoes its noise."""
        return find_reasons(self.plan)

    @property
    def delta(self) -> float:
        """The delta of every epsilon here."""
        return self.plan.delta

    @property
    def priced_epsilon(self) -> float:
        """What the accountant charges for one emptied row; the ledger shows it as spent."""
        return self.plan.epsilon

    @cached_property
    def statement(self) -> Statement:
        """The guarantee in words."""
        return write_statement(self)

    @property
    def assumed(self) -> str:
        """What is assumed, with its reasons, as whole sentences."""
        return " ".join(merge_sentences(each.sentence for each in self.assumptions))

    @property
    def assuming(self) -> str:
        """ ", assuming that ..." to follow a promise; empty where nothing is assumed."""
        return name_assumed(self.assumptions)

    @property
    def kind_in_words(self) -> str:
        """`kind`, with what it assumes where it holds."""
        return name_kind(self.kind, self.assumptions)

    @property
    def epsilon(self) -> float:
        """Epsilon for one emptied row: guaranteed, or claimed, as `kind` says; infinite for "none"."""
        return math.inf if self.kind == "none" else self.priced_epsilon

    @property
    def epsilon_group_of_two(self) -> float:
        """Epsilon for two rows emptied together; infinite for "none"."""
        return math.inf if self.kind == "none" else self.plan.epsilon_group_of_two

    @property
    def epsilon_edge(self) -> float | None:
        """Epsilon for one edge, which is two records unless the plan is directed; infinite for "none".

        None where no bound is derived.
        """
        edge = math.inf if self.kind == "none" else self.plan.epsilon_edge
        return None if math.isinf(edge) and self.kind != "none" else edge

    @property
    def best_guess(self) -> float:
        """How often an attacker can be right at most about whether one row is empty, at even prior odds.

        It is 1 unless the guarantee holds.
        """
        return bound_guess(self.epsilon, self.delta) if self.kind == "holds" else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return everything but the statement as JSON values; infinity is "inf"."""
        names = ("epsilon", "epsilon_group_of_two", "epsilon_edge", "priced_epsilon")
        figures = {name: getattr(self, name) for name in names}
        figures["priced_group_of_two"] = self.plan.epsilon_group_of_two
        return {
            "kind": self.kind,
            "why": [asdict(reason) for reason in self.why],
            "assumptions": write_assumptions(self.assumptions),
            **{name: None if value is None else json_number(value) for name, value in figures.items()},
            "delta": self.delta,
            "adjacency": self.plan.adjacency,
        }


class Size(NamedTuple):
    """What to say about an epsilon that is large: how large, and a clause for a warning."""

    level: Literal["large", "huge"]
    sentence: str


def judge_size(epsilon: float, delta: float, *, name: str = "epsilon") -> Size | None:
    """What to say about the size of an epsilon; None where it is not large, or infinite.

    Args:
        epsilon, delta: what is guaranteed, or claimed.
        name: what to call this epsilon.
    """
    if not LARGE_EPSILON < epsilon < math.inf:
        return None
    is_huge = epsilon > HUGE_EPSILON
    limit, promise = (HUGE_EPSILON, "next to nothing") if is_huge else (LARGE_EPSILON, "little")
    right = digits_up(100 * bound_guess(epsilon, delta), digits=6)
    return Size(
        "huge" if is_huge else "large",
        f"{name} = {rounded_up(epsilon)} is above {limit:g}: an attacker's guess whether one row is empty "
        f"may be right up to {right}% of the time, so it promises {promise} to a single person; take a "
        "smaller epsilon",
    )


def bound_guess(epsilon: float, delta: float) -> float:
    """How often an attacker can be right at most about whether one row is empty, at even prior odds.

    The total variation between the two distributions of the weights is at most
    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and the best guess is right with probability 1/2 plus half of
    that.
    """
    odds = math.exp(-epsilon)
    return min(1.0, (1.0 + delta * odds) / (1.0 + odds))


def describe_guarantee(guarantee: Guarantee) -> dict[str, Any]:
    """The keys of a result that say what is guaranteed: where nothing is, epsilon is infinite.

    What was charged all the same is `epsilon_spent`.
    """
    keys: dict[str, Any] = {
        "guarantee": guarantee.kind,
        "assumptions": write_assumptions(guarantee.assumptions),
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


WHY_UNPROVEN = {
    "paper sampler with reader-owned edges": (
        "the paper's sampler keeps a record with a chance that depends on how many others read the same "
        "node, so with reader-owned edges emptying one row also changes trees that never contained that "
        "node, and more trees change than the paper counts"
    ),
    "percentile thresholds": (
        "the clipping thresholds are percentiles of private gradients, and reading them is not paid for"
    ),
    "per-layer noise": (
        "noise scaled to each layer's own threshold with one multiplier undercounts what one node can change "
        "by the square root of the number of layers"
    ),
}


FIXED_SEED = Reason(
    code="fixed-seed",
    sentence="The seed is fixed: whoever knows it can subtract the noise, so the run is reproducible, not "
    "private.",
)
_NO_NOISE = Reason(code="no-noise", sentence="Training adds no noise, so epsilon is infinite.")
_TOO_SMALL = Reason(
    code="noise-too-small", sentence="The noise is too small for any finite epsilon to be proven."
)


def find_reasons(plan: PrivacyPlan) -> tuple[Reason, ...]:
    """Why the plan by itself guarantees nothing, or only what the paper claims."""
    if plan.guarantee == "none":
        return (_TOO_SMALL,) if plan.is_private else (_NO_NOISE,)
    return tuple(
        Reason(code=name.replace(" ", "-"), sentence=_as_sentence(WHY_UNPROVEN[name]))
        for name in plan.unproven
    )


def _as_sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
