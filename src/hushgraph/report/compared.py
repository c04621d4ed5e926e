"""The models of a comparison, side by side, on the page of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hushgraph.privacy.guarantee import Assumption, name_kind
from hushgraph.report.charts import Axis, Bar, bar_chart, choose_ticks
from hushgraph.report.pages import Cell, Figure, Table, format_epsilon
from hushgraph.report.results import format_accuracy

_PERCENT = "{:.0%}".format
# Beside the name of a model, so that colour is not all that says it.
_STANDINGS = {True: "private", False: "not private"}


def show_comparison(facts: Mapping[str, Any]) -> tuple[Figure, Table] | None:
    """Return the compared models as a chart and a table."""
    if facts["comparison"] is None:
        return None
    rows = facts["comparison"]["rows"]
    bars = [
        Bar(
            label="\n".join([row["name"].partition(" (")[0], _STANDINGS[row["guarantee"] == "holds"]]),
            value=row["test_accuracy"],
            kind="safe" if row["guarantee"] == "holds" else "unsafe",
            text="" if row["test_accuracy"] is None else f"{row['test_accuracy']:.1%}",
        )
        for row in rows
    ]
    chart = bar_chart(
        name="comparison",
        title="Test accuracy of the compared models",
        description=", ".join(f"{row['name']} {format_accuracy(row)}" for row in rows) + ".",
        bars=bars,
        x_label="",
        y=Axis(label="test accuracy", ticks=choose_ticks(0, 1), text=_PERCENT),
    )
    table = Table(
        caption="Models on the same split",
        heads=(
            "model",
            "architecture",
            "predictions",
            "guarantee",
            "epsilon",
            "test",
            "validation",
            "macro-F1",
            "seconds",
        ),
        rows=[_tabulate_model(row, facts["comparison"]["assumptions"]) for row in rows],
        numeric_from=4,
    )
    return Figure(caption="Test accuracy", chart=chart), table


def _tabulate_model(row: Mapping[str, Any], assumptions: Sequence[Mapping[str, str]]) -> list[str | Cell]:
    guarantee = name_kind(row["guarantee"], [Assumption(**each) for each in assumptions])
    return [
        row["name"],
        row["model"],
        row["predictions"],
        Cell(text=guarantee, kind="holds" if row["guarantee"] == "holds" else "unsafe"),
        format_epsilon(row["epsilon"]),
        *(format_accuracy(row, key) for key in ("test_accuracy", "val_accuracy", "macro_f1")),
        f"{row['seconds']:.1f}",
    ]
