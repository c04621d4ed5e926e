"""What every method does: derive the plan and the configuration of a run from public figures and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple, Protocol

from hushgraph.privacy import choices
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Task

LARGEST_EPSILON = 1e6
"""Above this, the choice of defaults no longer depends on epsilon."""


class PublicFigures(NamedTuple):
    """What a plan may know about the data.

    Attributes:
        num_nodes, num_train_nodes, num_classes: of the graph.
        most_boards: how many boards the source of the data can make.
        label_change: as in `BillboardPlan`; None for classes.
        num_tables: how many tables of figures an evaluated row is counted in (`Task.tables`); 0 where no node
            is in the validation or test split.
        task: the name of the task.
        num_scaled: how many columns have noisy histograms: numbers to scale, and the number to predict.
        has_target: whether the number to predict is one of them.
        is_weighted: whether records have weights.
        num_relations: how many relations records are of.
        has_places: whether some of them name places that are not people.
        protects: "person" where people have several nodes; `num_train_nodes` then counts persons.
    """

    num_nodes: int
    num_train_nodes: int
    num_classes: int
    most_boards: int = 2
    label_change: float | None = None
    num_tables: int = 0
    task: str = "classes"
    num_scaled: int = 0
    protects: choices.Unit = "node"
    has_target: bool = False
    is_weighted: bool = False
    num_relations: int = 1
    has_places: bool = False


def describe_task(task: Task, *, has_evaluated: bool = True) -> dict[str, Any]:
    """What `PublicFigures` knows about a task; `has_evaluated` where a node is in a split to evaluate on."""
    return {
        "num_tables": task.num_tables if has_evaluated else 0,
        # Ballots of two classes and of other tasks are not those of c classes.
        "label_change": None if type(task) is Classes else task.label_change,
        "task": task.name,
    }


def count_tables(public: PublicFigures, settings: Mapping[str, Any]) -> int:
    """How many tables of figures a run releases: none with a fixed seed, whose noise can be subtracted."""
    return 0 if settings["seed"] is not None else public.num_tables


class Planned(NamedTuple):
    """What a run follows: its privacy, and everything else about it."""

    plan: PrivacyPlan
    config: TrainingConfig


class Method(Protocol):
    """A way to train with privacy: from data and settings to a plan.

    The plan says how it is carried out, so that a session asks nothing else: its segments name what is
    released before which steps, and its charges what each release costs.

    Guarantees:
        `plan` depends on its arguments alone, and they hold nothing that a row can move.
    """

    @property
    def name(self) -> str: ...

    @property
    def short_name(self) -> str:
        """What a run is called where no model is named."""
        ...

    def plan(self, public: PublicFigures, settings: Mapping[str, Any]) -> Planned:
        """Choose what `settings` leave out (None), and solve for the noise or the number of steps."""
        ...


def configure(settings: Mapping[str, Any], defaults: Mapping[str, Any], *, model: str) -> TrainingConfig:
    """The configuration of a run: what is given, else what `defaults` choose."""
    known = [field.name for field in fields(TrainingConfig)]
    chosen = {name: defaults[name] for name in known if name in defaults}
    given = {name: settings[name] for name in known if settings.get(name) is not None}
    if callable(settings["optimizer"]):
        given["optimizer"] = "own"
    return TrainingConfig(**{**chosen, **given, "model": model})
