"""The sections of a report, each from the facts it shows."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from hushgraph.privacy.guarantee import digits_up, rounded_up
from hushgraph.report.charts import Axis, Bar, bar_chart, line_chart, ticks
from hushgraph.report.markup import bullets, figure, glossary_of, number, percent, table, topic, value_text

GLOSSARY = (
    ("row", "What belongs to one node: its features, its label and the edge records it owns."),
    ("read", "A node reads another when what the model computes for it depends on the other's features."),
    ("tree", "What the loss of one training node can see: itself, what it reads, and so on for every round."),
    ("changed trees, n", "The most trees of training nodes that differ when one node's row is emptied."),
    ("epsilon", "How much more likely any outcome can become through one row: by a factor of e^epsilon."),
    ("delta", "The probability that is set aside: the factor need not hold for outcomes this unlikely."),
    ("sigma / C", "Standard deviation of the noise, in units of the bound on one node's gradient."),
    ("noise multiplier", "sigma / (2 C n), the measure of noise that papers use."),
)

# Bars have their figure on top where there is room for it.
_FEW_CLASSES = 10
_LONGEST_NAME = 12


def guarantee(facts: dict[str, Any]) -> str:
    """What is protected, against what, how much, under which assumptions, and what is not."""
    kind, about = facts["standing"]["kind"], facts["guarantee"]
    extra = bullets(facts["not_covered"])
    if kind == "none":
        return (
            "<h3>What is protected</h3><p>Nothing. Training added no noise that bounds what the weights show "
            "about one node: treat them like the data itself.</p>"
            f"<h3>Also not covered</h3>{extra}"
        )
    parts = []
    if kind == "seeded":
        parts.append(
            "<p><strong>None of this holds for this run.</strong> It is what the same settings promise "
            "without a fixed seed.</p>"
        )
    elif kind == "claimed":
        parts.append("<p><strong>This is a claim, not a guarantee.</strong> The sentence above says why.</p>")
    # First what is protected and against what, last what is not covered: the statement is in this order.
    protected, against, *others, last = facts["statement"]
    parts += [topic(protected), topic(against)]
    parts.append(f"<h3>How much</h3>{_guess(about) if kind == 'holds' else ''}{_how_much(facts)}")
    parts += [topic(other) for other in others]
    parts.append(f"<h3>Under which assumptions</h3>{bullets(facts['assumptions'])}")
    return "".join([*parts, topic(last), extra])


def spending(facts: dict[str, Any]) -> str:
    """Epsilon over steps, and validation accuracy over epsilon."""
    records = facts["spending"]
    if not records:
        return "<p>The run recorded nothing on its way.</p>"
    finite = math.isfinite(number(records[-1]["epsilon"]))
    parts = []
    if not finite:
        parts.append("<p>There is no epsilon to show: it is infinite from the first step.</p>")
    charts = [_epsilon_chart(facts), _accuracy_chart(facts)] if finite else [_accuracy_chart(facts)]
    parts.append(f'<div class="charts">{"".join(charts)}</div>')
    rows = [(f"{r['step']:,}", rounded_up(number(r["epsilon"])), percent(r["val_accuracy"])) for r in records]
    heads = ("step", "epsilon so far", "validation accuracy")
    figures = table("Epsilon and validation accuracy by step", heads, rows, numeric=(1, 2))
    parts.append(f"<details><summary>The figures behind the charts</summary>{figures}</details>")
    if finite:
        parts.append(
            '<p class="soft">Epsilon is priced at a few steps and rounded up to the next of them: it is '
            "never less than what the steps taken by then cost.</p>"
        )
    return "".join(parts)


def test(facts: dict[str, Any]) -> str:
    """Accuracy on the test split, per class where the data was at hand."""
    result, found = facts["result"], facts["test"]
    rows = [
        ("validation accuracy", percent(result["val_accuracy"])),
        ("test accuracy", percent(result["test_accuracy"])),
    ]
    if found is not None:
        rows.append(("macro-F1 on the test split", percent(found["macro_f1"])))
    if "train_accuracy" in result:
        rows.append(("training accuracy (private, not covered)", percent(result["train_accuracy"])))
    summary = table("Results on whole splits", ("figure", "value"), rows, numeric=(1,))
    note = "<p>These figures are computed from labels in the clear and are outside the guarantee.</p>"
    if found is None:
        return (
            f"{note}{summary}<p>Results per class are left out: they need the data. Add them with "
            "<code>hushgraph report RUN DATA</code>.</p>"
        )
    classes = sorted(found["classes"], key=lambda c: (-c["nodes"], c["class"]))
    return f"{note}{summary}{_class_chart(classes, found['accuracy'])}{_class_table(classes)}"


def comparison(facts: dict[str, Any]) -> str:
    """The four runs side by side."""
    found = facts["comparison"]
    bars = [
        Bar(
            label=f"{row['name']}\n{'private' if _holds(row) else 'not private'}",
            value=row["test_accuracy"],
            kind="safe" if _holds(row) else "unsafe",
            text="" if row["test_accuracy"] is None else f"{row['test_accuracy']:.1%}",
        )
        for row in found["rows"]
    ]
    described = ", ".join(f"{row['name']} {percent(row['test_accuracy'])}" for row in found["rows"])
    chart = bar_chart(
        name="comparison",
        title="Test accuracy of the four models",
        description=f"{described}.",
        bars=bars,
        x_label="",
        y=Axis(label="test accuracy", ticks=ticks(0, 1), text="{:.0%}".format),
    )
    heads = ("model", "guarantee", "epsilon", "test", "validation", "macro-F1", "seconds")
    rows = [
        (
            escape(row["name"] if row["model"] == "mlp" else f"{row['name']} ({row['model']})"),
            _badge(row),
            rounded_up(number(row["epsilon"])),
            *(percent(row[key]) for key in ("test_accuracy", "val_accuracy", "macro_f1")),
            f"{row['seconds']:.1f}",
        )
        for row in found["rows"]
    ]
    figures = table("Four models on the same split", heads, rows, numeric=range(2, 7), is_html=True)
    return f"<p>{escape(found['cost'])}</p>{figure('Test accuracy', chart)}{figures}"


def configuration(facts: dict[str, Any]) -> str:
    """Every setting of plan and training."""
    heads = ("setting", "value")
    plan = [(name, value_text(value)) for name, value in sorted(facts["plan"].items())]
    config = [(name, value_text(value)) for name, value in sorted(facts["config"].items())]
    config += [(f"number of {name}", value_text(value)) for name, value in facts["shape"].items()]
    return table("Privacy plan", heads, plan) + table("Training", heads, config)


def provenance(facts: dict[str, Any]) -> str:
    """The ledger and the versions."""
    ledger, result = facts["ledger"], facts["result"]
    rows = [
        ("SHA-256 of ledger.jsonl", f"<code>{escape(ledger['sha256'])}</code>"),
        ("fingerprint of its plan", f"<code>{escape(ledger['plan'])}</code>"),
        ("steps charged", f"{ledger['steps_charged']:,}"),
        ("epsilon spent", rounded_up(number(ledger["epsilon_spent"]))),
        ("at delta", digits_up(ledger["delta"])),
        ("steps paid for and lost", f"{result.get('steps_lost', 0):,}"),
        ("resumed", value_text(result.get("resumed", False))),
        ("seconds", f"{result['seconds']:.1f}"),
        ("device", escape(str(result["device"]))),
    ]
    versions = [(name, value) for name, value in facts["versions"].items()]
    return table("Ledger and run", ("what", "value"), rows, is_html=True) + table(
        "Versions", ("software", "version"), versions
    )


def glossary(facts: dict[str, Any]) -> str:
    """The words that the page uses."""
    return glossary_of(GLOSSARY)


def _how_much(facts: dict[str, Any]) -> str:
    about, plan = facts["guarantee"], facts["plan"]
    rows = [
        ("epsilon, one node", rounded_up(number(about["epsilon"]))),
        ("epsilon, two nodes together", rounded_up(number(about["epsilon_group_of_two"]))),
        ("delta", digits_up(about["delta"])),
        ("changed trees, n", f"{about['changed_trees']:,}"),
        ("noise multiplier, sigma / (2 C n)", digits_up(about["noise_multiplier"], digits=6)),
        ("sigma / C", digits_up(about["sigma_over_clip"], digits=6)),
        ("steps", f"{about['steps']:,}"),
        ("sampling rate, q", f"{about['sampling_rate']:.6g}"),
        ("training nodes, N", f"{plan['num_train_nodes']:,}"),
        ("readers of one node, K", value_text(about["max_readers"])),
        ("reads of one node, D", "unlimited" if about["max_reads"] is None else f"{about['max_reads']:,}"),
        ("accountant, sampler", f"{about['accountant']}, {about['sampler']}"),
    ]
    caption = {"holds": "The figures of the guarantee", "claimed": "The figures of the claim"}.get(
        facts["standing"]["kind"], "The figures without the seed"
    )
    return table(caption, ("figure", "value"), rows, numeric=(1,))


def _guess(about: dict[str, Any]) -> str:
    shown = rounded_up(100 * about["best_guess"])
    return (
        "<p>In other words: let it be equally likely beforehand that one node's row is empty or not. Whoever "
        "sees the weights, knows everything else and guesses which, is right in at most "
        f"{shown}% of the cases; without the weights it would be 50%.</p>"
    )


def _epsilon_chart(facts: dict[str, Any]) -> str:
    points = [(0.0, 0.0)] + [(float(r["step"]), number(r["epsilon"])) for r in facts["spending"]]
    steps, total = points[-1][0], number(facts["guarantee"]["epsilon"])
    name = {"holds": "budget", "claimed": "claimed budget"}.get(facts["standing"]["kind"], "without the seed")
    chart = line_chart(
        name="spent",
        title="Epsilon as it was spent",
        description=f"Epsilon grows from 0 at the start to {rounded_up(points[-1][1])} after step {steps:g}.",
        points=points,
        x=Axis(label="step", ticks=ticks(0, steps), text="{:g}".format),
        y=Axis(label="epsilon so far", ticks=ticks(0, max(total, points[-1][1]) * 1.08)),
        limit=(total, f"{name} {rounded_up(total)}"),
    )
    return figure("Epsilon as it was spent", chart)


def _accuracy_chart(facts: dict[str, Any]) -> str:
    records = [r for r in facts["spending"] if r["val_accuracy"] is not None]
    finite = all(math.isfinite(number(r["epsilon"])) for r in records)
    if not records:
        return "<p>There is no validation split, so no accuracy was measured on the way.</p>"
    across = "epsilon so far" if finite else "step"
    points = [(number(r["epsilon"]) if finite else float(r["step"]), r["val_accuracy"]) for r in records]
    lowest, highest = min(b for _, b in points), max(b for _, b in points)
    chart = line_chart(
        name="accuracy",
        title=f"Validation accuracy against {across}",
        description=(
            f"Validation accuracy goes from {lowest:.1%} at its lowest to {highest:.1%} at its highest and "
            f"ends at {points[-1][1]:.1%}, where the {across} is {points[-1][0]:.4g}."
        ),
        points=points,
        x=Axis(label=across, ticks=ticks(0, points[-1][0])),
        y=Axis(
            label="validation accuracy", ticks=ticks(lowest, highest), text=lambda part: f"{100 * part:.4g}%"
        ),
    )
    return figure(f"Validation accuracy against {across}", chart)


def _class_chart(classes: list[dict[str, Any]], overall: float) -> str:
    chart = bar_chart(
        name="classes",
        title="Test accuracy per class",
        description=(
            f"One bar for each of {len(classes)} classes, the most frequent first, and a dashed line for all "
            f"classes together at {overall:.1%}. The figures are in the table that follows."
        ),
        bars=[
            Bar(
                label=_short(c["name"]),
                value=c["accuracy"],
                text="" if c["accuracy"] is None or len(classes) > _FEW_CLASSES else f"{c['accuracy']:.0%}",
            )
            for c in classes
        ],
        x_label="class, the most frequent first",
        y=Axis(label="part predicted", ticks=ticks(0, 1), text="{:.0%}".format),
        limit=(overall, f"dashed: all classes, {overall:.1%}"),
    )
    return figure("Test accuracy per class", chart)


def _short(name: str) -> str:
    """What fits under a bar; the table has all of it."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _class_table(classes: list[dict[str, Any]]) -> str:
    rows = [
        (c["name"], f"{c['nodes']:,}", "none" if c["accuracy"] is None else f"{c['accuracy']:.2%}")
        for c in classes
    ]
    heads = ("class", "test nodes", "part predicted")
    return table("Results per class on the test split", heads, rows, numeric=(1, 2))


def _holds(row: dict[str, Any]) -> bool:
    return bool(row["guarantee"] == "holds")


def _badge(row: dict[str, Any]) -> str:
    if _holds(row):
        return '<span class="holds">holds</span>'
    words = "none" if row["guarantee"] == "none" else str(row["guarantee"])
    return f'<span class="unsafe">{escape(words)}</span>'
