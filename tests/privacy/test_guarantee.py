"""The guarantee of a plan: its kind, its reasons, its figures, and its statement."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from hushgraph._text import rounded_up
from hushgraph.accounting.accountants import gaussian_epsilon
from hushgraph.privacy.guarantee import (
    CLASSES_FROM_LABELS,
    LOOKED_UP,
    Assumption,
    Guarantee,
    Reason,
    merge_sentences,
    name_assumed,
)
from hushgraph.privacy.plans import PrivacyPlan, RowPlan
from plan_words import sentence, statement
from plans import make_plan


def make(**changes: Any) -> PrivacyPlan:
    fields: dict[str, Any] = {
        "num_train_nodes": 1000,
        "num_layers": 1,
        "max_readers": 3,
        "batch_size": 100,
        "steps": 20,
        "paper_noise_multiplier": 1.0,
    }
    return make_plan(**{**fields, **changes})


CLAIMED = {"sampler": "paper", "edge_owner": "reader"}
FLOAT_NOISE = Reason(code="float-noise", sentence="The noise is drawn in float32.")


def test_a_guarantee_that_holds_has_the_figures_of_the_plan() -> None:
    plan, guarantee = make(), Guarantee.of(make())
    assert (guarantee.kind, guarantee.why) == ("holds", ())
    assert guarantee.epsilon == guarantee.priced_epsilon == plan.epsilon
    assert guarantee.epsilon_group_of_two == plan.epsilon_group_of_two
    assert (guarantee.delta, guarantee.plan.adjacency) == (plan.delta, "node-level, zero-out")


@pytest.mark.parametrize("plan", [make(), make(**CLAIMED)])
@pytest.mark.parametrize(
    ("broken", "codes"),
    [
        ({"seed_is_fixed": True}, ["fixed-seed"]),
        ({"broken_by": (FLOAT_NOISE,)}, ["float-noise"]),
        ({"seed_is_fixed": True, "broken_by": (FLOAT_NOISE,)}, ["fixed-seed", "float-noise"]),
    ],
)
def test_what_undoes_the_noise_leaves_no_guarantee(
    plan: PrivacyPlan, broken: dict[str, Any], codes: list[str]
) -> None:
    guarantee = Guarantee.of(plan, **broken)
    assert guarantee.kind == "none"
    assert guarantee.epsilon == guarantee.epsilon_group_of_two == guarantee.epsilon_edge == math.inf
    assert guarantee.best_guess == 1.0
    assert guarantee.priced_epsilon == plan.epsilon
    assert [reason.code for reason in guarantee.why][: len(codes)] == codes
    assert len(guarantee.why) == len(codes) + len(plan.unproven)
    words = guarantee.statement
    assert words.sentence.startswith("Nothing is guaranteed. ")
    assert all(reason.sentence in words.sentence for reason in guarantee.why)
    assert words.caveat.startswith("Nothing below holds for this run.")
    assert ("differentially private" in words.sentence) is False
    assert ("The paper claims epsilon" in words.sentence) == bool(plan.unproven)


def test_a_claim_has_the_figure_of_the_paper_and_its_reasons() -> None:
    guarantee = Guarantee.of(make(**CLAIMED))
    assert guarantee.kind == "claimed by the paper"
    assert guarantee.epsilon == guarantee.priced_epsilon < math.inf
    assert [reason.code for reason in guarantee.why] == ["paper-sampler-with-reader-owned-edges"]
    assert guarantee.best_guess == 1.0
    assert guarantee.statement.caveat == "The following describes a claim, not a guarantee."


@pytest.mark.parametrize(("noise", "code"), [(0.0, "no-noise"), (1e-150, "noise-too-small")])
@pytest.mark.parametrize("batch_size", [1000, 100])
def test_without_enough_noise_there_is_nothing_a_seed_could_undo(
    noise: float, code: str, batch_size: int
) -> None:
    plan = make(paper_noise_multiplier=noise, batch_size=batch_size)
    guarantee = Guarantee.of(plan, seed_is_fixed=not plan.is_private)
    assert guarantee.kind == "none"
    assert [reason.code for reason in guarantee.why] == [code]
    assert guarantee.epsilon == guarantee.priced_epsilon == math.inf


def test_json_has_everything_but_the_words() -> None:
    found = Guarantee.of(make(), seed_is_fixed=True).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["kind"], found["epsilon"], found["epsilon_edge"]) == ("none", "inf", "inf")
    assert found["priced_epsilon"] == make().epsilon
    assert [reason["code"] for reason in found["why"]] == ["fixed-seed"]
    assert Guarantee.of(make(sampler="paper", max_reads=None)).to_json()["epsilon_edge"] is None


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_best_guess_is_that_of_the_worst_mechanism(epsilon: float) -> None:
    plan = RowPlan(num_train_nodes=100, num_layers=0, max_readers=0, batch_size=100, steps=5, delta=1e-3)
    plan = plan.calibrated(epsilon=epsilon)
    e, d = plan.epsilon, plan.delta
    # Outcomes "surely full", "likely full", "likely empty", "surely empty": no (e, d) mechanism tells more.
    full = np.array([d, (1 - d) * math.exp(e) / (1 + math.exp(e)), (1 - d) / (1 + math.exp(e)), 0.0])
    right = np.maximum(full, full[::-1]).sum() / 2
    assert Guarantee.of(plan).best_guess == pytest.approx(right)


def test_a_statement_has_a_topic_for_every_question() -> None:
    words = Guarantee.of(make()).statement
    keys = [topic.key for topic in words.topics]
    assert keys == ["protected", "adjacency", "sensitivity", "public", "removal", "edge"]
    texts = {topic.key: topic.text for topic in words.topics}
    assert "its features, its label and the edge records it owns" in texts["protected"]
    assert "the row of one node emptied" in texts["adjacency"]
    assert "at most 4 training trees, out of 1,000" in texts["sensitivity"]
    assert "An undirected edge is two records" in texts["edge"]
    assert f"epsilon is {rounded_up(make().epsilon_group_of_two)}" in texts["edge"]
    assert "differentially private for every single node" in words.sentence
    assert (words.caveat, words.sentence) == ("", sentence(make()))
    starts = [
        "Predictions",
        "Model selection",
        "Labels of validation and test nodes",
        "Runs with a fixed seed",
    ]
    assert [item.partition(":")[0] for item in words.not_covered] == starts


def test_the_text_has_every_part_in_order() -> None:
    words = Guarantee.of(make(**CLAIMED)).statement
    parts = [words.sentence, words.caveat]
    parts += [f"{topic.heading}: {topic.text}" for topic in words.topics]
    parts += ["\n".join(["What is not covered:", *(f"- {item}" for item in words.not_covered)])]
    assert statement(make(**CLAIMED)) == "\n\n".join(parts)


@pytest.mark.parametrize(("owner", "words"), [("sender", "belongs to u"), ("reader", "belongs to w")])
def test_the_owner_is_named(owner: str, words: str) -> None:
    assert words in statement(make(edge_owner=owner, max_reads=3))


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"sampler": "paper", "edge_owner": "reader"}, ["trees that never contained that node"]),
        ({"clipping": "percentile"}, ["percentiles of private gradients"]),
        ({"noise": "per-layer"}, ["square root of the number of layers"]),
        (
            {"clipping": "percentile", "noise": "per-layer"},
            ["percentiles of private gradients", "square root of the number of layers"],
        ),
    ],
)
def test_a_claim_is_called_a_claim_with_every_reason(changes: dict[str, Any], reasons: list[str]) -> None:
    text = statement(make(**changes))
    assert text.startswith("The paper claims epsilon = ")
    assert "this is not a guarantee" in text
    assert all(reason in text for reason in reasons)
    assert "differentially private" not in text
    assert "What is protected" not in text
    assert "The claim rests on this bound" in text


def test_reading_no_edges_is_stronger() -> None:
    text = statement(make(max_readers=0))
    assert "even if a node is removed together with every record that mentions it" in text
    assert "the tree of one training node" in text
    assert "Why not" not in text
    assert "group of two" not in text
    assert Guarantee.of(make(max_readers=0)).epsilon_edge == 0.0


def test_no_noise_guarantees_nothing() -> None:
    plan = make(paper_noise_multiplier=0)
    assert statement(plan) == "Nothing is guaranteed. Training adds no noise, so epsilon is infinite."


@pytest.mark.parametrize(
    ("changes", "trees"),
    [
        # Two records, each of which changes at most 2 N(K, 0) trees.
        ({"max_readers": 1, "max_reads": 8}, 4),
        ({"max_readers": 2, "max_reads": 8}, 4),
        # Two records, each of which changes at most 3 N(K, 0) trees; one where it is declared directed.
        ({"max_readers": 1, "max_reads": 2, "edge_owner": "reader"}, 6),
        ({"max_readers": 1, "max_reads": 2, "edge_owner": "reader", "directed": True}, 3),
        ({"max_readers": 2, "max_reads": 8, "directed": True}, 2),
        ({"max_readers": 2, "sampler": "paper"}, None),
    ],
)
def test_an_edge_has_a_figure_only_where_a_proof_covers_it(
    changes: dict[str, Any], trees: int | None
) -> None:
    plan = make(batch_size=1_000, steps=10, paper_noise_multiplier=5.0, **changes)
    edge = Guarantee.of(plan).epsilon_edge
    assert ("no bound is proven" in statement(plan)) == (trees is None)
    if trees is None:
        assert edge is None
    else:
        # Full batches: one Gaussian, in which every changed tree moves the sum from +C to -C.
        shift = math.sqrt(plan.steps) * 2 * trees / plan.sigma_over_clip
        assert edge == pytest.approx(gaussian_epsilon(shift, plan.delta), rel=1e-6)


def test_three_assumptions_are_one_list() -> None:
    of = [LOOKED_UP[kind] for kind in ("classes", "records", "rare")]
    assert name_assumed([]) == ""
    assert name_assumed(of[:1]) == ", assuming that the list of classes is public"
    assert name_assumed(of[:2]) == (
        ", assuming that the list of classes is public and that the choice of weights, relations and places "
        "is public"
    )
    assert name_assumed(of) == (
        ", assuming that the list of classes, the choice of weights, relations and places, and the choice of "
        "the rare class are public"
    )
    assert merge_sentences(each.sentence for each in of[:2]) == [each.sentence for each in of[:2]]
    assert merge_sentences(each.sentence for each in (CLASSES_FROM_LABELS, *of)) == [
        CLASSES_FROM_LABELS.sentence,
        "The list of classes, the choice of weights, relations and places, and the choice of the rare class "
        "were read off the rows, by check or by whoever looked at them, and are assumed to be public. One "
        "row may have decided each of them.",
    ]
    # Of a run of another version, whose clauses are read from its folder.
    other = Assumption(code="other", clause="nobody looked", sentence="Nobody looked.")
    assert name_assumed([*of[:2], other]).endswith(" is public and that nobody looked")
