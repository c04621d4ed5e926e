"""The plan of a run on an engine, its folder, and the one release of its board."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from hushgraph._files import write_whole
from hushgraph.errors import InputError, PlanError, RunError
from hushgraph.graph.columns import Columns
from hushgraph.privacy import choices
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.privacy.defaults import choose_billboard, choose_billboard_non_private
from hushgraph.privacy.fields import default_delta
from hushgraph.privacy.guarantee import judge_size
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.privacy.run_charge import RunCharge
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import ENGINE_FILE, RunFolder, check_out

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
    )
    config = TrainingConfig(
        model="mlp",
        learning_rate=defaults.learning_rate if learning_rate is None else learning_rate,
        hidden=defaults.hidden if hidden is None else hidden,
        feature_norm=defaults.feature_norm,
        momentum=defaults.momentum,
    )
    return plan if epsilon is None else plan.calibrated(epsilon=epsilon), config


def rows_folder(out: Path) -> Path:
    """Where the rows of a run are, which are as private as its tables: beside its folder, never in it."""
    return _beside(out, "rows")


def work_folder(out: Path) -> Path:
    """Where a run keeps what is as private as its tables until its rows are written: beside its folder."""
    return _beside(out, "work")


def _beside(out: Path, ending: str) -> Path:
    place = out if out.name not in ("", "..") else out.resolve()
    return place.with_name(f"{place.name}.{ending}")


def remove_private(out: Path) -> None:
    """Remove the rows of a run, and what its engine worked with."""
    for path in (rows_folder(out), work_folder(out)):
        shutil.rmtree(path, ignore_errors=True)


def check_new(path: Path) -> None:
    """Refuse a folder for a new run that holds anything, or has private parts of another run beside it."""
    if (path / ENGINE_FILE).exists() and (path / "run.json").exists():
        if RunFolder.open(path).is_finished:
            raise RunError(f"out={path}: it holds a finished run; choose another folder")
        raise RunError(
            f"out={path}: it holds a run that was begun; go on with --resume {shlex.quote(str(path))} "
            "(Python: resume_rows of its engine), or choose another folder"
        )
    check_out(path)
    for beside in (rows_folder(path), work_folder(path)):
        if beside.exists():
            raise RunError(
                f"out={path}: {beside.name} beside it holds private parts of another run; remove them, or "
                "choose another folder"
            )


def with_budget(folder: RunFolder, budget: str | os.PathLike[str] | DataBudget | None) -> RunFolder:
    """The folder with its entry in the budget of its data; BudgetExceededError where that is too small."""
    if budget is None:
        return folder
    entry = BudgetEntry.of(budget, folder.plan)
    about: dict[str, Any] = {"run": entry.run, "command": entry.command, "data": folder.data}
    DataBudget.open(entry.file).check(RunCharge.of_plan(folder.plan, folder.guarantee, **about))
    return replace(folder, budget=entry)


def begin_run(folder: RunFolder, *, engine: str, storage: str | None = None) -> Ledger:
    """Create the run and charge the budget of its data; nothing is left behind where that fails.

    Args:
        folder: of the run, which is not there yet.
        engine: who makes its board. The mark is written first, so that nobody else ever does.
        storage: where that engine keeps board and rows, if not beside the folder.

    Returns:
        The ledger, open and locked.
    """
    path = folder.path
    size = judge_size(folder.plan.epsilon, folder.plan.delta)
    folder = replace(folder, warnings=() if size is None else (size.sentence,))
    with contextlib.ExitStack() as undo:
        try:
            undo.callback(_remove_begun, path, is_new=not path.exists())
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"out={path}: cannot be created ({error.strerror}); choose another folder"
            ) from None
        write_whole(path / ENGINE_FILE, json.dumps({"engine": engine, "storage": storage}).encode())
        ledger = folder.start()
        undo.pop_all()
    return ledger


def _remove_begun(path: Path, *, is_new: bool) -> None:
    """Remove what `begin_run` writes, and the folder if that made it."""
    with contextlib.suppress(OSError):
        for name in ("run.json", "ledger.jsonl", "ledger.jsonl.lock", ENGINE_FILE):
            (path / name).unlink(missing_ok=True)
        if is_new:
            path.rmdir()


def open_begun(path: str | os.PathLike[str], *, engine: str) -> tuple[RunFolder, str | None]:
    """The run that `begin_run` created, and its storage; RunError where another engine, or none, began it."""
    folder = RunFolder.open(path)
    begun_by, storage = read_mark(folder)
    if begun_by not in (engine, None):
        raise RunError(f"run={path}: {begun_by} began it; go on with that engine")
    return folder, storage


def read_mark(folder: RunFolder) -> tuple[str | None, str | None]:
    """The engine that began a run, where its mark says which, and its storage, if that is elsewhere."""
    try:
        mark: dict[str, Any] = json.loads((folder.path / ENGINE_FILE).read_text())
        return mark.get("engine"), mark.get("storage")
    except FileNotFoundError:
        raise RunError(
            f"run={folder.path}: no engine began it; resume it without --engine (Python: hushgraph.resume)"
        ) from None
    except (OSError, ValueError, AttributeError):
        raise RunError(f"run={folder.path}: {ENGINE_FILE} is damaged; restore it") from None


def check_same_nodes(folder: RunFolder, *, split_id: str, num_features: int) -> None:
    """Refuse to go on with other data than the run began with."""
    if (split_id, num_features) != (folder.split_id, folder.num_features):
        raise RunError(
            f"run={folder.path}: the node table has other training nodes, or other numbers of nodes or "
            "features, than the run began with; give the data it began with"
        )


def charge_board(folder: RunFolder, ledger: Ledger) -> None:
    """Charge the board of a run in its ledger, which is locked, unless it is charged already."""
    [board] = [charge for charge in folder.plan.charges if not charge.is_step]
    if not ledger.is_charged(board.name):
        ledger.charge(board)


def board_noise(folder: RunFolder) -> float:
    """s of the board of a run."""
    if not isinstance(folder.plan, BillboardPlan) or folder.plan.num_boards != 1:
        raise RunError(f"run={folder.path}: expected a billboard run with one board, as engines make it")
    return folder.plan.board_noise[0]


def board_folder(out: Path) -> Path:
    """Where the released board of a run is; it is there as a whole or not at all."""
    return out / "board"


def write_about(draft: Path, about: Mapping[str, Any]) -> None:
    """Write what readers of a board need to know beside its files."""
    write_whole(draft / _ABOUT, json.dumps(about, indent=2, sort_keys=True).encode())


def read_about(folder: RunFolder) -> dict[str, Any]:
    """What `write_about` wrote; RunError for a board of another run."""
    path = board_folder(folder.path) / _ABOUT
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        about["noise_std"] = float.fromhex(about["noise_std"])
        about["files"] = int(about["files"])
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
