"""Scaling of numeric columns: charged, then counted, released once, before everything else of a run."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hushgraph._arrays import Int64Array
from hushgraph.errors import RunError
from hushgraph.graph.persons import PERSON_GRID
from hushgraph.privacy.charges import SCALING
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.scaling.histograms import NoisyHistograms
from hushgraph.training.parts import Parts
from hushgraph.training.releases import find_counts, release_counts
from hushgraph.training.source import Source


@runtime_checkable
class NumberSource(Protocol):
    """Counts the numbers of training rows."""

    def count_numbers(self) -> Int64Array:
        """The histograms of the columns that the plan pays for, without noise."""
        ...


def release_scaling(folder: RunFolder, source: Source, ledger: Ledger, *, parts: Parts) -> None:
    """Charge the histograms, then count, add noise and write them, as `release_counts` says."""
    charge, plan = folder.plan.scaling_charge, folder.plan.fingerprint()
    num_columns = len(folder.paid_columns) + folder.plan.has_target
    if charge is None or num_columns != charge.num_columns:
        raise RunError(
            f"run={folder.path}: its plan scales {folder.plan.num_scaled} columns, its data has "
            f"{num_columns} to scale; plan the run with hushgraph.prepare"
        )
    if not isinstance(source, NumberSource):
        raise RunError(
            f"run={folder.path}: {type(source).__name__} cannot scale numbers; train with numbers='as-is'"
        )
    noise_std, count_numbers = charge.noise_std, source.count_numbers

    def make() -> NoisyHistograms:
        draws = parts.scaling_draws(folder.config.seed)
        return parts.release_histograms(
            count_numbers(),
            names=folder.paid_columns,
            noise_std=noise_std,
            draws=draws,
            plan=plan,
            grid=PERSON_GRID if folder.plan.protects == "person" else 1,
        )

    release_counts(NoisyHistograms, folder.scaling_path, ledger, charge, make, plan=plan, parts=parts)


def find_scaling(folder: RunFolder, ledger: Ledger) -> bool:
    """Whether the histograms are there; RunError where they were released and are missing, or are others."""
    plan = folder.plan.fingerprint()
    return find_counts(NoisyHistograms, folder.scaling_path, ledger, SCALING, plan=plan)
