"""Small charts as inline SVG: colours come from the page, and every chart says in words what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 16, 46
_TICKS = 5
# Bars narrower than this are hard to tell apart, so a chart of many classes grows wider.
_NARROWEST_BAR = 16
_LETTER = 7.0
# Ticks closer than this, relative to the values, would read the same.
_NARROWEST_RANGE = 1e-4
# Numbers below this have no logarithm worth the name.
_NOTHING = 1e-300


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: what it measures, its ticks, and how a tick is written."""

    label: str
    ticks: tuple[float, ...]
    text: Callable[[float], str] = "{:g}".format

    @property
    def low(self) -> float:
        return self.ticks[0]

    @property
    def high(self) -> float:
        return self.ticks[-1]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar.

    Attributes:
        label: under the bar; a line break starts a second line.
        value: None draws no bar.
        kind: a class of the style sheet: "plain", "safe" or "unsafe".
        text: over the bar.
    """

    label: str
    value: float | None
    kind: str = "plain"
    text: str = ""


def ticks(low: float, high: float, *, most: int = _TICKS) -> tuple[float, ...]:
    """Round numbers that enclose low..high, at least two and about `most` of them."""
    size = max(abs(low), abs(high))
    if size < _NOTHING:
        low, high, size = (-1.0 if low < 0 else 0.0), 1.0, 1.0
    if not high - low > _NARROWEST_RANGE * size:
        low, high = low - size / 2, high + size / 2
    raw = (high - low) / (most - 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{number * step:.12g}") for number in range(first, max(last, first + 1) + 1))


def line_chart(
    *,
    name: str,
    title: str,
    description: str,
    points: Sequence[tuple[float, float]],
    x: Axis,
    y: Axis,
    limit: tuple[float, str] | None = None,
) -> str:
    """A line with a mark at every point.

    Args:
        name: an identifier of its own on the page.
        title, description: what a screen reader says.
        points: in the order in which they are joined.
        x, y: the axes; every point lies within them.
        limit: a dashed horizontal line, and what it is called.
    """
    to_x, to_y = _scale(x, _LEFT, WIDTH - _RIGHT), _scale(y, HEIGHT - _BOTTOM, _TOP)
    parts = [_horizontal(y, to_y, WIDTH), *_vertical_labels(x, to_x)]
    if limit is not None:
        parts.append(_dashed(to_y(limit[0]), WIDTH, limit[1], to_y(limit[0]) - 4))
    path = " ".join(f"{to_x(a):.1f},{to_y(b):.1f}" for a, b in points)
    parts.append(f'<polyline class="line" points="{path}"/>')
    parts += [f'<circle class="dot" cx="{to_x(a):.1f}" cy="{to_y(b):.1f}" r="3"/>' for a, b in points]
    parts.append(_axis_names(x.label, y.label, WIDTH))
    return svg_image(name, title, description, WIDTH, HEIGHT, parts)


def bar_chart(
    *,
    name: str,
    title: str,
    description: str,
    bars: Sequence[Bar],
    x_label: str,
    y: Axis,
    limit: tuple[float, str] | None = None,
) -> str:
    """Vertical bars from zero; arguments as in `line_chart`."""
    room = WIDTH - _LEFT - _RIGHT
    slot = max(room / max(1, len(bars)), _NARROWEST_BAR)
    width = _LEFT + _RIGHT + slot * len(bars)
    to_y = _scale(y, HEIGHT - _BOTTOM, _TOP)
    parts = [_horizontal(y, to_y, width)]
    thick = min(slot * 0.7, 64.0)
    longest = max((len(line) for bar in bars for line in bar.label.split("\n")), default=1)
    every = max(1, math.ceil((longest + 1) * _LETTER / slot))
    for place, bar in enumerate(bars):
        middle = _LEFT + slot * (place + 0.5)
        if bar.value is not None:
            top = to_y(bar.value)
            parts.append(
                f'<rect class="bar {escape(bar.kind)}" x="{middle - thick / 2:.1f}" y="{top:.1f}" '
                f'width="{thick:.1f}" height="{max(0.0, to_y(0) - top):.1f}"/>'
            )
            if bar.text:
                parts.append(svg_text(middle, top - 4, bar.text, "middle", "value"))
        if place % every == 0:
            for number, line in enumerate(bar.label.split("\n")):
                parts.append(svg_text(middle, HEIGHT - _BOTTOM + 15 + 14 * number, line, "middle"))
    if limit is not None:
        # Its words stand above the plot: on the line they would cover bars.
        parts.append(_dashed(to_y(limit[0]), width, limit[1], _TOP - 5))
    parts.append(_axis_names(x_label, y.label, width))
    return svg_image(name, title, description, width, HEIGHT, parts)


def _scale(axis: Axis, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - axis.low) / (axis.high - axis.low) * (end - start)


def _horizontal(y: Axis, to_y: Callable[[float], float], width: float) -> str:
    parts = []
    for value in y.ticks:
        at = to_y(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        parts.append(svg_text(_LEFT - 6, at + 4, y.text(value), "end"))
    return "".join(parts)


def _vertical_labels(x: Axis, to_x: Callable[[float], float]) -> list[str]:
    return [svg_text(to_x(value), HEIGHT - _BOTTOM + 16, x.text(value), "middle") for value in x.ticks]


def _dashed(at: float, width: float, words: str, words_at: float) -> str:
    line = f'<line class="limit" x1="{_LEFT}" x2="{width - _RIGHT:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
    return line + svg_text(width - _RIGHT, words_at, words, "end", "value")


def _axis_names(x_label: str, y_label: str, width: float) -> str:
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turn = f'transform="translate(13 {middle:.1f}) rotate(-90)"'
    turned = f'<text text-anchor="middle" {turn}>{escape(y_label)}</text>'
    return svg_text((_LEFT + width - _RIGHT) / 2, HEIGHT - 6, x_label, "middle") + turned


def svg_text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    """Words at a place; the anchor is "start", "middle" or "end"."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def svg_image(
    name: str, title: str, description: str, width: float, height: float, parts: Sequence[str]
) -> str:
    """A picture with words for those who cannot see it; one wider than a page's column keeps its width."""
    style = f' style="width:{width:.0f}px"' if width > WIDTH else ""
    box = f'viewBox="0 0 {width:.0f} {height:.0f}"{style}'
    return (
        f'<svg role="img" aria-labelledby="{name}-title {name}-desc" {box}>'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )
