"""Training broken on purpose, to see whether the audit notices. Nothing here is reached by `train`.

A fault is a function from the trainer's collaborators to faulty ones, or a plan with a mistake in it. Two are
what the paper describes, which `PrivacyPlan` itself calls "claimed by the paper".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from hushgraph.audit.collaborators import Collaborators, FloatNoise, Plant, plant_nothing
from hushgraph.errors import InputError
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import bounds
from hushgraph.privacy.plan import PrivacyPlan


class _HalfNoise:
    """Adds half of the noise that was paid for."""

    guarantee: Literal["none"] = "none"

    def __init__(self, real: NoiseSource) -> None:
        self._real = real

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        return self._real.add_noise(sums, {name: sigma / 2 for name, sigma in sigmas.items()})


class _ReusedNoise:
    """Every second step repeats the noise of the step before it."""

    guarantee: Literal["none"] = "none"

    def __init__(self, real: NoiseSource) -> None:
        self._real = real
        self._kept: dict[str, Tensor] | None = None

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return {name: value + kept[name] for name, value in sums.items()}
        released = self._real.add_noise(sums, sigmas)
        self._kept = {name: released[name] - value for name, value in sums.items()}
        return released


def _halve_noise(real: Collaborators) -> Collaborators:
    return replace(real, noise=_HalfNoise(real.noise))


def _reuse_noise(real: Collaborators) -> Collaborators:
    return replace(real, noise=_ReusedNoise(real.noise))


def _add_float_noise(real: Collaborators) -> Collaborators:
    return replace(real, noise=FloatNoise())


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
        plant: makes the trainer's collaborators faulty.
        plan: the class of the plan.
        changes: fields of the plan that this fault needs.
    """

    words: str
    plant: Plant = plant_nothing
    plan: type[PrivacyPlan] = PrivacyPlan
    changes: Mapping[str, Any] = field(default_factory=dict)


FAULTS = {
    "half-noise": Fault(words="half of the planned noise is added", plant=_halve_noise),
    "reused-noise": Fault(words="every second step reuses the noise of the last", plant=_reuse_noise),
    "too-few-trees": Fault(words="n is counted for one layer less", plan=TooFewTrees),
    "per-layer-noise": Fault(
        words="noise per layer, scaled to each layer's threshold, as the paper has it",
        changes={"clipping": "groups", "noise": "per-layer", "max_readers": 0, "max_reads": None},
    ),
    "paper-sampler": Fault(
        words="the paper's sampler where readers own the edges, as the paper has it",
        changes={"sampler": "paper", "edge_owner": "reader", "max_reads": None},
    ),
    "float-noise": Fault(words="float32 noise of torch's generator", plant=_add_float_noise),
}


def get_fault(name: str) -> Fault:
    """Return the fault of this name; raise InputError listing the names if there is none."""
    if name not in FAULTS:
        raise InputError(f"fault={name!r}: expected one of {', '.join(FAULTS)}")
    return FAULTS[name]
