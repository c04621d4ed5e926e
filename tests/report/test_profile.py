"""Curves of one choice: the axis holds every value, points stand where a slider's thumb does."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.report.profile import HEIGHT, WIDTH, across, log_axis, profile_chart


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=5))
def test_the_axis_holds_every_value(values: list[float]) -> None:
    axis = log_axis(values)
    assert axis.low <= min(values)
    assert axis.high >= max(values)
    assert axis.ticks
    for value in (*values, *axis.ticks):
        assert 0 < axis.at(value) < HEIGHT


def test_a_narrow_range_has_ticks_at_two_and_five() -> None:
    assert log_axis([0.0021, 0.0099]).ticks == (0.002, 0.005, 0.01)
    assert log_axis([0.003, 3.0]).ticks == (0.01, 0.1, 1.0)
    assert log_axis([0.5]).ticks == (0.5, 1.0)


def test_points_are_as_far_apart_as_the_places_of_a_slider() -> None:
    # The style sheet places the slider by these numbers.
    assert across(2) == [78, 310]
    assert across(3) == [78, 194, 310]
    assert across(1) == [78]
    assert WIDTH == 340


def test_the_curve_skips_what_has_no_price() -> None:
    svg = profile_chart(
        name="p",
        title="t",
        description="d",
        labels=["1", "2", "3"],
        values=[0.1, None, 0.01],
        texts=["0.1", "not priced", "0.01"],
        chosen=1,
        axis=log_axis([0.1, 0.01]),
    )
    root = ElementTree.fromstring(svg)
    parts = {part.attrib["id"]: part for part in root.iter() if "id" in part.attrib}
    first, last = (pair.split(",") for pair in parts["p-line"].attrib["points"].split())
    assert [float(first[0]), float(last[0])] == [78, 310]
    assert float(first[1]) < float(last[1])
    assert parts["p-mark"].attrib["visibility"] == "hidden"
    assert parts["p-value"].text == "not priced"
    assert [dot.attrib.get("visibility") for dot in parts["p-dots"]] == [None, "hidden", None]
    assert float(parts["p-guide"].attrib["x1"]) == pytest.approx(194)
