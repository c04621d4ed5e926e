"""Trials of one world: the training loop itself, over and over, with an attacker's optimiser.

The loop, its batches, its noise and its division are run for every trial. Clipped sums are computed by
`gradients.ghost` once for every set of weights and roots and then remembered: the schedule of weights is
fixed, so they would come out the same each time, and they are most of the cost.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from hushgraph.audit.statistics import Floats
from hushgraph.audit.weights import Weights, new_model, use
from hushgraph.audit.witness import Witness, replaced, stacked
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import Features, TreeBatch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.models.device import freed_memory_kept
from hushgraph.models.gnn import GNN
from hushgraph.noise.secure_noise import SecureNoise
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.random import KEY_BITS, KeyedGenerator
from hushgraph.training.trainer import State, Trainer, new_noise

# Trials that share a step where every batch is whole.
_STACK = 250
_REMEMBERED = 4096
_NEVER = 1 << 60

Observer = Callable[[int], None]


class _Unpaid:
    """A ledger for graphs that nobody has to protect."""

    steps_charged = 0

    def charge(self, *_: Any, **__: Any) -> None:
        """Nothing is spent."""


@dataclass(eq=False)
class Attacked(Trainer):
    """The trainer, with keys of the attacker's choice and a memory for trees."""

    key_seed: int = 0
    trees: dict[bytes, list[TreeBatch]] = field(default_factory=dict)

    def _new_seed(self) -> int:
        return self.key_seed

    def _pieces(self, lists: BoundedLists, roots: np.ndarray) -> Iterator[TreeBatch]:
        # Roots without a label add nothing, so batches that differ in them alone are one batch.
        key = roots[self.graph.y[roots] >= 0].tobytes()
        if key not in self.trees:
            if len(self.trees) >= _REMEMBERED:
                self.trees.clear()
            self.trees[key] = list(super()._pieces(lists, roots))
        yield from self.trees[key]


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One of the two graphs, and how it is attacked.

    Attributes:
        graph: what is trained on.
        plan: with as many training nodes as `graph`.
        model: "gcn", "gin", "gat" or "mlp".
        key_seed: of the sampler.
        phases: the schedule of weights.
        trainer: the class of the loop; a fault is planted by giving another.
        remember: whether clipped sums are computed once. Otherwise every trial computes its own.
        secure: whether noise and batches come from the cryptographic generators.
    """

    graph: Graph
    plan: PrivacyPlan
    model: str
    key_seed: int
    phases: list[Weights]
    trainer: type[Attacked] = Attacked
    remember: bool = True
    secure: bool = False

    @property
    def clipping(self) -> Clipping:
        return Clipping(
            kind=self.plan.clipping,  # type: ignore[arg-type]
            clip=self.plan.clip,
            stability=TrainingConfig().stability,
        )

    @property
    def roots(self) -> int:
        """How many training nodes have a label."""
        return int((self.graph.y[self.graph.train_idx] >= 0).sum())

    @property
    def stacks(self) -> bool:
        """Whether several trials share a step: where all have the same batch, and sums are remembered.

        Secure noise is wider on more numbers, so that a stack would get more of it.
        """
        return self.remember and self.plan.sampling_rate == 1 and not self.secure

    def sums(self, roots: np.ndarray | None = None) -> list[Weights]:
        """Per phase, the clipped sum over `roots`, all training nodes unless given, without noise."""
        module, trainer = self._plain()
        lists = trainer.new_lists(self.key_seed)
        pieces = list(trainer._pieces(lists, self.graph.train_idx if roots is None else roots))
        found = []
        for weights in self.phases:
            use(module, weights)
            parts = [ghost.clipped_sum(module, piece, self.clipping) for piece in pieces]
            found.append({name: torch.stack([p[name] for p in parts]).sum(0) for name in weights})
        return found

    def sigmas(self) -> dict[str, float]:
        """The standard deviations that the plan promises, by parameter."""
        return self._plain()[1].sigmas

    def released(
        self, directions: list[Weights], *, trials: int, seed: int | None, observer: Observer | None = None
    ) -> Floats:
        """float64 [trials, steps]: how far every released sum points along the direction of its phase."""
        size = min(_STACK, trials) if self.stacks else 1
        single = self._model()
        module = stacked(single, size) if self.stacks else single
        witness = Witness(
            module,
            phases=self.phases,
            directions=directions,
            batch_size=self.plan.batch_size,
            follower=single,
        )
        trainer = self.new_trainer(self.trainer, module, witness, seed)
        clipped_sum = _Remembering(single, witness, size if self.stacks else None)
        rows: list[np.ndarray] = []
        chosen = clipped_sum if self.remember else ghost.clipped_sum
        with freed_memory_kept(), _one_thread(), replaced(ghost, "clipped_sum", chosen):
            while len(rows) * size < trials:
                witness.restart()
                trainer.run(lambda _: None)
                rows.append(torch.stack([seen.reshape(size) for seen in witness.seen], 1).numpy())
                if observer is not None:
                    observer(size)
        return np.concatenate(rows)[:trials]

    def _model(self) -> GNN:
        return new_model(self.model, self.plan)

    def _plain(self) -> tuple[GNN, Attacked]:
        """A model and its trainer, without any fault."""
        module = self._model()
        return module, self.new_trainer(Attacked, module, torch.optim.SGD(module.parameters(), lr=1.0), 0)

    def new_trainer(
        self, kind: type[Attacked], module: nn.Module, optimizer: torch.optim.Optimizer, seed: int | None
    ) -> Attacked:
        return kind(
            graph=self.graph,
            plan=self.plan,
            # Fresh lists would be the same lists: the attacker chose the keys.
            config=TrainingConfig(schedule="constant", average=0.0, resample_every=_NEVER),
            state=State(module, optimizer, {n: p.detach().clone() for n, p in module.named_parameters()}),
            ledger=_Unpaid(),  # type: ignore[arg-type]
            depth=self.plan.num_layers,
            clipping=self.clipping,
            rng=KeyedGenerator(secrets.randbits(KEY_BITS)) if self.secure else np.random.default_rng(seed),
            noise=(
                SecureNoise(batch_size=self.plan.batch_size, sigma_over_clip=self.plan.sigma_over_clip)
                if self.secure
                else new_noise(torch.device("cpu"), seed)
            ),
            features=Features(self.graph),
            key_seed=self.key_seed,
        )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """On tensors this small the threads of torch only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Remembering:
    """`ghost.clipped_sum` that keeps what it found, for every phase and piece, and repeats it for a stack."""

    def __init__(self, single: GNN, witness: Witness, trials: int | None) -> None:
        self._single, self._witness, self._trials = single, witness, trials
        self._clipped_sum = ghost.clipped_sum
        # The pieces are kept too: an identity must not be given out anew.
        self._found: dict[tuple[int, int], tuple[TreeBatch, Weights]] = {}

    def __call__(self, model: nn.Module, batch: TreeBatch, clipping: Clipping) -> Weights:
        key = (self._witness.phase, id(batch))
        if key not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            sums = self._clipped_sum(self._single, batch, clipping)
            if self._trials is not None:
                sums = {name: value.expand(self._trials, *value.shape) for name, value in sums.items()}
            self._found[key] = batch, sums
        return self._found[key][1]
