"""Covered figures on the page: whole splits, classes and groups, each with both intervals."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hushgraph.report.pages import render_template
from hushgraph.report.results import TOO_FEW, are_covered, list_exact, name_standing


def entry(value: float | None, **others: Any) -> dict[str, Any]:
    row = {"split": "test", "group": None, "class": None, "figure": "accuracy", "value": value}
    ends = [None, None] if value is None else [value - 0.01, value + 0.01]
    wide = [None, None] if value is None else [value - 0.03, value + 0.03]
    return {**row, "noise": ends, "sampling": wide, **others}


TABLE = [
    entry(0.81),
    entry(0.80, split="val"),
    entry(0.77, figure="macro_f1"),
    entry(12.5, figure="mae"),
    entry(0.9, **{"class": 1}),
    entry(0.7, group="age over 60"),
    entry(None, group="age under 20"),
    entry(0.6, group="age over 60", **{"class": 0}),
]


def facts(**result: Any) -> dict[str, Any]:
    names = {"class_names": ["north", "south"], "number_unit": "days"}
    return {"result": result, **names, "test": None, "judged_by": "accuracy"}


def tables(facts: dict[str, Any]) -> dict[str, list[tuple[str, ...]]]:
    """The rows of the tables on the page, by caption."""
    covered = are_covered(facts["result"])
    html = render_template(
        "results.html",
        facts=facts,
        is_covered=covered,
        exact=list_exact(facts),
        class_chart=None,
        too_few=TOO_FEW,
    )
    found = re.findall(r"<caption>(.*?)</caption>.*?<tbody>(.*?)</tbody>", html, re.DOTALL)
    return {
        caption: [
            tuple(re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row))
            for row in re.findall("<tr>.*?</tr>", body, re.DOTALL)
        ]
        for caption, body in found
    }


def test_figures_have_two_intervals_by_split_by_class_and_by_group() -> None:
    shown = tables(facts(figures="covered", figure_table=TABLE))
    assert list(shown) == ["Figures of whole splits", "Figures by class", "Figures by group"]
    overall, classes, groups = shown.values()
    assert overall[0] == ("test", "accuracy", "81.00%", "80.00% to 82.00%", "78.00% to 84.00%")
    assert overall[1][:3] == ("validation", "accuracy", "80.00%")
    assert overall[2][1:3] == ("macro-F1", "77.00%")
    assert overall[3][1:4] == ("mean absolute error (days)", "12.5", "12.49 to 12.51")
    assert classes == [
        ("south", "test", "accuracy", "90.00%", "89.00% to 91.00%", "87.00% to 93.00%"),
    ]
    assert [row[0] for row in groups] == ["age over 60", "age under 20", "age over 60, north"]
    assert groups[1][3:] == ("too few to tell", "none", "none")


def test_a_run_without_groups_has_no_table_of_them() -> None:
    assert list(tables(facts(figures="covered", figure_table=TABLE[:3]))) == ["Figures of whole splits"]


@pytest.mark.parametrize(
    "result", [{}, {"figures": "not covered"}, {"figures": "not covered", "figure_table": TABLE}]
)
def test_exact_figures_are_called_exact(result: dict[str, Any]) -> None:
    exact = facts(val_accuracy=0.5, test_accuracy=None, **result)
    assert not are_covered(exact["result"])
    assert name_standing(exact["result"]) == "exact, not covered"
    assert tables(exact) == {
        "Exact figures, not covered": [
            ("validation accuracy", "50.00%"),
            ("test accuracy", "no labelled nodes"),
        ]
    }


def test_covered_accuracies_are_not_repeated_as_exact() -> None:
    covered = facts(figures="covered", figure_table=TABLE, val_accuracy=0.8, test_accuracy=0.81)
    assert list_exact(covered) == []
    asked = facts(figures="covered", figure_table=TABLE, train_accuracy=0.9)
    assert list_exact(asked) == [("training accuracy (private)", "90.00%")]
