"""How much of every root's gradient enters the sum: factors from norms, never a norm above C."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hushgraph.errors import PlanError
from hushgraph.privacy.clipping import ClippingRule, get_rule

GROUPS = ("encoder", "aggregation", "decoder")

# float32 products of rows lose digits where rows cancel; the squared norm used is larger by this part of the
# size of what cancels, the squared sum of the norms of single rows' gradients. It also bounds that sum: after
# clipping, the norms of a root's rows add up to at most C / sqrt(ROUNDING_MARGIN).
ROUNDING_MARGIN = 2.0**-14

# No factor is larger than 1e15 C, whatever the norm.
SMALLEST_SQUARE = 1e-30


class Rule(NamedTuple):
    """A clipping rule as numbers, see `factor_of`.

    Attributes:
        clips: of every group.
        limit: no factor is larger.
        stability: added to norms.
        is_grouped: whether every group has a norm of its own; otherwise the norm is that of all groups.
    """

    clips: tuple[float, ...]
    limit: float = 1.0
    stability: float = 0.0
    is_grouped: bool = False


def factor_of(norm: Any, clip: float, limit: float, stability: float, least: Any) -> Any:
    """What a gradient of this norm is multiplied by: the formula of every built-in rule.

    `least` is the minimum of two numbers: kernels compile this for numbers, torch calls it with tensors.
    """
    return least(limit, clip / (norm + stability))


# Leaves every gradient as it is, except those that are not finite.
UNCLIPPED = Rule(clips=(math.inf,) * len(GROUPS))


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """Turns per-root gradient norms into factors.

    Attributes:
        kind: "normalised": factor C / (norm + stability), which reads no threshold off the data and gives
            every root nearly the same weight; "flat": min(1, C / norm); "groups": flat, per group of layers;
            or the name of a rule that is registered.
        clip: C, the largest norm of one root's clipped gradient, all groups together.
        thresholds: per group of `GROUPS`; C / sqrt(3) each unless given. Their root sum of squares is C.
        stability: keeps roots whose gradient is small from being blown up to norm C.
        class_weights: what the clipped gradient of a root is multiplied by, for every class; from 0 to 1.

    Guarantees:
        The clipped gradient of a root has norm at most C; one whose norm is not finite has factor 0.
    """

    kind: str = "normalised"
    clip: float = 1.0
    thresholds: tuple[float, float, float] | None = None
    stability: float = 0.1
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.class_weights is not None and not all(0 <= weight <= 1 for weight in self.class_weights):
            raise PlanError(f"class_weights={self.class_weights}: expected numbers from 0 to 1")
        if self.kind not in ("normalised", "flat", "groups") and self.own_rule is None:
            raise PlanError(
                f"clipping={self.kind!r}: expected 'normalised', 'flat', 'groups' or a registered rule"
            )
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise PlanError(f"clip={self.clip}: expected a finite norm above 0")
        if not (math.isfinite(self.stability) and self.stability >= 0):
            raise PlanError(f"stability={self.stability}: expected a finite number, at least 0")
        if self.kind != "groups":
            if self.thresholds is not None:
                raise PlanError(f"thresholds={self.thresholds}: only clipping 'groups' takes thresholds")
            return
        if self.thresholds is None:
            object.__setattr__(self, "thresholds", (self.clip / math.sqrt(len(GROUPS)),) * len(GROUPS))
        elif len(self.thresholds) != len(GROUPS) or not all(
            math.isfinite(t) and t > 0 for t in self.thresholds
        ):
            raise PlanError(f"thresholds={self.thresholds}: expected {len(GROUPS)} finite norms above 0")
        elif not math.isclose(math.hypot(*self.thresholds), self.clip, rel_tol=1e-6):
            raise PlanError(
                f"thresholds={self.thresholds} have root sum of squares {math.hypot(*self.thresholds):.6g}, "
                f"clip={self.clip}: expected them to be equal; use Clipping.of_groups(thresholds)"
            )

    @classmethod
    def of_groups(cls, thresholds: tuple[float, float, float]) -> Clipping:
        """Group clipping whose C follows from its thresholds."""
        return cls(kind="groups", clip=math.hypot(*thresholds), thresholds=thresholds)

    @property
    def own_rule(self) -> ClippingRule | None:
        """The rule that was registered under this name; None for one that is built in."""
        return get_rule(self.kind)

    @property
    def rule(self) -> Rule:
        """The numbers that the factors of a built-in rule are computed from."""
        if self.own_rule is not None:
            raise TypeError(f"clipping={self.kind!r}: expected a built-in rule")
        if self.thresholds is not None:
            return Rule(is_grouped=True, clips=self.thresholds)
        clips = (self.clip,) * len(GROUPS)
        if self.kind == "flat":
            return Rule(clips=clips)
        return Rule(clips=clips, limit=math.inf, stability=self.stability)

    def weigh(self, factors: Tensor, labels: Tensor) -> Tensor:
        """Factors [groups, roots] times the weights of the classes of the roots, which are at most 1."""
        if self.class_weights is None:
            return factors
        # A root without a label, -1, is given the last weight, and contributes nothing anyway.
        return factors * _place_weights((*self.class_weights, 0.0), factors.device)[labels]

    @property
    def of_persons(self) -> Clipping:
        """What sums of clipped and weighted gradients are clipped with: to C at most, never up to it."""
        kind = "groups" if self.kind == "groups" else "flat"
        return Clipping(kind=kind, clip=self.clip, thresholds=self.thresholds)

    def factors(self, squared_norms: Tensor, sizes: Tensor | None = None) -> Tensor:
        """float64 factors [groups, roots] from squared norms [groups, roots] and sizes of what cancelled.

        Without `sizes` nothing has cancelled. Where groups share a factor, their sum may be given as one.
        """
        squared_norms = squared_norms.double()
        safe = squared_norms.clamp(min=0) + SMALLEST_SQUARE
        finite = torch.isfinite(squared_norms).all(0)
        if sizes is not None:
            safe = squared_norms.clamp(min=0) + ROUNDING_MARGIN * sizes.double() + SMALLEST_SQUARE
            finite = finite & torch.isfinite(sizes).all(0)
        if self.own_rule is not None:
            norm = safe.sum(0).sqrt()
            # From 0 to C / norm, whatever the rule gives.
            own = self.own_rule(norm, self.clip).nan_to_num(nan=0.0).clamp(min=0)
            return torch.where(finite, torch.minimum(own, self.clip / norm).expand_as(safe), 0.0)
        rule = self.rule
        norms = safe.sqrt() if rule.is_grouped else safe.sum(0, keepdim=True).sqrt()
        # By numbers, not by a tensor of thresholds: nothing is copied to a GPU that records.
        each = [
            factor_of(norm, clip, rule.limit, rule.stability, _least)
            for clip, norm in zip(rule.clips, norms, strict=False)
        ]
        factors = torch.stack(each)
        return torch.where(finite, factors.expand_as(safe), 0.0)


def _least(limit: float, values: Tensor) -> Tensor:
    return values.clamp(max=limit)


# Kept: a GPU that records takes no new numbers from the host.
@lru_cache(maxsize=64)
def _place_weights(weights: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(weights, dtype=torch.float64, device=device)


def group_of(parameter_name: str) -> int:
    """Which of `GROUPS` a parameter belongs to: by the name of the model's part, aggregation otherwise."""
    part = parameter_name.split(".", 1)[0]
    return GROUPS.index(part) if part in GROUPS else GROUPS.index("aggregation")
