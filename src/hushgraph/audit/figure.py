"""The two worlds as histograms, with the threshold between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hushgraph._text import digits_up, rounded_up
from hushgraph.audit.result import Audit
from hushgraph.audit.words import rounded_down
from hushgraph.errors import InputError
from hushgraph.plots import canvas

if TYPE_CHECKING:
    from matplotlib.artist import Artist

FORMATS = (".svg", ".png")
_WITH, _WITHOUT = "#00796b", "#b35900"
_BINS = 60


def check_figure(path: Path) -> None:
    """Refuse a name that says no format, before any work is done."""
    if path.suffix not in FORMATS:
        raise InputError(f"figure={path}: expected a name that ends in {' or '.join(FORMATS)}")
    with canvas.drawing():
        pass


def draw_audit(audit: Audit, path: Path) -> None:
    """The statistic of all trials, as SVG or PNG by the suffix of `path`."""
    check_figure(path)
    counted = audit.by_event if audit.by_curve is None else audit.by_curve
    title = f"Lower bound {rounded_down(audit.lower_bound)}, claimed {rounded_up(audit.claimed)}"
    with canvas.drawing():
        figure, (axes,) = canvas.new_figure(rows=1, columns=1, panel=(6.4, 3.2))
        edges = np.histogram_bin_edges(np.concatenate([audit.with_row, audit.without_row]), bins=_BINS)
        legend: dict[str, Artist] = {}
        for values, tint, label in (
            (audit.with_row, _WITH, "with the canary's row"),
            (audit.without_row, _WITHOUT, "with the row emptied"),
        ):
            counts, _ = np.histogram(values, edges)
            legend[label] = axes.stairs(counts, edges, color=tint, linewidth=1.6)
        legend["threshold"] = axes.axvline(counted.threshold, color=canvas.INK, linestyle=":", linewidth=1.2)
        axes.set_xlabel("log-likelihood ratio of what was released")
        axes.set_ylabel("trials")
        notes = [
            f"{audit.trials} trials each; the first fifth chose the threshold. On the others the event was "
            f"seen {counted.hits} times of {counted.trials}, with {counted.false_alarms} false alarms.",
            f"δ = {digits_up(audit.plan.delta)}, confidence {100 * counted.confidence:g}%, "
            f"attacked: {audit.attacked}, canary {audit.canary}"
            + ("." if audit.fault is None else f". Broken on purpose: {audit.fault}."),
        ]
        canvas.finish(figure, title=title, notes=notes, legend=legend)
        canvas.save(figure, path, title=title)
