"""The training loop: for every batch, charge, clipped sum, noise, update."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.accounting.events import Draw, StepEvent
from hushgraph.gradients import ghost
from hushgraph.gradients.chain import find_chain
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.recorded import RecordedTreeSums
from hushgraph.gradients.rows import RowSums
from hushgraph.gradients.rows_torch import RecordedRowSums
from hushgraph.gradients.unclipped import gradient_sum
from hushgraph.models.device import use_one_pool
from hushgraph.models.recording import choose_room
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import Optimizer
from hushgraph.sampling.trees import bound_tree_size
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.optimizers import Adam
from hushgraph.training.tree_batches import TreeBatches
from hushgraph.training.update import RecordedUpdate

# Charging a little ahead keeps the disk out of fast steps; a kill loses at most this much work.
_CHARGED_AHEAD_SECONDS = 0.1

ClippedSum = Callable[[nn.Module, Any, Clipping], dict[str, Tensor]]
"""From a model, a piece of a batch and a clipping rule to the clipped sum, per parameter."""
UnclippedSum = Callable[[nn.Module, Any], dict[str, Tensor]]
"""From a model and a piece of a batch to the sum of gradients, per parameter."""


class Batches(Protocol):
    """What the loop needs of batches, of trees or of rows."""

    @property
    def draw(self) -> Draw: ...

    @property
    def has_own_threads(self) -> bool: ...

    def iterate(self, first_step: int) -> Generator[Iterable[Any], None, None]: ...


class StepLedger(Protocol):
    """What the loop needs of a ledger."""

    @property
    def steps_charged(self) -> int: ...

    def charge(self, event: StepEvent, *, step: int | None = None, count: int = 1) -> None: ...


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
    """

    plan: PrivacyPlan
    config: TrainingConfig
    state: State
    batches: Batches
    clipping: Clipping
    ledger: StepLedger | None
    noise: NoiseSource | None
    clipped_sum: ClippedSum = ghost.clipped_sum
    unclipped_sum: UnclippedSum = gradient_sum
    sigmas: dict[str, float] = field(default_factory=dict)
    group: Group = field(default_factory=Group)
    _recorded_update: RecordedUpdate | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for group in self.state.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.set_clipping(self.clipping)
        parameters, optimizer = dict(self.state.model.named_parameters()), self.state.optimizer
        if isinstance(optimizer, Adam) and all(parameter.is_cuda for parameter in parameters.values()):
            average = self.state.average
            self._recorded_update = RecordedUpdate(parameters, average, optimizer, self.plan.batch_size)

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
        state = self.state
        event = replace(self.plan.step_event, draw=self.batches.draw)
        state.step = self.group.broadcast(lambda: require_leader(self.ledger).steps_charged)
        end = self.plan.steps if until is None else until
        charged, seconds = 0, math.inf
        interrupt: KeyboardInterrupt | None = None
        with (
            use_one_pool(self.batches.has_own_threads),
            contextlib.closing(self.batches.iterate(state.step)) as batches,
        ):
            while state.step < end:
                begin = time.monotonic()
                batch = next(batches)
                if not charged:
                    charged = self.group.broadcast(partial(self._charge, event, end, seconds, interrupt))
                self.take_step(batch)
                charged, state.step = charged - 1, state.step + 1
                # A coarse clock may show no time at all.
                seconds = max(time.monotonic() - begin, 1e-3)
                try:
                    after_step(state.step)
                except KeyboardInterrupt as error:
                    interrupt = error
        if interrupt is not None and end < self.plan.steps:
            raise interrupt

    def _charge(self, event: StepEvent, end: int, seconds: float, interrupt: KeyboardInterrupt | None) -> int:
        """Charge the next steps, of `seconds` each, unless the run is to stop; return how many they are."""
        if interrupt is not None:
            raise interrupt
        count = min(end - self.state.step, max(1, int(_CHARGED_AHEAD_SECONDS / seconds)))
        require_leader(self.ledger).charge(event, step=self.state.step, count=count)
        return count

    def take_step(self, batch: Iterable[Any]) -> None:
        """Clipped sum over all processes, noise and update by the leader, its weights for everyone."""
        sums = self.group.add_up(self._sum_gradients(batch))
        if self.noise is not None:
            if self.plan.is_private:
                sums = self.noise.add_noise(sums, self.sigmas)
            self._update(sums)
        if self.group.size > 1:
            self.group.follow([p.detach() for p in self.state.model.parameters()])

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

    def _update(self, sums: dict[str, Tensor]) -> None:
        """Divide by the expected batch size, step the optimiser, move the average of the weights."""
        state, config = self.state, self.config
        if config.schedule == "cosine":
            for group in state.optimizer.param_groups:
                group["lr"] = group["initial_lr"] * (1 + math.cos(math.pi * state.step / self.plan.steps)) / 2
        # A short memory at first, so that the average forgets where it began.
        decay = min(config.average, (1 + state.step) / (10 + state.step)) if config.average else 0.0
        if self._recorded_update is not None:
            self._recorded_update.apply(sums, decay)
            return
        parameters = dict(state.model.named_parameters())
        means = torch._foreach_div([sums[name] for name in parameters], float(self.plan.batch_size))
        for parameter, mean in zip(parameters.values(), means, strict=True):
            parameter.grad = mean.to(parameter.dtype)
        state.optimizer.step()
        weights = {name: parameter.detach() for name, parameter in state.model.named_parameters()}
        torch._foreach_lerp_([state.average[name] for name in weights], list(weights.values()), 1 - decay)


def takes_rows(plan: PrivacyPlan, model: nn.Module) -> bool:
    """Whether steps are taken on rows and not on trees; follows from plan and model, never from the data."""
    chain = None if plan.reads_edges or plan.clipping == "percentile" else find_chain(model)
    return chain is not None and chain.is_float32


def choose_row_sums(device: torch.device) -> RowSums | RecordedRowSums:
    """The clipped sums of rows that suit the device."""
    return RowSums() if device.type == "cpu" else RecordedRowSums(device)


def choose_tree_sums(plan: PrivacyPlan, num_nodes: int, device: torch.device) -> ClippedSum:
    """The clipped sums of trees that suit the device."""
    if device.type != "cuda":
        return ghost.clipped_sum
    largest = bound_tree_size(plan.max_readers, plan.max_reads, plan.num_layers, num_nodes)
    room = None if plan.sampling_rate == 1 else 1 + choose_room(plan.batch_size, plan.num_train_nodes)
    return RecordedTreeSums(largest_tree=largest, room=room)


def choose_percentile_clipping(trainer: Trainer, percentile: float = 75.0) -> Clipping:
    """The paper's thresholds: a percentile of each group's norms at initialisation. Reads private data."""
    batches = trainer.batches
    if not isinstance(batches, TreeBatches):
        raise TypeError(f"{type(batches).__name__}: expected batches of trees")
    pieces = batches.cut_pieces(batches.sample_lists(), batches.graph.train_idx)
    norms = torch.cat([ghost.group_norms(trainer.state.model, piece) for piece in pieces], dim=1)
    # A group without parameters has norm zero everywhere; any threshold serves it.
    encoder, aggregation, decoder = (
        max(float(np.percentile(norms[group].cpu().numpy(), percentile)), 1e-12)
        for group in range(len(GROUPS))
    )
    return Clipping.of_groups((encoder, aggregation, decoder))
