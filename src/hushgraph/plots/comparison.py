"""The figure of a comparison: one bar per model, with its epsilon and its guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hushgraph._text import rounded_up
from hushgraph.figures.names import name_figure
from hushgraph.plots import canvas


@dataclass(frozen=True, kw_only=True)
class ModelBar:
    """One model of a comparison.

    Attributes:
        name: the name of the model.
        test: the figure on the test split; None if there are no labelled test nodes, or noise hides it.
        epsilon: its privacy budget; infinity if it has no privacy.
        guarantee: "holds", "claimed by the paper" or "none". Only bars whose guarantee holds are filled.
        predictions: "covered towards everybody else" or "not covered".
    """

    name: str
    test: float | None
    epsilon: float
    guarantee: str
    predictions: str


def draw_comparison(
    bars: Sequence[ModelBar], path: Path, *, title: str, note: str, figure: str = "accuracy"
) -> None:
    """Draw what several models reach on the test split as bars, with their epsilon below, and write it.

    Args:
        bars: the models, from left to right.
        path: the file to write; its suffix is the format.
        title: the title of the figure.
        note: a sentence below the drawing.
        figure: what they are judged by, as results call it; shares are drawn in percent.
    """
    is_share = figure == "accuracy"
    with canvas.drawing():
        drawing, (axes,) = canvas.new_figure(rows=1, columns=1, panel=(7.2, 3.2))
        labels = []
        for x, bar in enumerate(bars):
            value, colour = bar.test or 0.0, canvas.model_colours([bar.name])[bar.name]
            fill = colour if bar.guarantee == "holds" else canvas.PAPER
            # R² may be far below 0, which is as bad as 0 is.
            height = max(0.0, 100 * value if is_share else value)
            axes.bar(x, height, 0.62, facecolor=fill, edgecolor=colour, linewidth=1.4)
            text = "none" if bar.test is None else f"{height:.1f}" if is_share else f"{value:.3f}"
            axes.annotate(text, (x, height), (0, 3), textcoords="offset points", ha="center")
            guarantee = "no guarantee" if bar.guarantee == "none" else bar.guarantee
            predictions = bar.predictions.replace(" towards", "\ntowards")
            labels.append(
                f"{bar.name}\nε = {rounded_up(bar.epsilon)}\n{guarantee}\npredictions\n{predictions}"
            )
        axes.set_xticks(range(len(labels)), labels)
        axes.tick_params(axis="x", length=0)
        axes.set_ylim(0, 105 if is_share else 1.05)
        axes.set_ylabel(canvas.ACCURACY if is_share else f"test {name_figure(figure)}")
        canvas.finish(drawing, title=title, notes=[note], legend={})
        canvas.save(drawing, path, title=title)
