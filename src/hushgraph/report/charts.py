"""Charts as inline SVG. Colours come from the page, and each chart has a title and a description in words.

The functions return `Markup`, which templates insert as it is; every text and attribute is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 440, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 16, 46
_TOP_BELOW_LABEL = 34
_TICKS = 5
# Bars narrower than this are hard to tell apart, so a chart of many classes grows wider.
_FEW_BARS = 8
_NARROWEST_BAR = 16
# Widths of a letter, on average in a label below a bar, at most in a tick label.
_LETTER, _TICK_LETTER = 7.0, 8.5
# The name of the vertical axis stands to the left of its tick labels.
_AXIS_NAME = 28
# Ticks closer than this, relative to the values, would have the same label.
_NARROWEST_RANGE = 1e-4
_SMALLEST = 1e-300
# Accuracies that differ by less than one percentage point are drawn on an axis of one point.
_NARROWEST_SHARE = 0.01


class Figure(NamedTuple):
    """A chart and its caption."""

    caption: str
    chart: Markup


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: what it measures, its ticks, and how a tick is written."""

    label: str
    ticks: tuple[float, ...]
    text: Callable[[float], str] = "{:,g}".format

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
        label: below the bar; a line break starts a second line.
        value: None draws no bar.
        kind: a class of the style sheet: "plain", "safe" or "unsafe".
        text: above the bar.
    """

    label: str
    value: float | None
    kind: str = "plain"
    text: str = ""


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


def line_chart(
    *,
    name: str,
    title: str,
    description: str,
    points: Sequence[tuple[float, float]],
    x: Axis,
    y: Axis,
    limit: tuple[float, str] | None = None,
    reference: tuple[Sequence[tuple[float, float]], str] | None = None,
    has_dots: bool = True,
) -> Figure:
    """Draw a line with a dot at every point.

    Args:
        name: a prefix for identifiers, unique on the page.
        title: the caption.
        description: what a screen reader says.
        points: in the order in which they are joined.
        x, y: the axes; every point lies within them.
        limit: a dashed horizontal line and its label.
        reference: a dashed line to compare with and its label, which stands in the upper right corner.
        has_dots: False for a curve of many points.
    """
    left = _left_margin(y)
    to_x, to_y = _scale(x, left, WIDTH - _RIGHT), _scale(y, HEIGHT - _BOTTOM, _TOP)
    parts = [_draw_grid(y, to_y, left, WIDTH)]
    for tick in x.ticks:
        # A label that would leave the picture on the right moves inside.
        most = WIDTH - _TICK_LETTER * len(x.text(tick)) / 2
        parts.append(draw_text(min(to_x(tick), most), HEIGHT - _BOTTOM + 19, x.text(tick), "middle"))
    if limit is not None:
        parts.append(_draw_limit(to_y(limit[0]), left, WIDTH, limit[1], to_y(limit[0]) - 4))

    def join(line: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{to_x(a):.1f},{to_y(b):.1f}" for a, b in line)

    if reference is not None:
        parts.append(element("polyline", class_="limit", points=join(reference[0])))
        parts.append(draw_text(WIDTH - _RIGHT, _TOP + 16, reference[1], "end", "value"))
    parts.append(element("polyline", class_="line", points=join(points)))
    if has_dots:
        parts += [element("circle", class_="dot", cx=to_x(a), cy=to_y(b), r=3) for a, b in points]
    parts.append(_draw_axis_names(x.label, y.label, left, WIDTH))
    return draw_image(name, title, description, WIDTH, HEIGHT, parts)


def bar_chart(
    *,
    name: str,
    title: str,
    description: str,
    bars: Sequence[Bar],
    x_label: str,
    y: Axis,
    limit: tuple[float, str] | None = None,
) -> Figure:
    """Draw vertical bars from zero; arguments as in `line_chart`."""
    left = _left_margin(y)
    longest = max((len(line) for bar in bars for line in bar.label.split("\n")), default=1)
    slot = max((WIDTH - left - _RIGHT) / max(1, len(bars)), _NARROWEST_BAR)
    if len(bars) <= _FEW_BARS:
        # A few bars all have their labels; the chart grows instead.
        slot = max(slot, (longest + 1) * _LETTER)
    width = left + _RIGHT + slot * len(bars)
    to_y = _scale(y, HEIGHT - _BOTTOM, _TOP if limit is None else _TOP_BELOW_LABEL)
    parts = [_draw_grid(y, to_y, left, width)]
    # Labels that would run into each other are left out.
    every = max(1, math.ceil((longest + 1) * _LETTER / slot))
    middles = [left + slot * (place + 0.5) for place in range(len(bars))]
    parts += [
        _draw_bar(bar.kind, bar.value, middle, min(slot * 0.7, 64.0), to_y)
        for bar, middle in zip(bars, middles, strict=True)
        if bar.value is not None
    ]
    if limit is not None:
        # Its label stands above the plot and the figures on the bars: on the line it would cover bars.
        parts.append(_draw_limit(to_y(limit[0]), left, width, limit[1], _TOP - 5))
    for place, (bar, middle) in enumerate(zip(bars, middles, strict=True)):
        if bar.value is not None and bar.text:
            parts.append(draw_text(middle, to_y(bar.value) - 4, bar.text, "middle", "value"))
        for number, line in enumerate(bar.label.split("\n") if place % every == 0 else ()):
            parts.append(draw_text(middle, HEIGHT - _BOTTOM + 15 + 14 * number, line, "middle"))
    parts.append(_draw_axis_names(x_label, y.label, left, width))
    return draw_image(name, title, description, width, HEIGHT, parts)


def _left_margin(y: Axis) -> float:
    """Leave room for the longest tick label and the name of the axis."""
    return max(_LEFT, _AXIS_NAME + _TICK_LETTER * max(len(y.text(tick)) for tick in y.ticks))


def _scale(axis: Axis, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - axis.low) / (axis.high - axis.low) * (end - start)


def _draw_grid(y: Axis, to_y: Callable[[float], float], left: float, width: float) -> Markup:
    parts = []
    for tick in y.ticks:
        at = to_y(tick)
        parts.append(element("line", class_="grid", x1=left, x2=width - _RIGHT, y1=at, y2=at))
        parts.append(draw_text(left - 6, at + 4, y.text(tick), "end"))
    return Markup().join(parts)


def _draw_bar(kind: str, value: float, middle: float, width: float, to_y: Callable[[float], float]) -> Markup:
    top = to_y(value)
    box = {"x": middle - width / 2, "y": top, "width": width, "height": max(0.0, to_y(0) - top)}
    return element("rect", class_=f"bar {kind}", **box)


def _draw_limit(at: float, left: float, width: float, label: str, label_at: float) -> Markup:
    line = element("line", class_="limit", x1=left, x2=width - _RIGHT, y1=at, y2=at)
    return line + draw_text(width - _RIGHT, label_at, label, "end", "value")


def _draw_axis_names(x_label: str, y_label: str, left: float, width: float) -> Markup:
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turn = f"translate(13 {middle:.1f}) rotate(-90)"
    vertical = element("text", y_label, text_anchor="middle", transform=turn)
    return draw_text((left + width - _RIGHT) / 2, HEIGHT - 6, x_label, "middle") + vertical


def draw_text(x: float, y: float, text: str, anchor: str, kind: str = "") -> Markup:
    """Place text; the anchor is "start", "middle" or "end"."""
    named = {"class_": kind} if kind else {}
    return element("text", text, x=float(x), y=float(y), text_anchor=anchor, **named)


def draw_image(
    name: str, title: str, description: str, width: float, height: float, parts: Sequence[Markup]
) -> Figure:
    """Put parts into a picture; one wider than a column of the page keeps its width and scrolls."""
    style = {"style": f"width:{width:.0f}px"} if width > WIDTH else {}
    content = [
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *parts,
    ]
    drawn = element(
        "svg",
        Markup().join(content),
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        **style,
    )
    return Figure(title, drawn)


def element(tag: str, content: str | None = None, /, **attributes: object) -> Markup:
    """Return one SVG element; text and attributes are escaped, `class_` is class, `a_b` is a-b."""
    names = {name: name.removesuffix("_").replace("_", "-") for name in attributes}
    shown = {
        names[name]: f"{value:.1f}" if isinstance(value, float) else str(value)
        for name, value in attributes.items()
    }
    start = Markup("").join(Markup(' {}="{}"').format(name, value) for name, value in shown.items())
    if content is None:
        return Markup("<{}{}/>").format(tag, start)
    return Markup("<{}{}>{}</{}>").format(tag, start, content, tag)
