"""Figures of experiments, drawn from their records, and what they say: data, modes, epsilon that holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph._text import rounded_up
from hushgraph.errors import InputError, RunError
from hushgraph.plots import canvas
from hushgraph.plots.canvas import ACCURACY, GREY, INK, PAPER
from hushgraph.reproduction import spec
from hushgraph.reproduction.measurements import Measurement, group_records
from hushgraph.reproduction.tables import FrontierLine, FrontierTable, build_frontier

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
PUBLISHED = "published by the paper"
_MODE_LABELS = {
    "non-private": "no privacy, settings of the paper",
    "non-private-ours": "no privacy, our defaults",
    "sound": "sound: ε holds",
    "as-published": "as published: ε claimed by the paper",
}
_NON_PRIVATE = {"non-private": "no privacy", "non-private-ours": "no privacy, our defaults"}
_AXES = {"epsilon": "ε", "max_readers": "maximum degree K", "batch_size": "batch size m"}
_SYMBOLS = {"epsilon": "ε", "max_readers": "K", "batch_size": "m"}
# From dark to light, for lines that have an order.
_SHADES = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#60ca60", "#b0dd2f")
_SHADE_MARKERS = "osD^vPX<>"
_LINES = {"sound": "-", "as-published": "--", "non-private": ":", "non-private-ours": "-."}
_MARKERS = {"sound": "o", "as-published": "s", "non-private": "D", "non-private-ours": "d"}
# Adjacent bars must differ in lightness, not only in hue.
_CLASS_COLOURS = {
    "non-private": ("#CCCCCC", "#E6E6E6"),
    "non-private-ours": ("#999999", "#B3B3B3"),
    "sound": ("#0072B2", "#D55E00"),
    "as-published": ("#E69F00", "#009E73"),
}
# Of methods on the frontier. The palette of Okabe and Ito and a darker green; markers differ too.
_STYLES = (
    ("#009E73", "o"),
    ("#66C2A5", "s"),
    ("#00513B", "^"),
    ("#0072B2", "D"),
    ("#D55E00", "v"),
    ("#CC79A7", "P"),
    ("#E69F00", "X"),
)
# Of methods without an epsilon: the same, without noise, in the clear, then models of other kinds.
_CEILINGS = (
    ("#009E73", "--"),
    ("#66C2A5", ":"),
    ("#0072B2", "-."),
    ("#8A6FC8", (0, (3, 1, 1, 1))),
    ("#D55E00", (0, (5, 1))),
)
_CURVES_PER_ROW, _BARS_PER_ROW = 3, 4
_LOG_RANGE = 8
_MAX_TICKS = 9
_MAX_CLASS_NAMES = 60
# The position of the numbers beside bars, in percent.
_TEXT_POSITION = 122


def draw(records: Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """Draw one figure for each experiment, as SVG and PNG.

    Args:
        records: of any experiments; those without an accuracy are left out.
        out: the folder to write to; created if it does not exist.

    Returns:
        The files, in the order of the records.
    """
    by_experiment: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record["test_accuracy"] is not None:
            by_experiment.setdefault(record["experiment"], []).append(record)
    if not by_experiment:
        raise InputError("records: none has an accuracy; run the experiment first")
    written: list[Path] = []
    with canvas.drawing():
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"out={out}: cannot be created ({error.strerror}); choose another folder"
            ) from None
        for name, group in by_experiment.items():
            experiment = spec.load(name)
            if experiment.kind == "frontier":
                figure = build_frontier_figure(build_frontier(experiment, group))
            else:
                figure = build_figure(group_records(group))
            for suffix in FORMATS:
                written.append(out / f"{name}.{suffix}")
                canvas.save(figure, written[-1], title=experiment.title)
    return written


def build_figure(measurements: Sequence[Measurement]) -> Figure:
    """Build the figure of one experiment; call it within `canvas.drawing`."""
    if spec.load(measurements[0].experiment).kind == "classes":
        return _build_classes([one for one in measurements if one.classes])
    if any(one.axes for one in measurements):
        return _build_curves(measurements)
    return _build_bars(measurements)


def _build_curves(measurements: Sequence[Measurement]) -> Figure:
    """Build a figure of accuracy along an axis: a line for each model, mode and setting of the others."""
    experiment = spec.load(measurements[0].experiment)
    names = dict.fromkeys(name for one in measurements for name, _ in one.axes)
    values = {name: {one.axis(name) for one in measurements} - {None} for name in names}
    # Epsilon if it varies, else the axis with most values.
    name = (
        "epsilon" if len(values.get("epsilon", ())) > 1 else max(values, key=lambda name: len(values[name]))
    )
    # Without an epsilon, a private model has no position on that axis.
    placed = [
        one
        for one in measurements
        if name != "epsilon" or one.mode in spec.NON_PRIVATE or one.epsilon is not None
    ]
    if not placed:
        raise InputError(f"records of {experiment.name}: none has an epsilon; run the experiment again")
    stars = {
        column: {
            (row, dict(axes)[name]): mean
            for (row, axes), mean in spec.published_by_row(experiment.name, column).items()
            if [*dict(axes)] == [name]
        }
        for column in {one.column for one in placed}
    }
    notes = _write_notes(placed, has_published=any(stars.values()))
    if len(placed) < len(measurements):
        missing = len(measurements) - len(placed)
        notes.append(f"Omitted because their ε is unknown: {missing} of {len(measurements)} settings.")
    groups = _group_by_panel(placed)
    # One panel cannot show several settings of every mode of a model.
    has_panel_per_mode = any(len(one.axes) > 1 for one in placed)
    if has_panel_per_mode:
        groups = {
            (f"{column}: {row}, {_name_mode(mode)}", data): part
            for (column, data), group in groups.items()
            for row, mode in dict.fromkeys((one.row, one.mode) for one in group)
            if (part := [one for one in group if (one.row, one.mode) == (row, mode)])
        }
    # Taken from all panels: a setting has one colour, even if some panel has no record of it.
    settings = sorted({one.other_axes(name) for one in placed})
    width = 6.2 if len(groups) == 1 else 4.6
    figure, all_axes = _create_panels(len(groups), _CURVES_PER_ROW, (width, 3.4))
    for axes, ((title, _), group) in zip(all_axes, groups.items(), strict=True):
        if has_panel_per_mode and axes is not all_axes[0]:
            # Shared before anything is drawn, so that the limits are those of all panels.
            axes.sharey(all_axes[0])
        _draw_along_axis(axes, group, name, settings, stars[group[0].column])
        axes.set_title(title)
        axes.set_xlabel(_label_axis(name, group))
    canvas.finish(figure, title=experiment.title, notes=notes, legend=_collect_handles(all_axes))
    return figure


def _draw_along_axis(
    axes: Axes,
    measurements: Sequence[Measurement],
    name: str,
    settings: Sequence[spec.Axes],
    published: Mapping[tuple[str, float], float],
) -> None:
    """Draw accuracy along one axis, with the spread over seeds shaded; published numbers are hollow stars.

    A line that does not vary along the axis is horizontal.
    """
    lines: dict[tuple[str, str, spec.Axes], list[Measurement]] = {}
    for one in sorted(measurements, key=lambda one: settings.index(one.other_axes(name))):
        lines.setdefault((one.row, one.mode, one.other_axes(name)), []).append(one)
    colours = canvas.model_colours([row for row, *_ in lines])
    for (row, mode, others), line in lines.items():
        colour, marker = colours[row], _MARKERS[mode]
        label = _label_line(line, on_epsilon=name == "epsilon")
        if others:
            label = ", ".join(f"{_SYMBOLS[axis]} = {value:,}" for axis, value in others)
            number = settings.index(others)
            position = round(number * (len(_SHADES) - 1) / max(len(settings) - 1, 1))
            colour, marker = _SHADES[position], _SHADE_MARKERS[number % len(_SHADE_MARKERS)]
        mean, spread = (
            100 * np.array([getattr(one, figure) for one in line]) for figure in ("mean", "spread")
        )
        if line[0].axis(name) is None:
            axes.axhline(mean[0], linestyle=_LINES[mode], color=colour, linewidth=1.8, label=label)
            if spread[0]:
                low, high = mean[0] - spread[0], mean[0] + spread[0]
                axes.axhspan(low, high, color=colour, alpha=0.10, linewidth=0)
            continue
        order = np.argsort([one.axis(name) for one in line])
        # On the axis of epsilon, the epsilon of the runs.
        placed = [
            one.epsilon if name == "epsilon" and one.epsilon is not None else one.axis(name) for one in line
        ]
        x, mean, spread = (np.asarray(each)[order] for each in (placed, mean, spread))
        face = colour if mode == "sound" else PAPER
        axes.plot(x, mean, _LINES[mode], color=colour, marker=marker, markerfacecolor=face, label=label)
        if spread.any():
            axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.16, linewidth=0)
    values = sorted({one.axis(name) for one in measurements} - {None})
    for row in dict.fromkeys(row for row, _ in published):
        points = sorted(
            (value, mean) for (owner, value), mean in published.items() if owner == row and value in values
        )
        if points:
            style = _star("*" if row.startswith("DP-") else "P") | {"linestyle": "-", "linewidth": 0.5}
            axes.plot(*zip(*points, strict=True), label=f"{row}, {PUBLISHED}", **style)
    _set_scale(axes, values, name)
    axes.set_ylabel(ACCURACY)


def _set_scale(axes: Axes, values: Sequence[float], name: str) -> None:
    low = min((value for value in values if value > 0), default=0)
    if name != "epsilon" and low and max(values) / low >= _LOG_RANGE:
        if values[0] > 0:
            axes.set_xscale("log")
        else:
            # K starts at 0, which has no logarithm: the first step is as wide as a doubling.
            axes.set_xscale("symlog", linthresh=low, linscale=0.5)
        axes.minorticks_off()
    if 0 < len(values) <= _MAX_TICKS:
        axes.set_xticks(values, [f"{value:,g}" for value in values])
    elif name == "epsilon":
        axes.set_xlim(left=0)
    axes.grid(axis="x", visible=False)
    axes.tick_params(axis="x", color=GREY)


def _build_classes(measurements: Sequence[Measurement]) -> Figure:
    """Build a figure of accuracy by class: bars, most frequent first, and all classes as a dotted line."""
    groups = _group_by_panel(measurements)
    most = max(len(one.classes[0]) for one in measurements if one.classes)
    width = min(max(6.2, 0.24 * most), 11.0)
    figure, all_axes = _create_panels(len(groups), 1, (width, 3.2))
    for axes, ((column, _), group) in zip(all_axes, groups.items(), strict=True):
        _draw_by_class(axes, group)
        # A legend between the title and the panel.
        handles, labels = axes.get_legend_handles_labels()
        columns = canvas.legend_columns(labels, width - 1)
        place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0, "borderpad": 0.4}
        axes.legend(handles, labels, ncols=columns, **place)
        axes.set_title(column, pad=10 + 13.5 * -(-len(labels) // columns))
    title = spec.load(measurements[0].experiment).title
    notes = ["Dotted: accuracy on all classes.", *_write_notes(measurements)]
    canvas.finish(figure, title=title, notes=notes, legend={})
    return figure


def _draw_by_class(axes: Axes, measurements: Sequence[Measurement]) -> None:
    counts = np.array(measurements[0].classes[0] if measurements[0].classes else ())
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    width = 0.84 / len(measurements)
    used: dict[str, int] = {}
    for number, one in enumerate(measurements):
        shades = _CLASS_COLOURS[one.mode]
        colour = shades[used.get(one.mode, 0) % len(shades)]
        used[one.mode] = used.get(one.mode, 0) + 1
        mean = 100 * np.array(one.classes[1] if one.classes else ())[:, order].mean(axis=0)
        centre = np.arange(len(order)) + (number - (len(measurements) - 1) / 2) * width
        label = f"{_label_line([one])}: {100 * one.mean:.1f}%"
        axes.bar(centre, mean, width, color=colour, linewidth=0, label=label)
        axes.axhline(100 * one.mean, color=colour, linestyle=":", linewidth=1.8)
    has_names = len(order) <= _MAX_CLASS_NAMES
    axes.set_xticks(np.arange(len(order)) if has_names else [], [str(k) for k in order] if has_names else [])
    axes.tick_params(axis="x", labelsize=7, length=0)
    axes.set_xlim(-0.7, len(order) - 0.3)
    axes.set_ylim(0, 100)
    axes.set_xlabel("class, by its number of test nodes, most first")
    axes.set_ylabel(ACCURACY)


def _build_bars(measurements: Sequence[Measurement]) -> Figure:
    """Build a figure with one bar for each model and mode; published numbers are hollow stars."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    experiment = spec.load(measurements[0].experiment)
    groups = _group_by_panel(measurements)
    rows = [one.row for one in measurements]
    keys = list(dict.fromkeys((one.row, one.mode) for group in groups.values() for one in group))
    keys.sort(key=lambda key: rows.index(key[0]))
    labels = [_label_bar([one for one in measurements if (one.row, one.mode) == key]) for key in keys]
    # A single panel also needs space for the names of the models.
    width = 2.9 if len(groups) > 1 else 5.0
    figure, all_axes = _create_panels(len(groups), _BARS_PER_ROW, (width, 0.4 * len(keys) + 0.9))
    colours = canvas.model_colours(rows)
    has_published = False
    for number, (axes, ((column, _), group)) in enumerate(zip(all_axes, groups.items(), strict=True)):
        by_key = {(one.row, one.mode): one for one in group}
        known = spec.published_by_row(experiment.name, column)
        for y, key in enumerate(keys):
            row, mode = key
            # The paper has no numbers for our own modes.
            star = None if mode in ("sound", "non-private-ours") else known.get((row, ()))
            if star is not None:
                has_published = True
                axes.plot(star, y, zorder=4, **_star("*"))
            if key in by_key:
                mean, spread = 100 * by_key[key].mean, 100 * by_key[key].spread
                axes.barh(y, mean, 0.66, edgecolor=colours[row], linewidth=1, **_fill(mode, colours[row]))
                if spread:
                    axes.errorbar(mean, y, xerr=spread, color=INK, capsize=2, linewidth=1)
                axes.text(_TEXT_POSITION, y, f"{mean:.1f}", ha="right", va="center", fontsize=8)
        axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x")
        axes.set_xlim(0, _TEXT_POSITION)
        axes.set_xticks(range(0, 101, 25))
        axes.set_xlabel(ACCURACY)
        axes.set_yticks(range(len(keys)), labels if number % _BARS_PER_ROW == 0 else [])
        axes.set_title(column)
    legend: dict[str, Any] = {
        _MODE_LABELS[mode]: Patch(edgecolor=GREY, linewidth=1, **_fill(mode, GREY)) for _, mode in keys
    }
    if has_published:
        legend[PUBLISHED] = Line2D([], [], **_star("*"))
    notes = _write_notes(measurements, has_published=has_published)
    canvas.finish(figure, title=experiment.title, notes=notes, legend=legend)
    return figure


def build_frontier_figure(table: FrontierTable) -> Figure:
    """Build the figure of accuracy against epsilon: one panel per graph, one line per method."""
    lines: dict[str, dict[str, list[FrontierLine]]] = {}
    for line in table.lines:
        lines.setdefault(line.data, {}).setdefault(line.row, []).append(line)
    private = list(dict.fromkeys(line.row for line in table.lines if line.epsilon is not None))
    ceilings = list(dict.fromkeys(line.row for line in table.lines if line.epsilon is None))
    width = 6.2 if len(lines) == 1 else 4.2
    figure, all_axes = _create_panels(len(lines), _CURVES_PER_ROW, (width, 3.2))
    for axes, (data, group) in zip(all_axes, lines.items(), strict=True):
        for row, points in group.items():
            mean = np.array([point.ours for point in points])
            if row in ceilings:
                colour, dashes = _CEILINGS[ceilings.index(row) % len(_CEILINGS)]
                axes.axhline(mean[0], color=colour, linestyle=dashes, linewidth=1.2, label=row)
                continue
            colour, marker = _STYLES[private.index(row) % len(_STYLES)]
            epsilons = np.array([point.epsilon for point in points], np.float64)
            axes.plot(epsilons, mean, "-", color=colour, marker=marker, label=row)
            spread = np.array([point.spread or 0.0 for point in points])
            axes.fill_between(epsilons, mean - spread, mean + spread, color=colour, alpha=0.16, linewidth=0)
        ticks = sorted(
            {line.epsilon for points in group.values() for line in points if line.epsilon is not None}
        )
        if ticks:
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_xticks([], minor=True)
        axes.set_title(data)
        axes.set_xlabel("ε")
        axes.set_ylabel(ACCURACY)
    handles = _collect_handles(all_axes)
    legend = {label: handles[label] for label in (*private, *ceilings)}
    canvas.finish(figure, title=table.title, notes=table.notes, legend=legend)
    return figure


def _star(marker: str) -> dict[str, Any]:
    size = 9 if marker == "*" else 6.5
    look = {"marker": marker, "markersize": size, "markerfacecolor": PAPER, "markeredgewidth": 0.9}
    return {"color": INK, "linestyle": "none", **look}


def _fill(mode: str, colour: str) -> dict[str, Any]:
    faces = {"sound": colour, "non-private-ours": (colour, 0.25)}
    return {"facecolor": faces.get(mode, PAPER), "hatch": "////" if mode == "as-published" else None}


def _group_by_panel(measurements: Sequence[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
    """Group by column and data; sort by the first record of a model, then by mode."""
    rows = list(dict.fromkeys(one.row for one in measurements))
    ordered = sorted(measurements, key=lambda one: (rows.index(one.row), spec.MODES.index(one.mode)))
    groups: dict[tuple[str, str], list[Measurement]] = {(one.column, one.data): [] for one in measurements}
    for one in ordered:
        groups[one.column, one.data].append(one)
    return groups


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


def _label_axis(name: str, measurements: Sequence[Measurement]) -> str:
    """Return the label of an axis; for epsilon, also whether it holds or is claimed."""
    if name != "epsilon":
        return _AXES[name]
    modes = {measurement.mode for measurement in measurements}
    status = {"sound": "holds", "as-published": "claimed by the paper"}
    parts = [f"{_name_mode(mode)}: {text}" for mode, text in status.items() if mode in modes]
    return "ε (" + "; ".join(parts) + ")"


def _label_line(measurements: Sequence[Measurement], *, on_epsilon: bool = False) -> str:
    """Return the model, its privacy and who claims it; without a number if epsilon is the axis."""
    row, mode = measurements[0].row, measurements[0].mode
    if mode in spec.NON_PRIVATE:
        return f"{row}, {_NON_PRIVATE[mode]}"
    bound = _bound_epsilon(measurements)
    if bound is None:
        return f"{row}, {_name_mode(mode)} (no ε known)"
    status = "holds" if mode == "sound" else "claimed by the paper"
    return f"{row}, {_name_mode(mode)} ({'ε' if on_epsilon else bound} {status})"


def _label_bar(measurements: Sequence[Measurement]) -> str:
    """Return the model, and on a second line its privacy."""
    row, mode = measurements[0].row, measurements[0].mode
    if mode in spec.NON_PRIVATE:
        return f"{row}\n{_NON_PRIVATE[mode]}"
    claimed = "claimed " if mode == "as-published" else ""
    bound = _bound_epsilon(measurements)
    return f"{row}\n{_name_mode(mode)}, " + ("no ε known" if bound is None else claimed + bound)


def _bound_epsilon(measurements: Sequence[Measurement]) -> str | None:
    known = [one.epsilon for one in measurements if one.epsilon is not None]
    return f"ε ≤ {rounded_up(max(known))}" if len(known) == len(measurements) else None


def _name_mode(mode: str) -> str:
    return mode.replace("-", " ")


def _write_notes(measurements: Sequence[Measurement], *, has_published: bool = False) -> list[str]:
    """Return what a reader must know: substitute data, claims that are not guarantees, seeds."""
    notes = [
        f"Measured on {data}{'; published numbers are for' if has_published else ', not'} {column}."
        for column, data in dict.fromkeys((one.column, one.data) for one in measurements)
        if not _is_own_data(measurements[0].experiment, column, data)
    ]
    claimed = [one for one in measurements if one.mode == "as-published"]
    if claimed:
        notes.append(_write_claim(claimed))
    seeds = sorted({len(one.accuracy) for one in measurements})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spread = f"Spread: standard deviation over {count} seeds."
    notes.append("One seed, so no spread." if seeds == [1] else spread)
    if any(one.mode not in spec.NON_PRIVATE for one in measurements):
        notes.append("Runs with a fixed seed are reproducible, not private: ε is that of runs without one.")
    return notes


def _write_claim(claimed: Sequence[Measurement]) -> str:
    """Return a note about claimed epsilons: what holds instead, or would hold with public thresholds."""
    holds = _format_range([one.holds for one in claimed])
    note = "As published: ε is claimed by the paper; " + (
        f"what holds for these runs is {holds}." if holds else "no ε is known to hold for these runs."
    )
    if_public = None if holds else _format_range([one.if_public for one in claimed])
    return note + (f" Were their clipping thresholds public, {if_public} would hold." if if_public else "")


def _format_range(epsilons: Sequence[float | None]) -> str | None:
    """Format the smallest and the largest epsilon; None if one is missing."""
    known = [epsilon for epsilon in epsilons if epsilon is not None]
    if len(known) < len(epsilons):
        return None
    low, high = rounded_up(min(known)), rounded_up(max(known))
    return f"ε = {low}" if low == high else f"ε = {low} to {high}"


def _is_own_data(experiment: str, column: str, data: str) -> bool:
    """Return whether the data is that of the paper's column, which may be a part of another dataset."""
    own = {column, spec.load(experiment).column(column).dataset}
    return data.replace("_", "-") in {name.replace("_", "-") for name in own}
