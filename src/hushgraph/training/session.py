"""One life of a run: from its folder and the graph to the result, or to an interruption."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from hushgraph.errors import RunError
from hushgraph.gradients.batch import Features
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.sums import sum_error
from hushgraph.graph.chunks import digest_edges
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, best_classes, measure_accuracy
from hushgraph.models.device import keep_freed_memory
from hushgraph.noise.source import ExactNoise
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import Progress, RunFolder, versions
from hushgraph.sampling.random import KEY_BITS, KeyedGenerator
from hushgraph.training.boards import Boards
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.optimizers import build_optimizer
from hushgraph.training.prepare import OptimizerFactory
from hushgraph.training.row_batches import RowBatches
from hushgraph.training.run import Run
from hushgraph.training.trainer import (
    Batches,
    State,
    Trainer,
    choose_percentile_clipping,
    choose_row_sums,
    choose_tree_sums,
    takes_rows,
)
from hushgraph.training.tree_batches import TreeBatches

CHECKPOINT_SECONDS = 5.0
# Pricing takes a twentieth of a second or so: often enough for a progress bar, too long for every step.
_PRICES_PER_RUN = 20

Observer = Callable[[int, int, float, float | None], None]
"""Called with steps done, steps in all, epsilon so far and the last validation accuracy."""
OnStart = Callable[[RunFolder], None]
"""Called with the folder of the run once everything is checked, before the first step."""
_Value = TypeVar("_Value")


class Session:
    """Everything that steps need, built and checked before anything is written.

    Args:
        folder: of the run; it need not be on disk yet.
        graph: the data.
        model: the caller's module, where the run trains one.
        optimizer: the caller's function from parameters to an optimiser, where there is one.
        device: to train on; of several processes each gets a GPU of its own.
        resumed: whether an earlier session took steps of this run. Its seed then no longer counts.
        group: the processes that train together.
    """

    def __init__(
        self,
        folder: RunFolder,
        graph: Graph,
        *,
        model: nn.Module | None,
        optimizer: OptimizerFactory | None,
        device: torch.device,
        resumed: bool,
        group: Group,
    ) -> None:
        self.folder, self.graph, self.resumed, self.group = folder, graph, resumed, group
        # Opened before `run` by the process that leads; the others neither charge nor draw noise.
        self.ledger: Ledger | None = None
        self.device = device if group.size == 1 else group.assign_device(device)
        # A resumed run must never draw the noise it drew before.
        self._seed = None if resumed else folder.config.seed
        init_seed, self._batch_seed = np.random.SeedSequence(self._seed).generate_state(2, np.uint64)
        self.model = folder.build_model(model, seed=int(init_seed)).to(self.device).train()
        self.optimizer = build_optimizer(self.model.parameters(), folder.config, optimizer)
        self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        # The noise of all steps: one stream, of which nothing is used twice.
        self._noise: ExactNoise | None = None
        if group.leads:
            num_roots, num_rows = folder.plan.num_train_nodes, folder.plan.most_rows(graph.num_nodes)
            self._noise = ExactNoise(
                sigma_over_clip=folder.plan.sigma_over_clip,
                sum_error=sum_error(num_roots=num_roots, num_rows=num_rows),
                seed=self._seed,
            )
            # Too much noise for its grid is refused before a step is charged.
            self._noise.widening(sum(p.numel() for p in self.average.values()))

    def check_agreement(self) -> None:
        """Refuse to go on where the processes of a group have begun different runs."""
        self.group.check_same(
            lambda: {
                "plan": self.folder.plan.fingerprint(),
                "settings": self.folder.config.to_json(),
                "training nodes": self.folder.split_id,
                # Of two graphs, one row could change the trees of both: more of them than the plan covers.
                "edges": digest_edges(self.graph, self.graph.num_nodes),
                # Other versions may draw other batches and lists from the same seed.
                "versions": json.dumps(versions()),
                "device": self.device.type,
            }
        )

    def run(self, observer: Observer | None) -> Run:
        """Take the steps that are left and write the result; only the process that leads writes anything."""
        begin, folder, plan = time.monotonic(), self.folder, self.folder.plan
        step, lost, seconds, batch_seed = self._by_leader(self._load_progress)
        self._follow_leader()
        boards = Boards(folder, self.graph)
        for place, end in enumerate(plan.segment_ends):
            is_last = end == plan.steps
            if self.resumed and not is_last and self._by_leader(lambda _: folder.has_halfway_weights):
                continue
            features = self._build_features(boards, place)
            trainer = self._build_trainer(features, step, batch_seed + place)
            view = WholeGraph(self.graph, features)
            watch = _Watch(trainer, self.ledger, folder, view, observer, lost, begin - seconds)
            self._take_steps(trainer, watch, end)
            if not is_last:
                # The ballots of the next board come from these weights. Only the leader has their average.
                self._by_leader(lambda _: folder.save_halfway(self.average))
                boards.halfway = None if self.ledger is None else self.average
        result, metrics = self._by_leader(lambda _: self._finish(watch))
        self._follow_leader()
        self.model.eval()
        return Run(self.model, plan, folder.config, result, metrics, folder)

    def _by_leader(self, make: Callable[[Ledger], _Value]) -> _Value:
        """Call `make` in the process that leads, which has the ledger; every process gets the value."""
        if self.ledger is not None and self.group.size == 1:
            return make(self.ledger)
        return self.group.broadcast(lambda: make(require_leader(self.ledger)))

    def _follow_leader(self) -> None:
        """Take over the weights of the process that leads."""
        if self.group.size > 1:
            self.group.follow([p.detach() for p in self.model.parameters()])

    def _take_steps(self, trainer: Trainer, watch: _Watch, end: int) -> None:
        try:
            if self.folder.plan.clipping == "percentile":
                thresholds = choose_percentile_clipping(trainer).thresholds
                encoder, aggregation, decoder = self.group.broadcast(lambda: require_leader(thresholds))
                trainer.set_clipping(Clipping.of_groups((encoder, aggregation, decoder)))
            with keep_freed_memory():
                trainer.run(watch.after_step, until=end)
        except BaseException:
            # Ctrl-C included: whatever was learnt since the last checkpoint is worth keeping.
            if self.ledger is not None:
                with contextlib.suppress(RunError):
                    watch.checkpoint()
            raise
        self._by_leader(lambda _: watch.checkpoint())

    def _build_features(self, boards: Boards, place: int) -> Features:
        """What a root sees of itself: its features and, with a board, its reading."""
        if not self.folder.num_boards:
            return Features(self.graph, self.device)
        return boards.read(place, self.device, by_leader=self._by_leader)

    def _build_trainer(self, features: Features, step: int, batch_seed: int) -> Trainer:
        plan, config = self.folder.plan, self.folder.config
        if self.device.type == "cuda":
            # Norms and sums must be as exact as the bound assumes.
            torch.backends.cuda.matmul.allow_tf32 = False
        clipping = _choose_clipping(plan, config)
        common: dict[str, Any] = {
            "graph": self.graph,
            "features": features,
            "plan": plan,
            "rng": KeyedGenerator(batch_seed),
            "group": self.group,
        }
        sums: dict[str, Any] = {}
        if takes_rows(plan, self.model):
            batches: Batches = RowBatches(**common, feature_norm=getattr(self.model, "feature_norm", 0.0))
            sums["clipped_sum"] = sums["unclipped_sum"] = choose_row_sums(self.device)
        else:
            batches = TreeBatches(**common, resample_every=config.resample_every)
            sums["clipped_sum"] = choose_tree_sums(plan, self.graph.num_nodes, self.device)
        return Trainer(
            plan=plan,
            config=config,
            state=State(self.model, self.optimizer, self.average, step),
            batches=batches,
            clipping=clipping,
            ledger=self.ledger,
            noise=self._noise,
            group=self.group,
            **sums,
        )

    def _load_progress(self, ledger: Ledger) -> tuple[int, int, float, int]:
        """Load the checkpoint; return steps charged, those of them lost, seconds, seed of the batches."""
        progress = Progress()
        if self.resumed:
            progress = self.folder.load_checkpoint(self.model, self.average, self.optimizer)
        charged = ledger.steps_charged
        seed = secrets.randbits(KEY_BITS - 1) if self._seed is None else int(self._batch_seed)
        return charged, progress.steps_lost + charged - progress.step, progress.seconds, seed

    def _finish(self, watch: _Watch) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Put the averaged weights into the model, write them and the result; return result and metrics."""
        folder, plan = self.folder, self.folder.plan
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.average[name])
        accuracies = self._measure_accuracies(watch.view)
        result = plan.summary() | accuracies
        result |= {
            "seconds": round(time.monotonic() - watch.begin, 3),
            "device": str(self.device),
            "resumed": self.resumed,
            "steps_lost": watch.steps_lost,
        }
        if self.group.size > 1:
            result["processes"] = self.group.size
        folder.append_metrics(
            step=plan.steps,
            epsilon=plan.epsilon,
            val_accuracy=result["val_accuracy"],
            seconds=time.monotonic() - watch.begin,
        )
        metrics = folder.metrics()
        return folder.finish(self.average, result), metrics

    def _measure_accuracies(self, view: WholeGraph) -> dict[str, float | None]:
        """Validation and test accuracy; on training nodes only where that is not private, or asked for."""
        splits = {"val_accuracy": self.graph.val_idx, "test_accuracy": self.graph.test_idx}
        if not self.folder.plan.is_private or self.folder.config.train_accuracy:
            splits["train_accuracy"] = self.graph.train_idx
        nodes = np.concatenate(list(splits.values()))
        best = best_classes(self.model, view, nodes, depth=self.folder.plan.num_layers)
        return {name: measure_accuracy(best, self.graph, nodes) for name, nodes in splits.items()}


@dataclass(eq=False)
class _Watch:
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

    def after_step(self, done: int) -> None:
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


def _choose_clipping(plan: PrivacyPlan, config: TrainingConfig) -> Clipping:
    if plan.clipping == "percentile":
        return Clipping(kind="groups", clip=plan.clip)
    return Clipping(kind=plan.clipping, clip=plan.clip, stability=config.stability)
