"""Releases of a run: charged, then made, then found again; never made twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hushgraph._files import draft_path
from hushgraph.errors import RunError
from hushgraph.noise.counts import NoisyCounts
from hushgraph.privacy.charges import Charge, name_board
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training.parts import Parts
from hushgraph.training.source import BoardSource

_Counts = TypeVar("_Counts", bound=NoisyCounts)


def release_board(
    folder: RunFolder, source: BoardSource, ledger: Ledger, place: int, *, parts: Parts
) -> None:
    """Charge a board, then make and write it, unless it is there.

    Guarantees:
        The charge is on disk before the tally is looked at. The ledger has the digest of a board before any
        name on disk leads to it, so that under one charge no second board is ever visible: one that is
        missing or is another ends the run. A board that a kill prevented from being released may be made
        under the charge that paid for it.
    """
    if source.find_board(place, ledger):
        return
    if not ledger.is_charged(name_board(place)):
        parts.charge(ledger, folder.plan.board_charge(place))
    source.make_board(place, ledger)


def release_counts(
    kind: type[_Counts],
    path: Path,
    ledger: Ledger,
    charge: Charge,
    make: Callable[[], _Counts],
    *,
    plan: str,
    parts: Parts,
) -> _Counts:
    """Charge noisy counts, then make and write them, unless they are there.

    Guarantees:
        The charge is on disk before `make` looks at a row, and the ledger has the digest of the counts before
        any name on disk leads to them. Counts that were released and are missing end the run.
    """
    if find_counts(kind, path, ledger, charge.name, plan=plan):
        return kind.load(path, plan=plan)
    if not ledger.is_charged(charge.name):
        parts.charge(ledger, charge)
    counts = make()
    parts.save_counts(counts, path, lambda: ledger.record_release(charge.name, counts.digest))
    return counts


def find_counts(kind: type[NoisyCounts], path: Path, ledger: Ledger, name: str, *, plan: str) -> bool:
    """`find_released` of noisy counts."""
    return find_released(path, ledger, name, lambda file: kind.load(file, plan=plan).digest)


def find_released(path: Path, ledger: Ledger, name: str, read_digest: Callable[[Path], str]) -> bool:
    """Whether a board, or another release, is there, by the one rule of all sources.

    A draft shows what the release would have shown: a complete one is the release, and any other ends the
    run.

    Args:
        path: of its file.
        ledger: of the run, open for writing.
        name: of the release, such as "board-1".
        read_digest: the digest of what is in a file; RunError where it is incomplete or of another run.

    Raises:
        RunError: if the file is not the one that was released, if it was released and is missing, or if it
            was never charged.
    """
    file = next((each for each in (path, draft_path(path)) if each.exists()), None)
    if file is None:
        ledger.check_unreleased(name)
        return False
    try:
        digest = read_digest(file)
    except RunError:
        if file == path:
            raise
        raise incomplete_error(file, name) from None
    check_release(ledger, name, digest)
    if file != path:
        os.replace(file, path)
    return True


def incomplete_error(file: Path | str, name: str) -> RunError:
    """What ends a run whose release was cut short by a kill."""
    return RunError(
        f"{file}: it shows numbers of {name} and is not complete. Count this run as spent and "
        "train in another folder, which charges the data anew"
    )


def check_release(ledger: Ledger, name: str, digest: str) -> None:
    """Refuse a release that was not charged or differs from the recorded one; record its digest."""
    if not ledger.is_charged(name):
        raise RunError(
            f"ledger={ledger.path}: it shows no charge for {name}, so what was spent is unknown; count the "
            "whole epsilon as spent and start a new run"
        )
    ledger.check_digest(name, digest)
    if ledger.releases.get(name) is None:
        ledger.record_release(name, digest)
