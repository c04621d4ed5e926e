"""How well the model does: what figures are called and how they are written, exact ones, and by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph.figures.names import format_figure, name_figure
from hushgraph.report.charts import Axis, Bar, BarChart, choose_ticks
from hushgraph.report.pages import format_percent

# Bars have their figure on top where there is room for it.
_FEW_CLASSES = 10
_LONGEST_NAME = 12
SPLITS = {"val": "validation", "test": "test"}
"""What evaluated splits are called."""

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
    return format_figure(key.removeprefix("val_").removeprefix("test_"), value)


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
            (f"{name_figure(name)} on the test split", format_figure(name, value))
            for name, value in facts["test"].items()
            if isinstance(value, float) and (are_covered(result) or name != "accuracy")
        ]
    if "train_accuracy" in result:
        rows.append(("training accuracy (private)", format_percent(result["train_accuracy"])))
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
