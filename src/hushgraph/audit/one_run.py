"""Many canaries in a single real run, each there or not by a coin of its own: K = 0, one row one column."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hushgraph.audit.faults import get_fault
from hushgraph.audit.one_run_bound import best_number_of_guesses, one_run_lower_bound
from hushgraph.audit.runs import choose_config, plant_nothing, watch_run
from hushgraph.errors import InputError, PlanError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.folder import RunFolder

_HIDDEN = 4
# Large enough that nearly all of a canary's gradient is in its own column of the first layer.
_SIZE = 100.0


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """What the guesses about the rows of one training show.

    Attributes:
        lower_bound: on epsilon, at `confidence`.
        claimed: the plan's epsilon.
        rows, guesses, correct: canaries; those guessed about; right guesses.
    """

    plan: PrivacyPlan
    lower_bound: float
    claimed: float
    confidence: float
    rows: int
    guesses: int
    correct: int
    fault: str | None
    seed: int | None
    seconds: float

    @property
    def exceeds(self) -> bool:
        """Whether more was shown than is claimed."""
        return self.lower_bound > self.claimed

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "lower_bound": self.lower_bound,
            "claimed_epsilon": self.claimed,
            "exceeds": self.exceeds,
            "fault": self.fault,
            "model": "mlp",
            "canary": "one run",
            "layers": 0,
            "train_nodes": self.plan.num_train_nodes,
            **{name: value for name, value in self.plan.summary().items() if name != "epsilon"},
            "rows": self.rows,
            "guesses": self.guesses,
            "correct": self.correct,
            "bound_confidence": self.confidence,
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
        }


def audit_one_run(
    plan: PrivacyPlan,
    *,
    rows: int = 2000,
    confidence: float = 0.95,
    fault: str | None = None,
    seed: int | None = None,
) -> OneRun:
    """Train once on `rows` canaries, about half of them emptied, and guess which.

    Args:
        plan: without layers and with noise; its number of training nodes becomes `rows`.
        rows: canaries, each with a feature of its own.
        confidence: of the bound.
        fault: the name of a mistake to plant in the loop, see `faults.FAULTS`.
        seed: of the coins.

    Guarantees:
        With probability at least `confidence` the bound is at most the epsilon of the attacked training.
    """
    begin = time.monotonic()
    if plan.num_layers:
        raise PlanError(f"layers={plan.num_layers}: canaries must not meet in a tree; expected 0")
    if plan.sampling_rate != 1 or not plan.is_private:
        raise PlanError("one run is audited with noise and with all rows in every batch; set batch_size to N")
    if rows < 20:
        raise InputError(f"rows={rows}: expected at least 20")
    plan = replace(plan, num_train_nodes=rows, batch_size=rows)
    coins = np.random.default_rng(seed).random(rows) < 0.5
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), dtype=np.int64),
        x=np.diag(np.where(coins, np.float32(_SIZE), np.float32(0))),
        y=np.where(coins, 0, -1),
        train_idx=np.arange(rows),
        num_classes=2,
        directed=False,
    )
    config = choose_config(plan, hidden=_HIDDEN)
    module = RunFolder.describe("", graph, plan, config, data="").build_model()
    weights = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
    weights["decoder.0.weight"][0], weights["decoder.0.weight"][1] = 1.0, -1.0
    plant = plant_nothing if fault is None else get_fault(fault).plant
    with watch_run(graph, plan, config, phases=[weights], plant=plant) as seen:
        total = torch.stack([sums["encoder.0.weight"] for sums in seen.sums]).sum(0)
    # The loss falls with every hidden unit, so the gradient of a row that is there points down in its column.
    scores = -total.sum(0).numpy()
    # One row moves its score by at most C sqrt(hidden) a step, against noise of sigma sqrt(hidden).
    shift = math.sqrt(plan.steps) / plan.sigma_over_clip
    guesses = best_number_of_guesses(rows=rows, shift=shift, delta=plan.delta, confidence=confidence)
    order = np.argsort(scores)
    half = guesses // 2
    correct = int((~coins[order[:half]]).sum() + coins[order[-half:]].sum())
    return OneRun(
        plan=plan,
        lower_bound=one_run_lower_bound(
            rows=rows, guesses=2 * half, correct=correct, delta=plan.delta, confidence=confidence
        ),
        claimed=plan.epsilon,
        confidence=confidence,
        rows=rows,
        guesses=2 * half,
        correct=correct,
        fault=fault,
        seed=seed,
        seconds=time.monotonic() - begin,
    )
