"""The panels of figures: accuracy along an axis, by class, and side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph.plots.canvas import ACCURACY, GREY, INK, PAPER, legend_columns
from hushgraph.reproduction.captions import PUBLISHED, format_tick

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from hushgraph.reproduction.measurements import Measurement

# From dark to light, for lines that have an order.
_SHADES = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#60ca60", "#b0dd2f")
_SHADE_MARKERS = "osD^vPX<>"
_LINES = {"sound": "-", "as-published": "--", "non-private": ":", "non-private-ours": "-."}
MARKERS = {"sound": "o", "as-published": "s", "non-private": "D", "non-private-ours": "d"}
_LOG_RANGE = 8
_MAX_TICKS = 9
_MAX_CLASS_NAMES = 60
# The position of the numbers beside bars, in percent.
_TEXT_POSITION = 122
# Adjacent bars must differ in lightness, not only in hue.
_CLASS_COLOURS = {
    "non-private": ("#CCCCCC", "#E6E6E6"),
    "non-private-ours": ("#999999", "#B3B3B3"),
    "sound": ("#0072B2", "#D55E00"),
    "as-published": ("#E69F00", "#009E73"),
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """The measurements of one line, in the order of the axis."""

    label: str
    measurements: tuple[Measurement, ...]
    colour: str
    marker: str

    @property
    def mode(self) -> str:
        """The mode of its measurements."""
        return self.measurements[0].mode


def shade(number: int, count: int) -> tuple[str, str]:
    """Return colour and marker of line `number` of `count` ordered lines."""
    position = round(number * (len(_SHADES) - 1) / max(count - 1, 1))
    return _SHADES[position], _SHADE_MARKERS[number % len(_SHADE_MARKERS)]


def draw_along_axis(
    axes: Axes, lines: Sequence[Line], name: str, *, published: Mapping[tuple[str, Any], float]
) -> None:
    """Draw accuracy along one axis, a name in `Measurement.axes`, with the spread over seeds shaded.

    A line that does not vary along the axis is horizontal. Published numbers, in percent by row and value of
    the axis, are hollow stars.
    """
    positions = _axis_positions([one.axis(name) for line in lines for one in line.measurements])
    for line in lines:
        if line.measurements[0].axis(name) is None:
            _draw_horizontal(axes, line)
            continue
        x = np.array([_position(one, name, positions) for one in line.measurements])
        mean = 100 * np.array([one.mean for one in line.measurements])
        spread = 100 * np.array([one.spread for one in line.measurements])
        axes.plot(
            x,
            mean,
            _LINES[line.mode],
            color=line.colour,
            marker=line.marker,
            markerfacecolor=line.colour if line.mode == "sound" else PAPER,
            label=line.label,
        )
        if spread.any():
            axes.fill_between(x, mean - spread, mean + spread, color=line.colour, alpha=0.16, linewidth=0)
    for row in dict.fromkeys(row for row, _ in published):
        points = [
            (positions[value], mean)
            for (owner, value), mean in published.items()
            if owner == row and value in positions
        ]
        if points:
            style = _star("*" if row.startswith("DP-") else "P") | {"linestyle": "-", "linewidth": 0.5}
            axes.plot(*zip(*sorted(points), strict=True), label=f"{row}, {PUBLISHED}", **style)
    _set_scale(axes, positions, name)
    axes.set_ylabel(ACCURACY)


def draw_by_class(axes: Axes, measurements: Sequence[Measurement], labels: Sequence[str]) -> None:
    """Draw accuracy on each class as bars, most frequent first, and on all classes as a dotted line."""
    counts = np.array(measurements[0].classes[0] if measurements[0].classes else ())
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    width = 0.84 / len(measurements)
    used: dict[str, int] = {}
    for number, (one, label) in enumerate(zip(measurements, labels, strict=True)):
        if one.classes is None:
            continue
        shades = _CLASS_COLOURS[one.mode]
        colour = shades[used.get(one.mode, 0) % len(shades)]
        used[one.mode] = used.get(one.mode, 0) + 1
        mean = 100 * np.array(one.classes[1])[:, order].mean(axis=0)
        centre = np.arange(len(order)) + (number - (len(measurements) - 1) / 2) * width
        axes.bar(centre, mean, width, color=colour, linewidth=0, label=label)
        axes.axhline(100 * one.mean, color=colour, linestyle=":", linewidth=1.8)
    has_names = len(order) <= _MAX_CLASS_NAMES
    axes.set_xticks(np.arange(len(order)) if has_names else [], [str(k) for k in order] if has_names else [])
    axes.tick_params(axis="x", labelsize=7, length=0)
    axes.set_xlim(-0.7, len(order) - 0.3)
    axes.set_ylim(0, 100)
    axes.set_xlabel("class, by its number of test nodes, most first")
    axes.set_ylabel(ACCURACY)


def add_legend_above(axes: Axes, title: str, width: float) -> None:
    """Add a legend between the title and the panel; `width` is that of the panel in inches."""
    handles, labels = axes.get_legend_handles_labels()
    columns = legend_columns(labels, width - 1)
    lines = -(-len(labels) // columns)
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0.4,
        ncols=columns,
    )
    axes.set_title(title, pad=10 + 13.5 * lines)


def draw_side_by_side(
    axes: Axes,
    measurements: Sequence[Measurement | None],
    colours: Sequence[str],
    *,
    published: Sequence[float | None],
) -> None:
    """Draw one bar per model, from the top, with its spread; published numbers are hollow stars."""
    for y, (one, colour, known) in enumerate(zip(measurements, colours, published, strict=True)):
        if known is not None:
            axes.plot(known, y, zorder=4, **_star("*"))
        if one is None:
            continue
        mean, spread = 100 * one.mean, 100 * one.spread
        axes.barh(y, mean, 0.66, edgecolor=colour, linewidth=1, **_fill(one.mode, colour))
        if spread:
            axes.errorbar(mean, y, xerr=spread, color=INK, capsize=2, linewidth=1)
        axes.text(_TEXT_POSITION, y, f"{mean:.1f}", ha="right", va="center", fontsize=8)
    axes.set_ylim(len(measurements) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    axes.set_xlim(0, _TEXT_POSITION)
    axes.set_xticks(range(0, 101, 25))
    axes.set_xlabel(ACCURACY)


def mode_handles(labels: Mapping[str, str]) -> dict[str, Artist]:
    """Return the legend handles of modes, by their labels."""
    from matplotlib.patches import Patch

    return {text: Patch(edgecolor=GREY, linewidth=1, **_fill(mode, GREY)) for mode, text in labels.items()}


def published_handle() -> Artist:
    """Return the legend handle of published numbers."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **_star("*"))


def _star(marker: str) -> dict[str, Any]:
    size = 9 if marker == "*" else 6.5
    look = {"marker": marker, "markersize": size, "markerfacecolor": PAPER, "markeredgewidth": 0.9}
    return {"color": INK, "linestyle": "none", **look}


def _fill(mode: str, colour: str) -> dict[str, Any]:
    faces = {"sound": colour, "non-private-ours": (colour, 0.25)}
    return {"facecolor": faces.get(mode, PAPER), "hatch": "////" if mode == "as-published" else None}


def _draw_horizontal(axes: Axes, line: Line) -> None:
    means = [one.mean for one in line.measurements]
    mean, spread = 100 * sum(means) / len(means), 100 * max(one.spread for one in line.measurements)
    axes.axhline(mean, linestyle=_LINES[line.mode], color=line.colour, linewidth=1.8, label=line.label)
    if spread:
        axes.axhspan(mean - spread, mean + spread, color=line.colour, alpha=0.10, linewidth=0)


def _axis_positions(values: Sequence[Any]) -> dict[Any, float]:
    """Return the position of each value: numbers as they are; text, such as a full batch, after them."""
    known = [value for value in dict.fromkeys(values) if value is not None]
    numbers = sorted(value for value in known if isinstance(value, int | float))
    positions: dict[Any, float] = {value: float(value) for value in numbers}
    for text in (value for value in known if not isinstance(value, int | float)):
        positions[text] = 2 * max(positions.values(), default=0.5)
    return positions


def _position(one: Measurement, name: str, positions: Mapping[Any, float]) -> float:
    """Return the position on the axis; on that of epsilon, the epsilon of the runs."""
    if name == "epsilon" and one.epsilon is not None:
        return one.epsilon
    return positions[one.axis(name)]


def _set_scale(axes: Axes, positions: Mapping[Any, float], name: str) -> None:
    if not positions:
        return
    low, high = min(positions.values()), max(positions.values())
    positive = [x for x in positions.values() if x > 0]
    if name != "epsilon" and positive and high / min(positive) >= _LOG_RANGE:
        if low > 0:
            axes.set_xscale("log")
        else:
            # K starts at 0, which has no logarithm: the first step is as wide as a doubling.
            axes.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
        axes.minorticks_off()
    if len(positions) <= _MAX_TICKS:
        axes.set_xticks(list(positions.values()), [format_tick(value) for value in positions])
    elif name == "epsilon":
        axes.set_xlim(left=0)
    axes.grid(axis="x", visible=False)
    axes.tick_params(axis="x", color=GREY)
