"""The guarantee of a plan in plain words, for the command line and the report."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import TYPE_CHECKING

from hushgraph.privacy import bounds

if TYPE_CHECKING:
    from hushgraph.privacy.plan import PrivacyPlan

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


def rounded_up(value: float, *, decimals: int = 2) -> str:
    """A figure as text, rounded so that it never reads smaller than it is; below 1, to three digits."""
    if math.isinf(value):
        return "infinity"
    short = digits_up(value, digits=3)
    # What is rounded up to 1 is written like 1.
    if value != 0 and Decimal(short) < 1:
        return short
    exact = Decimal(repr(float(value)))
    return str(exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING, context=Context(400)))


def digits_up(value: float, *, digits: int = 5) -> str:
    """A figure to so many significant digits, rounded up; trailing zeros dropped."""
    if not math.isfinite(value):
        return "infinity"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    plain = rounded.normalize()
    return f"{plain:e}" if plain != 0 and (plain.adjusted() < -4 or plain.adjusted() > 15) else f"{plain:f}"


def sentence(plan: PrivacyPlan) -> str:
    """One sentence: what this plan promises, or that it promises nothing."""
    epsilon, delta = rounded_up(plan.epsilon), digits_up(plan.delta)
    if plan.guarantee == "none":
        if plan.noise_multiplier is None:
            why = "no noise has been chosen yet"
        elif plan.is_private:
            why = "the noise is too small for any finite epsilon to be shown"
        else:
            why = "training adds no noise"
        return f"Nothing is guaranteed: {why}, so epsilon is infinite."
    if plan.guarantee == "claimed by the paper":
        reasons = "; and ".join(WHY_UNPROVEN[reason] for reason in plan.unproven)
        claim = f"The paper claims epsilon = {epsilon} at delta = {delta}"
        return f"{claim}, but this is not a guarantee: {reasons}."
    return (
        f"Training is ({epsilon}, {delta})-differentially private for every single node: whether or not one "
        "node's row is emptied, no outcome of training becomes more likely by more than a factor of "
        f"e^{epsilon}, up to a probability of {delta}."
    )


def statement(plan: PrivacyPlan) -> str:
    """The whole guarantee, one paragraph a topic: what is protected, against what, and what is not covered.

    Args:
        plan: the plan to put into words.

    Guarantees:
        Epsilon is rounded up. A figure that no proof covers is called a claim, with the reasons.
    """
    if plan.guarantee == "none":
        return sentence(plan)
    parts = [sentence(plan), _protected(plan), _neighbours(plan), _public(), _every_record(plan)]
    if plan.reads_edges:
        parts.append(_group_of_two(plan))
    return "\n\n".join([*parts, _not_covered()])


def _protected(plan: PrivacyPlan) -> str:
    if plan.edge_owner == "sender":
        owner = 'The record "w may read u" belongs to u, the node that is read.'
    else:
        owner = 'The record "w reads u" belongs to w, the node that reads.'
    heading = "What is protected" if plan.guarantee == "holds" else "What the claim is about"
    return (
        f"{heading}: a node's row, that is its features, its label and the edge records it owns. {owner} "
        "The rows of validation and test nodes are treated in the same way where training reads them."
    )


def _neighbours(plan: PrivacyPlan) -> str:
    # n counts a tree of the node's own beside those of others, and there are no more than N in all.
    changed = min(plan.changed_trees, plan.num_train_nodes)
    trees = "the tree of one training node" if changed == 1 else f"{changed} training trees"
    counted = "This changes" if plan.guarantee == "holds" else "The claim rests on this changing"
    return (
        f"Against what ({plan.adjacency}): two datasets are neighbours when one is the other with one node's "
        "row emptied: features gone, label gone, records gone. Whether a row is empty is itself private. "
        f"{counted} at most {trees}, out of {plan.num_train_nodes}."
    )


def _public() -> str:
    return (
        "What is public: the identifiers of the nodes, which of them are in the training split and hence how "
        "many, whether the graph is directed, how many features and classes there are, and all settings of "
        "the training."
    )


def _every_record(plan: PrivacyPlan) -> str:
    if not plan.reads_edges:
        return (
            "Training reads no edges, so it shows nothing about them, and the same figure holds even when a "
            "node goes together with every record that mentions it."
        )
    return (
        'Why not "remove a node with every record that mentions it": every node that listed it would then '
        "choose anew among its other edges, and for a node that many others list no finite bound holds."
    )


def _group_of_two(plan: PrivacyPlan) -> str:
    figure = rounded_up(plan.epsilon_group_of_two)
    name = "epsilon" if plan.guarantee == "holds" else "the claimed epsilon"
    alone = (
        ""
        if _covers_an_edge_alone(plan)
        else (
            " That is for both rows emptied; with so few readers, an edge that goes while the rest of both "
            "rows stays may cost more."
        )
    )
    return (
        "An undirected edge is two records, one in the row of each end, so hiding that it exists at all "
        f"takes a group of two nodes, for which {name} is {figure} at the same delta.{alone}"
    )


def _covers_an_edge_alone(plan: PrivacyPlan) -> bool:
    """Whether the two records of one edge cost no more than two emptied rows."""
    all_trees = plan.num_train_nodes
    trees = bounds.trees_of_a_record(plan.max_readers, plan.num_layers, plan.edge_owner)
    # No label goes, so one tree more than change has to be paid for.
    return min(2 * trees, all_trees) < bounds.changed_by_two(plan.changed_trees, all_trees)


def _not_covered() -> str:
    return (
        "What is not covered: predictions, since the parameters are private but a prediction for a node "
        "reads its neighbours in the clear; settings chosen by trying several on the private graph; the "
        "labels of validation and test nodes, which serve evaluation only; and a run with a fixed seed, "
        "which is reproducible, not private."
    )
