"""Defaults read no private data: two graphs with the same public numbers get the same settings."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.privacy import bounds, defaults

PUBLIC = {"num_train_nodes", "epsilon", "delta", "num_layers", "num_classes", "edge_owner"}


def graph(seed: int, *, edges: int, scale: float) -> Graph:
    """Same nodes, split, classes and features; other edges, labels, values, and rows without a label."""
    rng = np.random.default_rng(seed)
    return Graph.from_arrays(
        edge_index=rng.integers(80, size=(2, edges)),
        x=(scale * rng.standard_normal((80, 5))).astype(np.float32),
        y=np.where(rng.random(80) < 0.1 * seed, -1, rng.integers(3, size=80)),
        train_idx=np.arange(50),
        val_idx=np.arange(50, 60),
        num_classes=3,
        directed=False,
    )


def test_the_rule_takes_public_numbers_only() -> None:
    assert set(inspect.signature(defaults.choose_private).parameters) == PUBLIC
    assert set(inspect.signature(defaults.choose_non_private).parameters) == {
        "num_train_nodes",
        "num_classes",
        "model",
    }


def test_the_rule_without_privacy_knows_the_model() -> None:
    sizes = {"num_train_nodes": 90_941, "num_classes": 40}
    gcn, gat, mlp = (defaults.choose_non_private(**sizes, model=name) for name in ("gcn", "gat", "mlp"))
    assert (gcn.learning_rate, gat.learning_rate, mlp.learning_rate) == (0.01, 0.003, 0.01)
    assert (gcn.steps, gat.steps, mlp.steps) == (300, 300, 600)
    assert (gcn.feature_norm, gat.feature_norm, mlp.feature_norm) == (6.0, 6.0, 0.0)
    # Few nodes are soon learned by heart.
    small = defaults.choose_non_private(num_train_nodes=500, num_classes=5, model="mlp")
    assert small.steps == 300


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_settings_do_not_depend_on_rows(epsilon: float) -> None:
    settings = []
    for seed, edges, scale in ((0, 300, 1.0), (1, 0, 1.0), (2, 900, 1e-6), (3, 40, 1e6)):
        run = hg.train(graph(seed, edges=edges, scale=scale), epsilon=epsilon, steps=2, seed=1)
        settings.append((run.plan, run.config))
    assert all(found == settings[0] for found in settings[1:])


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("nodes", [10, 3_000, 10**6, 10**9])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 50.0])
def test_the_rule_gives_a_usable_plan_everywhere(layers: int, owner: str, nodes: int, epsilon: float) -> None:
    found = defaults.choose_private(
        num_train_nodes=nodes,
        epsilon=epsilon,
        delta=1 / (10 * nodes),
        num_layers=layers,
        num_classes=2,
        edge_owner=owner,
    )
    plan = hg.TreePlan(
        num_train_nodes=nodes,
        num_layers=layers,
        max_readers=found.max_readers,
        max_reads=found.max_reads,
        edge_owner=owner,
        batch_size=found.batch_size,
        steps=found.steps,
    )
    assert plan.changed_trees <= 11
    assert 0 < found.learning_rate < 0.1


def test_more_budget_never_reads_fewer_edges() -> None:
    readers = [
        defaults.choose_private(
            num_train_nodes=147_000, epsilon=e, delta=1e-6, num_layers=1, num_classes=6
        ).max_readers
        for e in (0.1, 1.0, 4.0, 12.0, 100.0)
    ]
    assert readers == sorted(readers)
    assert readers[0] == 0
    assert readers[-1] > 4


def test_depth_is_paid_for_by_fewer_readers() -> None:
    one, two, three = (
        defaults.choose_private(
            num_train_nodes=147_000, epsilon=12.0, delta=1e-6, num_layers=layers, num_classes=6
        ).max_readers
        for layers in (1, 2, 3)
    )
    assert one > two >= three
    assert bounds.occurrences(three, 3) <= bounds.occurrences(one, 1)


def test_trees_that_read_edges_take_fewer_steps_where_there_is_little_noise() -> None:
    sizes = {"num_train_nodes": 123_488, "delta": 8e-7, "num_layers": 1}
    few, many, featured = (
        defaults.choose_private(**sizes, epsilon=epsilon, num_classes=classes)
        for epsilon, classes in ((12.0, 6), (4.0, 6), (12.0, 60))
    )
    assert (few.steps, many.steps, featured.steps) == (300, 600, 600)
    assert featured.max_readers == 0 < many.max_readers < few.max_readers
    # Each of the fewer steps is as much larger.
    assert few.steps * few.learning_rate == pytest.approx(7.2, abs=0.1)
