"""Five models side by side on one split: what neighbours are worth, and what privacy costs."""

from __future__ import annotations

from hushgraph.comparison.comparing import DEMO_MARK, SETTINGS, compare, name_run
from hushgraph.comparison.result import BILLBOARD, FOLDERS, NAMES, Comparison, Entry

__all__ = [
    "BILLBOARD",
    "DEMO_MARK",
    "FOLDERS",
    "NAMES",
    "SETTINGS",
    "Comparison",
    "Entry",
    "compare",
    "name_run",
]
