"""The words of a guarantee, as data: a sentence, topics, and what is not covered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushgraph._text import digits_up, rounded_up
from hushgraph.privacy.units import speak

if TYPE_CHECKING:
    from hushgraph.privacy.guarantee import Guarantee, Reason
    from hushgraph.privacy.plans import PrivacyPlan

_COVERED = "Predictions: covered towards everybody else"
_LABELS_NOT_COVERED = "Labels of validation and test nodes: they serve evaluation only."
_AND_PREDICTIONS = " and the predictions for everybody else"


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


Topics = tuple[Callable[["PrivacyPlan"], Topic], ...]


@dataclass(frozen=True, kw_only=True)
class Wording:
    """What a method says about its guarantee; a plan names its own.

    Attributes:
        topics: make the paragraphs of a statement, in the order in which they are read.
        not_covered: what the guarantee does not speak of.
        covers: what epsilon covers, as words inside a sentence.
        predicts_from: what a prediction is computed from, as words inside a sentence.
        example: how a prediction is asked for, a line of Python.
        terms: words that its statement uses, with what they mean.
        records: what the row of a node holds of edges.
        title: of the method; empty where the model's name says it.
    """

    topics: Topics
    not_covered: tuple[str, ...]
    covers: str
    predicts_from: str
    example: str
    terms: tuple[tuple[str, str], ...]
    records: str = "edge records"
    title: str = ""


def write_statement(guarantee: Guarantee) -> Statement:
    """Say a guarantee in words: those of who is protected."""
    return speak(_write_statement(guarantee), guarantee.plan.protects)


def _write_statement(guarantee: Guarantee) -> Statement:
    plan = guarantee.plan
    if plan.guarantee == "none":
        return Statement(sentence=_join("Nothing is guaranteed.", guarantee.why))
    own = _own_sentence(guarantee)
    if guarantee.broken_by:
        first = _join("Nothing is guaranteed.", guarantee.broken_by)
        if plan.guarantee != "holds":
            first += f" Even otherwise there would be no guarantee. {own}"
        verb = "guarantees" if plan.guarantee == "holds" else "claims"
        caveat = f"Nothing below holds for this run. It is what the plan {verb} if its noise is intact."
    else:
        first = own
        caveat = "" if plan.guarantee == "holds" else "The following describes a claim, not a guarantee."
    words = plan.words
    topics = tuple(describe(plan) for describe in words.topics)
    if guarantee.assumptions:
        topics = (*topics, Topic(key="assumptions", heading="What is assumed", text=guarantee.assumed))
    not_covered = words.not_covered
    if plan.num_tables:
        topics = (*topics, _describe_figures(plan))
        not_covered = tuple(item for item in not_covered if item != _LABELS_NOT_COVERED)
    return Statement(
        sentence=first, caveat=caveat, topics=topics, not_covered=not_covered, covers=_name_covered(plan)
    )


def _name_covered(plan: PrivacyPlan) -> str:
    """What epsilon covers, as words inside a sentence."""
    covers = plan.words.covers
    if not plan.num_tables:
        return covers
    return covers.replace(_AND_PREDICTIONS, f", the figures{_AND_PREDICTIONS}")


def _join(start: str, reasons: Iterable[Reason]) -> str:
    return " ".join([start, *(reason.sentence for reason in reasons)])


def _own_sentence(guarantee: Guarantee) -> str:
    """State what the plan guarantees or claims, apart from what a run does to it."""
    plan, assuming = guarantee.plan, guarantee.assuming
    epsilon, delta = rounded_up(plan.epsilon), digits_up(plan.delta)
    if plan.guarantee == "claimed by the paper":
        claim = f"The paper claims epsilon = {epsilon} at delta = {delta}, but this is not a guarantee."
        return _join(claim, guarantee.why_unbroken)
    covered, outcome = "Training is", "any outcome of training"
    if plan.covers_predictions:
        covers = _name_covered(plan)
        covered, outcome = f"{covers[0].upper()}{covers[1:]} are together", "any outcome"
    return (
        f"{covered} ({epsilon}, {delta})-differentially private for every single node{assuming}: emptying "
        f"one node's row changes the probability of {outcome} by at most a factor of e^{epsilon}, up to a "
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
        text=f"A node's row: its features, its label and the edge records it owns. {owner}"
        f"{_describe_records(plan)} The rows of validation and test nodes are treated in the same way where "
        "training reads them.",
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
        "number of features, what labels can be (the list of classes, or the bounds of a number), and all "
        "settings of the training, among them who owns an edge and whether edges are directed.",
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
        "records it owns. In an undirected graph these are its neighbours." + _describe_records(plan),
    )


def _describe_records(plan: PrivacyPlan) -> str:
    """What else a list holds, where records have weights or are of several relations."""
    return "".join(f" {sentence}" for sentence in plan.record_sentences)


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
        heading=_COVERED,
        text="Weights, boards and predictions are jointly differentially private. Epsilon protects what a "
        "person's own row contributes, towards everybody who does not see that person's own prediction. It "
        "does not hide that others list the person: their lists, their predictions and the board at that "
        "place still show it. Removing a person and every edge that names them has no bound. Whoever sees a "
        "person's prediction sees a function of that person's features and list, without noise.",
    )


def _describe_own_predictions(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="predictions",
        heading=_COVERED,
        text="Weights and predictions are jointly differentially private. A prediction is computed from a "
        "person's own features and the weights; it reads nobody else's row and no edge. Epsilon protects "
        "what a person's own row contributes, towards everybody who does not see that person's own "
        "prediction. Whoever sees a person's prediction sees a function of that person's features, without "
        "noise.",
    )


def _describe_new_nodes(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="new-nodes",
        heading="New nodes",
        text="A node that arrives later and lists places on the board reads what was released. That costs "
        "nobody anything, and predicting twice costs what predicting once costs. A further board or training "
        "is a further charge.",
    )


def _describe_figures(plan: PrivacyPlan) -> Topic:
    tables = "one table" if plan.num_tables == 1 else f"each of {plan.num_tables} tables"
    return Topic(
        key="figures",
        heading="Figures: covered",
        text="Accuracy and the other figures are computed from tables with noise. A labelled row of the "
        f"validation or test split moves {tables} by at most 1, and noise covers it. Such rows do not pay "
        "for training, so this fits into the same epsilon: a row of these splits pays "
        f"{rounded_up(plan.epsilon_evaluated)}. Exact figures, where they were asked for, are not covered.",
    )


def _describe_other_changes(plan: PrivacyPlan) -> Topic:
    return Topic(
        key="edge",
        heading="Other questions, other figures",
        text=f"Two rows emptied together: epsilon {rounded_up(plan.epsilon_group_of_two)}. One "
        f"{plan.edge_name}, everything else kept: {rounded_up(plan.epsilon_edge)}. "
        + "".join(f"One {what}: {rounded_up(epsilon)}. " for what, epsilon in plan.record_figures)
        + "One training label "
        f"changed into another: {rounded_up(plan.epsilon_label)}. A row of the validation or "
        f"test split: {rounded_up(plan.epsilon_evaluated)}. A row of no split: "
        f"{rounded_up(plan.epsilon_other)}. All at the same delta.",
    )


# In the order in which they are read. Another mechanism has a list of its own.
_ON_TREES: Topics = (
    _describe_protected,
    _describe_adjacency,
    _describe_sensitivity,
    _describe_public,
    _describe_removal,
    _describe_edge,
)

_ON_ROWS: Topics = (*_ON_TREES[:3], _describe_own_predictions, *_ON_TREES[3:])

_ON_BOARDS: Topics = (
    _describe_row,
    _describe_adjacency,
    _describe_ballots,
    _describe_predictions,
    _describe_new_nodes,
    _describe_public,
    _describe_other_changes,
)

_NEVER_COVERED = (
    "Model selection: settings chosen by trying several on the private graph.",
    _LABELS_NOT_COVERED,
    "Runs with a fixed seed: they are reproducible, not private.",
)

_TREE_NOT_COVERED = (
    "Predictions: a prediction for a node reads its neighbours in the clear, whatever holds for the weights.",
    *_NEVER_COVERED,
)

_ROW_NOT_COVERED = (
    "A person's own prediction: it is a function of that person's own features, without noise.",
    *_NEVER_COVERED,
)

_BILLBOARD_NOT_COVERED = (
    "A person's own prediction: it is a function of that person's own features and list, without noise.",
    "Predictions in the clear, which average over neighbours.",
    *_NEVER_COVERED,
)

_TREE_TERMS = (
    ("read", "A node reads another if what the model computes for it depends on the other's features."),
    (
        "tree",
        "Everything that the loss of one training node reads: the node itself, what it reads, and so on for "
        "every round.",
    ),
    (
        "changed trees, n",
        "The sensitivity: the most trees of training nodes that differ when one node's row is emptied.",
    ),
    ("the paper's noise multiplier", "sigma / (2 C n), the measure of noise in the paper."),
)
_BILLBOARD_TERMS = (
    (
        "list, places",
        "The nodes that a row names: the other ends of the edge records it owns. In an undirected graph, its "
        "neighbours.",
    ),
    ("ballot", "What one training row adds to the places it lists: its label, with norm 1 in all."),
    ("board", "The sums of all ballots, one vector for each place, with noise added once. It is released."),
    ("reading", "What a row sees of the board: its sum over the places that the row lists."),
)
_PREDICT = "probabilities = run.predict_proba(data)"

TREE_WORDS = Wording(
    topics=_ON_TREES,
    not_covered=_TREE_NOT_COVERED,
    covers="the weights",
    predicts_from="its features and those of its neighbours",
    example=_PREDICT,
    terms=_TREE_TERMS,
)
ROW_WORDS = Wording(
    topics=_ON_ROWS,
    not_covered=_ROW_NOT_COVERED,
    covers="the weights and the predictions for everybody else",
    predicts_from="that node's own features",
    example=_PREDICT,
    terms=_TREE_TERMS,
)
BILLBOARD_WORDS = Wording(
    topics=_ON_BOARDS,
    not_covered=_BILLBOARD_NOT_COVERED,
    covers="the weights, the boards and the predictions for everybody else",
    predicts_from="that node's own features and the places it lists on the board",
    example="probabilities, unknown = run.predict_new(features, places)  # a new node and the nodes it lists",
    terms=_BILLBOARD_TERMS,
    records="list of places",
    title="Billboard",
)
