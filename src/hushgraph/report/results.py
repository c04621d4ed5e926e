"""How well the model does: covered figures with their intervals, exact ones, by class and by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hushgraph.figures.names import format_figure, name_figure
from hushgraph.report.charts import Axis, Bar, bar_chart, choose_ticks
from hushgraph.report.pages import Figure, Table, format_percent

# Bars have their figure on top where there is room for it.
_FEW_CLASSES = 10
_LONGEST_NAME = 12
_PERCENT = "{:.0%}".format
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


def tabulate_covered(facts: Mapping[str, Any]) -> list[Table]:
    """Return covered figures of whole splits, of classes and of groups, as far as there are any."""
    rows = facts["result"].get("figure_table") if are_covered(facts["result"]) else None
    if not rows:
        return []
    classes = [row for row in rows if row["class"] is not None and row["group"] is None]
    groups = [row for row in rows if row["group"] is not None]
    overall = [row for row in rows if row["class"] is None and row["group"] is None]
    names, unit = facts["class_names"], facts["number_unit"]
    tables = [
        _tabulate(
            "Figures of whole splits", ("split", "figure"), overall, lambda row: _name_split(row, unit)
        ),
        _tabulate(
            "Figures by class",
            ("class", "split", "figure"),
            classes,
            lambda row: (_name_class(row["class"], names), *_name_split(row, unit)),
        ),
        _tabulate(
            "Figures by group",
            ("group", "split", "figure"),
            groups,
            lambda row: (_name_group(row, names), *_name_split(row, unit)),
        ),
    ]
    return [table for table in tables if table.rows]


def _tabulate(caption: str, heads: tuple[str, ...], rows: Sequence[Mapping[str, Any]], name: Any) -> Table:
    return Table(
        caption=caption,
        heads=(*heads, "value", "interval, noise", "interval, sampling"),
        rows=[
            (
                *name(row),
                _format(row["figure"], row["value"]),
                _format_interval(row["figure"], row.get("noise")),
                _format_interval(row["figure"], row.get("sampling")),
            )
            for row in rows
        ],
        numeric_from=len(heads),
    )


def _name_split(row: Mapping[str, Any], unit: str) -> tuple[str, str]:
    return SPLITS.get(row["split"], str(row["split"])), name_figure(row["figure"], unit)


def _name_class(number: int, names: Sequence[str] | None) -> str:
    return str(number) if names is None else names[number]


def _name_group(row: Mapping[str, Any], names: Sequence[str] | None) -> str:
    group = str(row["group"])
    return group if row["class"] is None else f"{group}, {_name_class(row['class'], names)}"


def _format(figure: str, value: float | None) -> str:
    return TOO_FEW if value is None else format_figure(figure, value)


def _format_interval(figure: str, ends: Sequence[float | None] | None) -> str:
    if ends is None or None in ends:
        return "none"
    return " to ".join(_format(figure, end) for end in ends)


def tabulate_splits(facts: Mapping[str, Any]) -> Table | None:
    """Return exact figures of whole splits; None where the covered ones have a table."""
    result, rows = facts["result"], []
    if not are_covered(result):
        # Two classes are judged by ROC-AUC, and have an accuracy too; a number has none.
        rows += [
            (f"{words} {name_figure(figure)}", format_result(result, key))
            for figure in dict.fromkeys((facts["judged_by"], "accuracy"))
            for split, words in SPLITS.items()
            for key in [f"{split}_{figure}"]
            if result.get(key) is not None or (figure == facts["judged_by"] and key in result)
        ]
    if facts["test"] is not None:
        rows += [
            (f"{name_figure(name, facts['number_unit'])} on the test split", _format(name, value))
            for name, value in facts["test"].items()
            if isinstance(value, float) and (are_covered(result) or name != "accuracy")
        ]
    if "train_accuracy" in result:
        rows.append(("training accuracy (private)", format_percent(result["train_accuracy"])))
    if not rows:
        return None
    return Table(caption="Exact figures, not covered", heads=("figure", "value"), rows=rows, numeric_from=1)


def show_classes(facts: Mapping[str, Any]) -> tuple[Figure, Table] | None:
    """Return exact accuracy per class as a chart and a table, where the data was at hand."""
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
    caption = "Test accuracy per class"
    chart = bar_chart(
        name="classes",
        title=caption,
        description=(
            f"One bar for each of {len(classes)} classes, the most frequent first, and a dashed line for all "
            f"classes together at {overall:.1%}. The figures are in the table that follows."
        ),
        bars=bars,
        x_label="class, the most frequent first",
        y=Axis(label="accuracy", ticks=choose_ticks(0, 1), text=_PERCENT),
        limit=(overall, f"dashed: all classes, {overall:.1%}"),
    )
    table = Table(
        caption="Results per class on the test split, exact",
        heads=("class", "test nodes", "accuracy"),
        rows=[
            (c["name"], f"{c['nodes']:,}", "none" if c["accuracy"] is None else f"{c['accuracy']:.2%}")
            for c in classes
        ],
        numeric_from=1,
    )
    return Figure(caption=caption, chart=chart), table


def _shorten(name: str) -> str:
    """Cut a name to what fits under a bar; the table has all of it."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
