"""How good a model is: covered figures from noisy tables, released once, or exact ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from hushgraph.errors import RunError
from hushgraph.figures.describe import describe_figures
from hushgraph.figures.tables import NoisyTables, Scored, load_tables
from hushgraph.privacy.charges import FIGURES
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.tasks.task import Task, is_labelled
from hushgraph.training.parts import Parts
from hushgraph.training.source import View, find_released

# The keys of a result, by what tables of figures call them.
_KEYS = {
    "accuracy": "accuracy",
    "macro_f1": "macro_f1",
    "roc_auc": "auc",
    "average_precision": "average_precision",
    "macro_auc": "macro_auc",
    "r2": "r2",
    "mae": "mae",
}
SPLITS = ("val", "test")
"""The evaluated splits."""


def release_figures(
    folder: RunFolder, view: View, model: nn.Module, ledger: Ledger, *, parts: Parts
) -> NoisyTables:
    """Charge the tables, then count, add noise and write them, unless they are there.

    Guarantees:
        The charge is on disk before a label is looked at, and the ledger has the digest of the tables before
        any name on disk leads to them. Tables that were released and are missing end the run.
    """
    charge, fingerprint = folder.plan.evaluation_charge, folder.plan.fingerprint()
    if charge is None:
        raise RunError(f"run={folder.path}: its plan has no figures; train anew for covered ones")
    path = folder.figures_path
    if find_released(path, ledger, FIGURES, lambda file: load_tables(file, plan=fingerprint).digest):
        return load_tables(path, plan=fingerprint)
    if not ledger.is_charged(FIGURES):
        parts.charge(ledger, charge)
    groups = folder.group_names
    counts = {
        split: parts.count_rows(folder.task, view.score(model, split), num_groups=len(groups))
        for split in SPLITS
    }
    tables = parts.release_tables(
        counts,
        noise_std=charge.noise_std,
        draws=parts.table_draws(),
        groups=groups,
        grids=tuple(table.grid for table in folder.task.tables),
        plan=fingerprint,
    )
    parts.save_tables(tables, path, lambda: ledger.record_release(FIGURES, tables.digest))
    return tables


def list_figures(task: Task, tables: NoisyTables) -> list[dict[str, Any]]:
    """Everything that the tables say, as JSON values: a function of the tables alone."""
    return describe_figures(task, tables.counts, noise_std=tables.noise_std, groups=tables.groups)


def pick_figure(table: Iterable[dict[str, Any]], split: str, figure: str) -> float | None:
    """The figure of a whole split; None where the table has none, or its noise hides it."""
    for row in table:
        if (row["split"], row["figure"], row["group"], row["class"]) == (split, figure, None, None):
            value: float | None = row["value"]
            return value
    return None


def summarise_figures(table: list[dict[str, Any]]) -> dict[str, Any]:
    """The keys of a result that covered figures give."""
    known = {row["figure"] for row in table}
    keys = {
        f"{split}_{key}": pick_figure(table, split, figure)
        for figure, key in _KEYS.items()
        for split in SPLITS
        if figure in known
    }
    return {**keys, "figure_table": table}


def evaluate_exactly(task: Task, parts: Iterable[Scored]) -> dict[str, float]:
    """Compare all labelled rows with what was predicted; empty where no row has a label. Not covered."""
    labelled = [
        (part.shown[has_label], part.labels[has_label])
        for part in parts
        for has_label in [is_labelled(part.labels)]
    ]
    if not sum(len(labels) for _, labels in labelled):
        return {}
    shown, labels = (np.concatenate(each) for each in zip(*labelled, strict=True))
    predicted = task.predict(torch.from_numpy(np.ascontiguousarray(shown))).numpy()
    return {**task.evaluate(predicted, labels).figures, **task.rank(shown, labels)}
