"""The training loop: for every batch, charge, clipped sum, noise, update; and what happens between steps."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.accounting.events import Draw
from hushgraph.errors import RunError
from hushgraph.gradients import ghost
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.recorded import RecordedTreeSums
from hushgraph.gradients.rows import RowSums, find_chain
from hushgraph.gradients.rows_torch import RecordedRowSums
from hushgraph.gradients.unclipped import gradient_sum
from hushgraph.inference.in_memory import WholeGraph, best_classes, measure_accuracy
from hushgraph.models.device import keep_freed_memory, use_one_pool
from hushgraph.models.recording import choose_room
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.charges import Charge
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import Optimizer, Progress, RunFolder
from hushgraph.sampling.random import KeyedGenerator
from hushgraph.sampling.trees import bound_tree_size
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.optimizers import move_weights
from hushgraph.training.parts import ChargingLedger, ClippedSum, Parts, PayCharge, charge_ledger
from hushgraph.training.row_batches import RowBatches
from hushgraph.training.tree_batches import TreeBatches

# Charging a little ahead keeps the disk out of fast steps; a kill loses at most this much work.
_CHARGED_AHEAD_SECONDS = 0.1
CHECKPOINT_SECONDS = 5.0
# Pricing takes a twentieth of a second or so: often enough for a progress bar, too long for every step.
_PRICES_PER_RUN = 20

UnclippedSum = Callable[[nn.Module, Any], dict[str, Tensor]]
"""From a model and a piece of a batch to the sum of gradients, per parameter."""

Observer = Callable[[int, int, float, float | None], None]
"""Called with steps done, steps in all, epsilon so far and the last validation accuracy."""
_Value = TypeVar("_Value")


class Batches(Protocol):
    """What the loop needs of batches, of trees or of rows."""

    @property
    def draw(self) -> Draw: ...

    @property
    def has_own_threads(self) -> bool: ...

    def iterate(self, first_step: int) -> Generator[Iterable[Any], None, None]: ...


class StepLedger(ChargingLedger, Protocol):
    """What the loop needs of a ledger."""

    @property
    def steps_charged(self) -> int: ...


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
    ledger: StepLedger | None
    noise: NoiseSource | None
    clipped_sum: ClippedSum = ghost.clipped_sum
    unclipped_sum: UnclippedSum = gradient_sum
    sigmas: dict[str, float] = field(default_factory=dict)
    group: Group = field(default_factory=Group)
    charge: PayCharge = charge_ledger

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
        state = self.state
        charge = replace(self.plan.step_charge, draw=self.batches.draw)
        state.step = self.by_leader(lambda ledger: ledger.steps_charged)
        end = self.plan.steps if until is None else until
        charged, seconds = 0, math.inf
        interrupt: KeyboardInterrupt | None = None
        with (
            keep_freed_memory(),
            use_one_pool(self.batches.has_own_threads),
            contextlib.closing(self.batches.iterate(state.step)) as batches,
        ):
            while state.step < end:
                begin = time.monotonic()
                batch = next(batches)
                if not charged:
                    charged = self.by_leader(partial(self._charge, charge, end, seconds, interrupt))
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

    def by_leader(self, make: Callable[[StepLedger], _Value]) -> _Value:
        """Call `make` in the process that leads, which has the ledger; every process gets the value."""
        if self.ledger is not None and self.group.size == 1:
            return make(self.ledger)
        return self.group.broadcast(lambda: make(require_leader(self.ledger)))

    def _charge(
        self,
        charge: Charge,
        end: int,
        seconds: float,
        interrupt: KeyboardInterrupt | None,
        ledger: StepLedger,
    ) -> int:
        """Charge the next steps, of `seconds` each, unless the run is to stop; return how many they are."""
        if interrupt is not None:
            raise interrupt
        count = min(end - self.state.step, max(1, int(_CHARGED_AHEAD_SECONDS / seconds)))
        self.charge(ledger, charge, step=self.state.step, count=count)
        return count

    def take_step(self, batch: Iterable[Any]) -> None:
        """Clipped sum over all processes, noise and update by the leader, its weights for everyone."""
        state, decay = self.state, self._schedule()
        sums = self._sum_gradients(batch)
        if self.group.size > 1:
            sums = self.group.add_up(sums)
        if self.noise is not None:
            if self.plan.is_private:
                sums = self.noise.add_noise(sums, self.sigmas)
            move_weights(state.model, state.average, state.optimizer, sums, self.plan.batch_size, decay=decay)
        if self.group.size > 1:
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


@dataclass(eq=False)
class Watch:
    """Between steps: looks at the validation split, keeps checkpoints, tells the observer.

    A process that does not lead has no ledger and does nothing between steps.

    Attributes:
        view: the graph, ready for inference.
        epsilon: the price of the first `priced` steps: never less than what has been charged.
    """

    trainer: Trainer
    ledger: Ledger | None
    folder: RunFolder
    view: WholeGraph
    observer: Observer | None
    steps_lost: int
    begin: float
    accuracy: float | None = None
    epsilon: float = 0.0
    priced: int = 0
    saved_at: float = field(default_factory=time.monotonic)

    def take_steps(self, end: int) -> None:
        """Take the steps up to `end`; a checkpoint is kept of them, also where they end early."""
        try:
            self.trainer.run(self.after_step, until=end)
        except BaseException:
            # Ctrl-C included: whatever was learnt since the last checkpoint is worth keeping.
            with contextlib.suppress(RunError):
                self.checkpoint()
            raise
        self.trainer.by_leader(lambda _: self.checkpoint())

    def after_step(self, done: int) -> None:
        """Called by the loop with the number of steps done."""
        if self.ledger is None:
            return
        plan, every = self.trainer.plan, self.trainer.config.evaluate_every
        if self.ledger.steps_charged > self.priced:
            self.priced = self._end_of_window(self.ledger.steps_charged)
            self.epsilon = plan.epsilon_after(self.priced)
        if done % every == 0 and done < plan.steps:
            self._evaluate()
            # These weights have seen the steps taken; what is charged ahead comes later.
            self.folder.append_metrics(
                step=done,
                epsilon=plan.epsilon_after(self._end_of_window(done)),
                val_accuracy=self.accuracy,
                seconds=time.monotonic() - self.begin,
            )
        if self.observer is not None:
            self.observer(done, plan.steps, self.epsilon, self.accuracy)
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.checkpoint()

    def _end_of_window(self, step: int) -> int:
        plan = self.trainer.plan
        window = max(self.trainer.config.evaluate_every, plan.steps // _PRICES_PER_RUN)
        return min(plan.steps, math.ceil(step / window) * window)

    def checkpoint(self) -> None:
        """Write what a resumed run goes on from; in the process that leads."""
        if self.ledger is None:
            return
        state = self.trainer.state
        progress = Progress(state.step, self.steps_lost, round(time.monotonic() - self.begin, 3))
        self.folder.save_checkpoint(state.model, state.average, state.optimizer.state_dict(), progress)
        self.saved_at = time.monotonic()

    def _evaluate(self) -> None:
        """Measure the accuracy of the averaged weights on the validation split."""
        graph, state = self.view.graph, self.trainer.state
        if not len(graph.val_idx):
            return
        current = {name: p.detach().clone() for name, p in state.model.named_parameters()}
        try:
            state.model.load_state_dict(state.average, strict=False)
            depth = self.trainer.plan.num_layers
            best = best_classes(state.model, self.view, graph.val_idx, depth=depth)
        finally:
            state.model.load_state_dict(current, strict=False)
        self.accuracy = measure_accuracy(best, graph, graph.val_idx)


@contextlib.contextmanager
def delay_interrupts() -> Iterator[Callable[[], None]]:
    """Give what to call between steps, within this context: Ctrl-C then lets a step end.

    From the first call on, Ctrl-C only makes a note, and the next call raises KeyboardInterrupt. A second
    Ctrl-C interrupts at once, as ever. Outside the main thread, where signals cannot be handled, nothing
    happens.
    """
    before: Any = None
    is_requested = False

    def note_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal before, is_requested
        is_requested = True
        # None where it comes before `check` has noted what to restore.
        if before is not None:
            signal.signal(signal.SIGINT, before)
            before = None

    def check() -> None:
        nonlocal before
        if is_requested:
            raise KeyboardInterrupt
        if before is None and threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGINT, note_interrupt)

    try:
        yield check
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def build_trainer(
    plan: PrivacyPlan,
    config: TrainingConfig,
    state: State,
    view: WholeGraph,
    *,
    key: int,
    ledger: StepLedger | None,
    noise: NoiseSource | None,
    group: Group,
    parts: Parts | None = None,
) -> Trainer:
    """The loop of a run; how its sums are computed follows from plan, model and device, never from the data.

    Args:
        plan, config, state, ledger, noise, group: as in `Trainer`.
        view: the graph, and what roots see of it.
        key: of the batches, the same in every process.
        parts: lists, clipped sum and charges; an audit replaces some.
    """
    parts = parts or Parts()
    device = view.features.device
    if device.type == "cuda":
        # Norms and sums must be as exact as the bound assumes.
        torch.backends.cuda.matmul.allow_tf32 = False
    on_rows = takes_rows(plan, state.model)
    if on_rows:
        row_sums = RowSums(state.model) if device.type == "cpu" else RecordedRowSums(device)
        sums: dict[str, Any] = {"clipped_sum": row_sums, "unclipped_sum": row_sums}
    else:
        sums = {"clipped_sum": choose_tree_sums(plan, view.graph.num_nodes, device)}
    sums["clipped_sum"] = parts.adapt_sum(sums["clipped_sum"])
    clipping = (
        Clipping(kind="groups", clip=plan.clip)
        if plan.clipping == "percentile"
        else Clipping(kind=plan.clipping, clip=plan.clip, stability=config.stability)
    )
    common: dict[str, Any] = {
        "graph": view.graph,
        "features": view.features,
        "plan": plan,
        "rng": KeyedGenerator(key),
        "group": group,
    }
    batches: Batches = (
        RowBatches(**common, feature_norm=getattr(state.model, "feature_norm", 0.0))
        if on_rows
        else TreeBatches(**common, resample_every=config.resample_every, make_lists=parts.make_lists)
    )
    trainer = Trainer(
        plan=plan,
        config=config,
        state=state,
        batches=batches,
        clipping=clipping,
        ledger=ledger,
        noise=noise,
        group=group,
        charge=parts.charge,
        **sums,
    )
    if plan.clipping == "percentile":
        thresholds = choose_percentile_clipping(trainer).thresholds
        encoder, aggregation, decoder = group.broadcast(lambda: require_leader(thresholds))
        trainer.set_clipping(Clipping.of_groups((encoder, aggregation, decoder)))
    return trainer


def takes_rows(plan: PrivacyPlan, model: nn.Module) -> bool:
    """Whether steps are taken on rows and not on trees; follows from plan and model, never from the data."""
    chain = None if plan.reads_edges or plan.clipping == "percentile" else find_chain(model)
    return chain is not None and chain.is_float32


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
