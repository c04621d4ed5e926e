"""The priced points of the planner page: look them up and format them for the page and for its script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph._text import digits_up, rounded_up
from hushgraph.report.charts import LogAxis, choose_log_axis, slider_positions
from hushgraph.report.pages import format_epsilon

# The symbol of each choice, and what it means.
CHOICES = {
    "max_readers": ("K", "readers of one node, at most"),
    "max_reads": ("D", "reads of one node, at most"),
    "epsilon": ("epsilon", "to stay within"),
    "steps": ("steps", "updates of the weights"),
    "batch_size": ("batch", "expected nodes per step"),
}
FIGURES = {
    "noise_on_mean": "noise on the mean gradient, in C",
    "sigma_over_clip": "sigma / C",
    "noise_multiplier": "noise multiplier",
    "changed_trees": "changed trees, n",
    "board_noise": "noise of a board",
    "epsilon": "epsilon, one node",
    "epsilon_group_of_two": "epsilon, two nodes",
}
# Figures that the other method does not have.
_OF_TREES, _OF_BOARDS = ("noise_multiplier", "changed_trees"), ("board_noise",)
_NOT_PRICED = "not priced"
Facts = Mapping[str, Any]


def is_billboard(facts: Facts) -> bool:
    return bool(facts["plan"].get("method") == "billboard")


def list_figures(facts: Facts) -> dict[str, str]:
    """Return the keys and names of the figures that a point of these facts has."""
    others = _OF_TREES if is_billboard(facts) else _OF_BOARDS
    return {key: name for key, name in FIGURES.items() if key not in others}


def point_at(facts: Facts, places: list[int]) -> dict[str, Any]:
    """Return the point at these places of the axes, of which the last changes fastest."""
    index = 0
    for axis, place in zip(facts["axes"], places, strict=True):
        index = index * len(axis["values"]) + place
    point: dict[str, Any] = facts["points"][index]
    return point


def given_point(facts: Facts) -> dict[str, Any]:
    return point_at(facts, [axis["chosen"] for axis in facts["axes"]])


def points_along(facts: Facts, name: str) -> list[dict[str, Any]]:
    """Return the points where one choice takes its values and the others are those of the plan given."""
    places = [axis["chosen"] for axis in facts["axes"]]
    which = [axis["name"] for axis in facts["axes"]].index(name)
    count = len(facts["axes"][which]["values"])
    return [point_at(facts, [*places[:which], place, *places[which + 1 :]]) for place in range(count)]


def noise_axis(facts: Facts) -> LogAxis:
    """Return the vertical axis that all curves share."""
    values = [point["noise_on_mean"] for point in facts["points"] if "refused" not in point]
    return choose_log_axis(values or [1.0])


def format_figure(point: Mapping[str, Any], key: str) -> str:
    """Format one figure of a point, rounded up."""
    if key == "changed_trees":
        return f"{point[key]:,}"
    if "refused" in point:
        return _NOT_PRICED
    if key in ("epsilon", "epsilon_group_of_two"):
        # Rounded twice, so that what rounds up to 1 has two decimals like everything above.
        return rounded_up(float(format_epsilon(point[key])))
    return digits_up(point[key], digits=3 if key == "noise_on_mean" else 6)


def format_ratio(facts: Facts, point: Mapping[str, Any]) -> str:
    """Format the noise on the mean gradient as a multiple of that of the plan given."""
    given = given_point(facts)
    if "refused" in point or "refused" in given:
        return _NOT_PRICED
    return f"{point['noise_on_mean'] / given['noise_on_mean']:.3g}"


def format_choice(name: str, value: Any) -> str:
    if value is None:
        return "unlimited"
    return digits_up(value, digits=6) if name == "epsilon" else f"{value:,}"


def describe_cost(facts: Facts, point: Mapping[str, Any]) -> str:
    if "refused" in point:
        return "the accountant has no price for this."
    noise = f"noise {format_figure(point, 'noise_on_mean')} on the mean gradient"
    if point == given_point(facts):
        return f"{noise}, as in the plan given."
    return f"{noise}, {format_ratio(facts, point)} times that of the plan given."


def describe_choice(facts: Facts) -> str:
    """Describe the plan given and its cost; the script does the same for other choices."""
    parts = [
        f"{CHOICES[axis['name']][0]} {format_choice(axis['name'], axis['values'][axis['chosen']])}"
        for axis in facts["axes"]
        if len(axis["values"]) > 1
    ]
    return f"{', '.join(parts)}: {describe_cost(facts, given_point(facts))}"


def collect_script_data(facts: Facts) -> dict[str, Any]:
    """Return what the script looks up: formatted figures, and coordinates in the charts."""
    noise = noise_axis(facts)
    return {
        "axes": [
            {
                "name": axis["name"],
                "symbol": CHOICES[axis["name"]][0],
                "chosen": axis["chosen"],
                "texts": [format_choice(axis["name"], value) for value in axis["values"]],
                "flags": [_format_flag(facts, axis["name"], value) for value in axis["values"]],
                "x": slider_positions(len(axis["values"])),
            }
            for axis in facts["axes"]
        ],
        "keys": list(list_figures(facts)),
        "points": [
            {
                "y": None if "refused" in point else noise.position(point["noise_on_mean"]),
                "texts": [format_figure(point, key) for key in list_figures(facts)],
                "cost": describe_cost(facts, point),
            }
            for point in facts["points"]
        ],
        "command": _fixed_flags(facts),
    }


def train_command(facts: Facts) -> list[str]:
    """Return the command that trains with the plan given, in parts that belong on one line each."""
    flags = [_format_flag(facts, axis["name"], axis["values"][axis["chosen"]]) for axis in facts["axes"]]
    return [*_fixed_flags(facts), *(flag for flag in flags if flag)]


def _format_flag(facts: Facts, name: str, value: Any) -> str:
    if value is None or (name == "max_readers" and is_billboard(facts)):
        return ""
    number = int(value) if float(value).is_integer() else value
    return f"--{name.replace('_', '-')} {number!r}"


def _fixed_flags(facts: Facts) -> list[str]:
    plan = facts["plan"]
    flags = ["hushgraph train DATA", f"--delta {digits_up(plan['delta'], digits=17)}"]
    if is_billboard(facts):
        flags.append("--method billboard")
    else:
        flags.append(f"--layers {plan['num_layers']}" if plan["num_layers"] else "--model mlp")
    flags.append(f"--edge-owner {plan['edge_owner']}")
    flags += ["--directed"] if plan.get("directed") else []
    for name, default in {"sampler": "stable", "accountant": "pair", "clip": 1.0}.items():
        if plan[name] != default:
            flags.append(f"--{name} {plan[name]}")
    return flags
