"""Pictures of a plan: what one row can move, and what the budget is spent on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hushgraph.report.charts import WIDTH, Figure, draw_image, draw_text, element

_ROW_WIDTH, _OUTCOME_LEFT, _ARROW_GAP = 112.0, 152.0, 4.0
_LINE, _PADDING, _GAP = 17.0, 12.0, 10.0
_TOP = 6.0
_STRIP_TOP, _STRIP_HEIGHT, _STRIP_MARGIN = 8.0, 28.0, 8.0
# A part narrower than this is named in the description alone.
_NARROWEST_NAME = 60.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Something that training releases.

    Attributes:
        what: what it is.
        lines: what bounds it, a line each.
        is_covered: whether the guarantee covers it.
    """

    what: str
    lines: tuple[str, ...]
    is_covered: bool

    @property
    def name(self) -> str:
        return f"{self.what}: {'covered' if self.is_covered else 'not covered'}"

    @property
    def height(self) -> float:
        return 2 * _PADDING + _LINE * (1 + len(self.lines)) - 4


def draw_bounds(row: Sequence[str], outcomes: Sequence[Outcome]) -> Figure:
    """Draw one person's row, and an arrow to everything that it can move.

    Args:
        row: the lines of the box on the left; the first is its name.
        outcomes: from top to bottom.
    """
    tops = [_TOP]
    for outcome in outcomes:
        tops.append(tops[-1] + outcome.height + _GAP)
    height = tops[-1] - _GAP + _TOP
    middle = height / 2
    parts = [_draw_box("row", 4.0, middle - _row_height(row) / 2, _ROW_WIDTH, _row_height(row), row)]
    for top, outcome in zip(tops, outcomes, strict=False):
        kind = "covered" if outcome.is_covered else "uncovered"
        lines = (outcome.name, *outcome.lines)
        parts.append(_draw_arrow(middle, top + outcome.height / 2, kind))
        parts.append(_draw_box(kind, _OUTCOME_LEFT, top, WIDTH - _OUTCOME_LEFT - 4, outcome.height, lines))
    description = " ".join(f"{outcome.name}, {', '.join(outcome.lines)}." for outcome in outcomes)
    return draw_image("bounds", "What one row can move", description, WIDTH, height, parts)


def draw_budget(parts: Sequence[tuple[str, float]]) -> Figure:
    """Draw the parts of a budget, names and shares of 1, as one strip."""
    width, left, drawn = WIDTH - 2 * _STRIP_MARGIN, _STRIP_MARGIN, []
    for place, (name, share) in enumerate(parts):
        size = width * share
        kind = f"share {'odd' if place % 2 else 'even'}"
        box = {"x": left, "y": _STRIP_TOP, "width": size, "height": _STRIP_HEIGHT}
        drawn.append(element("rect", class_=kind, **box))
        if size >= _NARROWEST_NAME:
            for number, line in enumerate((name, f"{share:.0%}")):
                at = _STRIP_TOP + _STRIP_HEIGHT + 16 * (number + 1)
                drawn.append(draw_text(left + size / 2, at, line, "middle"))
        left += size
    description = ", ".join(f"{name} {share:.1%}" for name, share in parts) + "."
    height = _STRIP_TOP + _STRIP_HEIGHT + 40
    return draw_image("budget", "What the budget is spent on", description, WIDTH, height, drawn)


def _row_height(lines: Sequence[str]) -> float:
    return 2 * _PADDING + _LINE * len(lines) - 4


def _draw_box(
    kind: str, left: float, top: float, width: float, height: float, lines: Sequence[str]
) -> Markup:
    box = {"x": left, "y": top, "width": width, "height": height, "rx": 5}
    parts = [element("rect", class_=f"box {kind}", **box)]
    for number, line in enumerate(lines):
        at = top + _PADDING + 11 + _LINE * number
        parts.append(draw_text(left + _PADDING - 2, at, line, "start", "" if number else "name"))
    return Markup().join(parts)


def _draw_arrow(start: float, end: float, kind: str) -> Markup:
    left, right = 4 + _ROW_WIDTH, _OUTCOME_LEFT - _ARROW_GAP
    points = f"{left:.1f},{start:.1f} {right:.1f},{end:.1f}"
    tip = f"{right - 5:.1f},{end - 4:.1f} {right + 3:.1f},{end:.1f} {right - 5:.1f},{end + 4:.1f}"
    line = element("polyline", class_=f"arrow {kind}", points=points)
    return line + element("polyline", class_=f"tip {kind}", points=tip)
