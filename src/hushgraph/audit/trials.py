"""Trials of one world: the training loop itself, over and over, with an attacker's optimiser.

This is the one place of the audit that constructs a `Trainer`. The loop, its batches, its noise and its
division are run for every trial. Clipped sums are computed by the real code once for every set of weights and
piece of a batch and then remembered: the schedule of weights is fixed, so they would come out the same each
time, and they are most of the cost.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numba
import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.audit.collaborators import (
    Collaborators,
    FloatNoise,
    Plant,
    make_exact_noise,
    plant_nothing,
)
from hushgraph.audit.statistics import Floats
from hushgraph.audit.weights import HIDDEN, Weights, new_model
from hushgraph.audit.witness import Witness, stack_parameters
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import Features, TreeBatch
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import Rows
from hushgraph.graph.graph import Graph
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.checkpoint import Optimizer
from hushgraph.runs.config import TrainingConfig
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.random import KEY_BITS, KeyedGenerator, RandomSource
from hushgraph.training.distributed import Group
from hushgraph.training.parts import ClippedSum
from hushgraph.training.trainer import Batches, State, Trainer
from hushgraph.training.tree_batches import MakeLists, TreeBatches, draw_lists

# Trials that share a step where every batch is whole.
_STACK = 1000
_REMEMBERED = 4096
NEVER = 1 << 60
# Nothing of training beyond the step itself.
CONSTANT = TrainingConfig(schedule="constant", average=0.0)

Observer = Callable[[int], None]


class FreeLedger:
    """A ledger for graphs that nobody has to protect."""

    def __init__(self, steps_charged: int = 0) -> None:
        self.steps_charged = steps_charged

    def charge(self, *_: Any, **__: Any) -> None:
        """Nothing is spent."""


class RecordSums:
    """Noise that adds nothing and keeps what it was given."""

    guarantee: Literal["none"] = "none"

    def __init__(self) -> None:
        self.sums: list[Weights] = []
        self.sigmas: dict[str, float] = {}

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        self.sums.append({name: value.clone() for name, value in sums.items()})
        self.sigmas = dict(sigmas)
        return dict(sums)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One of the two graphs, and how it is attacked.

    Attributes:
        graph: what is trained on.
        plan: with as many training nodes as `graph`.
        model: "gcn", "gin", "gat" or "mlp".
        key_seed: of the sampler's keys, which the attacker chooses.
        phases: settings of the weights; step t uses phase t modulo their number.
        plant: the fault, if any.
        remember: whether clipped sums that were computed are used again.
        secure: whether noise is exact, and batches come from the cryptographic generator.
        hidden: units of the model.
    """

    graph: Graph
    plan: PrivacyPlan
    model: str
    key_seed: int
    phases: list[Weights]
    plant: Plant = plant_nothing
    remember: bool = True
    secure: bool = True
    hidden: int = HIDDEN

    @property
    def roots(self) -> int:
        """How many training nodes have a label."""
        return int((self.graph.y[self.graph.train_idx] >= 0).sum())

    @property
    def stacks(self) -> bool:
        """Whether several trials share a step: where all have the same batch, and sums are remembered."""
        return self.remember and self.plan.sampling_rate == 1

    def sums(self, roots: np.ndarray | None = None) -> list[Weights]:
        """Per phase, the clipped sum over `roots`, all training nodes unless given, without noise."""
        return self._record(roots).sums

    def sigmas(self) -> dict[str, float]:
        """The standard deviations that the trainer asks for, by parameter."""
        return self._record(None).sigmas

    def released(
        self, directions: list[Weights], *, trials: int, seed: int | None, observer: Observer | None = None
    ) -> Floats:
        """float64 [trials, steps]: how far every released sum points along the direction of its phase."""
        size = min(_STACK, trials) if self.stacks else 1
        single = self.new_model()
        module = stack_parameters(single, size) if self.stacks else single
        witness = Witness(
            module,
            phases=self.phases,
            directions=directions,
            batch_size=self.plan.batch_size,
            follower=single,
        )
        clipped_sum = self.new_clipped_sum()
        if self.remember:
            clipped_sum = RememberedSums(
                single,
                phase=lambda: witness.phase,
                trials=size if self.stacks else None,
                clipped_sum=clipped_sum,
            )
        real = self.collaborators(seed, clipped_sum)
        rng = self.new_rng(seed)
        rows: list[np.ndarray] = []
        with quiet_process():
            while len(rows) * size < trials:
                witness.restart()
                # Planted anew for every run, so that a fault's memory never spans two trials.
                self.new_trainer(module, witness, self.plant(real), rng).run(lambda _: None)
                rows.append(torch.stack([seen.reshape(size) for seen in witness.seen], 1).numpy())
                if observer is not None:
                    observer(size)
        return np.concatenate(rows)[:trials]

    def new_model(self) -> nn.Module:
        return new_model(self.model, self.plan, hidden=self.hidden)

    def new_features(self) -> Features:
        """What a row contributes of itself."""
        return Features(self.graph)

    def new_clipped_sum(self) -> ClippedSum:
        """The clipped sum of training."""
        return ghost.clipped_sum

    def new_noise(self, seed: int | None) -> NoiseSource:
        """The noise of training: exact, or torch's."""
        return make_exact_noise(self.plan) if self.secure else FloatNoise(seed)

    def new_rng(self, seed: int | None) -> RandomSource:
        """The generator of batches."""
        if self.secure and seed is None:
            return KeyedGenerator(secrets.randbits(KEY_BITS))
        return np.random.default_rng(seed)

    def collaborators(self, seed: int | None, clipped_sum: ClippedSum | None = None) -> Collaborators:
        """The real ones, with keys of the attacker's choice."""
        lists = self._plan_lists()
        return Collaborators(
            clipped_sum=clipped_sum or self.new_clipped_sum(),
            noise=self.new_noise(seed),
            make_lists=lambda *_: lists,
        )

    def new_trainer(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        collaborators: Collaborators | None,
        rng: RandomSource,
    ) -> Trainer:
        """The trainer of this world; without collaborators it has none but the defaults, and no noise."""
        return Trainer(
            plan=self.plan,
            config=CONSTANT,
            state=State(module, optimizer, {n: p.detach().clone() for n, p in module.named_parameters()}),
            batches=self.new_batches(rng, None if collaborators is None else collaborators.make_lists),
            clipping=make_clipping(self.plan),
            ledger=FreeLedger(),
            noise=None if collaborators is None else collaborators.noise,
            clipped_sum=self.new_clipped_sum() if collaborators is None else collaborators.clipped_sum,
        )

    def new_batches(self, rng: RandomSource, make_lists: MakeLists | None) -> Batches:
        """The batches of training; `make_lists` draws lists with the attacker's keys."""
        return self._new_trees(rng, make_lists)

    def _new_trees(self, rng: RandomSource, make_lists: MakeLists | None) -> TreeBatches:
        return TreeBatches(
            graph=self.graph,
            features=self.new_features(),
            plan=self.plan,
            rng=rng,
            group=Group(),
            # Fresh lists would be the same lists: the attacker chose the keys.
            resample_every=NEVER,
            make_lists=make_lists or draw_lists,
        )

    def _plan_lists(self) -> BoundedLists:
        """The lists that training itself draws with the attacker's keys."""
        return self._new_trees(np.random.default_rng(0), None).sample_lists(self.key_seed)

    def _record(self, roots: np.ndarray | None) -> RecordSums:
        """Run the loop once through all phases, with whole batches and no fault, and keep its sums."""
        graph = self.graph if roots is None else _label_only(self.graph, roots)
        plan = replace(self.plan, batch_size=self.plan.num_train_nodes, steps=len(self.phases))
        world = replace(self, graph=graph, plan=plan)
        module, recorder = world.new_model(), RecordSums()
        still = [
            {name: torch.zeros_like(value, dtype=torch.float64) for name, value in w.items()}
            for w in self.phases
        ]
        witness = Witness(module, phases=self.phases, directions=still, batch_size=plan.batch_size)
        given = replace(world.collaborators(0), noise=recorder)
        with quiet_process():
            world.new_trainer(module, witness, given, np.random.default_rng(0)).run(lambda _: None)
        return recorder


def make_clipping(plan: PrivacyPlan) -> Clipping:
    """The clipping rule of the plan."""
    return Clipping(
        kind="groups" if plan.clipping == "percentile" else plan.clipping,
        clip=plan.clip,
        stability=CONSTANT.stability,
    )


def _label_only(graph: Graph, roots: np.ndarray) -> Graph:
    """The graph with the labels of these nodes alone: the trees of the others add nothing to a sum."""
    labels = np.full_like(graph.y, -1)
    labels[roots] = graph.y[roots]
    return replace(graph, y=labels)


@contextlib.contextmanager
def quiet_process() -> Iterator[None]:
    """One thread and kept memory: on tensors this small, threads only wait for each other."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


class RememberedSums:
    """The real clipped sum, computed once for every phase and piece.

    Args:
        model: whose gradients are summed, whichever model the trainer passes.
        phase: which weights `model` has; equal numbers mean equal weights.
        trials: how often a sum is repeated, for a stack of trials; None leaves it as it is.
        clipped_sum: the real one.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        phase: Callable[[], int] = lambda: 0,
        trials: int | None = None,
        clipped_sum: ClippedSum = ghost.clipped_sum,
    ) -> None:
        self._model, self._phase, self._trials = model, phase, trials
        self._clipped_sum = clipped_sum
        self._sums: dict[tuple[int, bytes], Weights] = {}

    def __call__(self, model: nn.Module, piece: Any, clipping: Clipping, /) -> Weights:
        key = (self._phase(), _content(piece))
        if key not in self._sums:
            if len(self._sums) >= _REMEMBERED:
                self._sums.clear()
            sums = self._clipped_sum(self._model, piece, clipping)
            if self._trials is not None:
                sums = {name: value.expand(self._trials, *value.shape) for name, value in sums.items()}
            self._sums[key] = sums
        return self._sums[key]


def _content(piece: TreeBatch | Rows) -> bytes:
    """Everything that a clipped sum is computed from; pieces of equal content have equal sums."""
    if isinstance(piece, Rows):
        sparse = piece.features
        parts = (piece.dense, piece.labels, sparse.indptr, sparse.indices, sparse.values)
        return b"|".join(part.tobytes() for part in parts)
    x = piece.x
    inputs = [x] if isinstance(x, Tensor) else [x.indptr, x.indices, x.values]
    tensors = [*inputs, piece.labels, *piece.pointers]
    for block in piece.blocks:
        tensors.append(block.indptr)
        if block.index is not None:
            tensors.append(block.index)
    return b"|".join(tensor.numpy().tobytes() for tensor in tensors)
