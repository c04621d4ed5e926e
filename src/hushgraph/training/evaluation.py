"""How good a model is: covered figures from noisy tables, released once, or exact ones."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hushgraph.errors import RunError
from hushgraph.figures.describe import describe_figures
from hushgraph.figures.names import KEYS
from hushgraph.figures.tables import Counts, NoisyTables, Scored, choose_grids
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.tasks.task import Task, is_labelled
from hushgraph.training.parts import Parts
from hushgraph.training.releases import release_counts
from hushgraph.training.source import View

SPLITS = ("val", "test")
"""The evaluated splits."""


def release_figures(
    folder: RunFolder, view: View, model: nn.Module, ledger: Ledger, *, parts: Parts
) -> NoisyTables:
    """Charge the tables, then count, add noise and write them, as `release_counts` says."""
    charge, plan = folder.plan.evaluation_charge, folder.plan.fingerprint()
    if charge is None:
        raise RunError(f"run={folder.path}: its plan has no figures; train anew for covered ones")
    make = partial(make_tables, folder, view, model, parts=parts)
    return release_counts(NoisyTables, folder.figures_path, ledger, charge, make, plan=plan, parts=parts)


def make_tables(folder: RunFolder, view: View, model: nn.Module, *, parts: Parts) -> NoisyTables:
    """Count the evaluated rows and add noise. Charge it before; a second call is a second charge."""
    return parts.release_tables(
        count_tables(folder, view, model, parts=parts),
        noise_std=folder.plan.table_noise,
        draws=parts.table_draws(),
        groups=folder.group_names,
        grids=choose_grids(folder.task, by_person=folder.plan.protects == "person"),
        plan=folder.plan.fingerprint(),
    )


def count_tables(folder: RunFolder, view: View, model: nn.Module, *, parts: Parts) -> dict[str, Counts]:
    """The tables of every evaluated split, without noise."""
    task, num_groups = folder.task, len(folder.group_names)
    return {
        split: parts.count_rows(task, view.score(model, split), num_groups=num_groups) for split in SPLITS
    }


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
        for figure, key in KEYS.items()
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
