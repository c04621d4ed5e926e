"""Figures that come out the same every time, and leave matplotlib's settings as they were."""

from __future__ import annotations

import contextlib
import io
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GREY, PAPER = "#222222", "#6b6b6b", "#ffffff"
_SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    # Text stays text: smaller files that can be searched and read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "hushgraph",
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
}
_DOTS_PER_INCH = 160
# All in inches; letters are those of the small sizes that notes and legends have.
_MARGIN, _TITLE = 0.1, 0.3
_TITLE_LINE, _TITLE_LETTER = 0.19, 0.1
_NOTE_LINE, _NOTE_LETTER = 0.155, 0.0625
_LEGEND_LINE, _LEGEND_LETTER, _LEGEND_HANDLE = 0.19, 0.073, 0.62


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Settings of the figures, whatever the user's are, for as long as something is drawn or saved."""
    try:
        import matplotlib
    except ImportError:
        raise InputError(
            "matplotlib is not installed, and figures need it; install it with pip install 'hushgraph[plots]'"
        ) from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def new_figure(*, rows: int, columns: int, panel: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Empty panels, each of a width and height in inches; call it while `drawing`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), facecolor=PAPER)
    places = figure.subplots(rows, columns, squeeze=False)
    return figure, list(places.flat)


def finish(figure: Figure, *, title: str, notes: list[str], legend: Mapping[str, Artist]) -> None:
    """Make room above the panels for a title, and below for the legend and for notes, one under the other.

    Args:
        figure: with everything else drawn.
        title: over everything.
        notes: sentences under everything, each on lines of its own.
        legend: what stands for each label.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width, height = figure.get_size_inches()
    inside = width - 2 * _MARGIN
    titled = textwrap.wrap(title, int(inside / _TITLE_LETTER))
    above = _TITLE + _TITLE_LINE * (len(titled) - 1)
    lines = [line for note in notes for line in textwrap.wrap(note, int(inside / _NOTE_LETTER))]
    noted = _NOTE_LINE * len(lines) + (_MARGIN if lines else 0)
    columns = legend_columns(list(legend), inside)
    listed = _LEGEND_LINE * -(-len(legend) // columns) + _MARGIN if legend else 0.0
    below = noted + listed
    total = height + below + above
    figure.set_size_inches(width, total)
    room = (0, below / total, 1, 1 - (below + above) / total)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=room, w_pad=_MARGIN, h_pad=_MARGIN, wspace=0.02))
    left = _MARGIN / width
    figure.text(left, 1 - _MARGIN / total, "\n".join(titled), va="top", fontsize=11, fontweight="bold")
    figure.text(left, _MARGIN / total, "\n".join(lines), fontsize=8, color=GREY, va="bottom", linespacing=1.3)
    if legend:
        figure.legend(
            list(legend.values()),
            list(legend),
            loc="lower left",
            bbox_to_anchor=(left, noted / total),
            borderaxespad=0,
            borderpad=0.4,
            ncols=columns,
            handlelength=3.0,
        )


def legend_columns(labels: list[str], width: float) -> int:
    """How many columns of these labels fit into a width in inches."""
    widest = _LEGEND_HANDLE + _LEGEND_LETTER * max((len(label) for label in labels), default=1)
    return min(max(int(width / widest), 1), max(len(labels), 1))


def save(figure: Figure, path: Path, *, title: str) -> None:
    """Write a figure in the format its suffix names, the same every time, whole or not at all."""
    kind = path.suffix.removeprefix(".")
    without = {"Date": None, "Creator": None, "Title": title} if kind == "svg" else {"Software": None}
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=_DOTS_PER_INCH, metadata=without)
    write_whole(path, content.getvalue())
