"""Which plan to audit: that of a run, or the one `train` would use on some data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hushgraph._stores import find_address
from hushgraph.audit.attack import planted
from hushgraph.graph.records import RelationInfo
from hushgraph.methods.rows import Rows
from hushgraph.privacy.guarantee import Assumption, find_assumptions
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.release import ABOUT
from hushgraph.runs.store import has_release
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Task
from hushgraph.training.prepare import prepare

READERS, STEPS = 2, 2
# Of a plan for no data in particular, and what its lists have besides.
_USUAL = {"num_train_nodes": 1000, "batch_size": 1000, "steps": STEPS, "delta": 1e-5}
_USUAL_OF: Mapping[str, Mapping[str, Any]] = {"trees": {"num_layers": 1, "max_readers": READERS}}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an audit takes from a run: its plan, model, task, weights, relations, and what is assumed."""

    plan: PrivacyPlan
    model: str
    assumptions: tuple[Assumption, ...] = ()
    task: Task | None = None
    class_weights: tuple[float, ...] | None = None
    relations: tuple[RelationInfo, ...] = ()


def is_run(path: Any) -> bool:
    """Whether a path, or an address of an object store, holds a run or a release."""
    if (address := find_address(path)) is not None:
        return has_release(address)
    return any((Path(path) / name).is_file() for name in ("run.json", ABOUT))


def settings_of_run(path: Any) -> Settings:
    """Return the settings of a run, finished or not."""
    folder = RunFolder.open(path)
    settings = _settings(folder.plan, folder.config, folder.assumptions, folder.asked)
    return replace(settings, relations=folder.relations)


def settings_for(data: Any, **arguments: Any) -> Settings:
    """Return the settings that `train` would use on this data; nothing is trained or written.

    Args:
        data: as `train` takes it. Its rows are read to be checked; the audit sees how many training nodes and
            classes there are, and what relations, which are public.
        arguments: of `train`.
    """
    graph, plan, config = prepare(data, **arguments)
    settings = _settings(plan, config, find_assumptions(graph), graph.task)
    return replace(settings, relations=tuple(each.info for each in graph.relations))


def settings_without_data(
    method: str, *, epsilon: float, model: str | None = None, fault: str | None = None, **given: Any
) -> Settings:
    """A plan for no data in particular: every batch full, and few steps, so that trials are cheap.

    Args:
        method: "billboard" or "trees".
        epsilon: the claim.
        model: of trees.
        fault: the name of a mistake that is planted.
        given: other fields of the plan; what is None has its usual value.
    """
    name = method if model != "mlp" else Rows.name
    fields = {**_USUAL, **_USUAL_OF.get(name, {})}
    fields |= {key: value for key, value in given.items() if value is not None}
    if fields["edge_owner"] == "reader" and name in _USUAL_OF:
        fields.setdefault("max_reads", fields["max_readers"])
    plan = PrivacyPlan.of_method(name)(**fields)
    if fault is not None:
        plan = planted(plan, fault)
    plan = plan.calibrated(epsilon=epsilon).with_evaluation(Classes(num_classes=2).num_tables)
    return Settings(plan=plan, model=model or TrainingConfig.model)


def _settings(
    plan: PrivacyPlan, config: TrainingConfig, assumptions: tuple[Assumption, ...], task: Task
) -> Settings:
    model: str = config.model
    if plan.num_layers == 0:
        model = "mlp"
    elif model == "own":
        # The guarantee is one for any model, so a built-in one stands for the user's.
        model = "gcn"
    # Rows that are attacked are made up and have no columns of numbers: boards and steps are left.
    plan = replace(plan, num_scaled=0, scaling_noise=0.0, has_target=False)
    return Settings(
        plan=plan, model=model, assumptions=assumptions, task=task, class_weights=config.class_weights
    )
