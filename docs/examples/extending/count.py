"""A mechanism from outside: how many training rows have a label, with noise, released before training."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

import hushgraph as hg
from hushgraph.billboard.ballots import GRID
from hushgraph.billboard.board import release
from hushgraph.graph.graph import Graph
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges import Charge, GaussianCharge, calibrate
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import RowPlan
from hushgraph.runs.folder import RunFolder
from hushgraph.tasks.task import is_labelled
from hushgraph.training.memory import Memory
from hushgraph.training.parts import Parts
from hushgraph.training.running import begin_in_memory, run_plan


@dataclass(frozen=True, kw_only=True)
class CountCharge(GaussianCharge):
    """The price: emptying a training row moves the count by 1, and nothing else does."""

    kind = "label-count"
    noun = "counts"

    def move(self, change: Change) -> float:
        return change.num_training if change.what == "rows" else 0

    @property
    def sentence(self) -> str:
        return (
            "The number of training rows that have a label is released once, with noise of standard "
            f"deviation {self.noise_std:.4g}."
        )


@dataclass(frozen=True, kw_only=True)
class CountedPlan(RowPlan):
    """The plan: the count, then the private MLP. A tenth of the budget goes to the count."""

    count_noise: float = 0.0

    method = "counted-rows"

    def charges_until(self, steps: int) -> tuple[Charge, ...]:
        return CountCharge(name="count", noise_std=self.count_noise), *super().charges_until(steps)

    def calibrated(self, *, epsilon: float) -> "CountedPlan":
        # Rows of the validation and test splits pay for figures, and for nothing else here.
        bare = self.with_evaluation(0)
        count, steps = calibrate(bare.charges, [0.1, 0.9], budget=epsilon, delta=self.delta)
        noisy = replace(bare, count_noise=count.noise_std, sigma_over_clip=steps.sigma_over_clip)
        return noisy.with_evaluation(self.num_tables)


def release_count(graph: Graph, noise_std: float) -> float:
    """The mechanism itself; the noise is that of boards, whose digits tell nothing."""
    count = int(is_labelled(graph.y[graph.train_idx]).sum())
    return float(release(np.array([[count * GRID]]), noise_std=noise_std).values[0, 0])


def begin_with_count(folder: RunFolder, graph: Graph, parts: Parts) -> tuple[Memory, Callable[[], Ledger]]:
    """The run: charge first, then release, then take steps."""
    source, start = begin_in_memory(folder, graph, parts)
    charge = folder.plan.charges[0]

    def start_with_count() -> Ledger:
        ledger = start()
        parts.charge(ledger, charge)
        count = release_count(graph, charge.noise_std)
        ledger.record_release(charge.name, None)
        (folder.path / "count.json").write_text(json.dumps(count))
        return ledger

    return source, start_with_count


def train_with_count(data: Any, out: str | os.PathLike[str], *, epsilon: float, **settings: Any) -> hg.Run:
    graph, rows, config = hg.prepare(data, epsilon=epsilon, method="trees", model="mlp", **settings)
    given = {field.name: getattr(rows, field.name) for field in fields(rows)}
    plan = CountedPlan(**given).calibrated(epsilon=epsilon)
    return run_plan(out, graph, plan, config, begin=begin_with_count)
