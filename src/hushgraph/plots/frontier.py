"""The figure of accuracy against epsilon: one panel per graph, one line per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hushgraph.plots import canvas

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_PER_ROW = 3
# The palette of Okabe and Ito and a darker green; markers differ too, for greyscale.
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


@dataclass(frozen=True, kw_only=True)
class FrontierLine:
    """One method on one graph.

    Attributes:
        label: the method.
        points: epsilon, mean and spread in percent, by rising epsilon; epsilon None is a horizontal line.
    """

    label: str
    points: tuple[tuple[float | None, float, float], ...]


def draw_frontier(
    panels: Mapping[str, Sequence[FrontierLine]], path: Path, *, title: str, notes: list[str]
) -> None:
    """Draw one panel per graph and write the figure in the format of the path's suffix.

    Args:
        panels: the lines of each graph.
        path: the file to write.
        title: the title of the figure.
        notes: sentences below the figure.
    """
    private, ceilings = _list_labels(panels)
    with canvas.drawing():
        columns = min(len(panels), _PER_ROW)
        width = 6.2 if columns == 1 else 4.2
        figure, all_axes = canvas.new_figure(
            rows=-(-len(panels) // columns), columns=columns, panel=(width, 3.2)
        )
        for spare in all_axes[len(panels) :]:
            spare.set_visible(False)
        handles: dict[str, Artist] = {}
        for axes, (name, lines) in zip(all_axes, panels.items(), strict=False):
            for line in lines:
                handles[line.label] = _draw_line(axes, line, private, ceilings)
            _set_axes(axes, name, lines)
        legend = {label: handles[label] for label in (*private, *ceilings)}
        canvas.finish(figure, title=title, notes=notes, legend=legend)
        canvas.save(figure, path, title=title)


def _list_labels(panels: Mapping[str, Sequence[FrontierLine]]) -> tuple[list[str], list[str]]:
    """Labels of methods with an epsilon, and of those without, each once."""
    lines = [line for group in panels.values() for line in group]
    private = dict.fromkeys(line.label for line in lines if line.points[0][0] is not None)
    return list(private), list(dict.fromkeys(line.label for line in lines if line.label not in private))


def _draw_line(axes: Axes, line: FrontierLine, private: list[str], ceilings: list[str]) -> Artist:
    if line.label in ceilings:
        colour, dashes = _CEILINGS[ceilings.index(line.label) % len(_CEILINGS)]
        return axes.axhline(line.points[0][1], color=colour, linestyle=dashes, linewidth=1.2)
    colour, marker = _STYLES[private.index(line.label) % len(_STYLES)]
    epsilons = [epsilon for epsilon, _, _ in line.points if epsilon is not None]
    means = [mean for _, mean, _ in line.points]
    (handle,) = axes.plot(epsilons, means, "-", color=colour, marker=marker)
    low = [mean - spread for _, mean, spread in line.points]
    high = [mean + spread for _, mean, spread in line.points]
    axes.fill_between(epsilons, low, high, color=colour, alpha=0.16, linewidth=0)
    return handle


def _set_axes(axes: Axes, name: str, lines: Sequence[FrontierLine]) -> None:
    ticks = sorted({point[0] for line in lines for point in line.points if point[0] is not None})
    if ticks:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    axes.set_title(name)
    axes.set_xlabel("ε")
    axes.set_ylabel(canvas.ACCURACY)
