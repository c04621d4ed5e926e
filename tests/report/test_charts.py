"""Charts: ticks that enclose, points that fall where they should, words for those who cannot see them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.report.charts import (
    Axis,
    Bar,
    BarChart,
    LineChart,
    choose_ticks,
    share_axis,
)
from hushgraph.report.pages import load_template

WORDS = {"name": "c", "title": 'a "title" & <more>', "description": "what it <shows>"}
UNIT = Axis(label="part", ticks=(0.0, 0.5, 1.0))
WIDTH, HEIGHT = 440, 270


def line_chart(**about: Any) -> str:
    return str(load_template("charts.svg").module.line_chart(LineChart(**about)))


def bar_chart(**about: Any) -> str:
    return str(load_template("charts.svg").module.bar_chart(BarChart(**about)))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, (0, 0.25, 0.5, 0.75, 1)),
        (0, 100, (0, 25, 50, 75, 100)),
        (0.61, 0.79, (0.6, 0.65, 0.7, 0.75, 0.8)),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert choose_ticks(low, high) == expected


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_enclose_and_are_few(low: float, width: float) -> None:
    found = choose_ticks(low, low + width)
    assert 2 <= len(found) <= 12
    assert list(found) == sorted(set(found))
    slack = 1e-6 * max(1.0, abs(low), width)
    assert found[0] <= low + slack
    assert found[-1] >= low + width - slack


def test_a_line_goes_through_its_points() -> None:
    svg = line_chart(**WORDS, points=[(0, 0), (1, 1)], x=UNIT, y=UNIT, limit=(0.5, "half"))
    root = ElementTree.fromstring(svg)
    points = root.find("polyline").attrib["points"]
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in points.split())
    assert 0 < x0 < x1 < WIDTH
    assert 0 < y1 < y0 < HEIGHT
    dashed = root.find("line[@class='limit']").attrib
    assert float(dashed["y1"]) == pytest.approx((y0 + y1) / 2, abs=0.1)
    assert len(root.findall("circle")) == 2


def test_words_are_there_and_escaped() -> None:
    for svg in (
        line_chart(**WORDS, points=[(0, 0)], x=UNIT, y=UNIT),
        bar_chart(**WORDS, bars=[Bar(label="<b>", value=1.0, text="<i>")], x_label="<x>", y=UNIT),
    ):
        root = ElementTree.fromstring(svg)
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-labelledby"] == "c-title c-desc"
        assert (root.find("title").text, root.find("title").attrib["id"]) == (WORDS["title"], "c-title")
        assert (root.find("desc").text, root.find("desc").attrib["id"]) == (WORDS["description"], "c-desc")
        assert not re.search("<(b|i|x|more|shows)>", svg)


def test_bars_are_as_high_as_their_values() -> None:
    bars = [Bar(label="a", value=1.0), Bar(label="b", value=0.25, kind="safe"), Bar(label="c\nd", value=None)]
    root = ElementTree.fromstring(bar_chart(**WORDS, bars=bars, x_label="", y=UNIT))
    heights = [float(bar.attrib["height"]) for bar in root.findall("rect")]
    assert heights[0] == pytest.approx(4 * heights[1], rel=0.01)
    assert [bar.attrib["class"] for bar in root.findall("rect")] == ["bar plain", "bar safe"]
    assert {"a", "b", "c", "d"} <= {text.text for text in root.findall("text")}


def test_many_bars_make_a_wider_chart_with_fewer_labels() -> None:
    bars = [Bar(label=str(number), value=0.5) for number in range(1000)]
    root = ElementTree.fromstring(bar_chart(**WORDS, bars=bars, x_label="", y=UNIT))
    width = float(root.attrib["viewBox"].split()[2])
    assert width > 16 * 1000
    assert len(root.findall("rect")) == 1000
    labels = [text for text in root.findall("text") if (text.text or "").isdigit()]
    assert 100 < len(labels) < 600


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_accuracies_have_an_axis_of_at_least_one_point(shares: list[float]) -> None:
    axis = share_axis("accuracy", shares)
    assert axis.ticks[-1] - axis.ticks[0] >= 0.01 - 1e-12
    assert -1e-9 <= axis.ticks[0] <= min(shares) + 1e-9
    assert max(shares) - 1e-9 <= axis.ticks[-1] <= 1 + 1e-9
    labels = [axis.text(tick) for tick in axis.ticks]
    assert len(set(labels)) == len(labels)
    assert len({len(label.partition(".")[2]) for label in labels}) == 1


def test_two_accuracies_close_together_do_not_fill_the_chart() -> None:
    axis = share_axis("accuracy", [0.7990, 0.7995])
    root = ElementTree.fromstring(
        line_chart(**WORDS, points=[(0, 0.7990), (1, 0.7995)], x=UNIT, y=axis),
    )
    first, last = (float(pair.split(",")[1]) for pair in root.find("polyline").attrib["points"].split())
    assert first - last < 0.06 * HEIGHT


def test_tick_labels_leave_room_for_the_name_of_the_axis() -> None:
    axis = share_axis("accuracy", [0.7990, 0.7995])
    assert max(len(axis.text(tick)) for tick in axis.ticks) == 6
    root = ElementTree.fromstring(line_chart(**WORDS, points=[(0, 0.799)], x=UNIT, y=axis))
    labels = [text for text in root.findall("text") if (text.text or "").endswith("%")]
    name = root.find("text[@transform]").attrib["transform"]
    # Turned text of 12.5 pixels stands around its line; a digit is up to 8.5 pixels wide.
    right_of_name = float(re.search(r"translate\(([\d.]+)", name)[1]) + 4
    assert all(float(label.attrib["x"]) - 8.5 * len(label.text) > right_of_name for label in labels)


def test_a_reference_is_dashed_and_a_curve_has_no_dots() -> None:
    percent = Axis(label="", ticks=(0.0, 1.0), text="{:.0%}".format)
    reference = ([(0.0, 1.0), (1.0, 0.0)], "a <guess>")
    points = [(0.0, 1.0), (0.5, 0.2), (1.0, 0.0)]
    svg = line_chart(**WORDS, points=points, x=percent, y=percent, reference=reference, has_dots=False)
    root = ElementTree.fromstring(svg)
    assert [line.attrib["class"] for line in root.findall("polyline")] == ["limit", "line"]
    assert root.findall("circle") == []
    assert "a <guess>" in {text.text for text in root.findall("text")}
    # The last label below the axis is inside the picture.
    labels = [text.attrib for text in root.findall("text") if text.text == "100%"]
    below = [each for each in labels if each["text-anchor"] == "middle"]
    width = float(root.attrib["viewBox"].split()[2])
    assert float(below[0]["x"]) + 8.5 * len("100%") / 2 <= width
