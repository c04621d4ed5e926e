"""The sections of the planner page, each from the figures it shows."""

from __future__ import annotations

from html import escape
from itertools import product
from typing import Any

from hushgraph.privacy.guarantee import digits_up
from hushgraph.report.markup import glossary_of, table, topic
from hushgraph.report.planner_figures import (
    FIGURES,
    NAMES,
    along,
    chosen,
    command,
    noise_axis,
    point_at,
    ratio,
    sentence,
    text,
    value_text,
)
from hushgraph.report.profile import LogAxis, profile_chart
from hushgraph.report.sections import GLOSSARY

_ON_MEAN = (
    "noise on the mean gradient",
    "sigma / (C times the batch): standard deviation of the noise that one step adds to each coordinate of "
    "the mean gradient. In units of C, and the mean gradient itself is at most C long. Over a model with P "
    "parameters the noise of a step is about the square root of P times as long as this.",
)
_INTRODUCTION = (
    "Each curve shows the noise that one step adds to the mean gradient, in units of the clipping norm C, "
    "while only one choice changes: the less, the more of the gradient is left to learn from. All curves "
    "share one scale. The accountant priced every point beforehand; noise and epsilon are rounded up."
)
_NO_SCRIPT = (
    "Scripts are off, so there are no sliders here. The curves are those of the plan given, and the tables "
    "below hold every combination."
)


def knobs(found: dict[str, Any]) -> str:
    """A slider for every choice under the curve of what it does, and the figures of what is chosen."""
    noise = noise_axis(found)
    names = [axis["name"] for axis in found["axes"] if len(axis["values"]) > 1]
    figures = "".join(
        f'<div><dt>{escape(name)}</dt><dd id="now-{key}">{escape(text(chosen(found), key))}</dd></div>'
        for key, name in FIGURES.items()
    )
    flags = " ".join(f"<span>{escape(flag)}</span>" for flag in command(found))
    return (
        f"<p>{_INTRODUCTION}</p>{_notes(found)}"
        f'<noscript><p class="soft">{_NO_SCRIPT}</p></noscript>'
        f'<p class="now" id="now" role="status">{escape(sentence(found))}</p>'
        f'<div class="knobs">{"".join(_knob(found, name, noise) for name in names)}</div>'
        '<p class="controls" id="controls" hidden><button type="button" id="reset">Back to the plan given'
        "</button></p>"
        f'<h3>Figures of these settings</h3><dl class="cards figures">{figures}</dl>'
        f'<h3>To train with these settings</h3><pre><code id="command">{flags}</code></pre>'
    )


def changes(found: dict[str, Any]) -> str:
    """The plan given, and every plan that differs from it in one choice."""
    keys = (
        "sigma_over_clip",
        "noise_multiplier",
        "changed_trees",
        "epsilon",
        "epsilon_group_of_two",
    )
    heads = (
        "if",
        "noise on the mean",
        "times as given",
        "sigma / C",
        "noise multiplier",
        "n",
        "epsilon",
        "two nodes",
    )

    def row(label: str, point: dict[str, Any]) -> tuple[str, ...]:
        return (
            label,
            text(point, "noise_on_mean"),
            ratio(found, point),
            *(text(point, key) for key in keys),
        )

    rows = [row("as given", chosen(found))]
    for axis in found["axes"]:
        name = axis["name"]
        for place, point in enumerate(along(found, name)):
            if place != axis["chosen"]:
                rows.append(row(f"{NAMES[name][0]} = {value_text(name, axis['values'][place])}", point))
    caption = "Noise that keeps epsilon when one choice changes"
    return (
        "<p>Where epsilon itself is what changes, the noise follows it. The noise on the mean gradient is "
        f"per step and coordinate, in units of C.</p>{table(caption, heads, rows, numeric=range(1, 8))}"
    )


def combinations(found: dict[str, Any]) -> str:
    """The noise on the mean gradient of everything that was priced."""
    readers, reads, epsilons, steps, batches = found["axes"]
    heads = ("steps and batch", *(f"epsilon {value_text('epsilon', one)}" for one in epsilons["values"]))
    parts = ["<p>The noise on the mean gradient, in units of C, in one table for each bound on reads.</p>"]
    for (k, K), (d, D) in product(enumerate(readers["values"]), enumerate(reads["values"])):
        rows = []
        for (t, count), (m, size) in product(enumerate(steps["values"]), enumerate(batches["values"])):
            points = [point_at(found, [k, d, e, t, m]) for e in range(len(epsilons["values"]))]
            figures = [text(point, "noise_on_mean") for point in points]
            rows.append((f"{count:,} steps of {size:,}", *figures))
        is_given = (k, d) == (readers["chosen"], reads["chosen"])
        bound = f"K = {K:,}" if len(reads["values"]) == 1 else f"K = {K:,}, D = {D:,}"
        trees = text(points[0], "changed_trees")
        caption = f"{bound}, {trees} changed {'tree' if trees == '1' else 'trees'}{', as given' * is_given}"
        inner = table(caption, heads, rows, numeric=range(1, len(heads)))
        shown = f"<summary>{escape(caption)}</summary>{inner}"
        parts.append(f"<details open>{shown}</details>" if is_given else f"<details>{shown}</details>")
    return "".join(parts)


def fixed(found: dict[str, Any]) -> str:
    """What every plan on the page shares."""
    plan = found["plan"]
    rows = [
        ("training nodes, N", f"{plan['num_train_nodes']:,}"),
        ("rounds of messages, r", f"{plan['num_layers']:,}"),
        ("delta", digits_up(plan["delta"])),
        ("edge owner", plan["edge_owner"]),
        ("sampler, accountant", f"{plan['sampler']}, {plan['accountant']}"),
        ("batches", plan["batches"]),
        ("clipping norm, C", f"{plan['clip']:g}"),
    ]
    for axis in found["axes"]:
        if len(axis["values"]) == 1:
            symbol, words = NAMES[axis["name"]]
            rows.append((f"{symbol}, {words}", value_text(axis["name"], axis["values"][0])))
    is_free = plan["edge_owner"] == "sender" and plan["sampler"] == "stable" and plan["num_layers"] > 0
    note = "D may be anything: with sender-owned edges it costs no privacy."
    shared = table("Shared by all plans on this page", ("setting", "value"), rows)
    return shared + (f"<p>{note}</p>" if is_free else "")


def guarantee(found: dict[str, Any]) -> str:
    """The statement of the plan given."""
    note = "<p>Of the plan given; <code>hushgraph plan --explain</code> prints that of any other.</p>"
    return note + "".join(topic(part) for part in found["statement"])


def glossary(found: dict[str, Any]) -> str:
    """The words that the page uses."""
    return glossary_of((*GLOSSARY, _ON_MEAN))


def _knob(found: dict[str, Any], name: str, noise: LogAxis) -> str:
    axis = next(axis for axis in found["axes"] if axis["name"] == name)
    (symbol, words), at = NAMES[name], axis["chosen"]
    labels = [value_text(name, value) for value in axis["values"]]
    points = along(found, name)
    texts = [text(point, "noise_on_mean") for point in points]
    said = ", ".join(f"{symbol} {label}: {value}" for label, value in zip(labels, texts, strict=True))
    chart = profile_chart(
        name=f"profile-{name}",
        title=f"Noise on the mean gradient by {symbol}",
        description=said,
        labels=labels,
        values=[point.get("noise_on_mean") for point in points],
        texts=texts,
        chosen=at,
        axis=noise,
    )
    return (
        f'<figure class="knob"><figcaption><label for="knob-{name}"><strong>{escape(symbol)}</strong>, '
        f'{escape(words)}</label><span id="out-{name}">{escape(labels[at])}</span>'
        f'</figcaption><div>{chart}<input type="range" id="knob-{name}" min="0" max="{len(labels) - 1}" '
        f'step="1" value="{at}" aria-valuetext="{escape(labels[at])}" hidden></div></figure>'
    )


def _notes(found: dict[str, Any]) -> str:
    notes = list(found["notes"])
    if found["solved_for"] != "noise-multiplier":
        epsilon = next(axis for axis in found["axes"] if axis["name"] == "epsilon")
        held = value_text("epsilon", epsilon["values"][epsilon["chosen"]])
        notes.append(
            "The plan was given by its noise. "
            f"Here epsilon is held at {held} and the noise is solved for, so "
            "it may differ from the one given in the last digits."
        )
    return "".join(f"<p>{escape(note)}</p>" for note in notes)
