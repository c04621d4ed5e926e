"""Figures of experiments, drawn from the lines of their tables, with what a reader must know below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushgraph._text import rounded_up
from hushgraph.errors import InputError, RunError, explain
from hushgraph.plots import canvas
from hushgraph.plots.canvas import ACCURACY, GREY, INK, PAPER
from hushgraph.reproduction import spec
from hushgraph.reproduction.tables import Line, Table, describe_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
PUBLISHED = "published by the paper"


class _Look(NamedTuple):
    """Name and style of a mode: colour shows the model, line and fill show the privacy."""

    words: str
    line: str
    # Of bars of classes. Adjacent ones must differ in lightness, not only in hue.
    colour: str
    status: str = ""


_LOOKS = {
    "non-private": _Look("no privacy", ":", "#CCCCCC"),
    "non-private-ours": _Look("no privacy, our defaults", "-.", "#999999"),
    "sound": _Look("sound", "-", "#0072B2", "holds"),
    "as-published": _Look("as published", "--", "#E69F00", "claimed by the paper"),
}
# Each ends in its symbol.
_AXES = {"epsilon": "ε", "max_readers": "maximum degree K", "batch_size": "batch size m"}
_MARKERS = "osD^vPX<>"
_CURVES_PER_ROW, _BARS_PER_ROW = 3, 4
_LOG_RANGE = 16
_MAX_TICKS = 9
_MAX_CLASS_NAMES = 60
# The position of the numbers beside bars, in percent.
_TEXT_POSITION = 122


def draw(tables: Iterable[Table], out: Path) -> list[Path]:
    """Draw one figure for each table that has lines of runs, as SVG and PNG.

    Args:
        tables: of any experiments.
        out: the folder to write to; created if it does not exist.

    Returns:
        The files, in the order of the tables.
    """
    measured = [table for table in tables if table.is_measured]
    if not measured:
        raise InputError("tables: none has an accuracy; run the experiment first")
    written: list[Path] = []
    with canvas.drawing():
        with explain(RunError, f"out={out}: cannot be created", "choose another folder"):
            out.mkdir(parents=True, exist_ok=True)
        for table in measured:
            figure = build_figure(table)
            for suffix in FORMATS:
                written.append(out / f"{table.name}.{suffix}")
                canvas.save(figure, written[-1], title=table.title)
    return written


def build_figure(table: Table) -> Figure:
    """Build the figure of a table; call it within `canvas.drawing`."""
    rows = list(dict.fromkeys(line.row for line in table.lines))
    lines = [line for line in table.lines if line.runs]
    lines.sort(key=lambda line: (rows.index(line.row), spec.MODES.index(line.mode)))
    if table.classes:
        return _build_classes(table, lines)
    return _build_curves(table, lines) if any(line.axes for line in lines) else _build_bars(table, lines)


def _build_curves(table: Table, lines: Sequence[Line]) -> Figure:
    """Build a figure of accuracy along an axis: a line for each model, mode and setting of the others."""
    values: dict[str, set[float]] = {}
    for line in lines:
        for name, value in line.axes.items():
            values.setdefault(name, set()).add(value)
    # Epsilon if it varies, else the axis with most values.
    name = (
        "epsilon" if len(values.get("epsilon", ())) > 1 else max(values, key=lambda name: len(values[name]))
    )

    # Without an epsilon, a private model has no position on that axis.
    def is_placed(line: Line) -> bool:
        return name != "epsilon" or line.mode in spec.NON_PRIVATE or line.epsilon is not None

    placed = [line for line in lines if is_placed(line)]
    if not placed:
        raise InputError(f"records of {table.name}: none has an epsilon; run the experiment again")
    notes = _list_notes(table, placed)
    if len(placed) < len(lines):
        missing = len(lines) - len(placed)
        notes.append(f"Omitted because their ε is unknown: {missing} of {len(lines)} settings.")
    # One panel cannot show several settings of every mode of a model.
    has_panel_per_mode = any(len(line.axes) > 1 for line in placed)
    panels: dict[str, list[Line]] = {}
    for line in placed:
        mode = f": {line.row}, {_LOOKS[line.mode].words}" if has_panel_per_mode else ""
        panels.setdefault(f"{line.graph}{mode}", []).append(line)
    # Taken from all panels: a model or setting looks the same in each, even if some have no line of it.
    settings = sorted({line.other_axes(name) for line in placed})
    models = list(dict.fromkeys(line.row for line in placed))
    looks = _choose_looks(settings if has_panel_per_mode else models, has_order=has_panel_per_mode)
    width = 6.2 if len(panels) == 1 else 4.6
    figure, all_axes = _create_panels(len(panels), _CURVES_PER_ROW, (width, 3.4))
    for axes, (title, group) in zip(all_axes, panels.items(), strict=True):
        if has_panel_per_mode and axes is not all_axes[0]:
            # Shared before anything is drawn, so that the limits are those of all panels.
            axes.sharey(all_axes[0])
        series: dict[Any, list[Line]] = {}
        for line in sorted(group, key=lambda line: line.other_axes(name)):
            series.setdefault((line.row, line.mode, line.other_axes(name)), []).append(line)
        for (row, _, others), part in series.items():
            label = ", ".join(f"{_AXES[axis][-1]} = {value:,}" for axis, value in others)
            label = label or (row if table.is_frontier else _label(part, on_epsilon=name == "epsilon"))
            _draw_series(axes, part, name, label, *looks[others if has_panel_per_mode else row])
        _draw_published(axes, group, name)
        _set_scale(axes, sorted({line.axes[name] for line in group if name in line.axes}))
        axes.set_title(title)
        axes.set_xlabel(_label_axis(name, group))
        axes.set_ylabel(ACCURACY)
    canvas.finish(figure, title=table.title, notes=notes, legend=_collect_handles(all_axes))
    return figure


def _choose_looks(keys: Sequence[Any], *, has_order: bool) -> dict[Any, tuple[Any, str]]:
    """Choose a colour and a marker for every model, or for every setting, which have an order."""
    import matplotlib

    markers = [_MARKERS[number % len(_MARKERS)] for number in range(len(keys))]
    if has_order:
        # From dark to light, without what is too light for white paper.
        shades = [tuple(matplotlib.colormaps["viridis"](place)) for place in np.linspace(0, 0.88, len(keys))]
        return dict(zip(keys, zip(shades, markers, strict=True), strict=True))
    colours = canvas.model_colours(keys)
    return {key: (colours[key], marker) for key, marker in zip(keys, markers, strict=True)}


def _draw_series(axes: Axes, lines: Sequence[Line], name: str, label: str, colour: Any, marker: str) -> None:
    """Draw accuracy along one axis, with the spread over seeds shaded; horizontal where it does not vary."""
    first, style = lines[0], _LOOKS[lines[0].mode].line
    spread = np.array([line.spread or 0.0 for line in lines])
    if name not in first.axes:
        axes.axhline(first.ours, linestyle=style, color=colour, linewidth=1.8, label=label)
        if spread[0]:
            low, high = first.ours - spread[0], first.ours + spread[0]
            axes.axhspan(low, high, color=colour, alpha=0.10, linewidth=0)
        return
    order = np.argsort([line.axes[name] for line in lines])
    # On the axis of epsilon, the epsilon of the runs.
    x = np.array([line.axes[name] if name != "epsilon" else line.epsilon or 0.0 for line in lines])[order]
    mean, spread = np.array([line.ours for line in lines])[order], spread[order]
    face = colour if first.mode == "sound" else PAPER
    axes.plot(x, mean, style, color=colour, marker=marker, markerfacecolor=face, label=label)
    if spread.any():
        axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.16, linewidth=0)


def _draw_published(axes: Axes, lines: Sequence[Line], name: str) -> None:
    """Draw published numbers as hollow stars."""
    published: dict[str, dict[float, float]] = {}
    for line in lines:
        if line.published is not None and [*line.axes] == [name]:
            published.setdefault(line.row, {})[line.axes[name]] = line.published
    for row, points in published.items():
        style = _star("*" if row.startswith("DP-") else "P") | {"linestyle": "-", "linewidth": 0.5}
        axes.plot(*zip(*sorted(points.items()), strict=True), label=f"{row}, {PUBLISHED}", **style)


def _set_scale(axes: Axes, values: Sequence[float]) -> None:
    low = min((value for value in values if value > 0), default=0)
    if low and max(values) / low >= _LOG_RANGE:
        if values[0] > 0:
            axes.set_xscale("log")
        else:
            # K starts at 0, which has no logarithm: the first step is as wide as a doubling.
            axes.set_xscale("symlog", linthresh=low, linscale=0.5)
        axes.minorticks_off()
    if 0 < len(values) <= _MAX_TICKS:
        axes.set_xticks(values, [f"{value:,g}" for value in values])
    axes.grid(axis="x", visible=False)
    axes.tick_params(axis="x", color=GREY)


def _build_classes(table: Table, lines: Sequence[Line]) -> Figure:
    """Build a figure of accuracy by class: bars, most frequent first, and all classes as a dotted line."""
    graphs = list(dict.fromkeys(line.graph for line in lines))
    columns = list(dict.fromkeys(line.column for line in lines))
    most = max(sum(one.column == column for one in table.classes) for column in columns)
    width = min(max(6.2, 0.24 * most), 11.0)
    figure, all_axes = _create_panels(len(graphs), 1, (width, 3.2))
    for axes, graph in zip(all_axes, graphs, strict=True):
        group = [line for line in lines if line.graph == graph]
        classes = [one for one in table.classes if one.column == group[0].column]
        bar = 0.84 / len(group)
        for number, line in enumerate(group):
            colour = _LOOKS[line.mode].colour
            centre = np.arange(len(classes)) + (number - (len(group) - 1) / 2) * bar
            accuracies = [one.accuracy[line.name] for one in classes]
            axes.bar(centre, accuracies, bar, color=colour, linewidth=0, label=_label([line]))
            axes.axhline(line.ours, color=colour, linestyle=":", linewidth=1.8)
        axes.set_xticks(range(len(classes)), [str(one.number) for one in classes])
        # Too many names would overlap.
        axes.tick_params(axis="x", labelsize=7, length=0, labelbottom=len(classes) <= _MAX_CLASS_NAMES)
        axes.set_xlim(-0.7, len(classes) - 0.3)
        axes.set_ylim(0, 100)
        axes.set_xlabel("class, by its number of test nodes, most first")
        axes.set_ylabel(ACCURACY)
        axes.set_title(graph)
    notes = ["Dotted: accuracy on all classes.", *_list_notes(table, lines)]
    canvas.finish(figure, title=table.title, notes=notes, legend=_collect_handles(all_axes))
    return figure


def _build_bars(table: Table, lines: Sequence[Line]) -> Figure:
    """Build a figure with one bar for each model and mode; published numbers are hollow stars."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    graphs = list(dict.fromkeys(line.graph for line in lines))
    keys = list(dict.fromkeys((line.row, line.mode) for line in lines))
    labels = [_label([line for line in lines if (line.row, line.mode) == key], "\n") for key in keys]
    # A single panel also needs space for the names of the models.
    width = 2.9 if len(graphs) > 1 else 5.6
    figure, all_axes = _create_panels(len(graphs), _BARS_PER_ROW, (width, 0.4 * len(keys) + 0.9))
    colours = canvas.model_colours([row for row, _ in keys])
    has_published = False
    for number, (axes, graph) in enumerate(zip(all_axes, graphs, strict=True)):
        for line in (line for line in lines if line.graph == graph):
            y = keys.index((line.row, line.mode))
            # The paper has no numbers for our own modes.
            if line.published is not None and line.mode not in ("sound", "non-private-ours"):
                has_published = True
                axes.plot(line.published, y, zorder=4, **_star("*"))
            colour = colours[line.row]
            axes.barh(y, line.ours, 0.66, edgecolor=colour, linewidth=1, **_fill(line.mode, colour))
            if line.spread:
                axes.errorbar(line.ours, y, xerr=line.spread, color=INK, capsize=2, linewidth=1)
            axes.text(_TEXT_POSITION, y, f"{line.ours:.1f}", ha="right", va="center", fontsize=8)
        axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x")
        axes.set_xlim(0, _TEXT_POSITION)
        axes.set_xticks(range(0, 101, 25))
        axes.set_xlabel(ACCURACY)
        axes.set_yticks(range(len(keys)), labels if number % _BARS_PER_ROW == 0 else [])
        axes.set_title(graph)
    legend: dict[str, Any] = {
        _LOOKS[mode].words: Patch(edgecolor=GREY, linewidth=1, **_fill(mode, GREY)) for _, mode in keys
    }
    if has_published:
        legend[PUBLISHED] = Line2D([], [], **_star("*"))
    canvas.finish(figure, title=table.title, notes=_list_notes(table, lines), legend=legend)
    return figure


def _star(marker: str) -> dict[str, Any]:
    size = 9 if marker == "*" else 6.5
    look = {"marker": marker, "markersize": size, "markerfacecolor": PAPER, "markeredgewidth": 0.9}
    return {"color": INK, "linestyle": "none", **look}


def _fill(mode: str, colour: str) -> dict[str, Any]:
    faces = {"sound": colour, "non-private-ours": (colour, 0.25)}
    return {"facecolor": faces.get(mode, PAPER), "hatch": "////" if mode == "as-published" else None}


def _create_panels(count: int, per_row: int, panel: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Create `count` panels, at most `per_row` in a row, and hide those left over."""
    columns = min(count, per_row)
    figure, all_axes = canvas.new_figure(rows=-(-count // columns), columns=columns, panel=panel)
    for spare in all_axes[count:]:
        spare.set_visible(False)
    return figure, all_axes[:count]


def _collect_handles(all_axes: Sequence[Axes]) -> dict[str, Any]:
    """Collect the legend entries of all panels, each label once."""
    handles: dict[str, Any] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return handles


def _label_axis(name: str, lines: Sequence[Line]) -> str:
    """Return the label of an axis; for epsilon, also whether it holds or is claimed."""
    modes = {line.mode for line in lines}
    looks = [look for mode, look in _LOOKS.items() if look.status and mode in modes]
    status = "; ".join(f"{look.words}: {look.status}" for look in looks)
    return f"{_AXES[name]} ({status})" if name == "epsilon" else _AXES[name]


def _label(lines: Sequence[Line], separator: str = ", ", *, on_epsilon: bool = False) -> str:
    """Return the model, its privacy and who claims it; without a number if epsilon is the axis."""
    look, known = _LOOKS[lines[0].mode], [line.epsilon for line in lines if line.epsilon is not None]
    label = f"{lines[0].row}{separator}{look.words}"
    if not look.status:
        return label
    if len(known) < len(lines):
        return f"{label} (no ε known)"
    return f"{label} ({'ε' if on_epsilon else f'ε ≤ {rounded_up(max(known))}'} {look.status})"


def _list_notes(table: Table, lines: Sequence[Line]) -> list[str]:
    """Return what a reader must know: other data, claims that are not guarantees, seeds."""
    if table.is_frontier:
        return [*table.notes]
    notes = [
        f"Measured on {data}, not {column}."
        for column, data in dict.fromkeys((line.column, line.data) for line in lines if not line.comparable)
    ]
    claimed = [line.holds for line in lines if line.mode == "as-published"]
    if claimed:
        known = [epsilon for epsilon in claimed if epsilon is not None]
        holds = (
            f"ε ≤ {rounded_up(max(known))} holds" if len(known) == len(claimed) else "no ε is known to hold"
        )
        notes.append(f"As published: ε is claimed by the paper; {holds} for these runs.")
    notes.append(describe_seeds(lines))
    if any(line.mode not in spec.NON_PRIVATE for line in lines):
        notes.append("Runs with a fixed seed are reproducible, not private: ε is that of runs without one.")
    return notes
