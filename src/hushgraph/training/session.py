"""One life of a run: from its folder and the graph to the result, or to an interruption."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from hushgraph.errors import InputError, PlanError, RunError
from hushgraph.gradients.batch import Features
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.inference.evaluation import evaluate
from hushgraph.inference.in_memory import WholeGraph, best_classes
from hushgraph.models.device import freed_memory_kept
from hushgraph.noise.gaussian import NoiseSource
from hushgraph.noise.secure_noise import SecureNoise
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.checkpoint import Reached
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder
from hushgraph.sampling.random import KEY_BITS, KeyedGenerator
from hushgraph.training.distributed import Group, of_leader
from hushgraph.training.trainer import State, Trainer, new_noise, percentile_clipping

CHECKPOINT_SECONDS = 5.0
# Pricing takes a twentieth of a second or so: often enough for a progress bar, too long for every step.
_PRICES_PER_RUN = 20

Observer = Callable[[int, int, float, float | None], None]
"""Called with steps done, steps in all, epsilon so far and the last validation accuracy."""
OptimizerFactory = Callable[[Any], torch.optim.Optimizer]


class Session:
    """Everything that steps need, made and checked before anything is written.

    Args:
        folder: of the run; it need not be on disk yet.
        graph: the data.
        model: the caller's module, where the run trains one.
        optimizer: the caller's function from parameters to an optimiser, where there is one.
        device: "auto", "cpu" or "cuda".
        resumed: whether this run has lived before. Its seed then no longer counts.
        group: the processes that train together.
    """

    def __init__(
        self,
        folder: RunFolder,
        graph: Graph,
        *,
        model: nn.Module | None,
        optimizer: OptimizerFactory | None,
        device: str,
        resumed: bool,
        group: Group,
    ) -> None:
        self.folder, self.graph, self.resumed, self.group = folder, graph, resumed, group
        self.device = group.device(usable_device(device))
        # A resumed run must never draw the noise it drew before.
        self._seed = None if resumed else folder.config.seed
        self.secure = folder.config.secure_noise
        if self.secure and not folder.plan.is_private:
            raise PlanError("secure_noise: training without privacy adds no noise; leave it out")
        init_seed, self._batch_seed = np.random.SeedSequence(self._seed).generate_state(2, np.uint64)
        self.model = _model(folder, graph, model, int(init_seed)).to(self.device).train()
        self.optimizer = _optimizer(self.model, folder.config, optimizer)
        self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def finish(self, ledger: Ledger | None, observer: Observer | None) -> dict[str, Any]:
        """Take the steps that are left, put averaged weights into the model, write and give the result.

        Only the process that leads its group has a ledger; the others write nothing.
        """
        begin = time.monotonic()
        folder, graph, plan, model, group = self.folder, self.graph, self.folder.plan, self.model, self.group
        step, lost, before, batch_seed = group.decided(lambda: self._begun(of_leader(ledger)))
        group.follow([p.detach() for p in model.parameters()])
        if self.device.type == "cuda":
            # Norms and sums must be as exact as the bound assumes.
            torch.backends.cuda.matmul.allow_tf32 = False
        trainer = Trainer(
            graph=graph,
            plan=plan,
            config=folder.config,
            state=State(model, self.optimizer, self.average, step),
            ledger=ledger,
            depth=plan.num_layers,
            clipping=_clipping(plan, folder.config),
            rng=KeyedGenerator(batch_seed) if self.secure else np.random.default_rng(batch_seed),
            noise=self._noise() if group.leads else None,
            features=Features(graph, self.device),
            group=group,
        )
        watch = None
        if ledger is not None:
            whole = WholeGraph(graph, trainer.features)
            watch = _Watch(trainer, ledger, folder, whole, observer, lost, begin - before)
        try:
            if plan.clipping == "percentile":
                found = of_leader(percentile_clipping(trainer).thresholds)
                encoder, aggregation, decoder = group.decided(lambda: found)
                trainer.use(Clipping.of_groups((encoder, aggregation, decoder)))
            with freed_memory_kept():
                trainer.run(_nothing if watch is None else watch.after_step)
        except BaseException:
            # Ctrl-C included: whatever was learnt since the last checkpoint is worth keeping.
            if watch is not None:
                with contextlib.suppress(RunError):
                    watch.checkpoint()
            raise
        result = group.decided(lambda: self._written(of_leader(watch)))
        group.follow([p.detach() for p in model.parameters()])
        model.eval()
        return result

    def _begun(self, ledger: Ledger) -> tuple[int, int, float, int]:
        """Go on from the checkpoint: steps paid for, those of them lost, seconds, seed of the batches."""
        saved = Reached()
        if self.resumed:
            saved = self.folder.load_checkpoint(self.model, self.average, self.optimizer)
        paid = ledger.steps_charged
        seed = secrets.randbits(KEY_BITS) if self.secure else int(self._batch_seed)
        return paid, saved.steps_lost + paid - saved.step, saved.seconds, seed

    def _noise(self) -> NoiseSource:
        plan = self.folder.plan
        if not self.secure:
            return new_noise(self.device, self._seed)
        return SecureNoise(
            batch_size=plan.batch_size,
            sigma_over_clip=plan.sigma_over_clip,
            # While a GPU works on a step, the CPU has time to draw.
            draw_ahead=self.device.type != "cpu",
        )

    def _written(self, watch: _Watch) -> dict[str, Any]:
        """The result, once it and the averaged weights are on disk."""
        folder, plan = self.folder, self.folder.plan
        watch.checkpoint()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.average[name])
        result = plan.summary() | self._accuracies(watch.whole)
        result |= {
            "seconds": round(time.monotonic() - watch.begin, 3),
            "device": str(self.device),
            "resumed": self.resumed,
            "steps_lost": watch.steps_lost,
        }
        if self.group.size > 1:
            result["processes"] = self.group.size
        if self.secure:
            result["secure_noise"] = True
        if folder.config.seed is not None and plan.is_private:
            result |= {"guarantee": "none", "why_none": "reproducible, not private: the seed is fixed"}
        watch.record(plan.steps, plan.epsilon, result["val_accuracy"])
        folder.save_weights(self.average, result)
        return result

    def _accuracies(self, whole: WholeGraph) -> dict[str, float | None]:
        """Validation and test accuracy; on training nodes only where that is not private, or asked for."""
        found = {"val_accuracy": self.graph.val_idx, "test_accuracy": self.graph.test_idx}
        if not self.folder.plan.is_private or self.folder.config.train_accuracy:
            found["train_accuracy"] = self.graph.train_idx
        nodes = np.concatenate(list(found.values()))
        best = best_classes(self.model, whole, nodes, depth=self.folder.plan.num_layers)
        return {name: _accuracy(best, self.graph, nodes) for name, nodes in found.items()}


@dataclass(eq=False)
class _Watch:
    """Between steps: looks at the validation split, keeps checkpoints, tells the observer.

    Attributes:
        epsilon: the price of the first `priced` steps: never less than what has been paid for.
    """

    trainer: Trainer
    ledger: Ledger
    folder: RunFolder
    whole: WholeGraph
    observer: Observer | None
    steps_lost: int
    begin: float
    accuracy: float | None = None
    epsilon: float = 0.0
    priced: int = 0
    saved_at: float = field(default_factory=time.monotonic)

    def after_step(self, done: int) -> None:
        plan, every = self.trainer.plan, self.trainer.config.evaluate_every
        if self.ledger.steps_charged > self.priced:
            self.priced = self._end_of_window(self.ledger.steps_charged)
            self.epsilon = replace(plan, steps=self.priced).epsilon
        if done % every == 0 and done < plan.steps:
            self._look()
            # These weights have seen the steps taken; what is paid ahead comes later.
            self.record(done, replace(plan, steps=self._end_of_window(done)).epsilon, self.accuracy)
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.checkpoint()
        if self.observer is not None:
            self.observer(done, plan.steps, self.epsilon, self.accuracy)

    def _end_of_window(self, step: int) -> int:
        plan = self.trainer.plan
        window = max(self.trainer.config.evaluate_every, plan.steps // _PRICES_PER_RUN)
        return min(plan.steps, math.ceil(step / window) * window)

    def checkpoint(self) -> None:
        state = self.trainer.state
        reached = Reached(state.step, self.steps_lost, round(time.monotonic() - self.begin, 3))
        self.folder.save_checkpoint(state.model, state.average, state.optimizer, reached)
        self.saved_at = time.monotonic()

    def record(self, step: int, epsilon: float, accuracy: float | None) -> None:
        self.folder.append_metrics(
            {
                "step": step,
                "epsilon": "inf" if math.isinf(epsilon) else epsilon,
                "val_accuracy": accuracy,
                "seconds": round(time.monotonic() - self.begin, 3),
            }
        )

    def _look(self) -> None:
        """Accuracy of the averaged weights on the validation split."""
        trainer, graph = self.trainer, self.trainer.graph
        if not len(graph.val_idx):
            return
        model, average = trainer.state.model, trainer.state.average
        current = {name: p.detach().clone() for name, p in model.named_parameters()}
        try:
            model.load_state_dict(average, strict=False)
            best = best_classes(model, self.whole, graph.val_idx, depth=trainer.depth)
        finally:
            model.load_state_dict(current, strict=False)
        self.accuracy = _accuracy(best, graph, graph.val_idx)


def usable_device(name: str) -> torch.device:
    """The device called `name`; InputError where it is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={name!r}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda': no GPU is visible to torch; use cpu or auto")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def _model(folder: RunFolder, graph: Graph, own: nn.Module | None, seed: int) -> nn.Module:
    if own is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            return folder.new_model()
    if folder.config.model != "own":
        raise RunError(f"run={folder.path}: it trains the built-in {folder.config.model}; leave out model")
    from hushgraph.gradients.model_check import check_model

    check_model(
        own,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        depth=folder.plan.num_layers,
    )
    return own


def _optimizer(
    model: nn.Module, config: TrainingConfig, own: OptimizerFactory | None
) -> torch.optim.Optimizer:
    if (own is not None) != (config.optimizer == "own"):
        raise InputError(
            f"optimizer={config.optimizer!r}: expected adam or sgd, or for a run with an optimiser of your "
            "own the function that makes it"
        )
    if own is not None:
        return own(model.parameters())
    if config.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    return torch.optim.Adam(model.parameters(), lr=config.learning_rate, betas=(config.momentum, 0.999))


def _clipping(plan: PrivacyPlan, config: TrainingConfig) -> Clipping:
    if plan.clipping == "percentile":
        return Clipping(kind="groups", clip=plan.clip)
    return Clipping(kind=plan.clipping, clip=plan.clip, stability=config.stability)  # type: ignore[arg-type]


def _nothing(done: int) -> None:
    """What a process that does not lead does between steps."""


def _accuracy(best: np.ndarray, graph: Graph, nodes: np.ndarray) -> float | None:
    found = evaluate(best, graph.y, nodes, graph.num_classes)
    return None if found is None else found.accuracy
