"""The figure of a comparison: one bar per model, with its epsilon and its guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hushgraph._text import rounded_up
from hushgraph.plots import canvas


@dataclass(frozen=True, kw_only=True)
class ModelBar:
    """One model of a comparison.

    Attributes:
        name: the name of the model.
        test_accuracy: from 0 to 1; None if there are no labelled test nodes.
        epsilon: its privacy budget; infinity if it has no privacy.
        guarantee: "holds", "claimed by the paper" or "none". Only bars whose guarantee holds are filled.
        predictions: "covered towards everybody else" or "not covered".
    """

    name: str
    test_accuracy: float | None
    epsilon: float
    guarantee: str
    predictions: str


def draw_comparison(bars: Sequence[ModelBar], path: Path, *, title: str, note: str) -> None:
    """Draw the test accuracies of several models as bars, with their epsilon below, and write the figure.

    Args:
        bars: the models, from left to right.
        path: the file to write; its suffix is the format.
        title: the title of the figure.
        note: a sentence below the figure.
    """
    with canvas.drawing():
        figure, (axes,) = canvas.new_figure(rows=1, columns=1, panel=(7.2, 3.2))
        labels = []
        for x, bar in enumerate(bars):
            percent, colour = 100 * (bar.test_accuracy or 0.0), canvas.model_colours([bar.name])[bar.name]
            fill = colour if bar.guarantee == "holds" else canvas.PAPER
            axes.bar(x, percent, 0.62, facecolor=fill, edgecolor=colour, linewidth=1.4)
            text = "none" if bar.test_accuracy is None else f"{percent:.1f}"
            axes.annotate(text, (x, percent), (0, 3), textcoords="offset points", ha="center")
            guarantee = "no guarantee" if bar.guarantee == "none" else bar.guarantee
            predictions = bar.predictions.replace(" towards", "\ntowards")
            labels.append(
                f"{bar.name}\nε = {rounded_up(bar.epsilon)}\n{guarantee}\npredictions {predictions}"
            )
        axes.set_xticks(range(len(labels)), labels)
        axes.tick_params(axis="x", length=0)
        axes.set_ylim(0, 105)
        axes.set_ylabel(canvas.ACCURACY)
        canvas.finish(figure, title=title, notes=[note], legend={})
        canvas.save(figure, path, title=title)
