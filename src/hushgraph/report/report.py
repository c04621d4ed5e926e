"""`write_report`: the page of a finished run for a privacy reviewer, and its JSON twin."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._text import digits_down, digits_up, rounded_up
from hushgraph.privacy.guarantee import Assumption, name_kind
from hushgraph.report.charts import Axis, Bar, bar_chart, choose_ticks, line_chart, share_axis
from hushgraph.report.diagram import Outcome, Part, draw_bounds, draw_budget
from hushgraph.report.facts import collect_facts
from hushgraph.report.pages import (
    Cell,
    Figure,
    Table,
    check_page_path,
    format_epsilon,
    format_percent,
    format_value,
    render_template,
    write_page,
)

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder
    from hushgraph.tasks.task import Evaluation

# Bars have their figure on top where there is room for it.
_FEW_CLASSES = 10
_LONGEST_NAME = 12
_PERCENT = "{:.0%}".format


def write_report(
    folder: RunFolder,
    path: str | os.PathLike[str],
    *,
    evaluation: Evaluation | None = None,
    comparison: Mapping[str, Any] | None = None,
) -> None:
    """Write the report of a finished run: one self-contained HTML file, and its JSON twin.

    Args:
        folder: the run on disk.
        path: ends in .html; the twin beside it ends in .json.
        evaluation: results on the test split of its data, for accuracies per class.
        comparison: the comparison it belongs to, as `Comparison.to_json` writes it.

    Guarantees:
        Both files hold the same facts. A file that is not a report is never replaced.
    """
    folder.check_finished()
    place = check_report_path(path)
    facts = collect_facts(folder, evaluation=evaluation, comparison=comparison)
    write_page(place, facts, render_report(facts))


def check_report_path(path: str | os.PathLike[str]) -> Path:
    """Return where a report goes; raise InputError where it cannot be written."""
    return check_page_path(path, option="out")


def render_report(facts: Mapping[str, Any]) -> str:
    """Render the page that shows these facts."""
    return render_template(
        "report.html",
        facts=facts,
        headings=_report_headings(facts),
        title=f"Privacy report: {name_model(facts)} on {name_data(facts)}",
        standing=facts["standing"],
        cards=_report_cards(facts),
        best_guess=rounded_up(100 * facts["guarantee"]["best_guess"]),
        bounds=_draw_bounds(facts),
        guarantee_figures=_tabulate_guarantee(facts) if facts["statement"] else None,
        has_epsilon=_has_epsilon(facts),
        has_validation=any(record["val_accuracy"] is not None for record in facts["spending"]),
        spending_charts=_draw_spending(facts),
        spending=_tabulate_spending(facts),
        splits=_tabulate_splits(facts),
        class_results=_show_classes(facts),
        compared=_show_comparison(facts),
        settings=_tabulate_settings(facts),
        provenance=_tabulate_provenance(facts),
    )


# Beside the name of a model, so that colour is not all that says it.
_STANDINGS = {True: "private", False: "not private"}


def name_model(facts: Mapping[str, Any]) -> str:
    """Name the model; only one whose guarantee holds is called DP."""
    model = facts["config"]["model"]
    name = "own model" if model == "own" else model.upper()
    if title := facts["words"]["title"]:
        name = title if model == "mlp" else f"{title} with {name}"
    return f"DP-{name}" if facts["standing"]["kind"] == "holds" else name


def name_data(facts: Mapping[str, Any]) -> str:
    """Name the data."""
    # Data that was given as an object has no name but that of its type.
    return "an unnamed graph" if facts["data"] in ("Graph", "Data") else str(facts["data"])


def _report_headings(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return identifiers and headings of the sections, in order."""
    first = {
        "holds": "The guarantee in full",
        "claimed": "The claim in full",
        "none": "No guarantee",
    }.get(facts["standing"]["kind"], "The plan, not guaranteed")
    headings = {
        "guarantee": first,
        "spending": "Epsilon spent, accuracy reached",
        "results": "Results",
        "comparison": "Comparison",
        "configuration": "Configuration",
        "provenance": "Ledger and versions",
        "terms": "Terms on this page",
    }
    if facts["comparison"] is None:
        del headings["comparison"]
    return headings


def _report_cards(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    kind, figures = facts["standing"]["kind"], facts["guarantee_details"]
    epsilon, delta = format_epsilon(figures["epsilon"]), digits_up(figures["delta"])
    if kind in ("holds", "claimed"):
        note = ", claimed" if kind == "claimed" else ""
        two = format_epsilon(figures["epsilon_group_of_two"])
        cards = [(f"epsilon, one node{note}", epsilon), (f"epsilon, two nodes{note}", two), ("delta", delta)]
    else:
        cards = [("epsilon guaranteed", epsilon)]
        if facts["statement"]:
            spent = format_epsilon(figures["priced_epsilon"])
            cards += [("epsilon spent, not guaranteed", spent), ("delta", delta)]
    if facts["comparison"] is not None:
        total = facts["comparison"]["release_all"]
        name = f"epsilon, all {total['models']} private models"
        cards.insert(0, (name, format_epsilon(total["epsilon"])))
    return [*cards, ("test accuracy (not covered)", format_percent(facts["result"]["test_accuracy"]))]


def _tabulate_guarantee(facts: Mapping[str, Any]) -> Table:
    about, kind = facts["guarantee"], facts["standing"]["kind"]
    captions = {"holds": "The figures of the guarantee", "claimed": "The figures of the claim"}
    rows = [
        *list_epsilons(facts),
        ("delta", digits_up(about["delta"])),
        *facts["figures"],
    ]
    caption = captions.get(kind, "The figures of the plan")
    return Table(caption=caption, heads=("figure", "value"), rows=rows, numeric_from=1)


def list_epsilons(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List epsilon for one row and for every other change that has a figure."""
    about, figures, kind = facts["guarantee"], facts["guarantee_details"], facts["standing"]["kind"]
    note = {"holds": "", "claimed": ", claimed"}.get(kind, ", not guaranteed")
    rows = [
        (f"epsilon, one node{note}", format_epsilon(figures["priced_epsilon"])),
        (f"epsilon, two nodes together{note}", format_epsilon(figures["priced_group_of_two"])),
    ]
    if kind not in ("holds", "claimed"):
        return rows
    edge, label = figures["epsilon_edge"], about["epsilon_label"]
    name = "directed record" if about["directed"] else "undirected edge"
    return [
        *rows,
        (f"epsilon, one {name}{note}", _format_bound(edge)),
        (f"epsilon, one training label{note}", _format_bound(None if label == "inf" else label)),
        (f"epsilon, an evaluated row{note}", format_epsilon(about["epsilon_evaluated"])),
        (f"epsilon, a row of no split{note}", format_epsilon(about["epsilon_other"])),
    ]


def _format_bound(value: float | str | None) -> str:
    return "no bound derived" if value is None else f"at most {format_epsilon(value)}"


def _draw_bounds(facts: Mapping[str, Any]) -> Figure | None:
    """Draw what one row can move; nothing where no guarantee holds, because then nothing bounds it."""
    if facts["standing"]["kind"] != "holds":
        return None
    row = ("One row", "features", "label", facts["words"]["records"])
    chart = draw_bounds(row, _list_outcomes(facts))
    return Figure(caption="What one row can move", chart=chart)


def _list_outcomes(facts: Mapping[str, Any]) -> list[Outcome]:
    """List what a run releases, and what bounds the part of one row in it."""
    about, num_train = facts["guarantee"], facts["plan"]["num_train_nodes"]
    outcomes = [
        Outcome(what=charge["name"], lines=tuple(charge["bounds"]), is_covered=True)
        for charge in facts["charges"]
        if not charge["is_step"]
    ]
    changed = min(about["changed_trees"], num_train)
    unit = "examples" if changed == 1 else "trees"
    bounds = (
        f"at most {changed:,} of {num_train:,} training {unit}",
        f"noise {digits_down(about['sigma_over_clip'], digits=3)} C on the sum of a step",
    )
    outcomes.append(Outcome(what="Weights", lines=bounds, is_covered=True))
    if about["predictions"] == "not covered":
        return [
            *outcomes,
            Outcome(what="Predictions", lines=("read neighbours in the clear",), is_covered=False),
        ]
    others = ("read their own rows and released values",)
    own = ("a function of this row, without noise",)
    return [
        *outcomes,
        Outcome(what="Others' predictions", lines=others, is_covered=True),
        Outcome(what="Own prediction", lines=own, is_covered=False),
    ]


def _has_epsilon(facts: Mapping[str, Any]) -> bool:
    return bool(facts["spending"]) and math.isfinite(float(facts["spending"][-1]["epsilon"]))


def _draw_spending(facts: Mapping[str, Any]) -> list[Figure]:
    """Draw epsilon by step and its parts, where it is finite, and validation accuracy by epsilon."""
    records = [record for record in facts["spending"] if record["val_accuracy"] is not None]
    figures = [_draw_epsilon(facts)] if _has_epsilon(facts) else []
    figures += [_draw_accuracy(records)] if records else []
    if _has_epsilon(facts) and len(facts["charges"]) > 1:
        figures.append(_draw_budget(facts["charges"]))
    return figures


def _draw_epsilon(facts: Mapping[str, Any]) -> Figure:
    before = float(facts["epsilon_before_steps"])
    points = [(0.0, before)] + [(float(r["step"]), float(r["epsilon"])) for r in facts["spending"]]
    steps, spent = points[-1]
    total = float(facts["guarantee_details"]["priced_epsilon"])
    name = {"holds": "budget", "claimed": "claimed budget"}.get(facts["standing"]["kind"], "not guaranteed:")
    chart = line_chart(
        name="spent",
        title="Epsilon as it was spent",
        description=(
            f"Epsilon grows from {rounded_up(before)} before the first step to {rounded_up(spent)} after "
            f"step {steps:g}."
        ),
        points=points,
        x=Axis(label="step", ticks=choose_ticks(0, steps)),
        y=Axis(label="epsilon so far", ticks=choose_ticks(0, max(total, spent) * 1.08)),
        limit=(total, f"{name} {rounded_up(total)}"),
    )
    return Figure(caption="Epsilon as it was spent", chart=chart)


def _draw_budget(charges: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw how the budget is divided among charges; shares are of mu^2, which add up."""
    parts = [
        Part(
            name=f"{charge['times']:,} {charge['name']}" if charge["is_step"] else charge["name"],
            share=charge["share"],
        )
        for charge in charges
    ]
    return Figure(caption="What the budget is spent on", chart=draw_budget(parts))


def _draw_accuracy(records: Sequence[Mapping[str, Any]]) -> Figure:
    has_epsilon = all(math.isfinite(float(record["epsilon"])) for record in records)
    across, key = ("epsilon so far", "epsilon") if has_epsilon else ("step", "step")
    points = [(float(record[key]), float(record["val_accuracy"])) for record in records]
    shares = [share for _, share in points]
    caption = f"Validation accuracy against {across}"
    chart = line_chart(
        name="accuracy",
        title=caption,
        description=(
            f"Validation accuracy goes from {min(shares):.1%} at its lowest to {max(shares):.1%} at its "
            f"highest and ends at {shares[-1]:.1%}, where the {across} is {points[-1][0]:.4g}."
        ),
        points=points,
        x=Axis(label=across, ticks=choose_ticks(0, points[-1][0])),
        y=share_axis("validation accuracy", shares),
    )
    return Figure(caption=caption, chart=chart)


def _tabulate_spending(facts: Mapping[str, Any]) -> Table:
    return Table(
        caption="Epsilon and validation accuracy by step",
        heads=("step", "epsilon so far", "validation accuracy"),
        rows=[
            (f"{r['step']:,}", format_epsilon(r["epsilon"]), format_percent(r["val_accuracy"]))
            for r in facts["spending"]
        ],
        numeric_from=1,
    )


def _tabulate_splits(facts: Mapping[str, Any]) -> Table:
    result = facts["result"]
    rows = [
        ("validation accuracy", format_percent(result["val_accuracy"])),
        ("test accuracy", format_percent(result["test_accuracy"])),
    ]
    if facts["test"] is not None:
        rows.append(("macro-F1 on the test split", format_percent(facts["test"]["macro_f1"])))
    if "train_accuracy" in result:
        rows.append(("training accuracy (private, not covered)", format_percent(result["train_accuracy"])))
    return Table(caption="Results by split", heads=("figure", "value"), rows=rows, numeric_from=1)


def _show_classes(facts: Mapping[str, Any]) -> tuple[Figure, Table] | None:
    """Return accuracy per class as a chart and a table, where the data was at hand."""
    if facts["test"] is None:
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
        caption="Results per class on the test split",
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


def _show_comparison(facts: Mapping[str, Any]) -> tuple[Figure, Table] | None:
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
        description=", ".join(f"{row['name']} {format_percent(row['test_accuracy'])}" for row in rows) + ".",
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
        *(format_percent(row[key]) for key in ("test_accuracy", "val_accuracy", "macro_f1")),
        f"{row['seconds']:.1f}",
    ]


def _tabulate_settings(facts: Mapping[str, Any]) -> list[Table]:
    plan = [
        (name, digits_up(value) if name == "delta" else format_value(value))
        for name, value in sorted(facts["plan"].items())
    ]
    config = [(name, format_value(value)) for name, value in sorted(facts["config"].items())]
    config += [(f"number of {name}", format_value(value)) for name, value in facts["shape"].items()]
    heads = ("setting", "value")
    return [
        Table(caption="Privacy plan", heads=heads, rows=plan),
        Table(caption="Training", heads=heads, rows=config),
    ]


def _tabulate_provenance(facts: Mapping[str, Any]) -> list[Table]:
    ledger, result = facts["ledger"], facts["result"]
    rows: list[tuple[str, str | Cell]] = [
        ("SHA-256 of ledger.jsonl", Cell(text=ledger["sha256"], kind="code")),
        ("fingerprint of its plan", Cell(text=ledger["plan"], kind="code")),
        ("steps charged", f"{ledger['steps_charged']:,}"),
        ("epsilon spent", format_epsilon(ledger["epsilon_spent"])),
        ("at delta", digits_up(ledger["delta"])),
        ("steps paid for and lost", f"{result.get('steps_lost', 0):,}"),
        ("resumed", format_value(result.get("resumed", False))),
        ("seconds", f"{result['seconds']:.1f}"),
        ("device", str(result["device"])),
    ]
    versions = list(facts["versions"].items())
    return [
        Table(caption="Ledger and run", heads=("entry", "value"), rows=rows),
        Table(caption="Versions", heads=("software", "version"), rows=versions),
    ]
