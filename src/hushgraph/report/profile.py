"""A small chart of one choice: the noise as only that choice changes, on an axis that all charts share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hushgraph.report.charts import svg_image, svg_text

WIDTH, HEIGHT = 340, 176
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 4, 22, 24
# The outermost points keep this distance from the edge of the plot, for their labels.
_INSET = 26
# So many powers of ten or more between lowest and highest, and ticks at 2 and 5 would be too many.
_MANY_DECADES = 1.6


@dataclass(frozen=True, kw_only=True)
class LogAxis:
    """A logarithmic vertical axis from `low` to `high`."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """How far down the picture a value is."""
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return round(HEIGHT - _BOTTOM - part * (HEIGHT - _BOTTOM - _TOP), 1)


def log_axis(values: Sequence[float]) -> LogAxis:
    """An axis that holds all of these positive values."""
    lowest, highest = min(values), max(values)
    first, last = math.floor(math.log10(lowest)) - 1, math.ceil(math.log10(highest)) + 1
    round_numbers = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in (1, 2, 5)]
    low = max(number for number in round_numbers if number <= lowest)
    high = min(number for number in round_numbers if number > low and number >= highest)
    inside = [number for number in round_numbers if low <= number <= high]
    if math.log10(high / low) > _MANY_DECADES:
        inside = [number for number in inside if f"{number:e}".startswith("1.")]
    return LogAxis(low=low, high=high, ticks=tuple(inside))


def across(count: int) -> list[float]:
    """Where `count` values stand from left to right: at equal distances, like the places of a slider."""
    first, last = _LEFT + _INSET, WIDTH - _RIGHT - _INSET
    return [round(first + (last - first) * place / max(1, count - 1), 1) for place in range(count)]


def profile_chart(
    *,
    name: str,
    title: str,
    description: str,
    labels: Sequence[str],
    values: Sequence[float | None],
    texts: Sequence[str],
    chosen: int,
    axis: LogAxis,
) -> str:
    """A line through the values of one choice, the chosen one marked and named.

    Args:
        name: an identifier of its own on the page; the parts that move have identifiers that begin with it.
        title, description: what a screen reader says.
        labels: of the values of the choice.
        values: the noise at each; None where there is no price.
        texts: the same in words.
        chosen: which of them is marked.
        axis: the vertical axis.
    """
    xs = across(len(labels))
    ys = [None if value is None else axis.at(value) for value in values]
    bottom = HEIGHT - _BOTTOM
    parts = []
    for tick in axis.ticks:
        at = axis.at(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(svg_text(_LEFT - 5, at + 4, f"{tick:g}", "end"))
    parts += [svg_text(x, bottom + 17, label, "middle") for x, label in zip(xs, labels, strict=True)]
    middle, mark = xs[chosen], ys[chosen]
    at = bottom if mark is None else mark
    parts.append(
        f'<line class="guide" id="{name}-guide" x1="{middle}" x2="{middle}" y1="{_TOP}" y2="{bottom}"/>'
    )
    places = [f"{x},{y}" for x, y in zip(xs, ys, strict=True) if y is not None]
    parts.append(f'<polyline class="line" id="{name}-line" points="{" ".join(places)}"/>')
    dots = "".join(
        f'<circle class="dot" cx="{x}" cy="{0 if y is None else y}" r="2.6"{_hidden(y)}/>'
        for x, y in zip(xs, ys, strict=True)
    )
    parts.append(f'<g id="{name}-dots">{dots}</g>')
    parts.append(f'<circle class="mark" id="{name}-mark" cx="{middle}" cy="{at}" r="5.5"{_hidden(mark)}/>')
    parts.append(
        f'<text class="value" id="{name}-value" x="{middle}" y="{round(at - 11, 1)}" '
        f'text-anchor="middle">{texts[chosen]}</text>'
    )
    return svg_image(name, title, description, WIDTH, HEIGHT, parts)


def _hidden(y: float | None) -> str:
    return ' visibility="hidden"' if y is None else ""
