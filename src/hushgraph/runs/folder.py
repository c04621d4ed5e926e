"""The run folder: one class that every room asks about a run, hence long. JSON and safetensors, no pickle.

run.json                what the run is: plan, configuration, shapes, versions
ledger.jsonl            what it has paid for
metrics.jsonl           validation accuracy and epsilon over time
checkpoint.safetensors  where to go on after an interruption; gone once the run is done
board-1.safetensors     the board of a billboard run, noise included; board-2 where there are two
scaling.json            noisy histograms that numbers are scaled with
halfway.safetensors     the weights that the ballots of a second board come from
figures.json            noisy tables that covered figures are computed from
weights.safetensors     the result
result.json             the summary of a finished run
release/                what may be published of a run whose guarantee holds; see `release.py`
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from hushgraph._files import read_tensors, whole_folder, write_tensors, write_whole
from hushgraph._stores import find_address
from hushgraph.billboard.board import Board, load_board
from hushgraph.billboard.ready import ReadyBoards
from hushgraph.datasets import load_graph
from hushgraph.datasets.loading import name_labels
from hushgraph.datasets.tables.files import TableFiles
from hushgraph.datasets.tables.new_rows import ListedBy, new_rows_from_tables
from hushgraph.errors import DivergedError, GraphError, InputError, RunError, WriteError, explain
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import EdgeWeight, RelationInfo
from hushgraph.inference.new_nodes import locate
from hushgraph.inference.rows_of_graph import RowsOfGraph, find_rows
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.privacy.guarantee import (
    Assumption,
    Guarantee,
    describe_guarantee,
    find_assumptions,
)
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.about import ABOUT, FORMAT, read_about, write_about, write_fields
from hushgraph.runs.checkpoint import fill_model
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.consistency import BOARD_FILES, check_charged
from hushgraph.runs.model import build_model
from hushgraph.runs.result import read_result
from hushgraph.runs.versions import versions
from hushgraph.scaling.histograms import NoisyHistograms
from hushgraph.scaling.scaler import Scaler
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task

FIGURES_FILE = "figures.json"
SCALING_FILE = "scaling.json"
RELEASE = "release"
# What advises to read data in another way, which a run cannot.
_SETTING = re.compile(r"--(?!edges\b|engine\b)[a-z]|\bnum_classes\b|\btask=")
# In the folder of a run that an engine from before 0.2.0 began, whose board is no file of this kind.
_BEGUN_ELSEWHERE = "engine.json"
_FILES = (
    "run.json",
    "ledger.jsonl",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "halfway.safetensors",
    "weights.safetensors",
    "result.json",
    FIGURES_FILE,
    SCALING_FILE,
    *BOARD_FILES,
)


def _refuse_run(out: Path) -> None:
    if any((out / name).exists() for name in _FILES):
        raise RunError(f"out={out}: it holds a run already; resume it, or choose another folder")


def check_out(path: str | os.PathLike[str], *, besides: Collection[str] = ()) -> None:
    """Refuse a folder for something new that is a file, holds a run or holds anything else, such as the data.

    Args:
        path: of the folder, which need not exist.
        besides: names of files that it may hold.
    """
    out = Path(path)
    with _creating(out):
        _refuse_run(out)
        if out.is_dir() and any(each.name not in besides for each in out.iterdir()):
            raise RunError(f"out={out}: it holds other files; choose a new folder, or an empty one")
        if out.exists() and not out.is_dir():
            raise OSError("it is a file")


@contextlib.contextmanager
def _creating(out: Path) -> Iterator[None]:
    with explain(RunError, f"out={out}: cannot be created", "choose another folder"):
        try:
            yield
        except ValueError as error:
            # A name that no file can have.
            raise OSError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run on disk. Every file but the two append-only ones is replaced as a whole or not at all.

    Attributes:
        path: the folder.
        plan, config: of the run.
        num_features: of its data.
        asked: what is asked of a node, as it was declared; `task` has the bounds that were released since.
        split_id: which nodes are in the training split, as `split_id` gives it.
        data: what the data was called.
        columns: what the columns of its tables mean, where it was tables.
        budget: where the run is charged to the budget of its data, if it has one.
        warnings: what the run was warned about when it began; public.
        assumptions: what its guarantee takes as public although nobody declared it.
        is_release: whether the folder holds what was published of a run, and nothing else.
        relations: what is public about its records; empty where they are a list of nodes.
    """

    path: Path
    plan: PrivacyPlan
    config: TrainingConfig
    num_features: int
    asked: Task
    split_id: str
    data: str
    columns: Columns | None = None
    budget: BudgetEntry | None = None
    warnings: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    is_release: bool = False
    relations: tuple[RelationInfo, ...] = ()

    @classmethod
    def describe(
        cls,
        path: str | os.PathLike[str],
        graph: Graph,
        plan: PrivacyPlan,
        config: TrainingConfig,
        *,
        data: str,
    ) -> RunFolder:
        """The folder that a run on `graph` will have; nothing is written before `create`."""
        return cls(
            path=Path(path),
            plan=plan,
            config=config,
            split_id=split_id(graph),
            num_features=graph.num_features,
            asked=graph.task,
            data=data,
            columns=graph.columns,
            assumptions=find_assumptions(graph),
            relations=tuple(each.info for each in graph.relations),
        )

    def create(self) -> Ledger:
        """Write the folder of a new run; RunError, with nothing left behind, where that fails.

        Returns:
            The ledger, open and locked.
        """
        about = write_fields(self) | {
            "format": FORMAT,
            "config": asdict(self.config),
            "num_classes": self.num_classes,
            "task": self.asked.to_json(),
            "split_id": self.split_id,
            "data": self.data,
            "versions": dict(versions()),
            "warnings": list(self.warnings),
        }
        if self.budget is not None:
            about["budget"] = asdict(self.budget)
        is_new = self._make_directory()
        ledger: Ledger | None = None
        try:
            # The ledger comes first, so that a run without one is a damaged run and never a new one.
            ledger = Ledger.create(self.ledger_path, self.plan)
            write_about(self.path, about)
            return ledger
        except BaseException:
            self._discard(ledger, is_new=is_new)
            raise

    def _discard(self, ledger: Ledger | None, *, is_new: bool) -> None:
        """Remove what `create` made and no more: another process may be making a run in the same folder."""
        with contextlib.suppress(OSError):
            if ledger is not None:
                (self.path / ABOUT).unlink(missing_ok=True)
                ledger.discard()
            if is_new:
                self.path.rmdir()

    def start(self) -> Ledger:
        """Write the folder of a new run, and charge the run to the budget of its data, if it has one.

        A kill in between leaves a run that is charged when it is resumed. Where the budget cannot be charged,
        nothing is left behind.

        Returns:
            The ledger, open and locked.
        """
        is_new, begun = not self.path.exists(), None
        with contextlib.ExitStack() as stack:
            try:
                with self._charging(self.budget):
                    ledger = begun = stack.enter_context(self.create())
            except RunError:
                entry = self.budget
                if begun is not None and entry is not None and not DataBudget.may_hold(entry.file, entry.run):
                    self._discard(begun, is_new=is_new)
                raise
            if self.budget is not None:
                self.budget.begin_session(ledger)
            stack.pop_all()
            return ledger

    def go_on(self, *, charge_again: bool = False, check: Callable[[Ledger], None] | None = None) -> Ledger:
        """Open the ledger of a run that began before, and charge the run unless it was charged before.

        Args:
            charge_again: charge it as a run of its own, as for a copy of the folder of a run.
            check: refuses to go on, before anything is charged.

        Raises:
            RunError: the budget knows of steps that this folder does not: it is a copy; or an engine from
                before 0.2.0 began the run.
            BudgetExceededError: the budget does not allow the charge.
        """
        if (self.path / _BEGUN_ELSEWHERE).exists():
            raise RunError(
                f"run={self.path}: an engine from before 0.2.0 began it, with a board of its own; go on with "
                "that version, or count what its ledger shows as spent and train in another folder"
            )
        with contextlib.ExitStack() as stack:
            ledger = stack.enter_context(Ledger.open(self.ledger_path, plan=self.plan))
            check_charged(self, ledger)
            if check is not None:
                check(ledger)
            entry = self.budget
            if charge_again:
                if entry is None:
                    raise InputError(
                        f"charge_again: {self.path} is charged to no budget; leave it out, and count a copy "
                        "as a run of its own"
                    )
                entry = entry.renew()
            with self._charging(entry):
                if entry is not None and charge_again:
                    # Before the charge: a run that its folder does not name would be paid for in vain.
                    self._write_entry(entry)
            if entry is not None:
                entry.begin_session(ledger)
            stack.pop_all()
            return ledger

    def _charging(self, entry: BudgetEntry | None) -> contextlib.AbstractContextManager[None]:
        """Charge the run at the end of the `with` block, unless it was; see `DataBudget.charging`."""
        if entry is None:
            return contextlib.nullcontext()
        charge = entry.price(self.plan, self.guarantee, data=self.data, folder=str(self.path))
        return DataBudget.open(entry.file).charging(charge)

    def _write_entry(self, entry: BudgetEntry) -> None:
        """Replace the entry of this run in its budget."""
        about = json.loads((self.path / ABOUT).read_text())
        del about["sum"]
        write_about(self.path, about | {"budget": asdict(entry)})

    def _make_directory(self) -> bool:
        """Make the directory; return whether it is new."""
        with _creating(self.path):
            # Other files are refused by `check_out` where a caller must not mix them with a run.
            _refuse_run(self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.path.mkdir()
            except FileExistsError:
                if not self.path.is_dir():
                    raise
                return False
        return True

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Open the folder that `create` wrote, or a release, in a folder or an object store; RunError where
        it is missing or damaged.
        """
        from hushgraph.runs import release, store

        address = find_address(path)
        place = Path(path) if address is None else store.fetch_release(address)
        if not (place / ABOUT).exists() and (place / release.ABOUT).exists():
            return release.open_release(place)
        return cls(path=place, **read_about(place))

    def copy_to(self, path: str | os.PathLike[str]) -> RunFolder:
        """Copy the files of a finished run into a folder that is new or empty; return the copy."""
        self.check_finished()
        place = Path(path)
        with explain(WriteError, f"path={place}: cannot be written", "choose another folder"):
            if place.exists() and (not place.is_dir() or any(place.iterdir())):
                raise RunError(f"path={place}: it exists and is not an empty folder; choose another name")
            with whole_folder(place) as draft:
                for name in _FILES:
                    if (self.path / name).exists():
                        shutil.copyfile(self.path / name, draft / name)
                if self.release_path.is_dir():
                    shutil.copytree(self.release_path, draft / RELEASE)
                if self.is_release:
                    shutil.copytree(self.path, draft, dirs_exist_ok=True)
        return replace(self, path=place)

    @property
    def ledger_path(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def checkpoint_path(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def halfway_path(self) -> Path:
        """Path of the weights from which the ballots of a second board are computed."""
        return self.path / "halfway.safetensors"

    @property
    def release_path(self) -> Path:
        """Path of the folder with what may be published."""
        return self.path if self.is_release else self.path / RELEASE

    @property
    def figures_path(self) -> Path:
        """Path of the noisy tables from which covered figures are computed."""
        return self.path / FIGURES_FILE

    @property
    def scaling_path(self) -> Path:
        """Path of the noisy histograms by which numeric columns are scaled."""
        return self.path / SCALING_FILE

    @property
    def paid_columns(self) -> tuple[str, ...]:
        """The numeric columns for which noisy histograms are released."""
        if self.columns is None or self.config.numbers != "private":
            return ()
        return self.columns.unscaled

    @property
    def task(self) -> Task:
        """What is asked of a node; a number whose bounds are paid for has them once they are released."""
        if not _needs_bounds(self.asked) or not self.scaling_path.exists():
            return self.asked
        return self._bounded_task

    @property
    def stated_task(self) -> dict[str, Any]:
        """The task as results state it: its name, and its bounds if they were released."""
        task = self.task
        if isinstance(task, Number) and task.bounds == "released":
            return {"task": task.name, "bounds": [task.low, task.high]}
        return {"task": task.name}

    @cached_property
    def _bounded_task(self) -> Task:
        histograms = NoisyHistograms.load(self.scaling_path, plan=self.plan.fingerprint())
        return self.asked.with_bounds(*histograms.bounds) if isinstance(self.asked, Number) else self.asked

    @cached_property
    def scaler(self) -> Scaler | None:
        """The scaler of numeric columns; None for unscaled ones, RunError if a released one is missing."""
        if self.columns is None or self.config.numbers == "as-is":
            return None
        released: dict[str, tuple[float, float]] = {}
        if self.plan.num_scaled:
            released = NoisyHistograms.load(self.scaling_path, plan=self.plan.fingerprint()).scales
        return Scaler.of(self.columns, released)

    def scale_features(self, x: Any, filled: Any = None) -> Any:
        """Scale raw features for the model; rows that arrive later are scaled in the same way."""
        return x if self.scaler is None else self.scaler.apply(x, filled)

    def scale(self, graph: Graph) -> Graph:
        """Scale the features of a graph that was read, and its labels if their bounds were released."""
        if self.scaler is not None:
            graph = replace(graph, x=self.scale_features(graph.x, graph.filled))
        if _needs_bounds(graph.task) and isinstance(self.task, Number):
            graph = replace(graph, y=self.task.scale(graph.y), declared_task=self.task)
        return graph

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the declared groups that figures are given for; empty where there are none."""
        groups = {} if self.columns is None else self.columns.group
        return tuple(name for values in groups.values() for name in values)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of this run; all other code reads it here."""
        return Guarantee.of(
            self.plan, seed_is_fixed=self.config.seed is not None, assumptions=self.assumptions
        )

    @property
    def unit(self) -> str:
        """What a predicted number counts: as declared, else the name of its column; empty for classes."""
        if not isinstance(self.task, Number):
            return ""
        named = "" if self.columns is None else self.columns.label
        return self.task.unit or (named if isinstance(named, str) else "")

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes in order, where its tables had names."""
        return None if self.columns is None or self.columns.classes is None else tuple(self.columns.classes)

    @property
    def is_finished(self) -> bool:
        """Whether the weights have been written."""
        return (self.path / "weights.safetensors").exists()

    def read_graph(self, data: Any) -> Graph:
        """Read the data of the run, with its numbers scaled as in training; raise RunError for other data."""
        return self.scale(self.read_raw_graph(data))

    def read_raw_graph(self, data: Any) -> Graph:
        """Read the data of the run without scaling its numbers; raise RunError for other data."""
        config = self.config
        with self.explain_other_data("the data it began with"):
            graph = load_graph(
                data,
                symmetrize=config.symmetrize,
                split=config.split,
                split_seed=config.split_seed,
                num_classes=self.num_classes,
                columns=self.columns,
                task=name_labels(_as_read(self.asked)),
                edge_weight=config.edge_weight if self.columns is None else None,
                people=config.people,
                person=config.person,
            )
        graph = self._declare_task(graph)
        if config.setting == "inductive":
            graph = graph.disjoint()
        if (graph.num_features, split_id(graph)) != (self.num_features, self.split_id):
            raise RunError(
                f"run={self.path}: the data has {graph.num_train_units} training nodes, or persons with one, "
                f"and {graph.num_features} features, the run has {self.plan.num_train_nodes} and "
                f"{self.num_features}, or its training nodes are others; give the data it began with"
            )
        if tuple(each.info for each in graph.relations) != self.relations:
            raise RunError(
                f"run={self.path}: the data has other relations, places or weights than the run; give the "
                "data it began with"
            )
        return graph

    @contextlib.contextmanager
    def explain_other_data(self, expected: str) -> Iterator[None]:
        """Ask for the data that is expected where an error of this context advises to change a setting."""
        try:
            yield
        except GraphError as error:
            fact, *others = str(error).split("; ")
            kept = [part for part in others if not _SETTING.search(part)]
            if kept == others:
                raise
            text = "; ".join([fact, *kept])
            raise GraphError(
                f"{text}; run {self.path} keeps the settings of its training: give {expected}"
            ) from None

    def read_rows(self, files: TableFiles, boards: ReadyBoards, *, listed_by: ListedBy) -> RowsOfGraph:
        """Read a part of the rows of the run as a graph of their own, as `read_graph` reads all of them.

        Args:
            files: of the part.
            boards: of the run.
            listed_by: the end of an edge that lists the other one.
        """
        config, task = self.config, name_labels(_as_read(self.asked))
        is_number = isinstance(task, Number)
        num_classes = None if is_number else self.num_classes
        with new_rows_from_tables(
            files,
            columns=self.columns or Columns(),
            listed_by=listed_by,
            labels=True,
            splits=config.split is None,
            kind="number" if isinstance(task, Number) else task,
            num_classes=num_classes,
        ) as given:
            rows = find_rows(
                locate(given, boards, self.num_features, are_new=False),
                given.cells,
                boards,
                edge_owner=self.plan.edge_owner,
                split=config.split,
                split_seed=config.split_seed,
                task=task,
                num_classes=num_classes,
            )
        return rows._replace(graph=self.scale(self._declare_task(rows.graph)))

    def _declare_task(self, graph: Graph) -> Graph:
        return graph if _needs_bounds(graph.task) else replace(graph, declared_task=self.task)

    @property
    def num_classes(self) -> int:
        """How many outputs the model has: c for classes."""
        return self.task.num_outputs

    @property
    def num_boards(self) -> int:
        """How many boards the run has."""
        return self.plan.num_boards

    @property
    def input_width(self) -> int:
        """Columns that the model takes: features and, with a board, a reading."""
        return self.num_features + (self.reading_width if self.num_boards else 0)

    @property
    def reading_width(self) -> int:
        """Columns of what a row reads: the board at the places it lists, and inputs that come with it."""
        own_places = self.num_own_places if self.config.own_place else 0
        return self.task.ballot_width * (self.num_readings + own_places) + (self.config.list_size > 0)

    @property
    def edge_weight(self) -> EdgeWeight | None:
        """Where weights of records come from; None where there are none, or data came with them."""
        declared = self.config.edge_weight if self.columns is None else self.columns.edge_weight
        return None if declared is None else EdgeWeight.of(declared)

    @property
    def num_readings(self) -> int:
        """How many readings a row has: one of each relation."""
        return max(1, len(self.relations))

    @property
    def num_own_places(self) -> int:
        """How many places of its own a node has: one in each relation between people."""
        between_people = sum(each.num_places is None for each in self.relations)
        return between_people if self.relations else 1

    def load_boards(self) -> list[Board]:
        """Load the boards of this run; raise RunError if one is missing, damaged or of another run."""
        if not self.num_boards:
            raise RunError(
                f"run={self.path}: a run of method {self.plan.method!r} has no board; train with "
                "method='billboard'"
            )
        names = BOARD_FILES[: self.num_boards]
        return [load_board(self.path / name, plan=self.plan.fingerprint()) for name in names]

    def build_model(self, own: nn.Module | None = None, *, seed: int | None = None) -> nn.Module:
        """The model of this run: built in and freshly initialised, or the caller's own, which is checked."""
        return build_model(self, own, seed=seed)

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> dict[str, Any]:
        """Write the result, with what is guaranteed, and the weights; after this the run is finished.

        Returns:
            What was written as the result.
        """
        self.check_finite(weights)
        stated = {**result, **describe_guarantee(self.guarantee), "warnings": list(self.warnings)}
        write_whole(self.path / "result.json", json.dumps(stated, indent=2, allow_nan=False).encode())
        write_tensors(self.path / "weights.safetensors", weights, {})
        self.checkpoint_path.unlink(missing_ok=True)
        return stated

    def check_finite(self, weights: Mapping[str, Tensor]) -> None:
        """Refuse weights that are NaN or infinite."""
        if not all(bool(value.isfinite().all()) for value in weights.values()):
            raise DivergedError(
                f"run={self.path}: training diverged: weights are NaN or infinite, and the budget is spent; "
                "train again with a lower learning rate"
            )

    def load_weights(self, model: nn.Module) -> None:
        self.check_finished()
        file = self.path / "weights.safetensors"
        fill_model(model, read_tensors(file)[0], file)

    def check_finished(self) -> None:
        """Refuse a run that is not finished."""
        if not self.is_finished:
            raise RunError(
                f"run={self.path}: it is not finished; resume it with hushgraph train DATA "
                f"--resume {shlex.quote(str(self.path))}"
            )

    def result(self) -> dict[str, Any]:
        """The summary of a finished run; RunError where it is not what a run writes."""
        if self.is_release:
            from hushgraph.runs.release import read_covered_result

            return read_covered_result(self.path)
        result = read_result(self.path / "result.json")
        if "directed" not in result and self.plan.edge_owner == "reader":
            # Older versions priced one record of an edge that readers own, also where it has two.
            stated = self.plan.summary() | describe_guarantee(self.guarantee)
            result["epsilon_edge"] = stated["epsilon_edge"]
        return result


def name_data(data: Any) -> str:
    """Name the data: its path or name (for a pair, that of the nodes), otherwise its type."""
    named = data[0] if isinstance(data, (tuple, list)) and len(data) == 2 else data
    return os.fspath(named) if isinstance(named, (str, os.PathLike)) else type(named).__name__


def split_id(graph: Graph) -> str:
    """Return a digest of what is public about nodes: their number, the training split and the persons."""
    digest = hashlib.sha256(graph.num_nodes.to_bytes(8, "little"))
    for nodes in (graph.train_idx, graph.persons):
        if nodes is not None:
            digest.update(np.ascontiguousarray(nodes, "<i8").data)
    return digest.hexdigest()[:32]


def _needs_bounds(task: Task) -> bool:
    return isinstance(task, Number) and task.needs_bounds


def _as_read(task: Task) -> Task:
    """Return the task with which data is read: numbers stay unscaled, even if their bounds are released.

    A second way of scaling would round otherwise, and a row's own ballot must be the one that it cast.
    """
    if isinstance(task, Number) and task.bounds == "released":
        return replace(task, bounds="private")
    return task
