"""What steps cost: events, the two accountants, and the search for noise or steps within a budget."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.accounting.accountants import Accountant, make_accountant
    from hushgraph.accounting.calibrate import most_steps, smallest_noise, smallest_scale
    from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, GaussianEvent, PoissonDraw, StepEvent

__all__ = [
    "Accountant",
    "Draw",
    "Event",
    "FixedSizeDraw",
    "GaussianEvent",
    "PoissonDraw",
    "StepEvent",
    "make_accountant",
    "most_steps",
    "smallest_noise",
    "smallest_scale",
]

_HOMES = {
    "Accountant": "accountants",
    "Draw": "events",
    "Event": "events",
    "FixedSizeDraw": "events",
    "GaussianEvent": "events",
    "PoissonDraw": "events",
    "StepEvent": "events",
    "make_accountant": "accountants",
    "most_steps": "calibrate",
    "smallest_noise": "calibrate",
    "smallest_scale": "calibrate",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the events alone must not cost the import of the accountants."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
