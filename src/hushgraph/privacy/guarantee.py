"""What a plan guarantees: one value that everybody asks, and its words for report, terminal and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from hushgraph._text import digits_up, rounded_up
from hushgraph.errors import PlanError
from hushgraph.privacy.plans import json_number

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.privacy.plans import PrivacyPlan


GuaranteeKind = Literal["holds", "claimed by the paper", "none"]
# Above the first, epsilon promises little to a single person, above the second next to nothing.
LARGE_EPSILON, HUGE_EPSILON = 10.0, 100.0


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What training by a plan guarantees; `Guarantee.of` is the only place that decides it.

    Attributes:
        kind: "holds" where every part is covered by a proof, "claimed by the paper" where a part is not, and
            "none" where there is no noise, or something undoes it.
        why: the reasons it does not hold; empty exactly where it holds.
        assumptions: what was not declared and is taken as public, without which it does not hold.
        priced_epsilon: what the accountant charges for one emptied row; the ledger shows it as spent.
        priced_group_of_two: the same for two rows emptied together.
        priced_edge: an upper bound for one edge removed, which is two records unless the plan is directed;
            None where no bound is derived.
        delta: of all three.
        adjacency: the relation between neighbouring data sets.
        plan: the plan itself.
        broken_by: what undoes its noise.

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
    plan: PrivacyPlan = field(repr=False)
    broken_by: tuple[Reason, ...] = field(default=(), repr=False)
    assumptions: tuple[Assumption, ...] = ()

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
            plan=plan,
            broken_by=broken_by,
            assumptions=assumptions,
        )

    @cached_property
    def statement(self) -> Statement:
        """The guarantee in words."""
        return write_statement(self.plan, self.broken_by, self.assumptions)

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
        return math.inf if self.kind == "none" else self.priced_group_of_two

    @property
    def epsilon_edge(self) -> float | None:
        """Epsilon for one edge; infinite for "none", None where no bound is derived."""
        return math.inf if self.kind == "none" else self.priced_edge

    @property
    def best_guess(self) -> float:
        """How often an attacker can be right at most about whether one row is empty, at even prior odds.

        It is 1 unless the guarantee holds.
        """
        return bound_guess(self.epsilon, self.delta) if self.kind == "holds" else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return everything but the statement as JSON values; infinity is "inf"."""
        names = ("epsilon", "epsilon_group_of_two", "epsilon_edge", "priced_epsilon", "priced_group_of_two")
        figures = {name: getattr(self, name) for name in names}
        return {
            "kind": self.kind,
            "why": [asdict(reason) for reason in self.why],
            "assumptions": write_assumptions(self.assumptions),
            **{name: None if value is None else json_number(value) for name, value in figures.items()},
            "delta": self.delta,
            "adjacency": self.adjacency,
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


def find_assumptions(graph: Graph) -> tuple[Assumption, ...]:
    """What a guarantee for training on `graph` takes as public although nobody declared it."""
    return () if graph.has_declared_classes else (CLASSES_FROM_LABELS,)


def name_kind(kind: str, assumptions: Sequence[Assumption]) -> str:
    """Return a kind of guarantee for readers: what one that holds assumes belongs to it."""
    return kind + name_assumed(assumptions) if kind == "holds" else kind


def write_assumptions(assumptions: Sequence[Assumption]) -> list[dict[str, str]]:
    """Return assumptions as JSON values, which `Assumption(**each)` reads."""
    return [asdict(each) for each in assumptions]


def name_assumed(assumptions: Sequence[Assumption]) -> str:
    """Return ", assuming that ..." to follow a promise; empty where nothing is assumed."""
    clauses = " and that ".join(each.clause for each in assumptions)
    return f", assuming that {clauses}" if clauses else ""


FIXED_SEED = Reason(
    code="fixed-seed",
    sentence="The seed is fixed: whoever knows it can subtract the noise, so the run is reproducible, not "
    "private.",
)
_NO_NOISE = Reason(code="no-noise", sentence="Training adds no noise, so epsilon is infinite.")
_TOO_SMALL = Reason(
    code="noise-too-small", sentence="The noise is too small for any finite epsilon to be proven."
)


@dataclass(frozen=True, kw_only=True)
class Topic:
    """One paragraph of a statement.

    Attributes:
        key: for programs.
        heading, text: for readers.
    """

    key: str
    heading: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A guarantee in words, as data: the report, the terminal and JSON render it.

    Attributes:
        sentence: what is guaranteed, or that nothing is, and why.
        caveat: what to read before the topics; empty where the guarantee holds.
        topics: protected rows, adjacency, sensitivity and so on; empty where there is no noise.
        not_covered: what the guarantee does not speak of.
        covers: what epsilon covers, or would cover, as words inside a sentence; empty without noise.
    """

    sentence: str
    caveat: str = ""
    topics: tuple[Topic, ...] = ()
    not_covered: tuple[str, ...] = ()
    covers: str = ""

    def to_text(self) -> str:
        """Render the statement for a terminal, one paragraph per topic."""
        paragraphs = [
            self.sentence,
            self.caveat,
            *(f"{topic.heading}: {topic.text}" for topic in self.topics),
        ]
        if self.not_covered:
            paragraphs.append(
                "\n".join(["What is not covered:", *(f"- {item}" for item in self.not_covered)])
            )
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def find_reasons(plan: PrivacyPlan) -> tuple[Reason, ...]:
    """Why the plan by itself guarantees nothing, or only what the paper claims."""
    if plan.guarantee == "none":
        return (_TOO_SMALL,) if plan.is_private else (_NO_NOISE,)
    return tuple(
        Reason(code=name.replace(" ", "-"), sentence=_as_sentence(WHY_UNPROVEN[name]))
        for name in plan.unproven
    )


def write_statement(
    plan: PrivacyPlan, broken_by: tuple[Reason, ...], assumptions: tuple[Assumption, ...] = ()
) -> Statement:
    if plan.guarantee == "none":
        reasons = (*broken_by, *find_reasons(plan))
        return Statement(sentence=" ".join(["Nothing is guaranteed.", *(r.sentence for r in reasons)]))
    own = _own_sentence(plan, assumptions)
    if broken_by:
        first = " ".join(["Nothing is guaranteed.", *(reason.sentence for reason in broken_by)])
        if plan.guarantee != "holds":
            first += f" Even otherwise there would be no guarantee. {own}"
        verb = "guarantees" if plan.guarantee == "holds" else "claims"
        caveat = f"Nothing below holds for this run. It is what the plan {verb} if its noise is intact."
    else:
        first = own
        caveat = "" if plan.guarantee == "holds" else "The following describes a claim, not a guarantee."
    not_covered: tuple[str, ...]
    if plan.method == "billboard":
        describe_all, not_covered = _BILLBOARD_TOPICS, _BILLBOARD_NOT_COVERED
    elif plan.covers_predictions:
        describe_all, not_covered = _ROW_TOPICS, _ROW_NOT_COVERED
    else:
        describe_all, not_covered = _TREE_TOPICS, _NOT_COVERED
    topics = tuple(describe(plan) for describe in describe_all)
    if assumptions:
        text = " ".join(each.sentence for each in assumptions)
        topics = (*topics, Topic(key="assumptions", heading="What is assumed", text=text))
    return Statement(
        sentence=first, caveat=caveat, topics=topics, not_covered=not_covered, covers=_name_covered(plan)
    )


def _name_covered(plan: PrivacyPlan) -> str:
    if not plan.covers_predictions:
        return "the weights"
    boards = ", the boards" if plan.method == "billboard" else ""
    return f"the weights{boards} and the predictions for everybody else"


def _own_sentence(plan: PrivacyPlan, assumptions: tuple[Assumption, ...]) -> str:
    """State what the plan guarantees or claims, apart from what a run does to it."""
    epsilon, delta = rounded_up(plan.epsilon), digits_up(plan.delta)
    if plan.guarantee == "claimed by the paper":
        reasons = " ".join(reason.sentence for reason in find_reasons(plan))
        return (
            f"The paper claims epsilon = {epsilon} at delta = {delta}, but this is not a guarantee. {reasons}"
        )
    assuming = name_assumed(assumptions)
    if plan.covers_predictions:
        covered = _name_covered(plan)
        return (
            f"{covered[0].upper()}{covered[1:]} are together "
            f"({epsilon}, {delta})-differentially private for every single node{assuming}: emptying one "
            f"node's row changes the probability of any outcome by at most a factor of e^{epsilon}, up to a "
            f"probability of {delta}."
        )
    return (
        f"Training is ({epsilon}, {delta})-differentially private for every single node{assuming}: emptying "
        f"one node's row changes the probability of any outcome of training by at most a factor of "
        f"e^{epsilon}, up to a probability of {delta}."
    )


def _describe_protected(plan: PrivacyPlan) -> Topic:
    if plan.edge_owner == "sender":
        owner = 'Edges are sender-owned: the record "w may read u" belongs to u, the node that is read.'
    else:
        owner = 'Edges are reader-owned: the record "w reads u" belongs to w, the node that reads.'
    return Topic(
        key="protected",
        heading="What is protected" if plan.guarantee == "holds" else "What the claim is about",
        text=f"A node's row: its features, its label and the edge records it owns. {owner} The rows of "
        "validation and test nodes are treated in the same way where training reads them.",
    )


def _describe_adjacency(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="adjacency",
        heading=f"Adjacency ({plan.adjacency})",
        text="Two data sets are neighbours if one is the other with the row of one node emptied: no "
        "features, no label, no edge records. Whether a row is empty is itself private.",
    )


def _describe_sensitivity(plan: PrivacyPlan) -> Topic:
    # n counts a tree of the node's own beside those of others, and there are no more than N in all.
    changed = min(plan.changed_trees, plan.num_train_nodes)
    trees = "the tree of one training node" if changed == 1 else f"{changed:,} training trees"
    start = "Emptying" if plan.guarantee == "holds" else "The claim rests on this bound: emptying"
    return Topic(
        key="sensitivity",
        heading="Sensitivity",
        text=f"{start} one row changes at most {trees}, out of {plan.num_train_nodes:,}. A training tree is "
        "everything that the loss of one training node reads. The gradient of each tree is clipped, so each "
        "changed tree moves the sum of a step by a bounded amount.",
    )


def _describe_public(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="public",
        heading="What is public",
        text="The identifiers of the nodes, which of them are in the training split and so how many, the "
        "number of features, the list of classes, and all settings of the training, among them who owns an "
        "edge and whether edges are directed.",
    )


def _describe_removal(plan: PrivacyPlan) -> Topic:
    if not plan.reads_edges:
        return Topic(
            key="removal",
            heading="Removing a node with every record that mentions it",
            text="Training reads no edges, so the weights show nothing about them. The same epsilon applies "
            "even if a node is removed together with every record that mentions it.",
        )
    return Topic(
        key="removal",
        heading='Why not "remove a node with every record that mentions it"',
        text="Every node that listed the removed node would choose anew among its other edges. For a node "
        "that many others list, no finite bound holds.",
    )


def _describe_edge(plan: PrivacyPlan) -> Topic:
    heading = "Hiding that an edge exists"
    if not plan.reads_edges:
        return Topic(key="edge", heading=heading, text="Epsilon is 0: training reads no edges.")
    name = "epsilon" if plan.guarantee == "holds" else "the claimed epsilon"
    if plan.directed:
        text = (
            "A directed edge is one record, in the row of its owner. Hiding that it exists takes that row, "
            f"for which {name} is {rounded_up(plan.epsilon)}. For the record alone, the rest of that row "
            "kept, "
        )
    else:
        text = (
            "An undirected edge is two records, one in the row of each end. Hiding that it exists takes a "
            f"group of two nodes, for which {name} is {rounded_up(plan.epsilon_group_of_two)} at the same "
            "delta. That is for both rows emptied. For the edge alone, the rest of both rows kept, "
        )
    edge = plan.epsilon_edge
    text += "no bound is proven." if math.isinf(edge) else f"epsilon is {rounded_up(edge)}."
    return Topic(key="edge", heading=heading, text=text)


def _describe_row(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="protected",
        heading="What is protected",
        text="A node's row: its features, its label and its list, which is the other ends of the edge "
        "records it owns. In an undirected graph these are its neighbours.",
    )


def _describe_ballots(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="sensitivity",
        heading="Sensitivity",
        text="Every labelled training row casts one ballot of norm 1 onto the places it lists, so emptying a "
        "row moves a board by at most 1. Given the boards, every training example is a function of one row, "
        f"so emptying a row removes one of {plan.num_train_nodes:,} examples and changes no other.",
    )


def _describe_predictions(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="predictions",
        heading="Predictions: covered towards everybody else",
        text="Epsilon protects what a person's own row contributes, towards everybody who does not see that "
        "person's own prediction. It does not hide that others list the person: their lists, their "
        "predictions and the board at that place still show it, and if the person left with every mention no "
        "bound holds. Whoever sees a person's prediction sees a function of that person's features and list, "
        "without noise.",
    )


def _describe_own_predictions(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="predictions",
        heading="Predictions: covered towards everybody else",
        text="A prediction is computed from a person's own features and the weights; it reads nobody else's "
        "row and no edge. Epsilon protects what a person's own row contributes, towards everybody who does "
        "not see that person's own prediction. Whoever sees a person's prediction sees a function of that "
        "person's features, without noise.",
    )


def _describe_new_nodes(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="new-nodes",
        heading="New nodes",
        text="A node that arrives later and lists places on the board reads what was released. That costs "
        "nobody anything, and predicting twice costs what predicting once costs. A further board or training "
        "is a further charge.",
    )


def _describe_other_changes(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="edge",
        heading="Other questions, other figures",
        text=f"Two rows emptied together: epsilon {rounded_up(plan.epsilon_group_of_two)}. One "
        f"{plan.edge_name}, everything else kept: {rounded_up(plan.epsilon_edge)}. One training label "
        f"changed into another: {rounded_up(plan.epsilon_label)}. A row of the validation or "
        f"test split: {rounded_up(plan.epsilon_evaluated)}. A row of no split: "
        f"{rounded_up(plan.epsilon_other)}. All at the same delta.",
    )


# In the order in which they are read. Another mechanism has a list of its own.
_TREE_TOPICS: tuple[Callable[[PrivacyPlan], Topic], ...] = (
    _describe_protected,
    _describe_adjacency,
    _describe_sensitivity,
    _describe_public,
    _describe_removal,
    _describe_edge,
)

_ROW_TOPICS: tuple[Callable[[PrivacyPlan], Topic], ...] = (
    *_TREE_TOPICS[:3],
    _describe_own_predictions,
    *_TREE_TOPICS[3:],
)

_BILLBOARD_TOPICS: tuple[Callable[[PrivacyPlan], Topic], ...] = (
    _describe_row,
    _describe_adjacency,
    _describe_ballots,
    _describe_predictions,
    _describe_new_nodes,
    _describe_public,
    _describe_other_changes,
)

_NOT_COVERED = (
    "Predictions: a prediction for a node reads its neighbours in the clear, whatever holds for the weights.",
    "Model selection: settings chosen by trying several on the private graph.",
    "Labels of validation and test nodes: they serve evaluation only.",
    "Runs with a fixed seed: they are reproducible, not private.",
)

_ROW_NOT_COVERED = (
    "A person's own prediction: it is a function of that person's own features, without noise.",
    *_NOT_COVERED[1:],
)

_BILLBOARD_NOT_COVERED = (
    "A person's own prediction: it is a function of that person's own features and list, without noise.",
    "Predictions in the clear, which average over neighbours.",
    "Model selection: settings chosen by trying several on the private graph.",
    "Labels of validation and test nodes: they serve evaluation only.",
    "Runs with a fixed seed: they are reproducible, not private.",
)


def _as_sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
