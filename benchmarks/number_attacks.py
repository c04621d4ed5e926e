"""Attacks on the digits of what training releases: how often they tell whether one row is empty.

    python benchmarks/number_attacks.py [--trials N] [--device cpu|cuda]

Every trial takes one step of the training loop on one of two graphs, by a fair coin: one with the row of a
canary and one in which that row is emptied. The attacker knows the weights before the step and the clipped
sums of both graphs, sees one view of the result, and guesses. Views:

- "updates": the noisy gradient;
- "checkpoint": the weights after a step of SGD;
- "averaged weights": the average of the weights that a run publishes;
- "moments": the state of Adam, which a checkpoint holds.

Settings: all roots, Poisson batches of half of them, and two processes that share the roots. Three attacks on
each: rings, support and low bits (docs/audit.md). Exact noise is right if no attack is right more often than
the guarantee allows, at 99.99% confidence for each (Clopper and Pearson). With float32 noise the same attacks
must succeed, or they would show nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from hushgraph.audit.faults import FloatNoise
from hushgraph.audit.numbers import _ATTACKS as SCORES
from hushgraph.audit.numbers import right_guesses_at_most
from hushgraph.gradients import ghost
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowSums
from hushgraph.gradients.rows_torch import RecordedRowSums
from hushgraph.gradients.sums import sum_error
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.noise.source import ExactNoise, NoiseSource
from hushgraph.privacy.plans import PrivacyPlan, RowPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.training.distributed import Group
from hushgraph.training.row_batches import RowBatches
from hushgraph.training.steps import takes_rows
from hushgraph.training.trainer import State, Trainer
from hushgraph.training.tree_batches import TreeBatches

ROOTS, FEATURES, CLASSES, CANARY = 64, 64, 3, 5
SETTINGS = ("all roots", "half of the roots", "two processes")
VIEWS = ("updates", "checkpoint", "averaged weights", "moments")
CONFIDENCE = 0.9999
Sums = dict[str, Tensor]


class Result(NamedTuple):
    """How often one attack was right.

    Attributes:
        view, attack: what it saw, and how it guessed.
        right: right guesses.
        at_least: the true rate is above this, at the confidence.
    """

    view: str
    attack: str
    right: int
    at_least: float


class FreeLedger:
    """Charges nothing: the data is made up."""

    steps_charged = 0

    def charge(self, event: object, *, step: int | None = None, count: int = 1) -> None:
        """Accept every charge."""


@dataclass(frozen=True, kw_only=True)
class TwoProcesses(Group):
    """The leader of two processes, with the other's part of the sum at hand."""

    rank: int = 0
    size: int = 2
    other: Callable[[], Sums]

    def broadcast(self, make: Callable[[], Any]) -> Any:
        return make()

    def follow(self, tensors: Sequence[Tensor]) -> None:
        """The other process is not there to follow."""

    def add_up(self, tensors: Mapping[str, Tensor]) -> Sums:
        other = self.other()
        return {name: value + other[name] for name, value in tensors.items()}


class World:
    """One of the two graphs, and the step of training on it.

    Args:
        graph: with the canary's row or without.
        plan: of one step.
        setting: one of SETTINGS.
        exact: whether noise is exact.
        device: of the step.
        hidden: units of the model.
    """

    def __init__(
        self,
        graph: Graph,
        plan: PrivacyPlan,
        setting: str,
        *,
        exact: bool,
        device: torch.device,
        hidden: int,
    ) -> None:
        self.graph, self.plan, self.device, self._exact = graph, plan, device, exact
        torch.manual_seed(7)
        self.model = GNN(FEATURES, CLASSES, model="mlp", num_layers=0, hidden=hidden).to(device)
        self.start = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self._features = Features(graph, device)
        self._takes_rows = takes_rows(plan, self.model)
        self._group: Group = Group()
        if setting == "two processes":
            theirs = self.sum_of(graph.train_idx[1::2])
            self._group = TwoProcesses(other=lambda: theirs)
        self._noise = self._new_noise()

    def _new_noise(self) -> NoiseSource:
        if not self._exact:
            return FloatNoise(torch.Generator(self.device))
        error = sum_error(num_roots=ROOTS, num_rows=self.plan.most_lines(ROOTS))
        return ExactNoise(sigma_over_clip=self.plan.sigma_over_clip, sum_error=error, draw_ahead=False)

    def sum_of(self, roots: np.ndarray | None = None) -> Sums:
        """The clipped sum that the training loop computes for these roots, before the step."""
        self._begin_anew()
        roots = self.graph.train_idx if roots is None else roots
        if self._takes_rows:
            return self._row_sums()(self.model, self._features.take(roots), Clipping())
        batches = TreeBatches(**self._common(Group()), resample_every=1)
        [piece] = batches.cut_pieces(batches.sample_lists(0), roots)
        return ghost.clipped_sum(self.model, piece, Clipping())

    def _row_sums(self) -> Any:
        return RowSums() if self.device.type == "cpu" else RecordedRowSums(self.device)

    def _common(self, group: Group) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "features": self._features,
            "plan": self.plan,
            "rng": np.random.default_rng(),
            "group": group,
        }

    def _trainer(self, optimizer: torch.optim.Optimizer) -> Trainer:
        sums: dict[str, Any] = {}
        common = self._common(self._group)
        batches: Any = TreeBatches(**common, resample_every=1)
        if self._takes_rows:
            batches, sums = RowBatches(**common, feature_norm=0.0), {"clipped_sum": self._row_sums()}
        return Trainer(
            plan=self.plan,
            config=TrainingConfig(schedule="constant"),
            state=State(self.model, optimizer, {n: p.clone() for n, p in self.start.items()}),
            batches=batches,
            clipping=Clipping(),
            ledger=FreeLedger(),
            noise=self._noise,
            group=self._group,
            **sums,
        )

    def _begin_anew(self) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.start[name])

    def step(self) -> dict[str, Sums]:
        """Take one step from the start; return the noisy sum as every view shows it."""
        self._begin_anew()
        seen: dict[str, Sums] = {}
        sgd = self._trainer(torch.optim.SGD(self.model.parameters(), lr=1.0))
        sgd.run(lambda _: None)
        size, state = self.plan.batch_size, sgd.state
        kept = 1 - min(sgd.config.average, 0.1)
        parameters = dict(self.model.named_parameters())
        gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        seen["updates"] = {name: gradient.double() * size for name, gradient in gradients.items()}
        seen["checkpoint"] = {
            name: (self.start[name].double() - p.detach().double()) * size for name, p in parameters.items()
        }
        seen["averaged weights"] = {
            name: (self.start[name].double() - state.average[name].double()) * (size / kept)
            for name in parameters
        }
        seen["moments"] = self._moments(gradients)
        return seen

    def _moments(self, gradients: Sums) -> Sums:
        """The noisy sum as the first moment of Adam shows it."""
        model = nn.ParameterDict({n.replace(".", "/"): nn.Parameter(g.clone()) for n, g in gradients.items()})
        for name, parameter in model.items():
            parameter.grad = gradients[name.replace("/", ".")].clone()
        adam = torch.optim.Adam(model.parameters(), betas=(0.5, 0.999))
        adam.step()
        return {
            name.replace("/", "."): 2 * adam.state[parameter]["exp_avg"].double() * self.plan.batch_size
            for name, parameter in model.items()
        }


def build_worlds(
    setting: str, epsilon: float, *, exact: bool, device: torch.device, hidden: int
) -> tuple[World, World, PrivacyPlan]:
    """The graph with the canary and the one without, and the plan of one step on either."""
    rng = np.random.default_rng(3)
    half = setting == "half of the roots"
    # Of a batch that is drawn the attacker does not know the other roots, so these have no label.
    labels = rng.integers(0, CLASSES, ROOTS)
    if half:
        labels[np.arange(ROOTS) != CANARY] = -1
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=rng.standard_normal((ROOTS, FEATURES)).astype(np.float32),
        y=labels,
        train_idx=np.arange(ROOTS),
        num_classes=CLASSES,
    )
    plan = RowPlan(
        num_train_nodes=ROOTS,
        num_layers=0,
        max_readers=0,
        batch_size=ROOTS // 2 if half else ROOTS,
        steps=1,
        delta=1e-5,
    ).calibrated(epsilon=epsilon)
    there, empty = (
        World(each, plan, setting, exact=exact, device=device, hidden=hidden)
        for each in (graph, graph.with_row_emptied(CANARY, "sender"))
    )
    return there, empty, plan


def total_sum(world: World, setting: str) -> Sums:
    """What a batch of all roots adds up to, in the order in which training adds it."""
    if setting != "two processes":
        return world.sum_of()
    roots = world.graph.train_idx
    ours, theirs = world.sum_of(roots[0::2]), world.sum_of(roots[1::2])
    return {name: value + theirs[name] for name, value in ours.items()}


def attack(
    setting: str,
    *,
    exact: bool,
    trials: int,
    device: torch.device | str = "cpu",
    epsilon: float = 0.25,
    hidden: int = 128,
) -> tuple[list[Result], float]:
    """Guess `trials` times; return what every attack got right, and how often anybody may be right."""
    device = torch.device(device)
    *worlds, plan = build_worlds(setting, epsilon, exact=exact, device=device, hidden=hidden)
    rng = np.random.default_rng()
    coins = rng.integers(0, 2, trials)
    seen: dict[str, dict[str, list[Tensor]]] = {view: {} for view in VIEWS}
    for coin in coins:
        for view, sums in worlds[coin].step().items():
            for name, value in sums.items():
                seen[view].setdefault(name, []).append(value.reshape(-1).cpu())
    totals = [
        {name: value.double().cpu().numpy().ravel() for name, value in total_sum(world, setting).items()}
        for world in worlds
    ]
    results = []
    for view in VIEWS:
        stacked = {name: torch.stack(values).numpy()[:, None] for name, values in seen[view].items()}
        for name, score in SCORES.items():
            scores = [_score(stacked, total, score, plan) for total in totals]
            guesses = np.where(scores[0] == scores[1], rng.integers(0, 2, trials), scores[1] > scores[0])
            right = int((guesses == coins).sum())
            bound = stats.binomtest(right, trials, alternative="greater").proportion_ci(CONFIDENCE).low
            results.append(Result(view, name, right, float(bound)))
    return results, right_guesses_at_most(plan)


def _score(
    seen: Mapping[str, np.ndarray], total: Mapping[str, np.ndarray], score: Any, plan: PrivacyPlan
) -> np.ndarray:
    """[trials]: how well the sums of one graph explain what was seen."""

    def of(sums: Mapping[str, np.ndarray]) -> np.ndarray:
        parts = [score(seen[name], sums[name], plan.sigma, plan.batch_size)[:, 0] for name in seen]
        return np.asarray(np.sum(parts, axis=0))

    rate = plan.sampling_rate
    if rate == 1:
        return of(total)
    nothing = {name: np.zeros_like(value) for name, value in total.items()}
    # The canary is in the batch or not, and nobody else has a label.
    return np.logaddexp(of(nothing) + np.log1p(-rate), of(total) + np.log(rate))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    begin, failures = time.monotonic(), 0
    print(f"{arguments.device}, torch {torch.__version__}, {arguments.trials} trials, epsilon 0.25")
    for setting in SETTINGS:
        for exact in (True, False):
            results, limit = attack(setting, exact=exact, trials=arguments.trials, device=arguments.device)
            print(f"{setting}, {'exact' if exact else 'float32'} noise; allowed: right in {limit:.1%}")
            for view in VIEWS:
                of_view = [result for result in results if result.view == view]
                line = ", ".join(f"{r.attack} {r.right} (at least {r.at_least:.1%})" for r in of_view)
                exceeds = max(result.at_least for result in of_view) > limit
                failures += exceeds == exact
                print(f"  {view:<17} {'EXCEEDS' if exceeds else 'within':<8} {line}", flush=True)
    print(f"{failures} surprises, {time.monotonic() - begin:.0f} s")
    raise SystemExit(failures > 0)


if __name__ == "__main__":
    main()
