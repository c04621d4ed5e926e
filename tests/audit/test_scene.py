"""The made graphs: the canary's row changes as many trees as the plan counts, and turns them around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hushgraph.audit.attack import Stage
from hushgraph.audit.scene import scene_for
from hushgraph.audit.trials import World
from hushgraph.errors import InputError
from hushgraph.privacy.plans import PrivacyPlan
from plans import make_plan


def plan(**changes: Any) -> PrivacyPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 1, "max_readers": 2, "steps": 2}
    return make_plan(**{**usual, "paper_noise_multiplier": 1.0, "delta": 1e-5, **changes})


def flat(sums: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.flatten() for value in sums.values()]).double()


def terms(world: World) -> dict[int, torch.Tensor]:
    return {int(root): flat(world.sums(np.array([root]))[0]) for root in world.graph.train_idx}


@pytest.mark.parametrize(("model", "layers"), [("gcn", 1), ("gcn", 2), ("gin", 2), ("gat", 2)])
@pytest.mark.parametrize(("owner", "reads"), [("sender", None), ("reader", 2)])
def test_the_strongest_canary_changes_n_trees(model: str, layers: int, owner: str, reads: int | None) -> None:
    given = plan(num_layers=layers, edge_owner=owner, max_reads=reads)
    stage = Stage.of(given, model=model, canary="strongest")
    there, empty = terms(stage.there), terms(stage.empty)
    differences = [there[root] - empty[root] for root in there]
    assert sum(float(d.norm()) > 1e-3 for d in differences) == given.changed_trees
    # All of them push the same way: all of what the pair allows.
    most = 2 * given.changed_trees - 1
    assert 0.995 * most < float(sum(differences).norm()) <= most * (1 + 1e-6)
    assert stage.lines[0].shift == pytest.approx(float(sum(differences).norm()) / stage.plan.sigma, rel=1e-4)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_canary_outside_the_split_is_reached_through_edges_only(layers: int) -> None:
    given = plan(num_layers=layers)
    stage = Stage.of(given, model="gcn", canary="read")
    scene = scene_for(given, canary="read")
    assert scene.canary not in scene.graph.train_idx
    there, empty = terms(stage.there), terms(stage.empty)
    # What is left of the others is how float32 rounds a pass over trees of another shape.
    assert sum(float((there[v] - empty[v]).norm()) > 1e-6 for v in there) == given.changed_trees - 1


@pytest.mark.parametrize(("owner", "reads", "changed"), [("sender", 1, 3), ("reader", 3, 3)])
def test_a_hub_displaces_reads(owner: str, reads: int, changed: int) -> None:
    given = plan(edge_owner=owner, max_reads=reads)
    stage = Stage.of(given, model="gcn", canary="hub")
    lists = [w.collaborators(0).make_lists(0) for w in (stage.there, stage.empty)]
    others = [v for v in stage.there.graph.train_idx if v != 0]
    moved = [v for v in others if not np.array_equal(lists[0].reads_of(v), lists[1].reads_of(v))]
    if owner == "sender":
        # Its readers read somebody else now.
        assert all(len(lists[1].reads_of(v)) == 1 for v in moved)
        assert len(moved) == given.max_readers
    else:
        # Others read what only the canary could.
        assert all(len(lists[1].reads_of(v)) == len(lists[0].reads_of(v)) + 1 for v in moved)
        assert len(moved) == reads
    there, empty = terms(stage.there), terms(stage.empty)
    assert sum(float((there[v] - empty[v]).norm()) > 1e-3 for v in there) == changed


def test_the_two_settings_of_weights_turn_the_gradient_around() -> None:
    for model, layers in (("mlp", 0), ("gcn", 2), ("gin", 2), ("gat", 2)):
        stage = Stage.of(plan(num_layers=layers), model=model, canary="strongest")
        first, second = (
            flat(a) - flat(b) for a, b in zip(stage.there.sums(), stage.empty.sums(), strict=True)
        )
        assert float(torch.cosine_similarity(first, second, dim=0)) < -0.99


def test_rates_are_kept_by_adding_bystanders() -> None:
    for size in (500, 137, 10):
        stage = Stage.of(plan(batch_size=size), model="gcn", canary="strongest")
        assert stage.plan.sampling_rate == pytest.approx(size / 1000, rel=0.005)
        assert stage.plan.sigma_over_clip == pytest.approx(plan().sigma_over_clip)


def test_canaries_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="canary='loud'"):
        scene_for(plan(), canary="loud")
    with pytest.raises(InputError, match="reads no edge"):
        scene_for(plan(max_readers=0), canary="read")
    with pytest.raises(InputError, match="expected max_reads=1"):
        scene_for(plan(max_reads=4), canary="hub")
