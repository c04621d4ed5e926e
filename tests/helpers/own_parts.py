"""Runs of the real session with parts of a test's own, and with noise that can be drawn again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hushgraph.noise import normal
from hushgraph.noise.normal import seeded_keys
from hushgraph.runs.folder import RunFolder
from hushgraph.settings import RunSettings, Settings, complete
from hushgraph.training.distributed import Group
from hushgraph.training.memory import Memory
from hushgraph.training.parts import Parts, make_noise
from hushgraph.training.prepare import prepare
from hushgraph.training.run import Run
from hushgraph.training.running import run_session
from hushgraph.training.session import Learner


def train_with(
    parts: Parts,
    data: Any,
    out: Path,
    *,
    is_fixed: bool = False,
    num_boards: int | None = None,
    **settings: Any,
) -> Run:
    """What `hushgraph.train` does, with these parts, on the CPU.

    Args:
        parts: the collaborators of the session.
        data: as in `train`.
        out: the folder of the run.
        is_fixed: whether initial weights and batches are the same in every call. The run has no seed, so
            that it is released as any other is.
        num_boards: of the plan; chosen by its public numbers unless given.
        settings: of the run.
    """
    full = complete(settings, kind=RunSettings)
    graph, plan, config = prepare(data, **{name: full[name] for name in Settings.__annotations__})
    if num_boards is not None:
        bare = replace(
            plan.with_evaluation(0),
            num_boards=num_boards,
            board_noise=(),
            sigma_over_clip=0.0,  # type: ignore[call-arg]
        )
        plan = bare.calibrated(epsilon=full["epsilon"]).with_evaluation(plan.num_tables)
    folder = RunFolder.describe(out, graph, plan, config, data="/home/somebody/people.csv")
    source = Memory(folder, graph, device=torch.device("cpu"), parts=parts)
    common: dict[str, Any] = {"group": Group(), "parts": parts}
    learner = Learner.build(folder, source, resumed=False, **common)
    if is_fixed:
        state = learner.state
        state.model.load_state_dict(folder.build_model(seed=1).state_dict())
        for name, parameter in state.model.named_parameters():
            state.average[name].copy_(parameter.detach())
        learner = replace(learner, key=5)
    return run_session(folder, source, learner, folder.start, progress=False, **common)


def fix_noise() -> Parts:
    """Parts whose noise is the same in every run that gets a new one of these."""
    return Parts(
        board_draws=lambda _, place: partial(normal.draw, keys=seeded_keys(f"board {place} of a test")),
        make_noise=lambda plan, **given: make_noise(plan, **{**given, "seed": 7}),
        scaling_draws=lambda _: partial(normal.draw, keys=seeded_keys("scaling of a test")),
        table_draws=lambda: partial(normal.draw, keys=seeded_keys("tables of a test")),
    )
