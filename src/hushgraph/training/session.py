"""One life of a run: charge the ledger, compute, add noise, write, go on."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hushgraph._files import write_tensors
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.checkpoint import Progress, read_checkpoint
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.result import append_metrics, read_metrics
from hushgraph.runs.versions import versions
from hushgraph.sampling.random import KEY_BITS
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.evaluation import (
    SPLITS,
    evaluate_exactly,
    list_figures,
    release_figures,
    summarise_figures,
)
from hushgraph.training.optimizers import build_optimizer
from hushgraph.training.parts import Parts
from hushgraph.training.prepare import OptimizerFactory
from hushgraph.training.publish import publish_run
from hushgraph.training.releases import release_board
from hushgraph.training.run import Run
from hushgraph.training.scaling import release_scaling
from hushgraph.training.source import Source, View
from hushgraph.training.steps import build_trainer
from hushgraph.training.trainer import Observer, State
from hushgraph.training.watch import Watch

OnStart = Callable[[RunFolder], None]
"""Called with the folder of the run once everything is checked, before the first step."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """What a session learns with; it is built, and what cannot be used refused, before anything is written.

    Attributes:
        state: model, optimiser and averaged weights.
        noise: of all steps, in the process that leads: one stream, of which nothing is used twice.
        key: of the batches; that of the leader counts.
        resumed: whether an earlier session took steps of this run. Its seed then no longer counts.
    """

    state: State
    noise: NoiseSource | None
    key: int
    resumed: bool

    @classmethod
    def build(
        cls,
        folder: RunFolder,
        source: Source,
        *,
        group: Group,
        resumed: bool,
        model: nn.Module | None = None,
        optimizer: OptimizerFactory | None = None,
        parts: Parts,
    ) -> Learner:
        """Build the model and the optimiser of a run, or check those of the caller."""
        # A resumed run must never draw the noise it drew before.
        seed = None if resumed else folder.config.seed
        init_seed, batch_seed = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        module = folder.build_model(model, seed=int(init_seed)).to(source.device).train()
        average = {name: p.detach().clone() for name, p in module.named_parameters()}
        noise: NoiseSource | None = None
        if group.leads:
            noise = parts.make_noise(
                folder.plan,
                num_nodes=source.num_nodes,
                num_parameters=sum(p.numel() for p in average.values()),
                seed=seed,
            )
        return cls(
            state=State(module, build_optimizer(module, average, folder.config, optimizer), average),
            noise=noise,
            key=secrets.randbits(KEY_BITS - 1) if seed is None else int(batch_seed),
            resumed=resumed,
        )


@dataclass(eq=False, kw_only=True)
class Session:
    """One life of a run, for every method and every source, in one process or several.

    Attributes:
        folder: of the run, on disk.
        source: where its rows are.
        learner: what it learns with.
        ledger: of the run, open in the process that leads; the others neither charge nor draw noise.
        group: the processes that train together.
        parts: the collaborators; an audit replaces some.
    """

    folder: RunFolder
    source: Source
    learner: Learner
    ledger: Ledger | None
    group: Group
    parts: Parts

    def run(self, observer: Observer | None) -> Run:
        """Take what is left of the plan and write the result; only the process that leads writes anything."""
        begin, folder, plan, group = time.monotonic(), self.folder, self.folder.plan, self.group
        state, model = self.learner.state, self.learner.state.model
        state.step, lost, seconds, key = group.broadcast(self._load_progress)
        group.follow([p.detach() for p in model.parameters()])
        if plan.scaling_charge is not None:
            group.broadcast(self._release_scaling)
        self.source.prepare(model)
        for place, (opening, end) in enumerate(plan.segments):
            is_last = end == plan.steps
            if self.learner.resumed and not is_last and group.broadcast(folder.halfway_path.exists):
                # An earlier session finished this half.
                continue
            if opening is not None:
                group.broadcast(partial(self._release_board, place))
            view = self.source.read(place)
            common: dict[str, Any] = {"group": group, "parts": self.parts}
            steps = view.build_steps(state, key=key + place, **common)
            noise = self.learner.noise
            trainer = build_trainer(folder, state, steps, ledger=self.ledger, noise=noise, **common)
            watch = Watch(
                trainer=trainer,
                ledger=self.ledger,
                folder=folder,
                view=view,
                observer=observer,
                steps_lost=lost,
                begin=begin - seconds,
            )
            watch.take_steps(end)
            if not is_last:
                # The ballots of the next board come from these weights. Only the leader has their average.
                group.broadcast(partial(write_tensors, folder.halfway_path, state.average, {}))
                # Its rows are gone before the next board is made.
                del view, steps, trainer, watch
        result, metrics = group.broadcast(partial(self._finish, watch))
        group.follow([p.detach() for p in model.parameters()])
        model.eval()
        return Run(model, plan, folder.config, result, metrics, folder)

    def _release_scaling(self) -> None:
        release_scaling(self.folder, self.source, require_leader(self.ledger), parts=self.parts)

    def _release_board(self, place: int) -> None:
        release_board(self.folder, self.source, require_leader(self.ledger), place, parts=self.parts)

    def _load_progress(self) -> tuple[int, int, float, int]:
        """Load the checkpoint; return steps charged, those of them lost, seconds, key of the batches."""
        progress, state, path = Progress(), self.learner.state, self.folder.checkpoint_path
        if self.learner.resumed and path.exists():
            progress = read_checkpoint(path, state.model, state.average, state.optimizer)
        charged = require_leader(self.ledger).steps_charged
        lost = progress.steps_lost + charged - progress.step
        return charged, lost, progress.seconds, self.learner.key

    def _finish(self, watch: Watch) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Put the averaged weights into the model, write them and the result; return result and metrics."""
        folder, plan, state = self.folder, self.folder.plan, self.learner.state
        folder.check_finite(state.average)
        with torch.no_grad():
            for name, parameter in state.model.named_parameters():
                parameter.copy_(state.average[name])
        covered = self._release_figures(watch.view)
        figures = {"val_accuracy": None, "test_accuracy": None, **covered, **self._measure(watch.view)}
        seconds = time.monotonic() - watch.begin
        result = plan.summary() | folder.stated_task | figures
        result |= {
            "seconds": round(seconds, 3),
            "device": str(self.source.device),
            "resumed": self.learner.resumed,
            "steps_lost": watch.steps_lost,
        }
        if self.group.size > 1:
            result["processes"] = self.group.size
        accuracy = figures["val_accuracy"]
        append_metrics(
            folder.path, step=plan.steps, epsilon=plan.epsilon, val_accuracy=accuracy, seconds=seconds
        )
        stated = folder.finish(state.average, result)
        if folder.guarantee.kind == "holds":
            publish_run(folder, covered)
        return stated, read_metrics(folder.path)

    def _release_figures(self, view: View) -> dict[str, Any]:
        """Covered figures, where the plan pays for them."""
        folder, model = self.folder, self.learner.state.model
        if folder.plan.evaluation_charge is None:
            return {}
        tables = release_figures(folder, view, model, require_leader(self.ledger), parts=self.parts)
        return summarise_figures(list_figures(folder.task, tables))

    def _measure(self, view: View) -> dict[str, Any]:
        """Exact figures, where no covered ones are, or where they are asked for; never covered."""
        folder = self.folder
        figures: dict[str, Any] = {}
        is_covered = folder.plan.evaluation_charge is not None
        if not is_covered or folder.config.exact_figures:
            exact = self._evaluate_exactly(view, SPLITS)
            figures = {"exact_figures": exact} if is_covered else exact
        # The accuracy on training rows only where that is not private, or asked for.
        if not folder.plan.is_private or folder.config.train_accuracy:
            key = f"train_{folder.task.headline}"
            figures |= {key: self._evaluate_exactly(view, ["train"])[key]}
        return figures

    def _evaluate_exactly(self, view: View, splits: Sequence[str]) -> dict[str, float | None]:
        """Every figure of the task on these splits; None, of the headline alone, where no row has a label."""
        model, task = self.learner.state.model, self.folder.task
        figures: dict[str, float | None] = {}
        for split in splits:
            exact = {task.headline: None, **evaluate_exactly(task, view.score(model, split))}
            figures |= {f"{split}_{name}": value for name, value in exact.items()}
        return figures


def check_agreement(folder: RunFolder, source: Source, group: Group) -> None:
    """Refuse to go on where the processes of a group have begun different runs."""
    group.check_same(
        lambda: {
            "plan": folder.plan.fingerprint(),
            "settings": folder.config.to_json(),
            "training nodes": folder.split_id,
            # Other versions may draw other batches and lists from the same seed.
            "versions": json.dumps(dict(versions())),
            "device": source.device.type,
            **source.list_facts(),
        }
    )
