"""One life of a run: from its folder and the graph to the result, or to an interruption."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import nn

from hushgraph.gradients.batch import Features
from hushgraph.gradients.rows_torch import load_kernels
from hushgraph.graph.chunks import digest_edges
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, best_classes, measure_accuracy
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import Progress, RunFolder, versions
from hushgraph.sampling.random import KEY_BITS
from hushgraph.training.boards import Boards
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.optimizers import build_optimizer
from hushgraph.training.parts import Parts
from hushgraph.training.prepare import OptimizerFactory
from hushgraph.training.run import Run
from hushgraph.training.trainer import Observer, State, Watch, build_trainer, takes_rows

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
        parts: the collaborators; an audit replaces some.
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
        parts: Parts | None = None,
    ) -> None:
        self.parts = parts or Parts()
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
        self._noise: NoiseSource | None = None
        if group.leads:
            self._noise = self.parts.make_noise(
                folder.plan,
                num_nodes=graph.num_nodes,
                num_parameters=sum(p.numel() for p in self.average.values()),
                seed=self._seed,
            )

    def check_agreement(self) -> None:
        """Refuse to go on where the processes of a group have begun different runs."""
        self.group.check_same(
            lambda: {
                "plan": self.folder.plan.fingerprint(),
                "settings": self.folder.config.to_json(),
                "training nodes": self.folder.split_id,
                # Of two graphs, one row could change the trees of both: more of them than the plan covers.
                "edges": digest_edges(self.graph),
                # Other versions may draw other batches and lists from the same seed.
                "versions": json.dumps(dict(versions())),
                "device": self.device.type,
            }
        )

    def run(self, observer: Observer | None) -> Run:
        """Take the steps that are left and write the result; only the process that leads writes anything."""
        begin, folder, plan = time.monotonic(), self.folder, self.folder.plan
        step, lost, seconds, batch_seed = self._by_leader(self._load_progress)
        self._follow_leader()
        boards = Boards(folder, self.graph, parts=self.parts)
        loading = self._load_kernels() if self.device.type == "cuda" else None
        for place, end in enumerate(plan.segment_ends):
            is_last = end == plan.steps
            if self.resumed and not is_last and self._by_leader(lambda _: folder.has_halfway_weights):
                continue
            view = WholeGraph(self.graph, self._build_features(boards, place))
            if loading is not None:
                loading.join()
            trainer = build_trainer(
                plan,
                folder.config,
                State(self.model, self.optimizer, self.average, step),
                view,
                key=batch_seed + place,
                ledger=self.ledger,
                noise=self._noise,
                group=self.group,
                parts=self.parts,
            )
            watch = Watch(trainer, self.ledger, folder, view, observer, lost, begin - seconds)
            watch.take_steps(end)
            if not is_last:
                # The ballots of the next board come from these weights. Only the leader has their average.
                self._by_leader(lambda _: folder.save_halfway(self.average))
                boards.halfway = None if self.ledger is None else self.average
                # Its rows are gone before the next board is made.
                del view, trainer, watch
        result, metrics = self._by_leader(lambda _: self._finish(watch))
        self._follow_leader()
        self.model.eval()
        return Run(self.model, plan, folder.config, result, metrics, folder)

    def _load_kernels(self) -> Thread | None:
        """Load the GPU kernels for steps on rows in a thread, while the first board is made."""
        if not takes_rows(self.folder.plan, self.model):
            return None
        num_sparse = self.graph.num_features if sparse.issparse(self.graph.x) else 0
        loading = Thread(
            target=load_kernels, args=(self.model, self.device), kwargs={"num_sparse": num_sparse}
        )
        loading.start()
        return loading

    def _by_leader(self, make: Callable[[Ledger], _Value]) -> _Value:
        """Call `make` in the process that leads, which has the ledger; every process gets the value."""
        if self.ledger is not None and self.group.size == 1:
            return make(self.ledger)
        return self.group.broadcast(lambda: make(require_leader(self.ledger)))

    def _follow_leader(self) -> None:
        """Take over the weights of the process that leads."""
        if self.group.size > 1:
            self.group.follow([p.detach() for p in self.model.parameters()])

    def _build_features(self, boards: Boards, place: int) -> Features:
        """What a root sees of itself: its features and, with a board, its reading."""
        if not self.folder.num_boards:
            return Features(self.graph, self.device)
        return boards.read(place, self.device, by_leader=self._by_leader)

    def _load_progress(self, ledger: Ledger) -> tuple[int, int, float, int]:
        """Load the checkpoint; return steps charged, those of them lost, seconds, seed of the batches."""
        progress = Progress()
        if self.resumed:
            progress = self.folder.load_checkpoint(self.model, self.average, self.optimizer)
        charged = ledger.steps_charged
        seed = secrets.randbits(KEY_BITS - 1) if self._seed is None else int(self._batch_seed)
        return charged, progress.steps_lost + charged - progress.step, progress.seconds, seed

    def _finish(self, watch: Watch) -> tuple[dict[str, Any], list[dict[str, Any]]]:
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
