"""Clipping rules by name: those built in, and those that programs register.

Built-in rules are computed by `hushgraph.gradients.clip`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

from hushgraph.errors import PlanError
from hushgraph.privacy import choices

if TYPE_CHECKING:
    from torch import Tensor

ClippingRule = Callable[["Tensor", float], "Tensor"]
"""From the gradient norms of roots, float64 [roots], and C to factors of the same shape.

Guarantees:
    A factor is at most C / norm, and depends on the norm of its own root alone.
"""

_RULES: dict[str, ClippingRule] = {}
# Norms that a rule is tried on, 0 and powers of ten, and the rounding that it may have.
_EXPONENTS, _ROUNDING = range(-14, 15), 1e-9


def register_clipping(name: str) -> Callable[[ClippingRule], ClippingRule]:
    """Make a rule known as `clipping=name`; a decorator of the function.

    Raises:
        PlanError: if the name is built in, or the rule breaks its promise on norms that are tried.

    Examples:
        >>> from hushgraph.privacy.clipping import register_clipping
        >>> @register_clipping("smooth")
        ... def clip_smoothly(norms, clip):
        ...     return clip / (clip**2 + norms.square()).sqrt()
    """

    def register(rule: ClippingRule) -> ClippingRule:
        if name in get_args(choices.Clipping):
            raise PlanError(f"clipping={name!r}: it is built in; choose another name")
        check_rule(name, rule)
        _RULES[name] = rule
        return rule

    return register


def list_clippings() -> tuple[str, ...]:
    """The names of all rules."""
    return (*get_args(choices.Clipping), *_RULES)


def get_rule(name: str) -> ClippingRule | None:
    """The rule that was registered under a name; None for one that is built in."""
    return _RULES.get(name)


def check_rule(name: str, rule: ClippingRule) -> None:
    """Try a rule on norms from 0 to 1e14; PlanError for a root above C, or one that others have a part in."""
    # Imported here: whoever only reads a plan should not wait for torch.
    import torch

    norms = torch.tensor([0.0, *(10.0**exponent for exponent in _EXPONENTS)], dtype=torch.float64)
    for clip in (1e-3, 1.0, 1e3):
        factors = rule(norms, clip)
        if factors.shape != norms.shape or not (factors.isfinite() & (factors >= 0)).all():
            raise PlanError(f"clipping={name!r}: expected a finite factor of at least 0 for every root")
        largest = float((factors * norms).max())
        if largest > clip * (1 + _ROUNDING):
            raise PlanError(
                f"clipping={name!r}: a root adds {largest:.6g} with clip={clip:g}; expected at most clip"
            )
        alone = torch.cat([rule(norm[None], clip) for norm in norms])
        if not torch.allclose(alone, factors, rtol=_ROUNDING, atol=0.0):
            raise PlanError(
                f"clipping={name!r}: the factor of a root depends on others; expected its own norm alone"
            )
