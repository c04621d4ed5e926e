"""What a plan guarantees: one value that everybody asks, and its statement as data to render."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from hushgraph._text import digits_up, json_number, rounded_up
from hushgraph.errors import PlanError
from hushgraph.privacy import bounds

if TYPE_CHECKING:
    from hushgraph.privacy.plan import PrivacyPlan

GuaranteeKind = Literal["holds", "claimed by the paper", "none"]

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


FIXED_SEED = Reason(
    code="fixed-seed",
    sentence="The seed is fixed: whoever knows it can subtract the noise, so the run is reproducible, not "
    "private.",
)
_NO_NOISE = Reason(code="no-noise", sentence="Training adds no noise, so epsilon is infinite.")
_NOT_CHOSEN = Reason(
    code="noise-not-chosen", sentence="No noise has been chosen yet, so epsilon is infinite."
)
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
    """

    sentence: str
    caveat: str = ""
    topics: tuple[Topic, ...] = ()
    not_covered: tuple[str, ...] = ()

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
        why = (*broken_by, *_reasons(plan))
        kind = "none" if broken_by else cast("GuaranteeKind", plan.guarantee)
        return cls(
            kind=kind,
            why=why,
            priced_epsilon=plan.epsilon,
            priced_group_of_two=plan.epsilon_group_of_two,
            priced_edge=_price_edge(plan),
            delta=plan.delta,
            adjacency=plan.adjacency,
            statement=_write_statement(plan, broken_by),
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


def _reasons(plan: PrivacyPlan) -> tuple[Reason, ...]:
    """Why the plan by itself guarantees nothing, or only what the paper claims."""
    if plan.guarantee == "none":
        if plan.noise_multiplier is None:
            return (_NOT_CHOSEN,)
        return (_TOO_SMALL,) if plan.is_private else (_NO_NOISE,)
    return tuple(
        Reason(code=name.replace(" ", "-"), sentence=_as_sentence(WHY_UNPROVEN[name]))
        for name in plan.unproven
    )


def _price_edge(plan: PrivacyPlan) -> float | None:
    """Bound epsilon for an undirected edge removed while the rest of both rows stays."""
    if math.isinf(plan.epsilon):
        return math.inf
    if not plan.reads_edges:
        return 0.0
    # Lemma 4 of docs/privacy.md, which bounds the trees that one record changes, is for the stable sampler.
    if plan.sampler != "stable":
        return None
    all_trees = plan.num_train_nodes
    trees = bounds.trees_of_a_record(plan.max_readers, plan.num_layers, plan.edge_owner)
    # No label changes, so the pair for one tree more than change dominates the step.
    is_covered = min(2 * trees, all_trees) < bounds.changed_by_two(plan.changed_trees, all_trees)
    return plan.epsilon_group_of_two if is_covered else None


def _write_statement(plan: PrivacyPlan, broken_by: tuple[Reason, ...]) -> Statement:
    if plan.guarantee == "none":
        reasons = (*broken_by, *_reasons(plan))
        return Statement(sentence=" ".join(["Nothing is guaranteed.", *(r.sentence for r in reasons)]))
    own = _own_sentence(plan)
    if broken_by:
        first = " ".join(["Nothing is guaranteed.", *(reason.sentence for reason in broken_by)])
        if plan.guarantee != "holds":
            first += f" Even otherwise there would be no guarantee. {own}"
        verb = "guarantees" if plan.guarantee == "holds" else "claims"
        caveat = f"Nothing below holds for this run. It is what the plan {verb} if its noise is intact."
    else:
        first = own
        caveat = "" if plan.guarantee == "holds" else "The following describes a claim, not a guarantee."
    topics = tuple(describe(plan) for describe in _TREE_TOPICS)
    return Statement(sentence=first, caveat=caveat, topics=topics, not_covered=_NOT_COVERED)


def _own_sentence(plan: PrivacyPlan) -> str:
    """State what the plan guarantees or claims, apart from what a run does to it."""
    epsilon, delta = rounded_up(plan.epsilon), digits_up(plan.delta)
    if plan.guarantee == "claimed by the paper":
        reasons = " ".join(reason.sentence for reason in _reasons(plan))
        return (
            f"The paper claims epsilon = {epsilon} at delta = {delta}, but this is not a guarantee. {reasons}"
        )
    return (
        f"Training is ({epsilon}, {delta})-differentially private for every single node: emptying one node's "
        f"row changes the probability of any outcome of training by at most a factor of e^{epsilon}, up to a "
        f"probability of {delta}."
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
        text="The identifiers of the nodes, which of them are in the training split and so how many, whether "
        "the graph is directed, the numbers of features and classes, and all settings of the training.",
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
    text = (
        "An undirected edge is two records, one in the row of each end. Hiding that it exists takes a group "
        f"of two nodes, for which {name} is {rounded_up(plan.epsilon_group_of_two)} at the same delta."
    )
    if _price_edge(plan) is None:
        text += (
            " This is the figure for two emptied rows. Removing only the edge, while the rest of both rows "
            "stays, may cost more."
        )
    return Topic(key="edge", heading=heading, text=text)


# In the order in which they are read. Another mechanism has a list of its own.
_TREE_TOPICS: tuple[Callable[[PrivacyPlan], Topic], ...] = (
    _describe_protected,
    _describe_adjacency,
    _describe_sensitivity,
    _describe_public,
    _describe_removal,
    _describe_edge,
)

_NOT_COVERED = (
    "Predictions: the parameters are private, but a prediction for a node reads its neighbours in the clear.",
    "Model selection: settings chosen by trying several on the private graph.",
    "Labels of validation and test nodes: they serve evaluation only.",
    "Runs with a fixed seed: they are reproducible, not private.",
)


def _as_sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
