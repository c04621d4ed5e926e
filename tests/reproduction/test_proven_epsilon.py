"""The epsilon that holds is never one that no proof covers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hushgraph.reproduction.proven_epsilon import find_proven_epsilon
from plans import make_plan

PAPER = make_plan(
    num_train_nodes=90_941,
    num_layers=1,
    max_readers=7,
    batch_size=10_000,
    steps=668,
    paper_noise_multiplier=2.0,
    sampler="paper",
    accountant="paper",
    clipping="percentile",
    noise="per-layer",
)


def test_as_published_nothing_holds_and_twelve_is_worth_twenty_four() -> None:
    proven = find_proven_epsilon(PAPER, 3)
    assert proven.holds is None
    assert proven.if_public == pytest.approx(24, abs=0.5)
    assert "percentiles of private gradients" in proven.reason
    assert "square root of the number of layers" in proven.reason
    assert "epsilon = 2" in proven.reason


def test_common_noise_and_public_thresholds_hold() -> None:
    proven = find_proven_epsilon(replace(PAPER, clipping="groups", noise="common"), 3)
    assert proven.holds == pytest.approx(12, abs=0.05)


def test_reader_owned_lists_of_the_paper_have_no_worth_at_all() -> None:
    proven = find_proven_epsilon(replace(PAPER, edge_owner="reader"), 3)
    assert (proven.holds, proven.if_public) == (None, None)


def test_sound_plans_and_plans_without_noise() -> None:
    sound = make_plan(
        num_train_nodes=1000,
        num_layers=1,
        max_readers=1,
        batch_size=1000,
        steps=5,
        paper_noise_multiplier=5.0,
    )
    assert find_proven_epsilon(sound, 3).holds == sound.epsilon
    assert find_proven_epsilon(replace(sound, sigma_over_clip=0.0), 3).holds is None
    assert "without noise" in find_proven_epsilon(replace(sound, sigma_over_clip=0.0), 3).reason
