"""The models of a comparison, side by side, on the page of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph.figures.names import name_figure
from hushgraph.privacy.guarantee import Assumption, name_kind
from hushgraph.report.charts import Axis, Bar, BarChart, choose_ticks
from hushgraph.report.results import format_result

# How values are written, above bars and at ticks, where they are not plain numbers.
_WRITTEN, _TICKS = {"accuracy": "{:.1%}"}, {"accuracy": "{:.0%}"}
# Beside the name of a model, so that colour is not all that says it.
_STANDINGS = {True: "private", False: "not private"}


def draw_comparison(facts: Mapping[str, Any]) -> BarChart | None:
    """Draw what the compared models reach on the test split."""
    if facts["comparison"] is None:
        return None
    rows = facts["comparison"]["rows"]
    # Comparisons of earlier versions are judged by accuracy.
    figure = rows[0].get("figure", "accuracy")
    key, words = f"test_{figure}", f"test {name_figure(figure)}"
    bars = [
        Bar(
            label="\n".join([row["name"].partition(" (")[0], _STANDINGS[row["guarantee"] == "holds"]]),
            # R² may be far below 0, which is as bad as 0 is.
            value=None if row[key] is None else max(0.0, row[key]),
            kind="safe" if row["guarantee"] == "holds" else "unsafe",
            text="" if row[key] is None else _WRITTEN.get(figure, "{:.3f}").format(row[key]),
        )
        for row in rows
    ]
    return BarChart(
        name="comparison",
        title=f"{words[0].upper()}{words[1:]}",
        description=", ".join(f"{row['name']} {format_result(row, key)}" for row in rows) + ".",
        bars=bars,
        x_label="",
        y=Axis(label=words, ticks=choose_ticks(0, 1), text=_TICKS.get(figure, "{:.1f}").format),
    )


def name_guarantee(row: Mapping[str, Any], comparison: Mapping[str, Any]) -> str:
    """Return the guarantee of a compared model in words."""
    return name_kind(row["guarantee"], [Assumption(**each) for each in comparison["assumptions"]])
