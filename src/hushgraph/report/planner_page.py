"""`write_planner_page`: what each choice costs, on one page, before any data is touched."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hushgraph.errors import PlanError
from hushgraph.privacy.grid import AXES, PlanGrid, noise_on_mean, solve_grid
from hushgraph.privacy.guarantee import digits_up, rounded_up
from hushgraph.report import planner_sections as sections
from hushgraph.report import words
from hushgraph.report.page import check_place, page, resource, write_both
from hushgraph.report.planner_figures import FIGURES, for_script, short

if TYPE_CHECKING:
    from hushgraph.privacy.plan import PrivacyPlan
    from hushgraph.privacy.solve import Solved

FORMAT = 1
_SECTIONS = (
    ("try", "Try other settings", sections.knobs),
    ("changes", "One change at a time", sections.changes),
    ("combinations", "Every combination", sections.combinations),
    ("fixed", "What stays the same", sections.fixed),
    ("guarantee", "The guarantee in full", sections.guarantee),
    ("words", "Words on this page", sections.glossary),
)
_LABELS = {"holds": "What this plan will guarantee", "claimed": words.LABELS["claimed"]}


def write_planner_page(
    solved: Solved,
    path: str | os.PathLike[str],
    *,
    grid: PlanGrid | None = None,
    processes: int = 1,
    observer: Callable[[int, int], None] | None = None,
) -> None:
    """Write the planner: one HTML file that needs nothing else, and its JSON twin.

    Args:
        solved: the plan in the middle.
        path: ends in .html; the twin beside it ends in .json.
        grid: which other plans to show; a choice around the plan unless given.
        processes: how many may price plans at once; see `solve_grid`.
        observer: called with how many plans are priced, and of how many.

    Guarantees:
        Every figure is that of a `PrivacyPlan`; the script of the page looks figures up and computes none.
        Both files hold the same figures. A file that is no planner page is never replaced.
    """
    place = check_place(path, option="html", kind="planner")
    found = facts(solved, grid=grid, processes=processes, observer=observer)
    write_both(place, found, render(found))


def facts(
    solved: Solved,
    *,
    grid: PlanGrid | None = None,
    processes: int = 1,
    observer: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Everything the page says, as plain JSON values; arguments as in `write_planner_page`."""
    import hushgraph

    plan = solved.plan
    if grid is None:
        grid = PlanGrid.around(plan, target=_target(solved))
    points = solve_grid(grid, processes=processes, observer=observer)
    standing = words.standing(plan, seeded=False)
    return {
        "planner": FORMAT,
        "written": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": hushgraph.__version__,
        "solved_for": solved.solved_for,
        "notes": list(solved.notes),
        "standing": {
            "kind": standing.kind,
            "label": _LABELS[standing.kind],
            "sentence": standing.sentence,
        },
        "statement": [{"heading": heading, "text": text} for heading, text in words.topics(plan)],
        "plan": json.loads(plan.to_json()),
        "guarantee": {**plan.summary(), "noise_on_mean": noise_on_mean(plan)},
        "axes": [
            {"name": name, "values": list(grid.values(name)), "chosen": grid.chosen(name)} for name in AXES
        ],
        "points": [_plain(asdict(point)) for point in points],
    }


def render(found: dict[str, Any]) -> str:
    """The page that shows these facts."""
    plan, about = found["plan"], found["guarantee"]
    rounds = {0: "no messages", 1: "one round of messages"}.get(
        plan["num_layers"], f"{plan['num_layers']} rounds of messages"
    )
    claimed = ", claimed" if found["standing"]["kind"] == "claimed" else ""
    return page(
        title=f"Privacy planner: {plan['num_train_nodes']:,} training nodes, {rounds}",
        subtitle="What each choice costs, before any data is read. Written "
        f"{found['written']} by hushgraph {found['version']}.",
        standing=found["standing"],
        cards=[
            (f"epsilon, one node{claimed}", rounded_up(float(about["epsilon"]))),
            (f"epsilon, two nodes{claimed}", rounded_up(float(about["epsilon_group_of_two"]))),
            ("delta", digits_up(about["delta"])),
            (FIGURES["noise_on_mean"], short(about["noise_on_mean"])),
        ],
        sections=[
            (name, "The claim in full" if name == "guarantee" and claimed else heading, make(found))
            for name, heading, make in _SECTIONS
        ],
        footer="The file with the same name and the ending .json holds the same figures, in full precision, "
        "for programs.",
        style=resource("planner.css"),
        script=resource("planner.js"),
        data=for_script(found),
    )


def _target(solved: Solved) -> float:
    """The epsilon that the plan stays within: the one given, or its own as it is shown."""
    plan: PrivacyPlan = solved.plan
    if plan.steps == 0:
        raise PlanError("steps=0: expected at least one step to show the cost of; give steps")
    if math.isinf(plan.epsilon):
        raise PlanError(
            f"noise_multiplier={plan.noise_multiplier}: epsilon is infinite, and there is no page around it; "
            "give more noise, or epsilon instead"
        )
    target = float(rounded_up(plan.epsilon)) if solved.target is None else solved.target
    if target <= 0.0:
        raise PlanError(
            f"noise_multiplier={plan.noise_multiplier}: epsilon is 0, and there is no page around it; "
            "give less noise, or epsilon instead"
        )
    return target


def _plain(point: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity; what is not there is left out."""
    return {
        key: "inf" if isinstance(value, float) and math.isinf(value) else value
        for key, value in point.items()
        if value is not None
    }
