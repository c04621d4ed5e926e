"""The figure of a comparison: one bar per model, with its epsilon and its guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hushgraph._text import rounded_up
from hushgraph.comparison.result import Entry
from hushgraph.figures.names import name_figure
from hushgraph.plots import canvas


def draw_comparison(entries: Sequence[Entry], path: Path, *, title: str, note: str) -> None:
    """Draw what several models reach on the test split as bars, with their epsilon below, and write it.

    Args:
        entries: the models, from left to right.
        path: the file to write; its suffix is the format.
        title: the title of the figure.
        note: a sentence below the drawing.
    """
    figure = entries[0].figure
    # Shares are drawn in percent.
    is_share = figure == "accuracy"
    with canvas.drawing():
        drawing, (axes,) = canvas.new_figure(rows=1, columns=1, panel=(7.2, 3.2))
        labels = []
        for x, row in enumerate(entries):
            value, colour = row.test or 0.0, canvas.model_colours([row.name])[row.name]
            fill = colour if row.guarantee == "holds" else canvas.PAPER
            # R² may be far below 0, which is as bad as 0 is.
            height = max(0.0, 100 * value if is_share else value)
            axes.bar(x, height, 0.62, facecolor=fill, edgecolor=colour, linewidth=1.4)
            text = "none" if row.test is None else f"{height:.1f}" if is_share else f"{value:.3f}"
            axes.annotate(text, (x, height), (0, 3), textcoords="offset points", ha="center")
            guarantee = "no guarantee" if row.guarantee == "none" else row.guarantee
            predictions = row.predictions.replace(" towards", "\ntowards")
            labels.append(
                f"{row.name}\nε = {rounded_up(row.epsilon)}\n{guarantee}\npredictions\n{predictions}"
            )
        axes.set_xticks(range(len(labels)), labels)
        axes.tick_params(axis="x", length=0)
        axes.set_ylim(0, 105 if is_share else 1.05)
        axes.set_ylabel(canvas.ACCURACY if is_share else f"test {name_figure(figure)}")
        canvas.finish(drawing, title=title, notes=[note], legend={})
        canvas.save(drawing, path, title=title)
