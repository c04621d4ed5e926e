"""The training loop: for every batch, charge, clipped sum, noise, update."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hushgraph._threads import use_one_pool
from hushgraph.accounting.events import Draw
from hushgraph.gradients import ghost
from hushgraph.gradients.clip import Clipping, group_of
from hushgraph.gradients.unclipped import gradient_sum
from hushgraph.models.device import multiply_exactly
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.checkpoint import Optimizer
from hushgraph.runs.config import TrainingConfig
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.interruption import PostponedInterrupt
from hushgraph.training.optimizers import move_weights
from hushgraph.training.parts import ClippedSum, charge_ledger

# Charging a little ahead keeps the disk out of fast steps; a kill loses at most this much work.
_CHARGED_AHEAD_SECONDS = 0.1

UnclippedSum = Callable[[nn.Module, Any], dict[str, Tensor]]
"""From a model and a piece of a batch to the sum of gradients, per parameter."""

Observer = Callable[[int, int, float, float | None], None]
"""Called with steps done, steps in all, epsilon so far and the last validation accuracy."""


class Batches(Protocol):
    """What the loop needs of batches, of trees or of rows."""

    @property
    def draw(self) -> Draw: ...

    @property
    def has_own_threads(self) -> bool: ...

    def iterate(self, first_step: int) -> Generator[Iterable[Any], None, None]: ...


@dataclass(eq=False)
class State:
    """What changes from step to step."""

    model: nn.Module
    optimizer: Optimizer
    average: dict[str, Tensor]
    step: int = 0


@dataclass(eq=False)
class Trainer:
    """Everything a step needs; `run` is the loop.

    Clipped sum, noise, ledger and batches are arguments, so that tests and the audit can replace each.

    Attributes:
        plan, config: of the run.
        state: model, optimiser, averaged weights and steps taken.
        batches: the batches, with their trees; of rows where training reads no edges.
        clipping: the clipping rule.
        ledger, noise: of the process that leads its group; None in the others, which neither charge nor draw
            noise.
        clipped_sum, unclipped_sum: how sums of gradients are computed, with privacy and without.
        sigmas: standard deviation of the noise per parameter.
        group: the processes that share the roots of a batch.
        charge: writes a charge to the ledger.
    """

    plan: PrivacyPlan
    config: TrainingConfig
    state: State
    batches: Batches
    clipping: Clipping
    ledger: Ledger | None
    noise: NoiseSource | None
    clipped_sum: ClippedSum = ghost.clipped_sum
    unclipped_sum: UnclippedSum = gradient_sum
    sigmas: dict[str, float] = field(default_factory=dict)
    group: Group = field(default_factory=Group)
    charge: Callable[..., None] = charge_ledger

    def __post_init__(self) -> None:
        for group in self.state.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.set_clipping(self.clipping)

    def set_clipping(self, clipping: Clipping) -> None:
        """Clip this way from now on; the noise follows the clipping."""
        self.clipping = clipping
        thresholds = clipping.thresholds
        per_layer = self.plan.noise == "per-layer" and thresholds is not None
        for name, _ in self.state.model.named_parameters():
            clip = thresholds[group_of(name)] if per_layer and thresholds else clipping.clip
            self.sigmas[name] = self.plan.sigma_over_clip * clip

    def run(self, after_step: Callable[[int], None], *, until: int | None = None) -> None:
        """Take the steps that are left, up to `until`, calling `after_step` with the number of steps done.

        KeyboardInterrupt from `after_step` stops the run once the steps that are charged have been taken.
        """
        state, end = self.state, self.plan.steps if until is None else until
        state.step = self.group.broadcast(lambda: require_leader(self.ledger).steps_charged)
        charged, seconds, interrupt = 0, math.inf, PostponedInterrupt()
        with (
            multiply_exactly(),
            use_one_pool(self.batches.has_own_threads),
            contextlib.closing(self.batches.iterate(state.step)) as batches,
        ):
            while state.step < end:
                begin = time.monotonic()
                batch = next(batches)
                if not charged:
                    charged = self.group.broadcast(partial(self._charge, end, seconds, interrupt))
                self.take_step(batch)
                charged, state.step = charged - 1, state.step + 1
                # A coarse clock may show no time at all.
                seconds = max(time.monotonic() - begin, 1e-3)
                with interrupt.postpone():
                    after_step(state.step)
        if end < self.plan.steps:
            self.group.broadcast(interrupt.check)

    def _charge(self, end: int, seconds: float, interrupt: PostponedInterrupt) -> int:
        """Charge the next steps, of `seconds` each, unless the run is to stop; return how many they are."""
        interrupt.check()
        count = min(end - self.state.step, max(1, int(_CHARGED_AHEAD_SECONDS / seconds)))
        charge = replace(self.plan.step_charge, draw=self.batches.draw)
        self.charge(require_leader(self.ledger), charge, step=self.state.step, count=count)
        return count

    def take_step(self, batch: Iterable[Any]) -> None:
        """Clipped sum over all processes, noise and update by the leader, its weights for everyone."""
        state, decay = self.state, self._schedule()
        sums = self.group.add_up(self._sum_gradients(batch))
        if self.noise is not None:
            if self.plan.is_private:
                sums = self.noise.add_noise(sums, self.sigmas)
            move_weights(state.model, state.average, state.optimizer, sums, self.plan.batch_size, decay=decay)
        self.group.follow([p.detach() for p in state.model.parameters()])

    def _schedule(self) -> float:
        """Set the learning rate of this step; return what the average of the weights keeps of itself."""
        state, config = self.state, self.config
        if config.schedule == "cosine":
            for group in state.optimizer.param_groups:
                group["lr"] = group["initial_lr"] * (1 + math.cos(math.pi * state.step / self.plan.steps)) / 2
        # A short memory at first, so that the average forgets where it began.
        return min(config.average, (1 + state.step) / (10 + state.step)) if config.average else 0.0

    def _sum_gradients(self, batch: Iterable[Any]) -> dict[str, Tensor]:
        model = self.state.model
        sums: dict[str, Tensor] = {}
        for piece in batch:
            part = (
                self.clipped_sum(model, piece, self.clipping)
                if self.plan.is_private
                else self.unclipped_sum(model, piece)
            )
            part = {name: value.double() for name, value in part.items()}
            sums = {name: sums[name] + value for name, value in part.items()} if sums else part
        # An empty batch is noise alone.
        return sums or {
            name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()
        }
