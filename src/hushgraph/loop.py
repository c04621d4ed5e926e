"""The training loop."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.accounting.events import StepEvent
from hushgraph.accounting.ledger import Ledger
from hushgraph.config import TrainingConfig
from hushgraph.distributed import Group, of_leader
from hushgraph.gradients import ghost, plain
from hushgraph.gradients.batch import Features, TreeBatch, tree_batch
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.noise import NoiseSource, noise_generator, noisy
from hushgraph.graph import Graph
from hushgraph.plan import PrivacyPlan
from hushgraph.sampling.batches import FixedSizeBatches, PoissonBatches
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.paper import paper_lists
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow, tree_sizes

# Tree rows of one piece of a batch: bounds memory whatever the batch.
PIECE_ROWS = {"cpu": 1 << 18, "cuda": 1 << 22}
# What float32 loses of a sum grows faster than the roots in it. Secure noise has to make up for that loss, so
# its sums are of so many roots at most, added up in float64.
SECURE_ROOTS = 8192
# Paying for a little work at once keeps the disk out of fast steps; at most this much is lost by a kill.
_PAID_AHEAD_SECONDS = 0.1

# Lists, and the trees of all roots where every batch has them all.
_Drawn: TypeAlias = tuple[BoundedLists, list[TreeBatch] | None]
_Batches: TypeAlias = Generator[Iterable[TreeBatch], None, None]


class ClippedSum(Protocol):
    """The sum of clipped gradients over the roots of one piece of a batch, by parameter."""

    def __call__(self, model: nn.Module, piece: TreeBatch, clipping: Clipping, /) -> dict[str, Tensor]: ...


@runtime_checkable
class AddsNoise(Protocol):
    """Adds noise of the given standard deviations to clipped sums, by parameter."""

    def add(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]: ...


@dataclass(eq=False)
class State:
    """What changes from step to step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: dict[str, Tensor]
    step: int = 0


@dataclass(eq=False)
class Trainer:
    """Everything a step needs; `run` is the loop.

    Attributes:
        ledger, noise: of the process that leads its group; None in the others, which neither pay nor draw
            noise.
        rng: of batches and keys, the same in every process. Noise has a generator of its own.
        sigmas: standard deviation of the noise per parameter.
        group: the processes that share the roots of a batch.
        clipped_sum: computes the clipped sum of one piece of a batch.
        make_lists: draws bounded lists from a seed; by default those of the plan's sampler.
    """

    graph: Graph
    plan: PrivacyPlan
    config: TrainingConfig
    state: State
    ledger: Ledger | None
    depth: int
    clipping: Clipping
    rng: np.random.Generator
    noise: NoiseSource | AddsNoise | None
    features: Features
    sigmas: dict[str, float] = field(default_factory=dict)
    group: Group = field(default_factory=Group)
    clipped_sum: ClippedSum = ghost.clipped_sum
    make_lists: Callable[[int], BoundedLists] | None = None

    def __post_init__(self) -> None:
        for group in self.state.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.use(self.clipping)

    def use(self, clipping: Clipping) -> None:
        """Clip this way from now on; the noise follows the clipping."""
        self.clipping = clipping
        thresholds = clipping.thresholds
        per_layer = self.plan.noise == "per-layer" and thresholds is not None
        for name, _ in self.state.model.named_parameters():
            clip = thresholds[group_of(name)] if per_layer and thresholds else clipping.clip
            self.sigmas[name] = self.plan.sigma_over_clip * clip

    def run(self, after_step: Callable[[int], None]) -> None:
        """Take every step that is left to pay for, calling `after_step` with the number of steps done.

        KeyboardInterrupt from `after_step` stops the run once the steps that are paid for have been taken.
        """
        plan, state = self.plan, self.state
        batches = self._batches()
        event = replace(plan.step_event, draw=batches.draws)
        state.step = self.group.decided(lambda: of_leader(self.ledger).steps_charged)
        paid, seconds = 0, math.inf
        interrupt: KeyboardInterrupt | None = None
        with contextlib.closing(self._upcoming(batches)) as upcoming:
            while state.step < plan.steps:
                begin = time.monotonic()
                pieces = next(upcoming)
                if not paid:
                    paid = self.group.decided(partial(self._pay, event, seconds, interrupt))
                self.step(pieces)
                paid, state.step = paid - 1, state.step + 1
                # A coarse clock may show no time at all.
                seconds = max(time.monotonic() - begin, 1e-3)
                try:
                    after_step(state.step)
                except KeyboardInterrupt as error:
                    interrupt = error

    def _pay(self, event: StepEvent, seconds: float, interrupt: KeyboardInterrupt | None) -> int:
        """Pay for the next steps, each of so many seconds, unless the run is to stop; how many they are."""
        if interrupt is not None:
            raise interrupt
        left = self.plan.steps - self.state.step
        count = min(left, max(1, int(_PAID_AHEAD_SECONDS / seconds)))
        of_leader(self.ledger).charge(event, step=self.state.step, count=count)
        return count

    def _upcoming(self, batches: PoissonBatches | FixedSizeBatches) -> _Batches:
        """The batches of the steps to come; on a GPU one is prepared while the last is used."""
        made = self._made(batches)
        if self.features.device.type == "cpu":
            yield from made
            return
        with contextlib.closing(made), ThreadPoolExecutor(1) as worker:
            following = worker.submit(lambda: list(next(made)))
            while True:
                pieces = following.result()
                following = worker.submit(lambda: list(next(made)))
                yield pieces

    def _made(self, batches: PoissonBatches | FixedSizeBatches) -> _Batches:
        """The batches, without end; on a GPU the next lists are drawn while the last are in use."""
        train_idx, fresh = self.graph.train_idx, self.config.resample_every
        first, ahead = self.state.step, self.features.device.type != "cpu"
        following: Future[_Drawn] | None = None
        with ThreadPoolExecutor(1) as worker:
            for step in itertools.count(first):
                if step == first or step % fresh == 0:
                    drawn = self._drawn(self._new_seed()) if following is None else following.result()
                    if ahead and step - step % fresh + fresh < self.plan.steps:
                        following = worker.submit(self._drawn, self._new_seed())
                lists, whole = drawn
                if whole is None:
                    # One draw over all roots, the same in every process; only then is it shared out.
                    mine = self.group.share(train_idx[batches.draw()])
                    yield self._pieces(lists, self._labelled(mine))
                else:
                    yield whole

    def _drawn(self, seed: int) -> _Drawn:
        lists = self.new_lists(seed)
        # All roots in every batch: its trees serve until the lists change.
        every_root = self.plan.sampling_rate == 1
        mine = self.group.share(self.graph.train_idx)
        return lists, list(self._pieces(lists, self._labelled(mine))) if every_root else None

    def _labelled(self, roots: np.ndarray) -> np.ndarray:
        """Those that have a label: the others give nothing, and so leave no trace in how sums are rounded."""
        labelled: np.ndarray = roots[self.graph.y[roots] >= 0]
        return labelled

    def _new_seed(self) -> int:
        return int(self.rng.integers(2**63))

    def step(self, pieces: Iterable[TreeBatch]) -> None:
        """Clipped sum over all processes, the update by the one that leads, its weights for everyone."""
        model = self.state.model
        sums: dict[str, Tensor] = {}
        for piece in pieces:
            part = (
                self.clipped_sum(model, piece, self.clipping)
                if self.plan.is_private
                else plain.gradient_sum(model, piece)
            )
            if self.config.secure_noise:
                part = {name: value.double() for name, value in part.items()}
            sums = {name: sums[name] + value for name, value in part.items()} if sums else part
        # An empty batch is noise alone.
        dtype = torch.float64 if self.config.secure_noise else None
        sums = sums or {name: torch.zeros_like(p, dtype=dtype) for name, p in model.named_parameters()}
        sums = self.group.summed(sums)
        if self.noise is not None:
            self._update(sums, self.noise)
        self.group.follow([p.detach() for p in model.parameters()])

    def _update(self, sums: dict[str, Tensor], noise: NoiseSource | AddsNoise) -> None:
        """Noise once, division by the expected batch size, update, moving average."""
        model, config = self.state.model, self.config
        if self.plan.is_private:
            if isinstance(noise, AddsNoise):
                sums = noise.add(sums, self.sigmas)
            else:
                sums = noisy(sums, self.sigmas, noise)
        for name, parameter in model.named_parameters():
            parameter.grad = (sums[name] / self.plan.batch_size).to(parameter.dtype)
        if config.schedule == "cosine":
            for group in self.state.optimizer.param_groups:
                group["lr"] = (
                    group["initial_lr"] * (1 + math.cos(math.pi * self.state.step / self.plan.steps)) / 2
                )
        self.state.optimizer.step()
        # A short memory at first, so that the average forgets where it began.
        decay = min(config.average, (1 + self.state.step) / (10 + self.state.step)) if config.average else 0.0
        for name, parameter in model.named_parameters():
            self.state.average[name].lerp_(parameter.detach(), 1 - decay)

    def new_lists(self, seed: int) -> BoundedLists:
        """Bounded lists with the keys of `seed`."""
        plan, graph = self.plan, self.graph
        if self.make_lists is not None:
            return self.make_lists(seed)
        if plan.sampler == "paper":
            return paper_lists(
                graph,
                num_nodes=graph.num_nodes,
                train_mask=graph.train_mask,
                max_readers=plan.max_readers,
                seed=seed,
            )
        return stable_lists(
            graph,
            num_nodes=graph.num_nodes,
            train_mask=graph.train_mask,
            max_readers=plan.max_readers,
            max_reads=plan.max_reads,
            edge_owner=plan.edge_owner,  # type: ignore[arg-type]
            seed=seed,
        )

    def _batches(self) -> PoissonBatches | FixedSizeBatches:
        slots = self.plan.num_train_nodes
        if self.plan.batches == "poisson":
            return PoissonBatches(num_slots=slots, rate=self.plan.sampling_rate, rng=self.rng)
        return FixedSizeBatches(num_slots=slots, size=self.plan.batch_size, rng=self.rng)

    def _pieces(self, lists: BoundedLists, roots: np.ndarray) -> Iterator[TreeBatch]:
        """The batch cut into pieces of at most so many tree rows, one root at least."""
        ends = np.cumsum(tree_sizes(lists, self.depth, roots))
        limit = PIECE_ROWS[self.features.device.type]
        most_roots = SECURE_ROOTS if self.config.secure_noise else len(roots)
        begin = 0
        while begin < len(roots):
            done = ends[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + limit, side="right")))
            end = min(end, begin + most_roots)
            yield tree_batch(grow(lists, roots[begin:end], self.depth), self.features, self.graph.y)
            begin = end


def percentile_clipping(trainer: Trainer, percentile: float = 75.0) -> Clipping:
    """The paper's thresholds: a percentile of each group's norms at initialisation. Reads private data."""
    norms = torch.cat(
        [
            ghost.group_norms(trainer.state.model, p)
            for p in trainer._pieces(trainer.new_lists(trainer._new_seed()), trainer.graph.train_idx)
        ],
        dim=1,
    )
    found = [float(np.percentile(norms[group].cpu().numpy(), percentile)) for group in range(len(GROUPS))]
    # A group without parameters has norm zero everywhere; any threshold serves it.
    return Clipping.of_groups(tuple(max(value, 1e-12) for value in found))  # type: ignore[arg-type]


def new_noise(device: torch.device, seed: int | None) -> torch.Generator:
    """The noise generator of a run; apart from every other stream of the same seed."""
    return noise_generator(device, None if seed is None else seed ^ 0x6E6F697365)
