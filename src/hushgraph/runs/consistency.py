"""Whether the files of a run tell the same story: ledger, boards, checkpoint, metrics and result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hushgraph.billboard.board import digest_board, load_board
from hushgraph.errors import RunError
from hushgraph.figures.tables import load_tables
from hushgraph.privacy.charges import FIGURES, SCALING, name_board
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.checkpoint import read_progress
from hushgraph.runs.result import read_metrics
from hushgraph.scaling.histograms import load_histograms

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

# The file of every board, in order.
BOARD_FILES = ("board-1.safetensors", "board-2.safetensors")


def check_consistent(folder: RunFolder) -> None:
    """Refuse a finished run whose ledger, plan and result do not tell the same story.

    A release has no ledger, so that there is nothing to compare it with.
    """
    if folder.is_release:
        return
    ledger = Ledger.open(folder.ledger_path, plan=folder.plan, read_only=True)
    check_charged(folder, ledger)
    for place, name in enumerate(BOARD_FILES):
        # A board that an engine made may be too large for a file of this kind.
        if (folder.path / name).exists():
            board = load_board(folder.path / name)
            ledger.check_digest(name_board(place), digest_board([board.values], board.noise_std))
    if folder.figures_path.exists():
        tables = load_tables(folder.figures_path, plan=folder.plan.fingerprint())
        ledger.check_digest(FIGURES, tables.digest)
    if folder.plan.num_scaled:
        histograms = load_histograms(folder.scaling_path, plan=folder.plan.fingerprint())
        ledger.check_digest(SCALING, histograms.digest)
    result = folder.result()
    # Another version of the accountant may have rounded the last digits otherwise.
    epsilon = float(result["epsilon"])
    spent = float(result.get("epsilon_spent", epsilon))
    # Older versions gave what was spent as epsilon, also where nothing is guaranteed.
    is_none = "epsilon_spent" in result and folder.guarantee.kind == "none"
    for shown, right in ((epsilon, math.inf if is_none else ledger.budget), (spent, ledger.budget)):
        if not math.isclose(shown, right, rel_tol=1e-6):
            raise RunError(
                f"run={folder.path}: result.json says epsilon={shown:.6g}, the ledger and run.json "
                f"{right:.6g}; restore result.json"
            )
    if result.get("guarantee") == "holds" and folder.guarantee.kind != "holds":
        raise RunError(
            f"run={folder.path}: result.json says that the guarantee holds, which run.json contradicts; "
            "restore result.json"
        )


def check_charged(folder: RunFolder, ledger: Ledger) -> None:
    """Refuse a ledger that shows fewer steps than the run took: an older copy, or one cut short."""
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
