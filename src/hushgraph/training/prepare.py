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
from hushgraph.errors import InputError, PlanError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.privacy import choices
from hushgraph.privacy.defaults import (
    Defaults,
    choose_billboard,
    choose_billboard_non_private,
    choose_non_private,
    choose_private,
    choose_reads,
)
from hushgraph.privacy.fields import default_delta
from hushgraph.privacy.plans import LARGEST_TREE, BillboardPlan, PrivacyPlan
from hushgraph.runs.config import TrainingConfig, check_settings
from hushgraph.runs.folder import name_data
from hushgraph.sampling.trees import bound_tree_size

OptimizerFactory = Callable[[Any], torch.optim.Optimizer]
"""A function from parameters to an optimiser."""

# Above this, the choice of defaults no longer depends on epsilon.
_LARGEST_EPSILON = 1e6
# Without a target epsilon, the rule for defaults starts from a common one.
_USUAL_EPSILON = 8.0
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
    method = check_settings(arguments, others)
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
    reading = {"setting": setting, "symmetrize": symmetrize, "split": split, "split_seed": split_seed}
    if method == "billboard":
        return _prepare_billboard(graph, arguments, {**reading, **others})
    model = "gcn" if model is None else model
    depth = 0 if model == "mlp" else 1 if num_layers is None else num_layers
    name = model if isinstance(model, str) else "own"
    defaults = _choose_defaults(graph, private, epsilon, delta, depth, edge_owner, name)
    config = TrainingConfig(
        model=name,
        optimizer=optimizer if isinstance(optimizer, str) else "own",
        learning_rate=defaults.learning_rate if learning_rate is None else learning_rate,
        hidden=defaults.hidden if hidden is None else hidden,
        seed=seed,
        **{"feature_norm": defaults.feature_norm, "momentum": defaults.momentum, **reading, **others},
    )
    readers = defaults.max_readers if max_readers is None else max_readers
    if max_reads is None and sampler != "paper":
        max_reads = defaults.max_reads if max_readers is None else choose_reads(readers, edge_owner)
    num_train_nodes = len(graph.train_idx)
    plan = PrivacyPlan(
        num_train_nodes=num_train_nodes,
        num_layers=depth,
        max_readers=readers,
        max_reads=max_reads,
        edge_owner=edge_owner,
        directed=directed,
        batch_size=defaults.batch_size if batch_size is None else batch_size,
        steps=defaults.steps if steps is None else steps,
        clip=clip,
        delta=default_delta(num_train_nodes) if delta is None else delta,
        sampler=sampler,
        accountant=accountant,
        clipping=clipping,
        noise=noise,
    )
    _check_tree_size(plan, graph.num_nodes)
    if private and noise_multiplier is not None:
        plan = plan.with_paper_noise(noise_multiplier)
    return Prepared(graph, _meet_epsilon(plan, epsilon, noise_multiplier), config)


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


def _check_tree_size(plan: PrivacyPlan, num_nodes: int) -> None:
    """Refuse bounds by which a tree may be too large, by public figures, so that no row decides it later."""
    if bound_tree_size(plan.max_readers, plan.max_reads, plan.num_layers, num_nodes) > LARGEST_TREE:
        raise PlanError(
            f"num_layers={plan.num_layers}, max_readers={plan.max_readers}, max_reads={plan.max_reads}: with "
            f"{num_nodes:,} nodes a tree may have more than {LARGEST_TREE:,} rows, too many to train on; "
            "take fewer of them"
        )


def _prepare_billboard(graph: Graph, arguments: Mapping[str, Any], others: Mapping[str, Any]) -> Prepared:
    """The plan and configuration of a billboard run, by a rule that reads public figures alone."""
    num_train_nodes, epsilon = len(graph.train_idx), arguments["epsilon"]
    delta = default_delta(num_train_nodes) if arguments["delta"] is None else arguments["delta"]
    defaults = (
        choose_billboard(
            num_train_nodes=num_train_nodes,
            num_classes=graph.num_classes,
            epsilon=min(epsilon, _LARGEST_EPSILON),
            delta=delta,
        )
        if arguments["private"]
        else choose_billboard_non_private(num_train_nodes=num_train_nodes)
    )
    given = {name: value for name, value in arguments.items() if value is not None}
    optimizer, model = arguments["optimizer"], arguments["model"]
    config = TrainingConfig(
        model="mlp" if model is None else "own",
        optimizer="own" if callable(optimizer) else optimizer,
        learning_rate=given.get("learning_rate", defaults.learning_rate),
        hidden=given.get("hidden", defaults.hidden),
        seed=arguments["seed"],
        **{
            "feature_norm": defaults.feature_norm,
            "momentum": defaults.momentum,
            **others,
        },
    )
    plan = BillboardPlan(
        num_train_nodes=num_train_nodes,
        num_classes=graph.num_classes,
        batch_size=given.get("batch_size", defaults.batch_size),
        steps=given.get("steps", defaults.steps),
        clip=arguments["clip"],
        clipping=arguments["clipping"],
        edge_owner=arguments["edge_owner"],
        directed=arguments["directed"],
        delta=delta,
        # The ballots of a second board come from a model that is built here, not from the caller's.
        num_boards=2 if model is None else 1,
        board_share=defaults.board_share,
    )
    return Prepared(graph, plan if epsilon is None else plan.calibrated(epsilon=epsilon), config)


def _choose_defaults(
    graph: Graph,
    private: bool,
    epsilon: float | None,
    delta: float | None,
    depth: int,
    owner: choices.EdgeOwner,
    model: str,
) -> Defaults:
    num_train_nodes = len(graph.train_idx)
    if not private:
        return choose_non_private(num_train_nodes=num_train_nodes, num_classes=graph.num_classes, model=model)
    return choose_private(
        num_train_nodes=num_train_nodes,
        epsilon=_USUAL_EPSILON if epsilon is None else min(epsilon, _LARGEST_EPSILON),
        delta=default_delta(num_train_nodes) if delta is None else delta,
        num_layers=depth,
        num_classes=graph.num_classes,
        edge_owner=owner,
    )


def _meet_epsilon(plan: PrivacyPlan, epsilon: float | None, noise_multiplier: float | None) -> PrivacyPlan:
    """Solve for the noise, or, where the noise is given, for the number of steps."""
    if epsilon is None:
        return plan
    return (
        plan.calibrated(epsilon=epsilon) if noise_multiplier is None else plan.with_steps_for(epsilon=epsilon)
    )


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
