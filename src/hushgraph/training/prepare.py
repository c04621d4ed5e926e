"""What `train` would do, without doing it: the checked graph, the plan and the configuration."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from hushgraph._validate import convert_numbers, show_value
from hushgraph.datasets.loading import load_for_training
from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.errors import InputError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.methods.base import Method, PublicFigures
from hushgraph.methods.choose import choose_method
from hushgraph.methods.trees import Trees
from hushgraph.privacy import choices
from hushgraph.privacy.fields import check_budget, check_fields
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import name_data

OptimizerFactory = Callable[[Any], torch.optim.Optimizer]
"""A function from parameters to an optimiser."""

_BUDGET = ("epsilon", "noise_multiplier", "private", "delta", "steps")
# More training nodes than any data has, to check settings by before data is read.
_ANY_NODES = 2**40
# Names that the command line and other libraries use for the same argument.
_SYNONYMS = {
    "lr": "learning_rate",
    "eps": "epsilon",
    "epochs": "steps",
    "target_epsilon": "epsilon",
    "target_delta": "delta",
    "max_grad_norm": "clip",
    "sigma": "noise_multiplier",
    "layers": "num_layers",
    "hidden_channels": "hidden",
    "non_private": "private",
}


class Prepared(NamedTuple):
    """What a run starts from."""

    graph: Graph
    plan: PrivacyPlan
    config: TrainingConfig


def prepare(
    data: Any,
    *,
    method: choices.Method | None = None,
    model: choices.Model | nn.Module | None = None,
    num_layers: int | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    private: bool = True,
    delta: float | None = None,
    max_readers: int | None = None,
    max_reads: int | None = None,
    edge_owner: choices.EdgeOwner = "sender",
    directed: bool = False,
    batch_size: int | None = None,
    steps: int | None = None,
    sampler: choices.Sampler = "stable",
    accountant: choices.Accountant = "pair",
    clipping: choices.Clipping = "normalised",
    noise: choices.Noise = "common",
    clip: float = 1.0,
    optimizer: choices.Optimizer | OptimizerFactory = "adam",
    learning_rate: float | None = None,
    hidden: int | None = None,
    setting: choices.Setting = "transductive",
    symmetrize: bool = False,
    split: str | None = None,
    split_seed: int = 0,
    num_classes: int | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    seed: int | None = None,
    **others: Any,
) -> Prepared:
    """Read the data and derive the plan and the configuration that `train` would follow.

    Nothing is trained, written or spent. The arguments are those of `hushgraph.train`.

    Returns:
        The checked graph, the privacy plan and the training configuration.

    Raises:
        InputError: where an argument or the data cannot be used.
        BudgetExceededError: where `epsilon` at `noise_multiplier` pays for no step.

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
    columns, others = take_columns(columns, others)
    arguments = {name: value for name, value in locals().items() if name != "others"}
    _check_names(others, known=arguments)
    convert_numbers(arguments, {**prepare.__annotations__, "data": "Any"})
    convert_numbers(others, {field.name: field.type for field in fields(TrainingConfig)})
    if model is not None:
        check_model(model)
    chosen = _check_settings(arguments, others)
    # Without a slash, it is an attribute of a NetworkX graph or a mistake that reading reports.
    if split is not None and "/" in str(split):
        random_split(0, parse_fractions(split))
    graph, split = load_for_training(
        data,
        split=split,
        split_seed=split_seed,
        symmetrize=symmetrize,
        num_classes=num_classes,
        columns=columns,
    )
    if columns and (graph.columns is None or isinstance(data, Graph)):
        raise InputError(
            f"columns are for tables, and {name_data(data)} is none; leave them out (--label and other "
            "flags of tables)"
        )
    if not isinstance(data, Graph):
        _check_has_labels(graph)
    if setting == "inductive":
        graph = graph.disjoint()
    figures = PublicFigures(graph.num_nodes, len(graph.train_idx), graph.num_classes)
    return Prepared(graph, *chosen.plan(figures, {**arguments, **others, "split": split}))


def take_columns(
    columns: Columns | Mapping[str, Any] | None, others: dict[str, Any]
) -> tuple[Columns | Mapping[str, Any] | None, dict[str, Any]]:
    """Add fields of `Columns` among other arguments to the columns; return both without overlap."""
    names = {"split_column": "split"} | {
        each.name: each.name for each in fields(Columns) if each.name != "split"
    }
    given = {names[name]: value for name, value in others.items() if name in names}
    if not given:
        return columns, others
    rest = {name: value for name, value in others.items() if name not in names}
    if isinstance(columns, Columns):
        return replace(columns, **given), rest
    return {**(columns or {}), **given}, rest


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


def _check_settings(arguments: Mapping[str, Any], others: Mapping[str, Any]) -> Method:
    """Refuse settings that no data could make valid, before data is read; return the method they ask for."""
    method = choose_method({**arguments, **others})
    given = {name: value for name, value in arguments.items() if value is not None}
    named = {name: given[name] for name in ("learning_rate", "hidden", "seed", "setting") if name in given}
    model: Any = given.get("model", "gcn") if isinstance(given.get("model", "gcn"), str) else "own"
    optimizer: Any = given["optimizer"] if isinstance(given["optimizer"], str) else "own"
    TrainingConfig(model=model, optimizer=optimizer, **named, **others)
    if given["symmetrize"] and given["directed"]:
        raise InputError(
            "symmetrize=True and directed=True contradict each other: what is symmetrized has two records an "
            "edge; leave one of them out"
        )
    check_budget(**{name: arguments[name] for name in _BUDGET})
    readers = given.get("max_readers", 1)
    check_fields(
        {
            "num_train_nodes": _ANY_NODES,
            "num_layers": given.get("num_layers", 1) if isinstance(method, Trees) else 0,
            "max_readers": readers,
            "max_reads": given.get("max_reads", None if given["sampler"] == "paper" else readers),
            "edge_owner": given.get("edge_owner", "sender"),
            "batch_size": given.get("batch_size", 1),
            "steps": given.get("steps", 1),
            "noise_multiplier": None,
            "delta": None,
            "batches": None,
            **{
                name: given[name]
                for name in ("clip", "sampler", "accountant", "clipping", "noise", "directed")
            },
        }
    )
    return method


def check_model(model: Any, names: Collection[str] = get_args(choices.Model)) -> None:
    """Refuse a model that is neither one of `names` nor a module, such as the class of one."""
    if isinstance(model, type):
        raise InputError(f"model={model.__name__}: it is a class; pass an instance, {model.__name__}(...)")
    if not isinstance(model, nn.Module) and not (isinstance(model, str) and model in names):
        named = f"one of {', '.join(names)}, or in Python " if names else ""
        raise InputError(f"model={show_value(model)}: expected {named}an instance of a module of your own")


def _check_names(others: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse an unknown argument and name the nearest known one."""
    settings = [field.name for field in fields(TrainingConfig)]
    for name in others:
        if name not in settings:
            of_tables = [field.name for field in fields(Columns) if field.name != "split"]
            near = difflib.get_close_matches(name, [*settings, *known, *of_tables, "split_column"], n=1)
            meant = _SYNONYMS.get(name, near[0] if near else None)
            hint = f"; did you mean {meant}?" if meant else ""
            raise InputError(f"{name}: train has no such argument{hint}")
