"""Scaling of numeric columns: charged, then counted, released once, before everything else of a run."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hushgraph.errors import RunError
from hushgraph.privacy.charges import SCALING
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.scaling.histograms import Int64Array, load_histograms
from hushgraph.training.parts import Parts
from hushgraph.training.source import Source, find_released


@runtime_checkable
class NumberSource(Protocol):
    """Whoever can count the numbers of training rows."""

    def count_numbers(self) -> Int64Array:
        """The histograms of the columns that the plan pays for, without noise."""
        ...


def release_scaling(folder: RunFolder, source: Source, ledger: Ledger, *, parts: Parts) -> None:
    """Charge the histograms, then count, add noise and write them, unless they are there.

    Guarantees:
        The charge is on disk before a number is looked at, and the ledger has the digest of the histograms
        before any name on disk leads to them. Histograms that were released and are missing end the run.
    """
    charge = folder.plan.scaling_charge
    if charge is None or len(folder.paid_columns) != charge.num_columns:
        raise RunError(
            f"run={folder.path}: its plan scales {folder.plan.num_scaled} columns, its data has "
            f"{len(folder.paid_columns)} to scale; plan the run with hushgraph.prepare"
        )
    if not isinstance(source, NumberSource):
        raise RunError(
            f"run={folder.path}: {type(source).__name__} cannot scale numbers; train with numbers='as-is'"
        )
    if find_scaling(folder, ledger):
        return
    if not ledger.is_charged(SCALING):
        parts.charge(ledger, charge)
    histograms = parts.release_histograms(
        source.count_numbers(),
        names=folder.paid_columns,
        noise_std=charge.noise_std,
        draws=parts.scaling_draws(folder.config.seed),
        plan=folder.plan.fingerprint(),
    )
    parts.save_histograms(
        histograms, folder.scaling_path, lambda: ledger.record_release(SCALING, histograms.digest)
    )


def find_scaling(folder: RunFolder, ledger: Ledger) -> bool:
    """Whether the histograms are there; RunError where they were released and are missing, or are others."""
    fingerprint = folder.plan.fingerprint()
    return find_released(
        folder.scaling_path, ledger, SCALING, lambda file: load_histograms(file, plan=fingerprint).digest
    )
