"""The plan of a run on Spark, its folder, and the one release of its board."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hushgraph._files import write_whole
from hushgraph.billboard.board import release
from hushgraph.errors import InputError, RunError
from hushgraph.graph.columns import Columns
from hushgraph.methods.base import PublicFigures
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.privacy.charges import name_board
from hushgraph.privacy.guarantee import judge_size
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.run_charge import RunCharge
from hushgraph.runs.folder import ENGINE_FILE, RunFolder, check_out
from hushgraph.settings import WITH_SPARK, RunSettings, check_names, complete, list_settings, with_settings
from hushgraph.tasks.classes import Classes
from hushgraph.training.prepare import check_settings

_SETTINGS = (*WITH_SPARK, "columns")
with_engine_settings = with_settings(
    RunSettings, without=[name for name in list_settings(RunSettings) if name not in _SETTINGS]
)
"""Spells out the settings of a function that begins a run on an engine."""
BOARD = name_board(0)
"""The one board of such a run."""
SPLITS = ("train", "val", "test")
_COLUMNS = ("id", "label", "features", "ignore", "classes", "split", "source", "target", "delimiter")

_RECORDS = ("edge_weight", "edge_date", "since", "until", "half_life", "relation", "places")


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
    if given.has_relations or given.edge_date is not None:
        named = [name for name in unsupported if name in _RECORDS]
        raise InputError(
            f"{', '.join(named)}: engines read plain edges alone; train in memory (--engine memory)"
        )
    if unsupported:
        raise InputError(
            f"{', '.join(unsupported)}: engines take columns of finite numbers as they are; convert them in "
            "the tables"
        )
    if given.has_sets:
        raise InputError(
            f"label={list(given.label_columns)}: engines take one class a node; train several labels in "
            "memory (--engine memory)"
        )
    num_classes = len(given.classes) if num_classes is None and given.classes else num_classes
    refuse_persons(given)
    if num_classes is None or num_classes < 2 or num_classes < len(given.classes or ()):
        raise InputError(
            f"num_classes={num_classes}: expected 2 or more, and as many as classes are named; it is public "
            "and never looked up in the data"
        )
    return given, num_classes


class PublicTables(Protocol):
    """What is public about the tables of a run."""

    @property
    def columns(self) -> Columns: ...

    @property
    def num_classes(self) -> int: ...

    @property
    def num_nodes(self) -> int: ...

    @property
    def features(self) -> tuple[str, ...]: ...

    def count_training_nodes(self) -> int: ...

    def split_id(self) -> str: ...


def check_engine_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a run on an engine, checked as far as no data is needed."""
    table = list_settings(RunSettings)
    check_names(settings, {name: table[name] for name in _SETTINGS}, who="a run on an engine")
    full = complete(settings, kind=RunSettings)
    check_settings(full)
    return full


def refuse_persons(columns: Columns) -> None:
    """Refuse people with several nodes: an engine casts, reads and clips row by row."""
    if columns.person is not None:
        raise InputError(
            f"person={columns.person!r} with an engine: it casts and clips row by row, so that a person with "
            "several nodes would count several times; train in memory (--engine memory)"
        )


def describe_run(out: Path, tables: PublicTables, settings: Mapping[str, Any], *, data: str) -> RunFolder:
    """The folder that a run on tables will have; BudgetExceededError where its budget is too small.

    One board: the ballots of a second one would come from a model that is trained halfway.
    """
    num_train_nodes = tables.count_training_nodes()
    task = Classes(num_classes=tables.num_classes)
    public = PublicFigures(
        tables.num_nodes,
        num_train_nodes,
        tables.num_classes,
        most_boards=1,
        num_tables=task.num_tables,
    )
    plan, config = check_settings(settings).plan(public, settings)
    size = judge_size(plan.epsilon, plan.delta)
    folder = RunFolder(
        path=out,
        plan=plan,
        config=config,
        num_features=len(tables.features),
        asked=task,
        split_id=tables.split_id(),
        data=data,
        columns=tables.columns,
        warnings=() if size is None else (size.sentence,),
    )
    if settings["budget"] is None:
        return folder
    entry = BudgetEntry.of(settings["budget"], plan)
    about: dict[str, Any] = {"run": entry.run, "command": entry.command, "data": data}
    DataBudget.open(entry.file).check(RunCharge.of_plan(plan, folder.guarantee, **about))
    return replace(folder, budget=entry)


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


def board_noise(folder: RunFolder) -> float:
    """s of the board of a run."""
    if folder.plan.num_boards != 1:
        raise RunError(f"run={folder.path}: expected a billboard run with one board, as engines make it")
    return folder.plan.board_noise[0]


def board_folder(out: Path) -> Path:
    """Where the released board of a run is; it is there as a whole or not at all."""
    return out / "board"


def released_std(noise_std: float) -> float:
    """The standard deviation of the noise that `release` adds where `noise_std` is asked for."""
    return release(np.zeros((0, 2), np.int64), noise_std=noise_std).noise_std
