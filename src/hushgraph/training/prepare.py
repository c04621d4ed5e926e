"""What `train` would do, without doing it: the checked graph, the plan and the configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, Unpack, get_args

from torch import nn

from hushgraph._validate import show_value
from hushgraph.datasets.loading import load_for_training
from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.datasets.tables.files import is_tables
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.methods.base import Method, PublicFigures, describe_task
from hushgraph.methods.choose import choose_method
from hushgraph.privacy import choices
from hushgraph.privacy.fields import check_budget, check_fields
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import name_data
from hushgraph.settings import OptimizerFactory as OptimizerFactory
from hushgraph.settings import Settings, complete, take_column, take_columns, with_settings
from hushgraph.tasks.choose import check_task, choose_class_task, choose_other_task, read_class_weights
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.number import Number

_BUDGET = ("epsilon", "sigma_over_clip", "paper_noise_multiplier", "private", "delta", "steps")
# More training nodes than any data has, to check settings by before data is read.
_ANY_NODES = 2**40


class Prepared(NamedTuple):
    """What a run starts from."""

    graph: Graph
    plan: PrivacyPlan
    config: TrainingConfig


@with_settings(Settings)
def prepare(data: Any, **settings: Unpack[Settings]) -> Prepared:
    """Read the data and derive the plan and the configuration that `train` would follow.

    Nothing is trained, written or spent. The arguments are those of `hushgraph.train`.

    Returns:
        The checked graph, the privacy plan and the training configuration.

    Raises:
        InputError: where an argument or the data cannot be used.
        BudgetExceededError: where `epsilon` at the noise given pays for no step.

    Guarantees:
        The plan, and whether it is refused, depends on the arguments and on public figures alone: nodes,
        training nodes, features and classes. Where classes are not declared their number is taken from the
        labels; `graph.has_declared_classes` tells, and the guarantee says that it assumes them to be public.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> graph, plan, config = hg.prepare(data, epsilon=4.0)
        >>> plan.epsilon <= 4.0, plan.num_train_nodes == len(graph.train_idx)
        (True, True)
    """
    full = complete(settings)
    method = check_settings(full)
    split, columns = full["split"], take_columns(full)
    if not is_tables(data):
        columns, full["person"] = take_column(columns, "person")
        columns, classes = take_column(columns, "classes")
        if classes is not None:
            full["num_classes"] = _count_classes(classes, full["num_classes"], name_data(data))
    # Without a slash, it is an attribute of a NetworkX graph or a mistake that reading reports.
    if split is not None and "/" in str(split):
        random_split(0, parse_fractions(split))
    classes_of = {name: full[name] for name in ("positive", "rare", "class_weight", "num_classes")}
    other_task = choose_other_task(full["task"], full["bounds"], others=classes_of)
    if full["unit"]:
        if not isinstance(other_task, Number):
            raise InputError(f"unit={full['unit']!r}: it is for task='number'; leave it out, or give bounds")
        other_task = replace(other_task, unit=str(full["unit"]))
    graph, split = load_for_training(
        data,
        split=split,
        columns=columns,
        task=other_task,
        person=full["person"],
        **{name: full[name] for name in ("split_seed", "symmetrize", "num_classes")},
        **{name: full[name] for name in ("edge_weight", "people")},
    )
    if columns and (graph.columns is None or isinstance(data, Graph)):
        raise InputError(
            f"columns are for tables, and {name_data(data)} is none; leave them out (--label and other "
            "flags of tables)"
        )
    if not isinstance(data, Graph):
        _check_has_labels(graph)
    if full["setting"] == "inductive":
        graph = graph.disjoint()
    check_task(graph.task, full["task"], others=classes_of)
    if isinstance(graph.task, Classes):
        names = None if graph.columns is None else graph.columns.classes
        asked = {name: full[name] for name in ("task", "positive", "rare")}
        task = choose_class_task(graph.num_classes, names, **asked)
        graph = replace(graph, declared_task=task)
        full["class_weights"] = read_class_weights(full["class_weight"], graph.num_classes, names)
    full["numbers"] = _choose_numbers(graph, full)
    has_target = _check_bounds(graph, full)
    num_columns = len(graph.columns.unscaled) if graph.columns and full["numbers"] == "private" else 0
    has_evaluated = len(graph.val_idx) + len(graph.test_idx) > 0
    figures = PublicFigures(
        graph.num_nodes,
        graph.num_train_units,
        graph.num_classes,
        num_scaled=num_columns + has_target,
        has_target=has_target,
        protects="node" if graph.persons is None else "person",
        **describe_task(graph.task, has_evaluated=has_evaluated),
        **_describe_relations(graph),
    )
    return Prepared(graph, *method.plan(figures, {**full, "split": split}))


def _count_classes(classes: Any, num_classes: int | None, data: str) -> int:
    """How many classes a list declares for data whose labels are numbers from 0 on."""
    listed = [str(each) for each in ([classes] if isinstance(classes, str) else classes)]
    if listed != [str(number) for number in range(len(listed))] or num_classes not in (None, len(listed)):
        raise InputError(
            f"classes={','.join(listed)}: labels of {data} are numbers from 0 on; list them as 0,1,2, or "
            "give num_classes (--num-classes) alone"
        )
    return len(listed)


def _describe_relations(graph: Graph) -> dict[str, Any]:
    """What is public about the records of a graph."""
    return {
        "is_weighted": any(each.info.is_weighted for each in graph.relations),
        "num_relations": max(1, len(graph.relations)),
        "has_places": not all(each.names_people for each in graph.relations),
    }


def _choose_numbers(graph: Graph, settings: Mapping[str, Any]) -> str:
    """How numeric columns are scaled: paid for unless declared; data without columns stays as it is."""
    numbers: str | None = settings["numbers"]
    prices_steps_alone = settings["accountant"] == "paper"
    if graph.columns is None:
        if numbers in ("private", "declared"):
            raise InputError(
                f"numbers={numbers!r}: it is for tables, whose columns have names; leave it out, and scale "
                "features with constants that you know without looking at the data"
            )
        return "as-is"
    if numbers is None:
        return "declared" if prices_steps_alone else "private"
    if numbers == "private" and prices_steps_alone:
        raise InputError(
            "numbers='private' with accountant='paper': it prices steps alone; use accountant='pair', or "
            "numbers='declared' or 'as-is'"
        )
    return numbers


def _check_bounds(graph: Graph, settings: Mapping[str, Any]) -> bool:
    """Whether the bounds of a number are paid for; InputError where they cannot be."""
    task = graph.task
    needs_bounds = isinstance(task, Number) and task.needs_bounds
    if settings["bounds"] == "private" and not needs_bounds:
        raise InputError(
            f"bounds='private': the graph is about {task.question}; leave bounds out, or build the graph "
            "with task=Number(bounds='private') and numbers as they are"
        )
    if needs_bounds and settings["accountant"] == "paper":
        raise InputError(
            "bounds='private' with accountant='paper': it prices steps alone; use accountant='pair', or "
            "declare bounds"
        )
    return needs_bounds


def _check_has_labels(graph: Graph) -> None:
    """Refuse data without a training label, unless its classes are declared.

    Where they are, labels do not decide whether there is a run: one row could decide it. Otherwise they have
    been looked at already, for the number of classes.
    """
    if graph.has_declared_classes:
        return
    if not (graph.y[graph.train_idx] >= 0).any():
        raise InputError(
            "no training node has a label; expected labels in the training split; to train all the same, "
            "give num_classes or the names of the classes"
        )


def check_settings(settings: Mapping[str, Any]) -> Method:
    """Refuse settings that no data could make valid, before data is read; return the method they ask for."""
    if settings["model"] is not None:
        check_model(settings["model"])
    method = choose_method(settings)
    given = {name: value for name, value in settings.items() if value is not None}
    known = [field.name for field in fields(TrainingConfig)]
    own = {name: "own" for name in ("model", "optimizer") if not isinstance(given.get(name, ""), str)}
    TrainingConfig(**{name: given[name] for name in known if name in given} | own)
    if given["symmetrize"] and given["directed"]:
        raise InputError(
            "symmetrize=True and directed=True contradict each other: what is symmetrized has two records an "
            "edge; leave one of them out"
        )
    check_budget(**{name: settings[name] for name in _BUDGET})
    readers = given.get("max_readers", 1)
    reads = None if given["sampler"] == "paper" else readers
    usual = {
        "sigma_over_clip": 0.0,
        "num_layers": 1,
        "max_readers": readers,
        "max_reads": reads,
        "batch_size": 1,
        "steps": 1,
    }
    planned = {name: given[name] for name in (field.name for field in fields(PrivacyPlan)) if name in given}
    unknown = {"num_train_nodes": _ANY_NODES, "sigma_over_clip": 0.0, "delta": None, "batches": None}
    check_fields(usual | planned | unknown | ({} if method.name == "trees" else {"num_layers": 0}))
    return method


def check_model(model: Any, names: Collection[str] = get_args(choices.Model)) -> None:
    """Refuse a model that is neither one of `names` nor a module, such as the class of one."""
    if isinstance(model, type):
        raise InputError(f"model={model.__name__}: it is a class; pass an instance, {model.__name__}(...)")
    if not isinstance(model, nn.Module) and not (isinstance(model, str) and model in names):
        named = f"one of {', '.join(names)}, or in Python " if names else ""
        raise InputError(f"model={show_value(model)}: expected {named}an instance of a module of your own")
