"""Training broken on purpose, to see whether the audit notices. Nothing here is reached by `train`.

Two are loops with a mistake, one is a plan with a mistake, and two are what the paper describes, which
`PrivacyPlan` itself calls "claimed by the paper".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hushgraph.audit.trials import Attacked
from hushgraph.audit.witness import replaced
from hushgraph.errors import InputError
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.clip import Clipping
from hushgraph.privacy import bounds
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.training import trainer as loop

# The name by which the loop calls `gradients.noise.noisy`.
_NOISY = "noisy"


@dataclass(eq=False)
class HalfTheNoise(Attacked):
    """Adds half of the noise that was paid for."""

    def use(self, clipping: Clipping) -> None:
        super().use(clipping)
        self.sigmas = {name: sigma / 2 for name, sigma in self.sigmas.items()}


@dataclass(eq=False)
class TheSameNoiseTwice(Attacked):
    """Every second step repeats the noise of the step before it."""

    kept: dict[str, Tensor] = field(default_factory=dict)

    def step(self, pieces: Iterable[TreeBatch]) -> None:
        drawn = getattr(loop, _NOISY)

        def again(sums: Mapping[str, Tensor], *rest: Any, **more: Any) -> dict[str, Tensor]:
            if self.state.step % 2 == 0:
                released: dict[str, Tensor] = drawn(sums, *rest, **more)
                self.kept = {name: released[name] - value for name, value in sums.items()}
                return released
            return {name: value + self.kept[name] for name, value in sums.items()}

        with replaced(loop, _NOISY, again):
            super().step(pieces)


@dataclass(frozen=True, kw_only=True)
class TooFewTrees(PrivacyPlan):
    """Counts the trees that change as if there were one layer less."""

    @property
    def changed_trees(self) -> int:
        return bounds.occurrences(self.max_readers, max(0, self.num_layers - 1))


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is broken, and the setting in which it shows.

    Attributes:
        words: what is wrong.
        trainer: the loop to attack.
        plan: the class of the plan.
        changes: fields of the plan that this fault needs.
    """

    words: str
    trainer: type[Attacked] = Attacked
    plan: type[PrivacyPlan] = PrivacyPlan
    changes: Mapping[str, Any] = field(default_factory=dict)


FAULTS = {
    "half-noise": Fault(words="half of the planned noise is added", trainer=HalfTheNoise),
    "reused-noise": Fault(words="every second step reuses the noise of the last", trainer=TheSameNoiseTwice),
    "too-few-trees": Fault(words="n is counted for one layer less", plan=TooFewTrees),
    "per-layer-noise": Fault(
        words="noise per layer, scaled to each layer's threshold, as the paper has it",
        changes={"clipping": "groups", "noise": "per-layer", "max_readers": 0, "max_reads": None},
    ),
    "paper-sampler": Fault(
        words="the paper's sampler where readers own the edges, as the paper has it",
        changes={"sampler": "paper", "edge_owner": "reader", "max_reads": None},
    ),
}


def fault_called(name: str) -> Fault:
    """The fault, or what is wrong with its name."""
    if name not in FAULTS:
        raise InputError(f"fault={name!r}: expected one of {', '.join(FAULTS)}")
    return FAULTS[name]
