"""`write_planner_page`: what each choice of a plan costs, on one page, before any data is read."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hushgraph._text import digits_up, rounded_up
from hushgraph.errors import PlanError
from hushgraph.privacy.grid import AXES, PlanGrid, noise_on_mean, solve_grid
from hushgraph.privacy.guarantee import Guarantee, name_assumed, write_assumptions
from hushgraph.privacy.plan import json_number
from hushgraph.report.charts import profile_chart
from hushgraph.report.facts import describe_standing, format_now
from hushgraph.report.pages import (
    Table,
    check_page_path,
    format_epsilon,
    read_template,
    render_template,
    write_page,
)
from hushgraph.report.planner_points import (
    CHOICES,
    FIGURES,
    Facts,
    collect_script_data,
    describe_choice,
    format_choice,
    format_figure,
    format_ratio,
    given_point,
    is_billboard,
    list_figures,
    noise_axis,
    point_at,
    points_along,
    train_command,
)

if TYPE_CHECKING:
    from hushgraph.privacy.plan import PrivacyPlan
    from hushgraph.privacy.solve import Solved

FORMAT = 1


def write_planner_page(
    solved: Solved,
    path: str | os.PathLike[str],
    *,
    grid: PlanGrid | None = None,
    processes: int = 1,
    observer: Callable[[int, int], None] | None = None,
) -> None:
    """Write the planner: one self-contained HTML file, and its JSON twin.

    Args:
        solved: the plan in the middle.
        path: ends in .html; the twin beside it ends in .json.
        grid: which other plans to show; a choice around the plan unless given.
        processes: how many may price plans at once; see `solve_grid`.
        observer: called with the number of plans priced and the number of all.

    Guarantees:
        Every figure is that of a `PrivacyPlan`; the script of the page looks figures up and computes none.
        Both files hold the same figures. A file that is not a planner page is never replaced.
    """
    place = check_page_path(path, option="html", kind="planner")
    facts = collect_planner_facts(solved, grid=grid, processes=processes, observer=observer)
    write_page(place, facts, render_planner(facts))


def collect_planner_facts(
    solved: Solved,
    *,
    grid: PlanGrid | None = None,
    processes: int = 1,
    observer: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Collect everything the page says, as JSON values; arguments as in `write_planner_page`."""
    from hushgraph import __version__

    plan = solved.plan
    if grid is None:
        grid = PlanGrid.around(plan, target=choose_target(solved))
    points = solve_grid(grid, processes=processes, observer=observer)
    guarantee = Guarantee.of(plan, assumptions=solved.assumptions)
    standing = describe_standing(guarantee)
    if guarantee.kind == "holds":
        standing["label"] = f"What this plan will guarantee{name_assumed(guarantee.assumptions)}"
    return {
        "planner": FORMAT,
        "written": format_now(),
        "version": __version__,
        "solved_for": solved.solved_for,
        "notes": list(solved.notes),
        "standing": standing,
        "assumptions": write_assumptions(guarantee.assumptions),
        "statement": [asdict(topic) for topic in guarantee.statement.topics],
        "not_covered": list(guarantee.statement.not_covered),
        "plan": json.loads(plan.to_json()),
        "guarantee": {**plan.summary(), "noise_on_mean": noise_on_mean(plan)},
        "axes": [
            {"name": name, "values": list(grid.values(name)), "chosen": grid.chosen(name)} for name in AXES
        ],
        "points": [_point_to_json(asdict(point)) for point in points],
    }


def choose_target(solved: Solved) -> float:
    """Return the epsilon that the plan stays within: the one given, or its own as it is shown."""
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


def render_planner(facts: Facts) -> str:
    """Render the page that shows these facts."""
    plan, about = facts["plan"], facts["guarantee"]
    layers = f"{plan['num_layers']} layer{'s' * (plan['num_layers'] != 1)}"
    kind = "billboard" if is_billboard(facts) else layers
    claimed = ", claimed" if facts["standing"]["kind"] == "claimed" else ""
    script = Markup(read_template("planner.js"))
    return render_template(
        "planner.html",
        facts=facts,
        headings=_planner_headings(is_claimed=bool(claimed)),
        title=f"Privacy planner: {plan['num_train_nodes']:,} training nodes, {kind}",
        standing=facts["standing"],
        cards=[
            (f"epsilon, one node{claimed}", format_epsilon(about["epsilon"])),
            (f"epsilon, two nodes{claimed}", format_epsilon(about["epsilon_group_of_two"])),
            ("delta", digits_up(about["delta"])),
            (FIGURES["noise_on_mean"], digits_up(about["noise_on_mean"], digits=3)),
        ],
        is_billboard=is_billboard(facts),
        notes=_list_notes(facts),
        status=describe_choice(facts),
        sliders=[_show_slider(facts, axis) for axis in facts["axes"] if len(axis["values"]) > 1],
        figures={
            key: (name, format_figure(given_point(facts), key)) for key, name in list_figures(facts).items()
        },
        command=train_command(facts),
        changes=_tabulate_changes(facts),
        combinations=_tabulate_combinations(facts),
        shared=_tabulate_shared(facts),
        script=script,
        # The page lets only this script run.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        script_data=collect_script_data(facts),
    )


def _planner_headings(*, is_claimed: bool) -> dict[str, str]:
    """Return identifiers and headings of the sections, in order."""
    return {
        "try": "Try other settings",
        "changes": "One change at a time",
        "combinations": "Every combination",
        "fixed": "What stays the same",
        "guarantee": "The claim in full" if is_claimed else "The guarantee in full",
        "terms": "Terms on this page",
    }


def _point_to_json(point: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: json_number(value) if isinstance(value, float) else value
        for key, value in point.items()
        if value is not None
    }


def _list_notes(facts: Facts) -> list[str]:
    notes = list(facts["notes"])
    if facts["solved_for"] != "noise-multiplier":
        axis = next(axis for axis in facts["axes"] if axis["name"] == "epsilon")
        epsilon = format_choice("epsilon", axis["values"][axis["chosen"]])
        notes.append(
            f"The plan was given by its noise. This page holds epsilon at {epsilon} and solves for the "
            "noise, which may differ from the one given in the last digits."
        )
    return notes


def _show_slider(facts: Facts, axis: Mapping[str, Any]) -> dict[str, Any]:
    """Return a slider and the curve above it."""
    name, chosen = axis["name"], axis["chosen"]
    symbol, meaning = CHOICES[name]
    labels = [format_choice(name, value) for value in axis["values"]]
    points = points_along(facts, name)
    texts = [format_figure(point, "noise_on_mean") for point in points]
    chart = profile_chart(
        name=f"profile-{name}",
        title=f"Noise on the mean gradient by {symbol}",
        description=", ".join(f"{symbol} {label}: {text}" for label, text in zip(labels, texts, strict=True)),
        labels=labels,
        values=[point.get("noise_on_mean") for point in points],
        texts=texts,
        chosen=chosen,
        axis=noise_axis(facts),
    )
    last = len(labels) - 1
    return {
        "name": name,
        "symbol": symbol,
        "meaning": meaning,
        "value": labels[chosen],
        "place": chosen,
        "last": last,
        "chart": chart,
    }


def _tabulate_changes(facts: Facts) -> Table:
    """Tabulate the plan given, and every plan that differs from it in one choice."""
    columns = {
        "sigma_over_clip": "sigma / C",
        "noise_multiplier": "noise multiplier",
        "changed_trees": "n",
        "board_noise": "noise of a board",
        "epsilon": "epsilon",
        "epsilon_group_of_two": "two nodes",
    }
    keys = [key for key in columns if key in list_figures(facts)]

    def row(label: str, point: Mapping[str, Any]) -> list[str]:
        noise = [format_figure(point, "noise_on_mean"), format_ratio(facts, point)]
        return [label, *noise, *(format_figure(point, key) for key in keys)]

    rows = [row("as given", given_point(facts))]
    for axis in facts["axes"]:
        name = axis["name"]
        for place, point in enumerate(points_along(facts, name)):
            if place != axis["chosen"]:
                value = format_choice(name, axis["values"][place])
                rows.append(row(f"{CHOICES[name][0]} = {value}", point))
    return Table(
        caption="Noise that keeps epsilon when one choice changes",
        heads=("if", "noise on the mean", "times as given", *(columns[key] for key in keys)),
        rows=rows,
        numeric_from=1,
    )


def _tabulate_combinations(facts: Facts) -> list[tuple[Table, bool]]:
    """Tabulate the noise of all points, one table for each K and D; the flag marks the plan given."""
    readers, reads, epsilons, steps, batches = facts["axes"]
    heads = ("steps and batch", *(f"epsilon {format_choice('epsilon', e)}" for e in epsilons["values"]))
    tables = []
    for (k, K), (d, D) in product(enumerate(readers["values"]), enumerate(reads["values"])):
        rows = []
        for (t, count), (m, size) in product(enumerate(steps["values"]), enumerate(batches["values"])):
            points = [point_at(facts, [k, d, e, t, m]) for e in range(len(epsilons["values"]))]
            noise = [format_figure(point, "noise_on_mean") for point in points]
            rows.append([f"{count:,} steps of {size:,}", *noise])
        is_given = (k, d) == (readers["chosen"], reads["chosen"])
        bound = f"K = {K:,}" if len(reads["values"]) == 1 else f"K = {K:,}, D = {D:,}"
        trees = format_figure(points[0], "changed_trees")
        caption = f"{bound}, {trees} changed {'tree' if trees == '1' else 'trees'}{', as given' * is_given}"
        if is_billboard(facts):
            caption = "All steps and budgets"
        tables.append((Table(caption=caption, heads=heads, rows=rows, numeric_from=1), is_given))
    return tables


def _tabulate_shared(facts: Facts) -> Table:
    """Tabulate what every plan on the page shares."""
    plan = facts["plan"]
    rows = [
        ("training nodes, N", f"{plan['num_train_nodes']:,}"),
        *(_list_board_settings(plan) if is_billboard(facts) else [("layers, r", f"{plan['num_layers']:,}")]),
        ("delta", digits_up(plan["delta"])),
        ("edge owner", plan["edge_owner"]),
        ("sampler, accountant", f"{plan['sampler']}, {plan['accountant']}"),
        ("batches", plan["batches"]),
        ("clipping norm, C", f"{plan['clip']:g}"),
    ]
    of_trees = ("max_readers", "max_reads") if is_billboard(facts) else ()
    for axis in facts["axes"]:
        if len(axis["values"]) == 1 and axis["name"] not in of_trees:
            symbol, meaning = CHOICES[axis["name"]]
            rows.append((f"{symbol}, {meaning}", format_choice(axis["name"], axis["values"][0])))
    return Table(caption="Shared by all plans on this page", heads=("setting", "value"), rows=rows)


def _list_board_settings(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("classes", f"{plan['num_classes']:,}"),
        ("boards", f"{plan['num_boards']:,}"),
    ]
