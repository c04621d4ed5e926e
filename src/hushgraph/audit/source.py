"""Which plan to audit: that of a run, or the one `train` would use on some data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hushgraph.privacy.guarantee import Assumption, find_assumptions
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.release import ABOUT
from hushgraph.tasks.task import Task
from hushgraph.training.prepare import prepare


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an audit takes from a run: its plan, model, task, weights and what its guarantee assumes.

    The model is "billboard" where the plan has boards.
    """

    plan: PrivacyPlan
    model: str
    assumptions: tuple[Assumption, ...] = ()
    task: Task | None = None
    class_weights: tuple[float, ...] | None = None


def is_run(path: Any) -> bool:
    """Whether there is the folder of a run, or of what was published of one."""
    return any((Path(path) / name).is_file() for name in ("run.json", ABOUT))


def settings_of_run(path: Any) -> Settings:
    """Those of a run, finished or not."""
    folder = RunFolder.open(path)
    return _settings(folder.plan, folder.config, folder.assumptions, folder.asked)


def settings_for(data: Any, **arguments: Any) -> Settings:
    """Those that `train` would use on this data; nothing is trained and nothing is kept.

    Args:
        data: as `train` takes it. Its rows are read to be checked; the audit sees how many training nodes and
            classes there are, which are public.
        arguments: of `train`.
    """
    prepared = prepare(data, **arguments)
    return _settings(prepared.plan, prepared.config, find_assumptions(prepared.graph), prepared.graph.task)


def _settings(
    plan: PrivacyPlan, config: TrainingConfig, assumptions: tuple[Assumption, ...], task: Task
) -> Settings:
    model: str = config.model
    if isinstance(plan, BillboardPlan):
        model = "billboard"
    elif plan.num_layers == 0:
        model = "mlp"
    elif model == "own":
        # The guarantee is one for any model, so a built-in one stands for the user's.
        model = "gcn"
    # Rows that are attacked are made up and have no columns of numbers: boards and steps are left.
    plan = replace(plan, num_scaled=0, scaling_noise=0.0, has_target=False)
    return Settings(
        plan=plan, model=model, assumptions=assumptions, task=task, class_weights=config.class_weights
    )
