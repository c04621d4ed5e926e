"""The plan of a run on an engine, its folder, and the one release of its board."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from hushgraph._files import write_whole
from hushgraph.accounting.events import GaussianEvent
from hushgraph.errors import InputError, PlanError, RunError
from hushgraph.graph.columns import Columns
from hushgraph.privacy import choices
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.privacy.defaults import choose_billboard, choose_billboard_non_private
from hushgraph.privacy.fields import default_delta
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plan import BillboardPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import BOARD_FILES, ENGINE_FILE, RunFolder

# Above this, the choice of defaults no longer depends on epsilon.
_LARGEST_EPSILON = 1e6
_ABOUT = "board.json"
_COLUMNS = ("id", "label", "features", "ignore", "classes", "split", "source", "target", "delimiter")


def resolve_columns(
    columns: Columns | Mapping[str, Any] | None, num_classes: int | None
) -> tuple[Columns, int]:
    """What the columns mean and how many classes there are, both public; refuse what engines do not do."""
    given = columns if isinstance(columns, Columns) else Columns.of(columns or {})
    unsupported = [
        each.name
        for each in fields(given)
        if each.name not in _COLUMNS and getattr(given, each.name) != getattr(Columns(), each.name)
    ]
    if unsupported:
        raise InputError(
            f"{', '.join(unsupported)}: engines take columns of finite numbers as they are; convert them in "
            "the tables"
        )
    num_classes = len(given.classes) if num_classes is None and given.classes else num_classes
    if num_classes is None or num_classes < 2 or num_classes < len(given.classes or ()):
        raise InputError(
            f"num_classes={num_classes}: expected 2 or more, and as many as classes are named; it is public "
            "and never looked up in the data"
        )
    return given, num_classes


def choose_owner(edge_owner: choices.EdgeOwner | None) -> choices.EdgeOwner:
    """The owner that is given, or the sender; never looked up."""
    if edge_owner not in (None, *get_args(choices.EdgeOwner)):
        raise InputError(f"edge_owner={edge_owner!r}: expected 'sender' or 'reader'")
    return edge_owner or "sender"


def plan_run(
    *,
    num_train_nodes: int,
    num_classes: int,
    edge_owner: choices.EdgeOwner,
    epsilon: float | None,
    private: bool = True,
    delta: float | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    hidden: int | None = None,
) -> tuple[BillboardPlan, TrainingConfig]:
    """Choose what is left out from public figures alone, and solve for the noise of board and steps.

    One board: the ballots of a second one would come from a model that is trained halfway.
    """
    if private == (epsilon is None):
        raise PlanError("give epsilon, or private=False for a run without privacy; expected one of the two")
    delta = default_delta(num_train_nodes) if delta is None else delta
    defaults = (
        choose_billboard_non_private(num_train_nodes=num_train_nodes)
        if epsilon is None
        else choose_billboard(
            num_train_nodes=num_train_nodes,
            num_classes=num_classes,
            epsilon=min(epsilon, _LARGEST_EPSILON),
            delta=delta,
        )
    )
    plan = BillboardPlan(
        num_train_nodes=num_train_nodes,
        num_classes=num_classes,
        batch_size=defaults.batch_size if batch_size is None else batch_size,
        steps=defaults.steps if steps is None else steps,
        edge_owner=edge_owner,
        delta=delta,
        num_boards=1,
        board_share=defaults.board_share,
        noise_multiplier=None if private else 0.0,
    )
    config = TrainingConfig(
        model="mlp",
        learning_rate=defaults.learning_rate if learning_rate is None else learning_rate,
        hidden=defaults.hidden if hidden is None else hidden,
        feature_norm=defaults.feature_norm,
        momentum=defaults.momentum,
    )
    return plan if epsilon is None else plan.calibrated(epsilon=epsilon), config


def open_run(folder: RunFolder, budget: str | os.PathLike[str] | DataBudget | None) -> RunFolder:
    """Create the run and charge the budget of its data, or go on with the run that is there.

    Raises:
        RunError: if the folder holds a run of another plan or of other nodes, or one that has a board.
    """
    if not (folder.path / "run.json").exists():
        if budget is not None:
            folder = replace(folder, budget=BudgetEntry.of(budget, folder.plan))
        with folder.charge_budget():
            folder.create().close()
        _mark_engine(folder)
        return folder
    known = RunFolder.open(folder.path)
    same = [known.plan.fingerprint() == folder.plan.fingerprint(), known.split_id == folder.split_id]
    if not all([*same, known.num_features == folder.num_features]):
        raise RunError(
            f"out={folder.path}: it holds a run with other settings or other nodes; repeat the call that "
            "began it, or choose another folder"
        )
    _mark_engine(known)
    with known.charge_budget():
        return known


def _mark_engine(folder: RunFolder) -> None:
    """Note that an engine makes the board of this run, before it does; refuse a run that has one already."""
    mark = folder.path / ENGINE_FILE
    if mark.exists():
        return
    if (folder.path / BOARD_FILES[0]).exists():
        raise RunError(f"out={folder.path}: its board was made without an engine; choose another folder")
    write_whole(mark, json.dumps({"board": "made by an engine, once"}).encode())


@contextlib.contextmanager
def charge_board(folder: RunFolder) -> Iterator[None]:
    """Charge the board of a run in its ledger, unless it is charged already, and keep the ledger locked.

    Within the context no other process can make a board under the same charge.
    """
    plan = folder.plan
    [event] = [event for event, _ in plan.charges if isinstance(event, GaussianEvent)]
    with Ledger.open(folder.ledger_path, plan=plan) as ledger:
        folder.check_charged(ledger)
        if not ledger.boards_charged:
            ledger.charge(event)
        yield


def board_noise(folder: RunFolder) -> float:
    """s of the board of a run."""
    if not isinstance(folder.plan, BillboardPlan) or folder.plan.num_boards != 1:
        raise RunError(f"run={folder.path}: expected a billboard run with one board, as engines make it")
    return folder.plan.board_noise[0]


def board_folder(folder: RunFolder) -> Path:
    """Where the released board of a run is; it is there as a whole or not at all."""
    return folder.path / "board"


def write_about(draft: Path, about: Mapping[str, Any]) -> None:
    """Write what readers of a board need to know beside its files."""
    write_whole(draft / _ABOUT, json.dumps(about, indent=2, sort_keys=True).encode())


def read_about(folder: RunFolder) -> dict[str, Any]:
    """What `write_about` wrote; RunError for a board of another run."""
    path = board_folder(folder) / _ABOUT
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        about["noise_std"] = float.fromhex(about["noise_std"])
        plan = about["plan"]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"run={folder.path}: {path.name} is missing or damaged; restore the board") from None
    if plan != folder.plan.fingerprint():
        raise RunError(f"run={folder.path}: the board belongs to another run; restore the board of this one")
    return about


def publish(draft: Path, final: Path) -> None:
    """Release a folder: sync its files to disk, then give it its name at once."""
    for path in [*draft.iterdir(), draft]:
        _sync(path)
    os.rename(draft, final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
