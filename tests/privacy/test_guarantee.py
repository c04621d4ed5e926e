"""The guarantee in words: what each kind of plan says, and figures rounded up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hushgraph.privacy.guarantee import digits_up, rounded_up, sentence, statement
from hushgraph.privacy.plan import PrivacyPlan


def make(**changes: Any) -> PrivacyPlan:
    fields: dict[str, Any] = {
        "num_train_nodes": 1000,
        "num_layers": 1,
        "max_readers": 3,
        "batch_size": 100,
        "steps": 20,
        "noise_multiplier": 1.0,
    }
    return PrivacyPlan(**{**fields, **changes})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (12.0, "12.00"),
        (11.981, "11.99"),
        (11.990000001, "12.00"),
        (1e6 + 0.001, "1000000.01"),
        (0.12345, "0.124"),
        (0.9991, "1.00"),
        (0.999, "0.999"),
        (0.00012341, "0.000124"),
        (math.inf, "infinity"),
    ],
)
def test_epsilon_is_rounded_up(value: float, text: str) -> None:
    assert rounded_up(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0996e-6, "1.0996e-6"),
        (1e-15, "1e-15"),
        (0.5, "0.5"),
        (2.0, "2"),
        (1 / 3, "0.33334"),
        (32.0, "32"),
    ],
)
def test_digits_are_rounded_up(value: float, text: str) -> None:
    assert digits_up(value) == text
    assert float(text) >= value


def test_a_guarantee_is_put_into_words() -> None:
    text = statement(make())
    for words in (
        "differentially private for every single node",
        "its features, its label and the edge records it owns",
        "row emptied",
        "at most 4 training trees",
        "What is public",
        "What is not covered",
        "reads its neighbours in the clear",
        "trying several on the private graph",
        "labels of validation and test nodes",
        "remove a node with every record that mentions it",
        "An undirected edge is two records",
        f"epsilon is {rounded_up(make().epsilon_group_of_two)}",
    ):
        assert words in text
    assert "claim" not in text
    assert text.startswith(sentence(make()))


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
    assert "This changes at most" not in text


def test_reading_no_edges_is_stronger() -> None:
    text = statement(make(max_readers=0))
    assert "the same figure holds even when a node goes together with every record that mentions it" in text
    assert "the tree of one training node" in text
    assert "Why not" not in text
    assert "group of two" not in text


@pytest.mark.parametrize(
    ("noise", "why"), [(0.0, "training adds no noise"), (None, "no noise has been chosen yet")]
)
def test_no_noise_guarantees_nothing(noise: float | None, why: str) -> None:
    plan = make(noise_multiplier=noise)
    assert statement(plan) == f"Nothing is guaranteed: {why}, so epsilon is infinite."


@pytest.mark.parametrize(
    ("owner", "readers", "reads", "warned"),
    [
        ("sender", 1, 8, True),
        ("sender", 2, 8, False),
        ("reader", 1, 1, True),
        ("reader", 1, 2, False),
    ],
)
def test_an_edge_alone_is_said_to_cost_more_where_no_proof_covers_it(
    owner: str, readers: int, reads: int, warned: bool
) -> None:
    plan = PrivacyPlan(
        num_train_nodes=1_000,
        num_layers=1,
        max_readers=readers,
        max_reads=reads,
        edge_owner=owner,
        batch_size=1_000,
        steps=10,
        noise_multiplier=5.0,
    )
    assert ("may cost more" in statement(plan)) == warned
