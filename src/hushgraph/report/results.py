"""How well the model does: how figures are called and written, exact ones, by class, and models compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph.figures.names import SPLITS, format_figure, name_figure
from hushgraph.privacy.guarantee import Assumption, name_kind
from hushgraph.report.charts import Axis, Bar, BarChart, choose_ticks

# How values are written, above bars and at ticks, where they are not plain numbers.
_WRITTEN, _TICKS = {"accuracy": "{:.1%}"}, {"accuracy": "{:.0%}"}
# Beside the name of a model, so that colour is not all that says it.
_STANDINGS = {True: "private", False: "not private"}
# Bars have their figure on top where there is room for it.
_FEW_CLASSES = 10
_LONGEST_NAME = 12
TOO_FEW = "too few to tell"
"""In place of a covered figure that its noise hides."""


def are_covered(result: Mapping[str, Any]) -> bool:
    """Whether the figures of a run come from noisy tables that its epsilon covers."""
    return result.get("figures") == "covered"


def name_standing(result: Mapping[str, Any]) -> str:
    """Return what stands beside a figure: that it is covered, or exact and not."""
    return "covered" if are_covered(result) else "exact, not covered"


def format_result(result: Mapping[str, Any], key: str) -> str:
    """Format a figure of a run, or of a row of a comparison; where there is none, say why."""
    value = result.get(key)
    if value is None:
        return TOO_FEW if are_covered(result) else "no labelled nodes"
    split, _, figure = key.partition("_")
    return format_figure(figure if split in ("train", "val", "test") else key, value)


def list_exact(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List exact figures of whole splits, where the covered ones have no table."""
    result, judged_by, rows = facts["result"], facts["judged_by"], []
    if not are_covered(result):
        # Two classes are judged by ROC-AUC, and have an accuracy too; a number has none.
        rows += [
            (f"{words} {name_figure(figure)}", format_result(result, key))
            for figure in dict.fromkeys((judged_by, "accuracy"))
            for split, words in SPLITS.items()
            for key in [f"{split}_{figure}"]
            if result.get(key) is not None or (figure == judged_by and key in result)
        ]
    if facts["test"] is not None:
        rows += [
            (f"{name_figure(name, facts['number_unit'])} on the test split", format_figure(name, value))
            for name, value in facts["test"].items()
            if isinstance(value, float) and (are_covered(result) or name != "accuracy")
        ]
    if "train_accuracy" in result:
        rows.append(("training accuracy (private)", format_result(result, "train_accuracy")))
    return rows


def draw_classes(facts: Mapping[str, Any]) -> BarChart | None:
    """Draw exact accuracy per class, the most frequent first, where the data was at hand."""
    if facts["test"] is None or "classes" not in facts["test"]:
        return None
    overall = facts["test"]["accuracy"]
    classes = sorted(facts["test"]["classes"], key=lambda c: (-c["nodes"], c["class"]))
    bars = [
        Bar(
            label=_shorten(c["name"]),
            value=c["accuracy"],
            text="" if c["accuracy"] is None or len(classes) > _FEW_CLASSES else f"{c['accuracy']:.0%}",
        )
        for c in classes
    ]
    return BarChart(
        name="classes",
        title="Test accuracy per class",
        description=(
            f"One bar for each of {len(classes)} classes, the most frequent first, and a dashed line for all "
            f"classes together at {overall:.1%}. The figures are in the table that follows."
        ),
        bars=bars,
        x_label="class, the most frequent first",
        y=Axis(label="accuracy", ticks=choose_ticks(0, 1), text="{:.0%}".format),
        limit=(overall, f"dashed: all classes, {overall:.1%}"),
    )


def _shorten(name: str) -> str:
    """Cut a name to what fits under a bar; the table has all of it."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def draw_comparison(facts: Mapping[str, Any]) -> BarChart | None:
    """Draw what the compared models reach on the test split."""
    if facts["comparison"] is None:
        return None
    rows = facts["comparison"]["rows"]
    figure = rows[0]["figure"]
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
        title=f"Test {name_figure(figure)} of the compared models",
        description=", ".join(f"{row['name']} {format_result(row, key)}" for row in rows) + ".",
        bars=bars,
        x_label="",
        y=Axis(label=words, ticks=choose_ticks(0, 1), text=_TICKS.get(figure, "{:.1f}").format),
    )


def name_guarantee(row: Mapping[str, Any], comparison: Mapping[str, Any]) -> str:
    """Return the guarantee of a compared model in words."""
    return name_kind(row["guarantee"], [Assumption(**each) for each in comparison["assumptions"]])
