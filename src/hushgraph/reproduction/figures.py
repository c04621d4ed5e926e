"""Figures of experiments from their records, and of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._text import rounded_up
from hushgraph.errors import InputError, RunError
from hushgraph.plots import canvas
from hushgraph.reproduction import captions, panels, spec
from hushgraph.reproduction.measured import MODES, Cell, cells, read_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushgraph.comparison import Comparison

FORMATS = ("svg", "png")
_CURVES_A_ROW, _BARS_A_ROW = 3, 4


def draw(records: Path | Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """One figure for each experiment, as SVG and PNG.

    Args:
        records: a file of JSON lines, or the records themselves.
        out: the folder to write to; made where it is missing.

    Returns:
        The files, in the order of the records.
    """
    found = cells(read_records(records))
    written: list[Path] = []
    with canvas.drawing():
        _make(out)
        for experiment in dict.fromkeys(cell.experiment for cell in found):
            figure = figure_of([cell for cell in found if cell.experiment == experiment])
            for suffix in FORMATS:
                written.append(out / f"{experiment}.{suffix}")
                canvas.save(figure, written[-1], title=captions.title(experiment))
    return written


def figure_of(found: Sequence[Cell]) -> Figure:
    """The figure of one experiment; call it while `canvas.drawing`."""
    name = found[0].experiment
    wanted = spec.load(name).kind if name in spec.names() else name
    if "class" in wanted and any(cell.classes for cell in found):
        return _classes([cell for cell in found if cell.classes])
    if any(value is not None for cell in found for _, value in cell.axes):
        return _curves(found)
    return _bars(found)


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """The four test accuracies of a comparison as bars, each with its epsilon, and what publishing costs."""
    title = f"Four models on {comparison.data}"
    with canvas.drawing():
        figure, (axes,) = canvas.new_figure(rows=1, columns=1, panel=(6.0, 3.2))
        names = []
        for x, row in enumerate(comparison.rows):
            value, tint = 100 * (row.test_accuracy or 0.0), panels.tint(row.name)
            holds = row.guarantee == "holds"
            axes.bar(x, value, 0.62, facecolor=tint if holds else canvas.PAPER, edgecolor=tint, linewidth=1.4)
            text = "none" if row.test_accuracy is None else f"{value:.1f}"
            axes.annotate(text, (x, value), (0, 3), textcoords="offset points", ha="center")
            guarantee = "no guarantee" if row.guarantee == "none" else row.guarantee
            names.append(f"{row.name}\nε = {rounded_up(row.epsilon)}\n{guarantee}")
        axes.set_xticks(range(len(names)), names)
        axes.tick_params(axis="x", length=0)
        axes.set_ylim(0, 105)
        axes.set_ylabel(panels.ACCURACY)
        canvas.finish(figure, title=title, notes=[comparison.cost], legend={})
        canvas.save(figure, path, title=title)


def _curves(found: Sequence[Cell]) -> Figure:
    name = _main_axis(found)
    # A private model has no place on this axis without an epsilon to put it at.
    drawn = [c for c in found if name != "epsilon" or c.mode in spec.NON_PRIVATE or c.epsilon is not None]
    if not drawn:
        raise InputError(f"records of {found[0].experiment}: none has an epsilon; run the experiment again")
    known = {column: _published(found[0].experiment, column) for column in {cell.column for cell in drawn}}
    notes = captions.notes(drawn, published=any(_on_axis(numbers, name) for numbers in known.values()))
    if len(drawn) < len(found):
        notes.append(f"Left out for want of an ε: {len(found) - len(drawn)} of {len(found)} settings.")
    groups = _by_panel(drawn)
    # Lines for several settings of one model would be too many for one panel with those of its other modes.
    apart = any(len(cell.axes) > 1 for cell in drawn)
    if apart:
        groups = {
            (f"{column}: {row}, {captions.spoken(mode)}", data): part
            for (column, data), group in groups.items()
            for row, mode in dict.fromkeys((cell.row, cell.mode) for cell in group)
            if (part := [cell for cell in group if (cell.row, cell.mode) == (row, mode)])
        }
    # Of all panels: a place has one colour, also where another panel has no record of it.
    settings = sorted({cell.beside(name) for cell in drawn}, key=lambda pairs: [_order(v) for _, v in pairs])
    width = 6.2 if len(groups) == 1 else 4.6
    figure, places = _grid(len(groups), _CURVES_A_ROW, (width, 3.4))
    for axes, ((title, _), group) in zip(places, groups.items(), strict=True):
        if apart and axes is not places[0]:
            # Before anything is drawn: limits are then those of all panels.
            axes.sharey(places[0])
        stars = _on_axis(known[group[0].column], name)
        panels.along_axis(axes, _lines(group, name, settings), name, published=stars)
        axes.set_title(title)
        axes.set_xlabel(captions.axis(name, group))
    title = captions.title(found[0].experiment)
    canvas.finish(figure, title=title, notes=notes, legend=_handles(places))
    return figure


def _classes(found: Sequence[Cell]) -> Figure:
    groups = _by_panel(found)
    most = max(len(cell.classes[0]) for cell in found if cell.classes)
    width = min(max(6.2, 0.24 * most), 11.0)
    figure, places = _grid(len(groups), 1, (width, 3.2))
    for axes, ((column, _), group) in zip(places, groups.items(), strict=True):
        labels = [f"{captions.label([cell])}: {100 * cell.mean:.1f}%" for cell in group]
        panels.by_class(axes, group, labels)
        panels.legend_above(axes, column, width)
    title = captions.title(found[0].experiment)
    notes = ["Dotted: accuracy on all classes.", *captions.notes(found)]
    canvas.finish(figure, title=title, notes=notes, legend={})
    return figure


def _bars(found: Sequence[Cell]) -> Figure:
    groups = _by_panel(found)
    keys = list(dict.fromkeys((cell.row, cell.mode) for group in groups.values() for cell in group))
    keys.sort(key=lambda key: [cell.row for cell in found].index(key[0]))
    labels = [captions.short_label([c for c in found if (c.row, c.mode) == key]) for key in keys]
    # A single panel has the names of the models to make room for as well.
    width = 2.9 if len(groups) > 1 else 5.0
    figure, places = _grid(len(groups), _BARS_A_ROW, (width, 0.4 * len(keys) + 0.9))
    tints = panels.colours([cell.row for cell in found])
    starred = False
    for number, (axes, ((column, _), group)) in enumerate(zip(places, groups.items(), strict=True)):
        by_key = {(cell.row, cell.mode): cell for cell in group}
        known = _published(found[0].experiment, column)
        # Nobody has published our own way of doing it.
        stars = [
            None if mode in ("sound", "non-private-ours") else known.get((row, ())) for row, mode in keys
        ]
        starred = starred or any(star is not None for star in stars)
        bars = [by_key.get(key) for key in keys]
        panels.side_by_side(axes, bars, [tints[row] for row, _ in keys], published=stars)
        axes.set_yticks(range(len(keys)), labels if number % _BARS_A_ROW == 0 else [])
        axes.set_title(column)
    legend = panels.mode_handles({mode: captions.MODE_WORDS[mode] for _, mode in keys})
    legend |= {captions.PUBLISHED: panels.published_handle()} if starred else {}
    title = captions.title(found[0].experiment)
    notes = captions.notes(found, published=starred)
    canvas.finish(figure, title=title, notes=notes, legend=legend)
    return figure


def _main_axis(found: Sequence[Cell]) -> str:
    values: dict[str, set[Any]] = {}
    for cell in found:
        for name, value in cell.axes:
            if value is not None:
                values.setdefault(name, set()).add(value)
    if len(values.get("epsilon", ())) > 1:
        return "epsilon"
    return max(values, key=lambda name: len(values[name]))


def _lines(found: Sequence[Cell], name: str, settings: Sequence[spec.Axes]) -> list[panels.Line]:
    """Cells by line: one for each model and mode, and for each of the settings that are not on the axis."""
    groups: dict[tuple[str, str, spec.Axes], list[Cell]] = {}
    for cell in sorted(found, key=lambda cell: settings.index(cell.beside(name))):
        groups.setdefault((cell.row, cell.mode, cell.beside(name)), []).append(cell)
    tints = panels.colours([row for row, *_ in groups])
    made = []
    for (row, mode, others), group in groups.items():
        label = captions.label(group, on_epsilon=name == "epsilon")
        colour, marker = tints[row], panels.MARKERS[mode]
        if others:
            label = captions.setting(others)
            colour, marker = panels.shade(settings.index(others), len(settings))
        ordered = tuple(sorted(group, key=lambda cell: _order(cell.axis(name))))
        made.append(panels.Line(label=label, cells=ordered, colour=colour, marker=marker))
    return made


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def _by_panel(found: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    """Cells by column and data, models in the order of their first record, modes in the usual order."""
    rows = list(dict.fromkeys(cell.row for cell in found))
    ordered = sorted(found, key=lambda cell: (rows.index(cell.row), MODES.index(cell.mode)))
    groups: dict[tuple[str, str], list[Cell]] = {(cell.column, cell.data): [] for cell in found}
    for cell in ordered:
        groups[cell.column, cell.data].append(cell)
    return groups


def _published(experiment: str, column: str) -> dict[tuple[str, spec.Axes], float]:
    """What the paper printed for a column; nothing for an experiment that is not its own."""
    return spec.published_by_row(experiment, column) if experiment in spec.names() else {}


def _on_axis(known: Mapping[tuple[str, spec.Axes], float], name: str) -> dict[tuple[str, Any], float]:
    """Those published numbers that have a place on this axis alone, by row and place."""
    return {(row, dict(at)[name]): mean for (row, at), mean in known.items() if [*dict(at)] == [name]}


def _grid(count: int, a_row: int, panel: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Panels for `count` groups, at most so many a row; those left over are not shown."""
    columns = min(count, a_row)
    figure, places = canvas.new_figure(rows=-(-count // columns), columns=columns, panel=panel)
    for spare in places[count:]:
        spare.set_visible(False)
    return figure, places[:count]


def _handles(places: Sequence[Axes]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for axes in places:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return found


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"out={out}: cannot be made ({error.strerror}); choose another folder") from None
