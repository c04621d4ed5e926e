"""The common look of all figures: settings, colours, titles, legends and reproducible files."""

from __future__ import annotations

import contextlib
import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hushgraph._files import write_whole
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACCURACY = "test accuracy (%)"
INK, GREY, PAPER = "#222222", "#6b6b6b", "#ffffff"
# The palette of Okabe and Ito, which is distinguishable with any colour vision. Colour shows the model;
# lines and markers show whether and how it is private, so that figures can be read in greyscale.
_MODEL_COLOURS = {
    "GNN": ("#0072B2", "#56B4E9"),
    "GCN": ("#0072B2", "#56B4E9"),
    "MLP": ("#D55E00", "#E69F00"),
    "Billboard": ("#009E73", "#66C2A5", "#00513B"),
    "GIN": ("#009E73", "#66C2A5"),
    "GAT": ("#CC79A7", "#8C5A78"),
}
_OTHER_COLOURS = ("#444444", "#999999")
_LOOK = Path(__file__).with_name("look.mplstyle")
_DOTS_PER_INCH = 160
# In inches; widths of letters are those of the small sizes of notes and legends.
_MARGIN, _TITLE = 0.1, 0.3
_TITLE_LINE, _TITLE_LETTER = 0.19, 0.1
_NOTE_LINE, _NOTE_LETTER = 0.155, 0.0625
_LEGEND_LINE, _LEGEND_LETTER, _LEGEND_HANDLE = 0.19, 0.073, 0.62


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Apply the settings of the figures within the context, and restore those of the user afterwards."""
    try:
        import matplotlib
        import matplotlib.style
    except ImportError:
        raise InputError(
            "matplotlib is not installed, but figures need it; install it with pip install 'hushgraph[plots]'"
        ) from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.style.use(_LOOK)
        yield


def new_figure(*, rows: int, columns: int, panel: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Create empty panels, each of this width and height in inches; call it within `drawing`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), facecolor=PAPER)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def finish(figure: Figure, *, title: str, notes: list[str], legend: Mapping[str, Artist]) -> None:
    """Add a title above the panels, and a legend and notes below them.

    Args:
        figure: the figure, complete except for these.
        title: the title of the figure.
        notes: sentences at the bottom, each starting on a new line.
        legend: the handle of each label.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width, height = figure.get_size_inches()
    inside = width - 2 * _MARGIN
    title_lines = textwrap.wrap(title, int(inside / _TITLE_LETTER))
    above = _TITLE + _TITLE_LINE * (len(title_lines) - 1)
    lines = [line for note in notes for line in textwrap.wrap(note, int(inside / _NOTE_LETTER))]
    notes_height = _NOTE_LINE * len(lines) + (_MARGIN if lines else 0)
    columns = legend_columns(list(legend), inside)
    legend_height = _LEGEND_LINE * -(-len(legend) // columns) + _MARGIN if legend else 0.0
    below = notes_height + legend_height
    total = height + below + above
    figure.set_size_inches(width, total)
    panels = (0, below / total, 1, 1 - (below + above) / total)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=panels, w_pad=_MARGIN, h_pad=_MARGIN, wspace=0.02))
    left = _MARGIN / width
    figure.text(left, 1 - _MARGIN / total, "\n".join(title_lines), va="top", fontsize=11, fontweight="bold")
    figure.text(left, _MARGIN / total, "\n".join(lines), fontsize=8, color=GREY, va="bottom", linespacing=1.3)
    if legend:
        figure.legend(
            list(legend.values()),
            list(legend),
            loc="lower left",
            bbox_to_anchor=(left, notes_height / total),
            borderaxespad=0,
            borderpad=0.4,
            ncols=columns,
            handlelength=3.0,
        )


def legend_columns(labels: list[str], width: float) -> int:
    """Return the number of columns of these labels that fit into a width in inches."""
    widest = _LEGEND_HANDLE + _LEGEND_LETTER * max((len(label) for label in labels), default=1)
    return min(max(int(width / widest), 1), max(len(labels), 1))


def save(figure: Figure, path: Path, *, title: str) -> None:
    """Write a figure in the format of its suffix. The same figure gives the same bytes."""
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None, "Creator": None, "Title": title} if kind == "svg" else {"Software": None}
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=_DOTS_PER_INCH, metadata=metadata)
    write_whole(path, content.getvalue())


def model_colours(models: Sequence[str]) -> dict[str, str]:
    """Return a colour for each model: that of its architecture, and others for its variants."""
    colours: dict[str, str] = {}
    for is_private in (True, False):
        variants: dict[str, int] = {}
        for model in dict.fromkeys(models):
            if model.startswith("DP-") == is_private:
                architecture = model.removeprefix("DP-").split(" ")[0].rstrip(",")
                shades = _MODEL_COLOURS.get(architecture, _OTHER_COLOURS)
                number = variants.get(architecture, 0)
                colours[model] = shades[number % len(shades)]
                variants[architecture] = number + 1
    return colours
