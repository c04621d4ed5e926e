"""Figures of experiments, drawn from their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError, RunError
from hushgraph.plots import canvas
from hushgraph.reproduction import captions, panels, spec
from hushgraph.reproduction.frontier import build_frontier
from hushgraph.reproduction.measurements import MODES, Measurement, group_records, read_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
_CURVES_PER_ROW, _BARS_PER_ROW = 3, 4


def draw(records: Path | Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """Draw one figure for each experiment, as SVG and PNG.

    Args:
        records: a file of JSON lines, or the records themselves.
        out: the folder to write to; created if it does not exist.

    Returns:
        The files, in the order of the records.
    """
    by_experiment: dict[str, list[dict[str, Any]]] = {}
    for record in read_records(records):
        by_experiment.setdefault(record["experiment"], []).append(record)
    written: list[Path] = []
    with canvas.drawing():
        _create_folder(out)
        for name, group in by_experiment.items():
            paths = [out / f"{name}.{suffix}" for suffix in FORMATS]
            written += paths
            if name in spec.names() and spec.load(name).kind == "frontier":
                table = build_frontier(spec.load(name), group)
                for path in paths:
                    table.draw(path)
                continue
            figure = build_figure(group_records(group))
            for path in paths:
                canvas.save(figure, path, title=captions.figure_title(name))
    return written


def build_figure(measurements: Sequence[Measurement]) -> Figure:
    """Build the figure of one experiment; call it within `canvas.drawing`."""
    name = measurements[0].experiment
    kind = spec.load(name).kind if name in spec.names() else name
    if "class" in kind and any(one.classes for one in measurements):
        return _build_classes([one for one in measurements if one.classes])
    if any(value is not None for one in measurements for _, value in one.axes):
        return _build_curves(measurements)
    return _build_bars(measurements)


def _build_curves(measurements: Sequence[Measurement]) -> Figure:
    """Build a figure of accuracy along an axis."""
    name = _main_axis(measurements)
    # Without an epsilon, a private model has no position on that axis.
    placed = [
        one
        for one in measurements
        if name != "epsilon" or one.mode in spec.NON_PRIVATE or one.epsilon is not None
    ]
    experiment = measurements[0].experiment
    if not placed:
        raise InputError(f"records of {experiment}: none has an epsilon; run the experiment again")
    known = {column: _published(experiment, column) for column in {one.column for one in placed}}
    has_published = any(_on_axis(numbers, name) for numbers in known.values())
    notes = captions.figure_notes(placed, has_published=has_published)
    if len(placed) < len(measurements):
        missing = len(measurements) - len(placed)
        notes.append(f"Omitted because their ε is unknown: {missing} of {len(measurements)} settings.")
    groups = _group_by_panel(placed)
    # One panel cannot show several settings of every mode of a model.
    has_panel_per_mode = any(len(one.axes) > 1 for one in placed)
    if has_panel_per_mode:
        groups = {
            (f"{column}: {row}, {captions.mode_name(mode)}", data): part
            for (column, data), group in groups.items()
            for row, mode in dict.fromkeys((one.row, one.mode) for one in group)
            if (part := [one for one in group if (one.row, one.mode) == (row, mode)])
        }
    # Taken from all panels: a setting has one colour, even if some panel has no record of it.
    settings = sorted(
        {one.other_axes(name) for one in placed}, key=lambda axes: [_sort_key(v) for _, v in axes]
    )
    width = 6.2 if len(groups) == 1 else 4.6
    figure, all_axes = _create_panels(len(groups), _CURVES_PER_ROW, (width, 3.4))
    for axes, ((title, _), group) in zip(all_axes, groups.items(), strict=True):
        if has_panel_per_mode and axes is not all_axes[0]:
            # Shared before anything is drawn, so that the limits are those of all panels.
            axes.sharey(all_axes[0])
        stars = _on_axis(known[group[0].column], name)
        panels.draw_along_axis(axes, _build_lines(group, name, settings), name, published=stars)
        axes.set_title(title)
        axes.set_xlabel(captions.axis_label(name, group))
    canvas.finish(
        figure, title=captions.figure_title(experiment), notes=notes, legend=_collect_handles(all_axes)
    )
    return figure


def _build_classes(measurements: Sequence[Measurement]) -> Figure:
    """Build a figure of accuracy by class."""
    groups = _group_by_panel(measurements)
    most = max(len(one.classes[0]) for one in measurements if one.classes)
    width = min(max(6.2, 0.24 * most), 11.0)
    figure, all_axes = _create_panels(len(groups), 1, (width, 3.2))
    for axes, ((column, _), group) in zip(all_axes, groups.items(), strict=True):
        labels = [f"{captions.line_label([one])}: {100 * one.mean:.1f}%" for one in group]
        panels.draw_by_class(axes, group, labels)
        panels.add_legend_above(axes, column, width)
    title = captions.figure_title(measurements[0].experiment)
    notes = ["Dotted: accuracy on all classes.", *captions.figure_notes(measurements)]
    canvas.finish(figure, title=title, notes=notes, legend={})
    return figure


def _build_bars(measurements: Sequence[Measurement]) -> Figure:
    """Build a figure with one bar for each model and mode."""
    groups = _group_by_panel(measurements)
    keys = list(dict.fromkeys((one.row, one.mode) for group in groups.values() for one in group))
    keys.sort(key=lambda key: [one.row for one in measurements].index(key[0]))
    labels = [captions.bar_label([one for one in measurements if (one.row, one.mode) == key]) for key in keys]
    # A single panel also needs space for the names of the models.
    width = 2.9 if len(groups) > 1 else 5.0
    figure, all_axes = _create_panels(len(groups), _BARS_PER_ROW, (width, 0.4 * len(keys) + 0.9))
    colours = canvas.model_colours([one.row for one in measurements])
    has_published = False
    for number, (axes, ((column, _), group)) in enumerate(zip(all_axes, groups.items(), strict=True)):
        by_key = {(one.row, one.mode): one for one in group}
        known = _published(measurements[0].experiment, column)
        # The paper has no numbers for our own modes.
        stars = [
            None if mode in ("sound", "non-private-ours") else known.get((row, ())) for row, mode in keys
        ]
        has_published = has_published or any(star is not None for star in stars)
        bars = [by_key.get(key) for key in keys]
        panels.draw_side_by_side(axes, bars, [colours[row] for row, _ in keys], published=stars)
        axes.set_yticks(range(len(keys)), labels if number % _BARS_PER_ROW == 0 else [])
        axes.set_title(column)
    legend = panels.mode_handles({mode: captions.MODE_LABELS[mode] for _, mode in keys})
    legend |= {captions.PUBLISHED: panels.published_handle()} if has_published else {}
    title = captions.figure_title(measurements[0].experiment)
    notes = captions.figure_notes(measurements, has_published=has_published)
    canvas.finish(figure, title=title, notes=notes, legend=legend)
    return figure


def _main_axis(measurements: Sequence[Measurement]) -> str:
    """Return epsilon if it varies, else the axis with most values."""
    values: dict[str, set[Any]] = {}
    for one in measurements:
        for name, value in one.axes:
            if value is not None:
                values.setdefault(name, set()).add(value)
    if len(values.get("epsilon", ())) > 1:
        return "epsilon"
    return max(values, key=lambda name: len(values[name]))


def _build_lines(
    measurements: Sequence[Measurement], name: str, settings: Sequence[spec.Axes]
) -> list[panels.Line]:
    """Build one line for each model, mode and setting of the other axes."""
    groups: dict[tuple[str, str, spec.Axes], list[Measurement]] = {}
    for one in sorted(measurements, key=lambda one: settings.index(one.other_axes(name))):
        groups.setdefault((one.row, one.mode, one.other_axes(name)), []).append(one)
    colours = canvas.model_colours([row for row, *_ in groups])
    lines = []
    for (row, mode, others), group in groups.items():
        label = captions.line_label(group, on_epsilon=name == "epsilon")
        colour, marker = colours[row], panels.MARKERS[mode]
        if others:
            label = captions.format_setting(others)
            colour, marker = panels.shade(settings.index(others), len(settings))
        ordered = tuple(sorted(group, key=lambda one: _sort_key(one.axis(name))))
        lines.append(panels.Line(label=label, measurements=ordered, colour=colour, marker=marker))
    return lines


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Sort numbers first, then text."""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def _group_by_panel(measurements: Sequence[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
    """Group by column and data; sort by the first record of a model, then by mode."""
    rows = list(dict.fromkeys(one.row for one in measurements))
    ordered = sorted(measurements, key=lambda one: (rows.index(one.row), MODES.index(one.mode)))
    groups: dict[tuple[str, str], list[Measurement]] = {(one.column, one.data): [] for one in measurements}
    for one in ordered:
        groups[one.column, one.data].append(one)
    return groups


def _published(experiment: str, column: str) -> dict[tuple[str, spec.Axes], float]:
    """Return the printed numbers of a column; none for an experiment that is not in the paper."""
    return spec.published_by_row(experiment, column) if experiment in spec.names() else {}


def _on_axis(known: Mapping[tuple[str, spec.Axes], float], name: str) -> dict[tuple[str, Any], float]:
    """Return the published numbers that vary along this axis alone, by row and value."""
    return {(row, dict(axes)[name]): mean for (row, axes), mean in known.items() if [*dict(axes)] == [name]}


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


def _create_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"out={out}: cannot be created ({error.strerror}); choose another folder") from None
