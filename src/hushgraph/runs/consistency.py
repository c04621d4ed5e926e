"""Check that the files of a run agree: ledger, boards, checkpoint, metrics and result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hushgraph.billboard.board import digest_board, load_board
from hushgraph.errors import RunError
from hushgraph.figures.tables import NoisyTables
from hushgraph.privacy.charges import FIGURES, SCALING, name_board
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.checkpoint import read_progress
from hushgraph.runs.result import read_metrics
from hushgraph.scaling.histograms import NoisyHistograms

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

# The file of every board, in order.
BOARD_FILES = ("board-1.safetensors", "board-2.safetensors")


def check_consistent(folder: RunFolder) -> None:
    """Refuse a finished run whose ledger, plan and result contradict each other.

    A release has no ledger: its result is compared with its plan.
    """
    if folder.is_release:
        _check_result(folder, folder.plan.epsilon, file="release.json", source="its plan")
    else:
        ledger = _check_ledger(folder)
        _check_result(folder, ledger.budget, file="result.json", source="the ledger and run.json")


def _check_ledger(folder: RunFolder) -> Ledger:
    """Refuse a ledger that shows less than was done, and releases that differ from those it records."""
    ledger = Ledger.open(folder.ledger_path, plan=folder.plan, read_only=True)
    check_charged(folder, ledger)
    for place, name in enumerate(BOARD_FILES):
        # Engines from before 0.2.0 kept boards in files of another kind.
        if (folder.path / name).exists():
            board = load_board(folder.path / name)
            ledger.check_digest(name_board(place), digest_board([board.values], board.noise_std))
    if folder.figures_path.exists():
        tables = NoisyTables.load(folder.figures_path, plan=folder.plan.fingerprint())
        ledger.check_digest(FIGURES, tables.digest)
    if folder.plan.num_scaled:
        histograms = NoisyHistograms.load(folder.scaling_path, plan=folder.plan.fingerprint())
        ledger.check_digest(SCALING, histograms.digest)
    return ledger


def _check_result(folder: RunFolder, budget: float, *, file: str, source: str) -> None:
    """Refuse a result that states another epsilon than was budgeted, or a guarantee that does not hold."""
    result = folder.result()
    # Another version of the accountant may have rounded the last digits otherwise.
    epsilon = float(result["epsilon"])
    spent = float(result.get("epsilon_spent", epsilon))
    # Older versions gave what was spent as epsilon, also where nothing is guaranteed.
    is_none = "epsilon_spent" in result and folder.guarantee.kind == "none"
    for shown, right in ((epsilon, math.inf if is_none else budget), (spent, budget)):
        if not math.isclose(shown, right, rel_tol=1e-6):
            raise RunError(
                f"run={folder.path}: {file} says epsilon={shown:.6g}, {source} {right:.6g}; restore {file}"
            )
    if result.get("guarantee") == "holds" and folder.guarantee.kind != "holds":
        raise RunError(
            f"run={folder.path}: {file} says that the guarantee holds, against {source}; restore {file}"
        )


def check_charged(folder: RunFolder, ledger: Ledger) -> None:
    """Refuse a ledger that shows fewer steps than the run took: an older copy, or one cut short.

    Also a folder without the weights that its second board was made from: others would be written in their
    place.
    """
    if name_board(1) in ledger.releases and not folder.halfway_path.exists():
        raise RunError(
            f"run={folder.path}: {folder.halfway_path.name} is missing, and the ballots of board-2 came from "
            "these weights; restore it"
        )
    taken = {"weights.safetensors": folder.plan.steps} if folder.is_finished else {}
    steps = [line.get("step") for line in read_metrics(folder.path) if isinstance(line, dict)]
    taken["metrics.jsonl"] = max((step for step in steps if isinstance(step, int)), default=0)
    taken["checkpoint.safetensors"] = read_progress(folder.checkpoint_path).step
    for name, step in taken.items():
        if step > ledger.steps_charged:
            raise RunError(
                f"ledger={ledger.path}: it shows {ledger.steps_charged} steps as charged, but {name} is "
                f"of step {step}, so what was spent is unknown; count the whole epsilon as spent and "
                "start a new run"
            )
