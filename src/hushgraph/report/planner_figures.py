"""The figures of the planner page as they are shown: rounded up, for the page and for its script."""

from __future__ import annotations

from typing import Any

from hushgraph.privacy.guarantee import digits_up, rounded_up
from hushgraph.report.markup import number
from hushgraph.report.profile import LogAxis, across, log_axis

# What each choice is called, and in a few words more.
NAMES = {
    "max_readers": ("K", "readers of one node, at most"),
    "max_reads": ("D", "reads of one node, at most"),
    "epsilon": ("epsilon", "to stay within"),
    "steps": ("steps", "updates of the weights"),
    "batch_size": ("batch", "nodes a step, expected"),
}
FIGURES = {
    "noise_on_mean": "noise on the mean gradient, in C",
    "sigma_over_clip": "sigma / C",
    "noise_multiplier": "noise multiplier",
    "changed_trees": "changed trees, n",
    "epsilon": "epsilon, one node",
    "epsilon_group_of_two": "epsilon, two nodes",
}
_UNPRICED = "not priced"


def text(point: dict[str, Any], key: str) -> str:
    """One figure of a point."""
    if key == "changed_trees":
        return f"{point[key]:,}"
    if "refused" in point:
        return _UNPRICED
    if key == "noise_on_mean":
        return short(point[key])
    if key in ("epsilon", "epsilon_group_of_two"):
        # Twice: what is rounded up to 1 has two decimals like everything above.
        return rounded_up(float(rounded_up(number(point[key]))))
    return digits_up(point[key], digits=6)


def ratio(found: dict[str, Any], point: dict[str, Any]) -> str:
    """How many times the noise on the mean gradient of the plan given."""
    base = chosen(found)
    if "refused" in point or "refused" in base:
        return _UNPRICED
    return f"{point['noise_on_mean'] / base['noise_on_mean']:.3g}"


def short(value: float) -> str:
    """Three digits, rounded up."""
    return digits_up(value, digits=3)


def value_text(name: str, value: Any) -> str:
    """The value of a choice."""
    if value is None:
        return "unlimited"
    return digits_up(value, digits=6) if name == "epsilon" else f"{value:,}"


def point_at(found: dict[str, Any], places: list[int]) -> dict[str, Any]:
    """The point at these places of the axes, of which the last changes fastest."""
    index = 0
    for axis, place in zip(found["axes"], places, strict=True):
        index = index * len(axis["values"]) + place
    point: dict[str, Any] = found["points"][index]
    return point


def chosen(found: dict[str, Any]) -> dict[str, Any]:
    """The point of the plan given."""
    return point_at(found, [axis["chosen"] for axis in found["axes"]])


def along(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The points where one choice takes its values and the others are those of the plan given."""
    places = [axis["chosen"] for axis in found["axes"]]
    which = [axis["name"] for axis in found["axes"]].index(name)
    count = len(found["axes"][which]["values"])
    return [point_at(found, [*places[:which], one, *places[which + 1 :]]) for one in range(count)]


def noise_axis(found: dict[str, Any]) -> LogAxis:
    """The vertical axis that all curves share."""
    values = [point["noise_on_mean"] for point in found["points"] if "refused" not in point]
    return log_axis(values or [1.0])


def cost(found: dict[str, Any], point: dict[str, Any]) -> str:
    """What a choice costs, in words."""
    if "refused" in point:
        return "the accountant has no price for this."
    noise, times = text(point, "noise_on_mean"), ratio(found, point)
    if point == chosen(found):
        return f"noise {noise} on the mean gradient, as in the plan given."
    return f"noise {noise} on the mean gradient, {times} times that of the plan given."


def sentence(found: dict[str, Any]) -> str:
    """What the plan given chooses and what that costs; the script says the same of other choices."""
    parts = [
        f"{NAMES[axis['name']][0]} {value_text(axis['name'], axis['values'][axis['chosen']])}"
        for axis in found["axes"]
        if len(axis["values"]) > 1
    ]
    return f"{', '.join(parts)}: {cost(found, chosen(found))}"


def command(found: dict[str, Any]) -> list[str]:
    """The command that trains with the plan given, in parts that belong on one line each."""
    flags = [_flag(axis["name"], axis["values"][axis["chosen"]]) for axis in found["axes"]]
    return [*_fixed_flags(found), *(flag for flag in flags if flag)]


def for_script(found: dict[str, Any]) -> dict[str, Any]:
    """What the script looks up: texts as they are shown, and where things stand in the charts."""
    noise = noise_axis(found)
    return {
        "axes": [
            {
                "name": axis["name"],
                "symbol": NAMES[axis["name"]][0],
                "chosen": axis["chosen"],
                "texts": [value_text(axis["name"], value) for value in axis["values"]],
                "flags": [_flag(axis["name"], value) for value in axis["values"]],
                "x": across(len(axis["values"])),
            }
            for axis in found["axes"]
        ],
        "keys": list(FIGURES),
        "points": [
            {
                "y": None if "refused" in point else noise.at(point["noise_on_mean"]),
                "texts": [text(point, key) for key in FIGURES],
                "cost": cost(found, point),
            }
            for point in found["points"]
        ],
        "command": _fixed_flags(found),
    }


def _flag(name: str, value: Any) -> str:
    if value is None:
        return ""
    whole = int(value) if float(value).is_integer() else value
    return f"--{name.replace('_', '-')} {whole!r}"


def _fixed_flags(found: dict[str, Any]) -> list[str]:
    plan = found["plan"]
    flags = ["hushgraph train DATA", f"--delta {plan['delta']!r}"]
    flags.append(f"--layers {plan['num_layers']}" if plan["num_layers"] else "--model mlp")
    flags.append(f"--edge-owner {plan['edge_owner']}")
    for name, usual in {"sampler": "stable", "accountant": "pair", "clip": 1.0}.items():
        if plan[name] != usual:
            flags.append(f"--{name} {plan[name]}")
    return flags
