"""Make the publishable part of a finished run, from what it released."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hushgraph.figures.tables import NoisyTables
from hushgraph.report.card import render_card
from hushgraph.runs.consistency import check_consistent
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.release import write_release
from hushgraph.training.evaluation import list_figures, summarise_figures


def publish_run(folder: RunFolder, figures: Mapping[str, Any] | None = None) -> Path:
    """Make `release/` in the folder of a finished run whose guarantee holds; return its path.

    Args:
        folder: of the run.
        figures: what `summarise_figures` gave, where the run has just ended; computed from the noisy tables
            otherwise, once all files are found to be those that the ledger tells of.

    Guarantees:
        It is computed from the plan, the boards, the weights and the noisy tables: never from exact figures.
    """
    if figures is None and not folder.release_path.exists():
        folder.check_finished()
        check_consistent(folder)
    if folder.plan.evaluation_charge is None:
        figures = {}
    elif figures is None:
        tables = NoisyTables.load(folder.figures_path, plan=folder.plan.fingerprint())
        figures = summarise_figures(list_figures(folder.task, tables))
    return write_release(folder, render_card(folder, figures=figures), figures)
