"""Charts: what is drawn, and round ticks that enclose it. `templates/charts.svg` draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

_TICKS = 5
# The least room to the left of a chart, in a letter of its tick labels, and for the name of the axis.
_LEFT, _TICK_LETTER, _AXIS_NAME = 56, 8.5, 28
# Ticks closer than this, relative to the values, would have the same label.
_NARROWEST_RANGE = 1e-4
_SMALLEST = 1e-300
# Accuracies that differ by less than one percentage point are drawn on an axis of one point.
_NARROWEST_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: what it measures, its ticks, and how a tick is written."""

    label: str
    ticks: tuple[float, ...]
    text: Callable[[float], str] = "{:,g}".format

    @property
    def margin(self) -> float:
        """The room to the left of a vertical axis: for the longest tick label and the name of the axis."""
        return max(_LEFT, _AXIS_NAME + _TICK_LETTER * max(len(self.text(tick)) for tick in self.ticks))

    def place(self, value: float, start: float, end: float) -> float:
        """Return where a value lies between the ends of the axis."""
        low, high = self.ticks[0], self.ticks[-1]
        return start + (value - low) / (high - low) * (end - start)


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """A line with a dot at every point.

    Attributes:
        name: a prefix for identifiers, unique on the page.
        title: the caption.
        description: what a screen reader says.
        points: in the order in which they are joined.
        x, y: the axes; every point lies within them.
        limit: a dashed horizontal line and its label.
        reference: a dashed line to compare with and its label, which stands in the upper right corner.
        has_dots: False for a curve of many points.
    """

    name: str
    title: str
    description: str
    points: Sequence[tuple[float, float]]
    x: Axis
    y: Axis
    limit: tuple[float, str] | None = None
    reference: tuple[Sequence[tuple[float, float]], str] | None = None
    has_dots: bool = True


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar.

    Attributes:
        label: below the bar; a line break starts a second line.
        value: None draws no bar.
        kind: a class of the style sheet: "plain", "safe" or "unsafe".
        text: above the bar.
    """

    label: str
    value: float | None
    kind: str = "plain"
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class BarChart:
    """Vertical bars from zero; attributes as in `LineChart`."""

    name: str
    title: str
    description: str
    bars: Sequence[Bar]
    x_label: str
    y: Axis
    limit: tuple[float, str] | None = None

    @property
    def longest_label(self) -> int:
        """The number of letters of the longest line below a bar."""
        return max((len(line) for bar in self.bars for line in bar.label.split("\n")), default=1)


def choose_ticks(low: float, high: float, *, most: int = _TICKS) -> tuple[float, ...]:
    """Return round numbers that enclose low..high, at least two and about `most` of them."""
    size = max(abs(low), abs(high))
    if size < _SMALLEST:
        low, high, size = (-1.0 if low < 0 else 0.0), 1.0, 1.0
    if not high - low > _NARROWEST_RANGE * size:
        low, high = low - size / 2, high + size / 2
    raw = (high - low) / (most - 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{number * step:.12g}") for number in range(first, max(last, first + 1) + 1))


def share_axis(label: str, values: Iterable[float]) -> Axis:
    """Return an axis in percent that encloses shares of 1, over at least one percentage point."""
    known = list(values)
    low, high = min(known), max(known)
    if high - low < _NARROWEST_SHARE:
        low = min(max(0.0, (low + high - _NARROWEST_SHARE) / 2), 1.0 - _NARROWEST_SHARE)
        high = low + _NARROWEST_SHARE
    ticks = choose_ticks(low, high)
    # All labels have as many decimals as the longest needs.
    decimals = max(len(f"{100 * tick:.4g}".partition(".")[2]) for tick in ticks)
    return Axis(label=label, ticks=ticks, text=lambda part: f"{100 * part:.{decimals}f}%")
