"""Plans around a plan: the plan is among them, one price serves all with the same trees, work is shared."""

from __future__ import annotations

from typing import Any

import pytest

from hushgraph.errors import PlanError
from hushgraph.privacy import grid as plan_grid
from hushgraph.privacy.grid import AXES, PlanGrid, Point, solve_grid
from hushgraph.privacy.plan import PrivacyPlan

READER: dict[str, Any] = {"edge_owner": "reader", "max_reads": 5}


def plan(**others: Any) -> PrivacyPlan:
    fields = {
        "num_train_nodes": 90_941,
        "num_layers": 1,
        "max_readers": 5,
        "batch_size": 10_000,
        "steps": 600,
    }
    return PrivacyPlan(**fields | others)


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"num_layers": 0},
        {"num_layers": 2},
        {"num_layers": 3, "max_readers": 10},
        {"max_readers": 0},
        {"max_readers": 1, "steps": 1, "batch_size": 1},
        {"batch_size": 90_941},
        READER,
        READER | {"num_layers": 3},
        {"edge_owner": "reader", "max_readers": 0},
        {"sampler": "paper", "edge_owner": "reader"},
    ],
)
@pytest.mark.parametrize("target", [0.1, 3.72, 16.0])
def test_the_plan_is_in_the_middle_and_the_work_is_bounded(others: dict[str, Any], target: float) -> None:
    middle = plan(**others)
    grid = PlanGrid.around(middle, target=target)
    assert grid._estimate_seconds() <= plan_grid._SECONDS
    for name in AXES:
        values = grid.values(name)
        assert list(values) == sorted(values, key=lambda value: -1 if value is None else value)
        assert values[grid.chosen(name)] == (target if name == "epsilon" else getattr(middle, name))
    assert len(grid.epsilon) >= 4
    assert len(list(grid.combinations())) <= 500


def test_a_usual_plan() -> None:
    grid = PlanGrid.around(plan(), target=4.0)
    assert grid.max_readers == (0, 2, 5, 10)
    assert grid.max_reads == (None,)
    assert grid.epsilon == (1.0, 2.0, 4.0, 8.0)
    assert grid.steps == (150, 600, 2400)
    assert grid.batch_size == (2500, 10_000, 40_000)
    assert PlanGrid.around(plan(**READER), target=4.0).max_reads == (5, 10)


def full(**others: Any) -> PlanGrid:
    """A grid of full batches, which have a price at once."""
    middle = plan(num_train_nodes=100, max_readers=2, batch_size=100, steps=4, **others)
    values: dict[str, Any] = {"max_readers": (1, 2), "max_reads": (middle.max_reads,), "epsilon": (1.0, 2.0)}
    return PlanGrid(plan=middle, target=2.0, steps=(4, 8), batch_size=(100,), **values)


def test_points_are_those_of_the_plans() -> None:
    grid = full()
    expected = [Point.of(each.calibrated(epsilon=target)) for each, target in grid.combinations()]
    assert solve_grid(grid) == expected


def test_one_price_for_the_same_trees() -> None:
    # K = 0 reads nothing, whatever D is.
    middle = plan(
        num_train_nodes=100, max_readers=2, batch_size=100, steps=4, edge_owner="reader", max_reads=3
    )
    grid = PlanGrid(
        plan=middle,
        target=2.0,
        max_readers=(0, 2),
        max_reads=(1, 2, 3),
        epsilon=(2.0,),
        steps=(4,),
        batch_size=(100,),
    )
    seen: list[tuple[int, int]] = []
    points = solve_grid(grid, observer=lambda done, total: seen.append((done, total)))
    assert [point.changed_trees for point in points] == [1, 1, 1, 4, 5, 6]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = solve_grid(full())
    monkeypatch.setattr(plan_grid, "_FEWEST_FOR_PROCESSES", 1)
    assert solve_grid(full(), processes=2) == alone


def test_a_grid_without_its_plan_is_refused() -> None:
    with pytest.raises(PlanError, match=r"steps=\(8,\): expected distinct values with 4 among them"):
        PlanGrid(
            plan=full().plan,
            target=2.0,
            max_readers=(2,),
            max_reads=(None,),
            epsilon=(2.0,),
            steps=(8,),
            batch_size=(100,),
        )


def test_there_is_a_processor() -> None:
    assert plan_grid.usable_processes() >= 1
