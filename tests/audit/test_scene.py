"""The made graphs: canaries change as many trees as the plan counts, and move boards by what is priced."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bounded_lists import reads_of
from hushgraph.audit.attack import Effort, stage_boards, stage_trees
from hushgraph.audit.runs import Rerun, Seen, plant_nothing, watch_run
from hushgraph.audit.scene import Difference, plant_rows, plant_trees
from hushgraph.audit.trials import Attacker, Stage
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan
from hushgraph.runs.folder import RunFolder
from hushgraph.training.parts import Parts
from plans import make_plan

COPIES = 4


def plan(**changes: Any) -> PrivacyPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 1, "max_readers": 2, "steps": 2}
    return make_plan(**{**usual, "paper_noise_multiplier": 1.0, "delta": 1e-5, **changes})


def boards(epsilon: float = 4.0, **changes: Any) -> BillboardPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "steps": 2, "delta": 1e-5}
    return BillboardPlan(**{**usual, **changes}).calibrated(epsilon=epsilon)


def trees(given: PrivacyPlan, model: str = "gcn", canary: str = "strongest", copies: int = COPIES) -> Stage:
    effort = Effort(trials=copies // 2, rng=np.random.default_rng(1))
    return stage_trees(given, plant_nothing, effort, model=model, canary=canary)


def imagine(stage: Stage, graph: Graph) -> Rerun:
    """What a session would compute on this graph; nothing is released."""
    folder = RunFolder.describe("", graph, stage.plan, stage.config, data="")
    return Rerun(seen=Seen(folder=folder, parts=stage.plant(Parts())), graph=graph)


def views(stage: Stage, graph: Graph) -> list[torch.Tensor]:
    """Per setting of the weights, [copies, width]: the clipped sums of every copy."""
    world = imagine(stage, graph)
    return [torch.from_numpy(stage.view(sums)) for sums in world.clipped_sums(world.view(0), stage.phases)]


def terms(stage: Stage, graph: Graph) -> dict[int, torch.Tensor]:
    """What every root adds to the sum of the first copy: all others have no label."""
    added = {}
    for root in graph.train_idx:
        labels = np.full_like(graph.y, -1)
        labels[root] = graph.y[root]
        added[int(root)] = views(stage, replace(graph, y=labels))[0][0]
    return added


@pytest.mark.parametrize(("model", "layers"), [("gcn", 1), ("gcn", 2), ("gin", 2), ("gat", 2)])
@pytest.mark.parametrize(("owner", "reads"), [("sender", None), ("reader", 2)])
def test_the_strongest_canary_changes_n_trees(model: str, layers: int, owner: str, reads: int | None) -> None:
    given = plan(num_layers=layers, edge_owner=owner, max_reads=reads)
    stage = trees(given, model, copies=2)
    there, empty = (terms(stage, graph) for graph in stage.scene.graphs)
    differences = [there[root] - empty[root] for root in there]
    assert sum(float(d.norm()) > 1e-3 for d in differences) == given.changed_trees
    # All of them push the same way: all of what the pair allows.
    most = 2 * given.changed_trees - 1
    assert 0.99 * most < float(sum(differences).norm()) <= most * (1 + 1e-6)


def test_copies_do_not_meet() -> None:
    """What the first layer is told of one canary is the same whether the others are there or not."""
    stage = trees(plan(num_layers=2))
    alone = np.zeros(COPIES, np.bool_)
    alone[2] = True
    there, empty = (views(stage, graph) for graph in stage.scene.graphs)
    for phase, mixed in enumerate(views(stage, stage.scene.graph(alone))):
        np.testing.assert_allclose(mixed[2], there[phase][2], atol=1e-3)
        np.testing.assert_allclose(mixed[[0, 1, 3]], empty[phase][[0, 1, 3]], atol=1e-3)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_canaries_that_are_gone_have_empty_rows(owner: str) -> None:
    for scene in (
        plant_rows(boards(edge_owner=owner), copies=3, degree=2),
        plant_trees(plan(edge_owner=owner, max_reads=2), copies=3),
    ):
        expected = scene.graphs[0].with_row_emptied(int(scene.canaries[1]), scene.owner)
        found = scene.graph(np.array([True, False, True]))
        assert np.array_equal(expected.indptr, found.indptr)
        assert np.array_equal(expected.indices, found.indices)
        assert np.array_equal(expected.y, found.y)
        nodes = np.arange(found.num_nodes)
        assert np.array_equal(expected.dense_features(nodes), found.dense_features(nodes))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_canary_outside_the_split_is_reached_through_edges_only(layers: int) -> None:
    given = plan(num_layers=layers)
    stage = trees(given, canary="read", copies=2)
    graph = stage.scene.graphs[0]
    assert not np.isin(stage.scene.canaries, graph.train_idx).any()
    there, empty = (terms(stage, each) for each in stage.scene.graphs)
    assert sum(float((there[v] - empty[v]).norm()) > 1e-4 for v in there) == given.changed_trees - 1


@pytest.mark.parametrize(("owner", "reads", "changed"), [("sender", 1, 3), ("reader", 3, 3)])
def test_a_hub_displaces_reads(owner: str, reads: int, changed: int) -> None:
    given = plan(edge_owner=owner, max_reads=reads)
    stage = trees(given, canary="hub", copies=2)
    parts = stage.plant(Parts())
    lists = [parts.make_lists(graph, stage.plan, 0) for graph in stage.scene.graphs]
    canaries = set(stage.scene.canaries.tolist())
    others = [v for v in stage.scene.graphs[0].train_idx if v not in canaries]
    moved = [v for v in others if not np.array_equal(reads_of(lists[0], v), reads_of(lists[1], v))]
    if owner == "sender":
        # Its readers read somebody else now.
        assert all(len(reads_of(lists[1], v)) == 1 for v in moved)
        assert len(moved) == 2 * given.max_readers
    else:
        # Others read what only the canary could.
        assert all(len(reads_of(lists[1], v)) == len(reads_of(lists[0], v)) + 1 for v in moved)
        assert len(moved) == 2 * reads
    there, empty = (terms(stage, graph) for graph in stage.scene.graphs)
    assert sum(float((there[v] - empty[v]).norm()) > 1e-3 for v in there) == changed


def test_the_two_settings_of_weights_turn_the_gradient_around() -> None:
    stages = [
        trees(plan(num_layers=layers), model)
        for model, layers in (("mlp", 0), ("gcn", 2), ("gin", 2), ("gat", 2))
    ]
    for stage in stages:
        there, empty = (views(stage, graph) for graph in stage.scene.graphs)
        first, second = (a - b for a, b in zip(there, empty, strict=True))
        assert float(torch.cosine_similarity(first, second, dim=1).max()) < -0.99


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize(
    ("difference", "shifts", "steps"),
    [
        ("emptied", (1.0, 1.0), 1.0),
        ("flipped", (math.sqrt(3), math.sqrt(3)), 2.0),
        ("evaluated", (0.0, 1.0), 0.0),
    ],
)
def test_boards_and_steps_move_by_what_is_priced(
    owner: str, difference: Difference, shifts: tuple[float, float], steps: float
) -> None:
    for degree in (1, 4, 300):
        given = boards(edge_owner=owner)
        stage = stage_boards(given, plant_nothing, 2, degree=degree, difference=difference)
        graph = stage.scene.graph(np.array([True, False]))
        with watch_run(graph, stage.plan, stage.config, phases=stage.phases) as seen:
            attacker = Attacker(stage=stage, seen=seen, graph=graph)
            found = attacker.shifts()
            assert attacker.count_changed() == 0
        scales = [*given.board_noise, given.sigma_over_clip, given.sigma_over_clip]
        moved = [shift * scale for shift, scale in zip(found, scales, strict=True)]
        expected = [*shifts, steps, steps]
        # In whole units of the grid, rounded towards zero; float32 loses a little of a gradient.
        assert moved == pytest.approx(expected, abs=1e-3)
        assert all(shift <= most + 1e-9 for shift, most in zip(moved, expected, strict=True))


def test_rates_are_kept_by_adding_bystanders() -> None:
    for size in (500, 137, 10):
        stage = trees(plan(batch_size=size))
        assert stage.plan.sampling_rate == pytest.approx(size / 1000, rel=0.005)
        assert stage.plan.sigma_over_clip == pytest.approx(plan().sigma_over_clip)


def test_canaries_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="canary='loud'"):
        plant_trees(plan(), copies=2, canary="loud")
    with pytest.raises(InputError, match="reads no edge"):
        plant_trees(plan(max_readers=0), copies=2, canary="read")
