"""One life of a run: from its folder and the graph to the result, or to an interruption."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board
from hushgraph.errors import InputError, RunError
from hushgraph.gradients.batch import Features
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.sums import sum_error
from hushgraph.graph.chunks import digest_edges
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, best_classes, measure_accuracy
from hushgraph.models.device import keep_freed_memory
from hushgraph.noise.source import ExactNoise
from hushgraph.privacy.guarantee import describe_guarantee
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import Optimizer, Progress, RunFolder, versions
from hushgraph.sampling.random import KEY_BITS, KeyedGenerator
from hushgraph.training.boards import build_table, make_ballots, make_board
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.optimizers import SGD, Adam
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
        self._boards: list[Board] = []
        self._ballots: list[Ballots] = []
        self._readings: npt.NDArray[np.float32] | None = None
        # Open already where the run is new and this process leads.
        self.ledger: Ledger | None = None
        self.device = device if group.size == 1 else group.assign_device(device)
        # A resumed run must never draw the noise it drew before.
        self._seed = None if resumed else folder.config.seed
        init_seed, self._batch_seed = np.random.SeedSequence(self._seed).generate_state(2, np.uint64)
        self.model = _build_model(folder, model, int(init_seed)).to(self.device).train()
        self.optimizer = _build_optimizer(self.model, folder.config, optimizer)
        self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        if self._noise is not None:
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

    def run(self, observer: Observer | None, on_start: OnStart | None) -> Run:
        """Take the steps that are left and write the result.

        Only the process that leads its group has a ledger; the others write nothing.
        """
        folder, group = self.folder, self.group
        with contextlib.ExitStack() as stack:
            ledger: Ledger | None = None
            with group.share_errors():
                if group.leads:
                    ledger = self.ledger or Ledger.open(folder.ledger_path, plan=folder.plan)
                    stack.callback(ledger.close)
                    if self.resumed:
                        folder.check_charged(ledger)
                    if on_start is not None:
                        on_start(folder)
            result = self._train(ledger, observer)
            metrics = group.broadcast(folder.metrics)
        return Run(self.model, folder.plan, folder.config, result, metrics, folder)

    def _train(self, ledger: Ledger | None, observer: Observer | None) -> dict[str, Any]:
        begin = time.monotonic()
        group = self.group
        step, lost, seconds, batch_seed = group.broadcast(lambda: self._load_progress(require_leader(ledger)))
        self._follow_leader()
        watch: _Watch | None = None
        for place, end in enumerate(self.folder.plan.segment_ends):
            is_last = end == self.folder.plan.steps
            if self.resumed and not is_last and group.broadcast(lambda: self.folder.has_halfway_weights):
                continue
            features = self._build_features(ledger, place)
            trainer = self._build_trainer(features, ledger, step, batch_seed + place)
            if ledger is not None:
                view = WholeGraph(self.graph, features)
                watch = _Watch(trainer, ledger, self.folder, view, observer, lost, begin - seconds)
            self._take_steps(trainer, watch, end)
            if not is_last:
                group.broadcast(partial(self._keep_halfway, watch))
        result = group.broadcast(lambda: self._finish(require_leader(watch)))
        self._follow_leader()
        self.model.eval()
        return result

    def _follow_leader(self) -> None:
        """Take over the weights of the process that leads."""
        if self.group.size > 1:
            self.group.follow([p.detach() for p in self.model.parameters()])

    def _keep_halfway(self, watch: _Watch | None) -> None:
        """Keep the weights that the ballots of the next board come from."""
        require_leader(watch).checkpoint()
        self.folder.save_halfway(self.average)

    def _take_steps(self, trainer: Trainer, watch: _Watch | None, end: int) -> None:
        try:
            if self.folder.plan.clipping == "percentile":
                thresholds = choose_percentile_clipping(trainer).thresholds
                encoder, aggregation, decoder = self.group.broadcast(lambda: require_leader(thresholds))
                trainer.set_clipping(Clipping.of_groups((encoder, aggregation, decoder)))
            with keep_freed_memory():
                trainer.run(_do_nothing if watch is None else watch.after_step, until=end)
        except BaseException:
            # Ctrl-C included: whatever was learnt since the last checkpoint is worth keeping.
            if watch is not None:
                with contextlib.suppress(RunError):
                    watch.checkpoint()
            raise

    def _build_features(self, ledger: Ledger | None, place: int) -> Features:
        """What a root sees of itself: its features and, with a board, its reading."""
        if not self.folder.num_boards:
            return Features(self.graph, self.device)
        folder, graph = self.folder, self.graph
        if len(self._boards) < place:
            # An earlier session made them.
            self._boards = folder.load_boards(place)
            self._ballots = [make_ballots(folder, graph, self._boards, before) for before in range(place)]
        self._ballots.append(make_ballots(folder, graph, self._boards, place, self._readings))
        self._boards.append(self._get_board(ledger, place))
        table = build_table(folder, graph, self.device, self._boards, self._ballots)
        self._readings = table.readings
        return table

    def _get_board(self, ledger: Ledger | None, place: int) -> Board:
        """The board that is next: made by the process that leads; the others read its file."""
        board: Board | None = None

        def make() -> None:
            nonlocal board
            board = make_board(self.folder, self.graph, require_leader(ledger), self._ballots[place], place)

        self.group.broadcast(make)
        return self.folder.load_board(place) if board is None else board

    def _build_trainer(
        self, features: Features, ledger: Ledger | None, step: int, batch_seed: int
    ) -> Trainer:
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
            ledger=ledger,
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

    @cached_property
    def _noise(self) -> ExactNoise | None:
        """The noise of all steps: one stream, of which nothing is used twice."""
        plan = self.folder.plan
        if not self.group.leads:
            return None
        return ExactNoise(
            sigma_over_clip=plan.sigma_over_clip,
            sum_error=sum_error(
                num_roots=plan.num_train_nodes, num_rows=plan.most_rows(self.graph.num_nodes)
            ),
            seed=self._seed,
        )

    def _finish(self, watch: _Watch) -> dict[str, Any]:
        """Put the averaged weights into the model, write them and the result; return the result."""
        folder, plan = self.folder, self.folder.plan
        watch.checkpoint()
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
        result |= describe_guarantee(folder.guarantee)
        result["warnings"] = list(folder.warnings)
        watch.record(plan.steps, plan.epsilon, result["val_accuracy"])
        folder.finish(self.average, result)
        return result

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

    Attributes:
        view: the graph, ready for inference.
        epsilon: the price of the first `priced` steps: never less than what has been charged.
    """

    trainer: Trainer
    ledger: Ledger
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
        plan, every = self.trainer.plan, self.trainer.config.evaluate_every
        if self.ledger.steps_charged > self.priced:
            self.priced = self._end_of_window(self.ledger.steps_charged)
            self.epsilon = plan.epsilon_after(self.priced)
        if done % every == 0 and done < plan.steps:
            self._evaluate()
            # These weights have seen the steps taken; what is charged ahead comes later.
            self.record(done, plan.epsilon_after(self._end_of_window(done)), self.accuracy)
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
        self.folder.save_checkpoint(state.model, state.average, state.optimizer, progress)
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


def _build_model(folder: RunFolder, own: nn.Module | None, seed: int) -> nn.Module:
    if own is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            return folder.build_model()
    if folder.config.model != "own":
        raise RunError(f"run={folder.path}: it trains the built-in {folder.config.model}; leave out model")
    from hushgraph.gradients.model_check import check_model

    check_model(
        own,
        num_features=folder.input_width,
        num_classes=folder.num_classes,
        depth=folder.plan.num_layers,
    )
    return own


def _build_optimizer(model: nn.Module, config: TrainingConfig, own: OptimizerFactory | None) -> Optimizer:
    if (own is not None) != (config.optimizer == "own"):
        raise InputError(
            f"optimizer={config.optimizer!r}: expected adam or sgd, or for a run with an optimiser of your "
            "own the function that makes it"
        )
    if own is not None:
        return own(model.parameters())
    if config.optimizer == "sgd":
        return SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    return Adam(model.parameters(), lr=config.learning_rate, betas=(config.momentum, 0.999))


def _choose_clipping(plan: PrivacyPlan, config: TrainingConfig) -> Clipping:
    if plan.clipping == "percentile":
        return Clipping(kind="groups", clip=plan.clip)
    return Clipping(kind=plan.clipping, clip=plan.clip, stability=config.stability)


def _do_nothing(done: int) -> None:
    """A process that does not lead does nothing between steps."""
