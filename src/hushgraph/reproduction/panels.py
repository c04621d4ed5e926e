"""The kinds of panels: accuracy along an axis, class by class, and side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph.plots.canvas import GREY, INK, PAPER, legend_columns
from hushgraph.reproduction.captions import PUBLISHED, tick

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from hushgraph.reproduction.measured import Cell

ACCURACY = "test accuracy (%)"

# Okabe and Ito's colours, which people with any colour vision tell apart. Colour says the architecture; line
# and marker say whether and how it is private, so that a copy in grey can be read too.
_COLOURS = {
    "GNN": ("#0072B2", "#56B4E9"),
    "GCN": ("#0072B2", "#56B4E9"),
    "MLP": ("#D55E00", "#E69F00"),
    "GIN": ("#009E73", "#66C2A5"),
    "GAT": ("#CC79A7", "#8C5A78"),
}
_OTHERS = ("#444444", "#999999")
# From dark to light, for lines in an order.
_SHADES = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#60ca60", "#b0dd2f")
_MANY_MARKERS = "osD^vPX<>"
_LINES = {"sound": "-", "as-published": "--", "non-private": ":", "non-private-ours": "-."}
MARKERS = {"sound": "o", "as-published": "s", "non-private": "D", "non-private-ours": "d"}
_WIDE_RANGE = 8
_MOST_TICKS = 9
_MOST_CLASS_NAMES = 60
# Past the longest bar, in percent.
_TEXT_PLACE = 122
# Bars that touch must differ in lightness, not only in hue.
_CLASS_COLOURS = {
    "non-private": ("#CCCCCC", "#E6E6E6"),
    "non-private-ours": ("#999999", "#B3B3B3"),
    "sound": ("#0072B2", "#D55E00"),
    "as-published": ("#E69F00", "#009E73"),
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """Cells of one model that belong on one line, in the order of the axis."""

    label: str
    cells: tuple[Cell, ...]
    colour: str
    marker: str

    @property
    def mode(self) -> str:
        return self.cells[0].mode


def colours(rows: Sequence[str]) -> dict[str, str]:
    """A colour for each row: the architecture's own, a second one for its variants."""
    found: dict[str, str] = {}
    for prefix in ("DP-", ""):
        variants: dict[str, list[str]] = {}
        for row in dict.fromkeys(rows):
            if row.startswith("DP-") == bool(prefix):
                base = row.removeprefix("DP-").split(" ")[0]
                same = variants.setdefault(base, [])
                shades = _COLOURS.get(base, _OTHERS)
                found[row] = shades[len(same) % len(shades)]
                same.append(row)
    return found


def shade(number: int, count: int) -> tuple[str, str]:
    """Colour and marker of one of several lines in an order."""
    place = round(number * (len(_SHADES) - 1) / max(count - 1, 1))
    return _SHADES[place], _MANY_MARKERS[number % len(_MANY_MARKERS)]


def tint(row: str) -> str:
    """The colour of a row by itself."""
    return colours([row])[row]


def along_axis(
    axes: Axes, lines: Sequence[Line], name: str, *, published: Mapping[tuple[str, Any], float]
) -> None:
    """Accuracy against one axis, a name in `Cell.axes`, spread over seeds shaded.

    A line without the axis is horizontal. What was published, in percent by row and place on the
    axis, is a hollow star.
    """
    places = _places([cell.axis(name) for line in lines for cell in line.cells])
    for line in lines:
        if line.cells[0].axis(name) is None:
            _level(axes, line)
            continue
        x = np.array([_x(cell, name, places) for cell in line.cells])
        mean = 100 * np.array([cell.mean for cell in line.cells])
        spread = 100 * np.array([cell.spread for cell in line.cells])
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
        points = [(places[x], mean) for (own, x), mean in published.items() if own == row and x in places]
        if points:
            mark = _star("*" if row.startswith("DP-") else "P") | {"linestyle": "-", "linewidth": 0.5}
            axes.plot(*zip(*sorted(points), strict=True), label=f"{row}, {PUBLISHED}", **mark)
    _scale(axes, places, name)
    axes.set_ylabel(ACCURACY)


def by_class(axes: Axes, cells: Sequence[Cell], labels: Sequence[str]) -> None:
    """Accuracy on each class as bars, most frequent first; the accuracy on all as a dotted line."""
    counts = np.array(cells[0].classes[0] if cells[0].classes else ())
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    width = 0.84 / len(cells)
    used: dict[str, int] = {}
    for number, (cell, label) in enumerate(zip(cells, labels, strict=True)):
        if cell.classes is None:
            continue
        shades = _CLASS_COLOURS[cell.mode]
        colour = shades[used.get(cell.mode, 0) % len(shades)]
        used[cell.mode] = used.get(cell.mode, 0) + 1
        mean = 100 * np.array(cell.classes[1])[:, order].mean(axis=0)
        centre = np.arange(len(order)) + (number - (len(cells) - 1) / 2) * width
        axes.bar(centre, mean, width, color=colour, linewidth=0, label=label)
        axes.axhline(100 * cell.mean, color=colour, linestyle=":", linewidth=1.8)
    few = len(order) <= _MOST_CLASS_NAMES
    axes.set_xticks(np.arange(len(order)) if few else [], [str(k) for k in order] if few else [])
    axes.tick_params(axis="x", labelsize=7, length=0)
    axes.set_xlim(-0.7, len(order) - 0.3)
    axes.set_ylim(0, 100)
    axes.set_xlabel("class, by its number of test nodes, most first")
    axes.set_ylabel(ACCURACY)


def legend_above(axes: Axes, title: str, width: float) -> None:
    """The panel's own legend between its title and the panel, which is so many inches wide."""
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


def side_by_side(
    axes: Axes, cells: Sequence[Cell | None], tints: Sequence[str], *, published: Sequence[float | None]
) -> None:
    """One bar a model, from the top, with its spread over seeds; what was published is a hollow star."""
    for y, (cell, colour, known) in enumerate(zip(cells, tints, published, strict=True)):
        if known is not None:
            axes.plot(known, y, zorder=4, **_star("*"))
        if cell is None:
            continue
        mean, spread = 100 * cell.mean, 100 * cell.spread
        axes.barh(y, mean, 0.66, edgecolor=colour, linewidth=1, **_fill(cell.mode, colour))
        if spread:
            axes.errorbar(mean, y, xerr=spread, color=INK, capsize=2, linewidth=1)
        axes.text(_TEXT_PLACE, y, f"{mean:.1f}", ha="right", va="center", fontsize=8)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    axes.set_xlim(0, _TEXT_PLACE)
    axes.set_xticks(range(0, 101, 25))
    axes.set_xlabel(ACCURACY)


def mode_handles(words: Mapping[str, str]) -> dict[str, Artist]:
    """What stands for each mode in a legend of bars, by its words."""
    from matplotlib.patches import Patch

    return {text: Patch(edgecolor=GREY, linewidth=1, **_fill(mode, GREY)) for mode, text in words.items()}


def published_handle() -> Artist:
    """What stands for published numbers in a legend of bars."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **_star("*"))


def _star(marker: str) -> dict[str, Any]:
    size = 9 if marker == "*" else 6.5
    look = {"marker": marker, "markersize": size, "markerfacecolor": PAPER, "markeredgewidth": 0.9}
    return {"color": INK, "linestyle": "none", **look}


def _fill(mode: str, colour: str) -> dict[str, Any]:
    faces = {"sound": colour, "non-private-ours": (colour, 0.25)}
    return {"facecolor": faces.get(mode, PAPER), "hatch": "////" if mode == "as-published" else None}


def _level(axes: Axes, line: Line) -> None:
    means = [cell.mean for cell in line.cells]
    mean, spread = 100 * sum(means) / len(means), 100 * max(cell.spread for cell in line.cells)
    axes.axhline(mean, linestyle=_LINES[line.mode], color=line.colour, linewidth=1.8, label=line.label)
    if spread:
        axes.axhspan(mean - spread, mean + spread, color=line.colour, alpha=0.10, linewidth=0)


def _places(values: Sequence[Any]) -> dict[Any, float]:
    """Where each value of an axis is: numbers as they are; words, such as a full batch, after them all."""
    known = [value for value in dict.fromkeys(values) if value is not None]
    numbers = sorted(value for value in known if isinstance(value, int | float))
    places: dict[Any, float] = {value: float(value) for value in numbers}
    for word in (value for value in known if not isinstance(value, int | float)):
        places[word] = 2 * max(places.values(), default=0.5)
    return places


def _x(cell: Cell, name: str, places: Mapping[Any, float]) -> float:
    if name == "epsilon" and cell.epsilon is not None:
        return cell.epsilon
    return places[cell.axis(name)]


def _scale(axes: Axes, places: Mapping[Any, float], name: str) -> None:
    if not places:
        return
    low, high = min(places.values()), max(places.values())
    positive = [x for x in places.values() if x > 0]
    if name != "epsilon" and positive and high / min(positive) >= _WIDE_RANGE:
        if low > 0:
            axes.set_xscale("log")
        else:
            # K from 0: no logarithm, so the first step is drawn as wide as a doubling.
            axes.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
        axes.minorticks_off()
    if len(places) <= _MOST_TICKS:
        axes.set_xticks(list(places.values()), [tick(value) for value in places])
    elif name == "epsilon":
        axes.set_xlim(left=0)
    axes.grid(axis="x", visible=False)
    axes.tick_params(axis="x", color=GREY)
