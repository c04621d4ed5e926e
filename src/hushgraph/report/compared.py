"""The models of a comparison, side by side, on the page of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hushgraph.figures.names import name_figure
from hushgraph.privacy.guarantee import Assumption, name_kind
from hushgraph.report.charts import Axis, Bar, bar_chart, choose_ticks
from hushgraph.report.pages import Cell, Figure, Table, format_epsilon
from hushgraph.report.results import format_result

# How values are written, above bars and at ticks, where they are not plain numbers.
_WRITTEN, _TICKS = {"accuracy": "{:.1%}"}, {"accuracy": "{:.0%}"}
# Beside the name of a model, so that colour is not all that says it.
_STANDINGS = {True: "private", False: "not private"}


def show_comparison(facts: Mapping[str, Any]) -> tuple[Figure, Table] | None:
    """Return the compared models as a chart and a table."""
    if facts["comparison"] is None:
        return None
    rows = facts["comparison"]["rows"]
    # Comparisons of earlier versions are judged by accuracy.
    figure = rows[0].get("figure", "accuracy")
    key, words = f"test_{figure}", name_figure(figure)
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
    chart = bar_chart(
        name="comparison",
        title=f"Test {words} of the compared models",
        description=", ".join(f"{row['name']} {format_result(row, key)}" for row in rows) + ".",
        bars=bars,
        x_label="",
        y=Axis(label=f"test {words}", ticks=choose_ticks(0, 1), text=_TICKS.get(figure, "{:.1f}").format),
    )
    has_f1 = any(row["macro_f1"] is not None for row in rows)
    table = Table(
        caption=f"Models on the same split, {words}",
        heads=(
            "model",
            "architecture",
            "predictions",
            "guarantee",
            "epsilon",
            "test",
            "validation",
            *["macro-F1"] * has_f1,
            "seconds",
        ),
        rows=[
            _tabulate_model(
                row,
                facts["comparison"]["assumptions"],
                keys=(key, f"val_{figure}", *["macro_f1"] * has_f1),
            )
            for row in rows
        ],
        numeric_from=4,
    )
    return Figure(caption=f"Test {words}", chart=chart), table


def _tabulate_model(
    row: Mapping[str, Any], assumptions: Sequence[Mapping[str, str]], *, keys: Sequence[str]
) -> list[str | Cell]:
    guarantee = name_kind(row["guarantee"], [Assumption(**each) for each in assumptions])
    return [
        row["name"],
        row["model"],
        row["predictions"],
        Cell(text=guarantee, kind="holds" if row["guarantee"] == "holds" else "unsafe"),
        format_epsilon(row["epsilon"]),
        *(format_result(row, key) for key in keys),
        f"{row['seconds']:.1f}",
    ]
