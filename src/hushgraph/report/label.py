"""The privacy label of a run: its guarantee on one small picture, and the same fields as JSON.

The fields are those that registries of deployments of differential privacy ask for, and the factors by which
NIST SP 800-226 has a guarantee judged. docs/sign-off.md has the table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph.privacy.guarantee import merge_sentences
from hushgraph.privacy.units import speak
from hushgraph.report.budget import write_spent
from hushgraph.report.facts import collect_facts, list_uncovered
from hushgraph.report.pages import check_target, render_template
from hushgraph.report.report import name_model, name_published_data
from hushgraph.report.results import name_standing

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

FORMAT = 1
_MARKS = {".svg": b"<title>Privacy label", ".json": b'"privacy_label": 1'}
# Widths of letters in units of the font size, as in the widest of these fonts.
_NARROW, _WIDE = set(" ,.:;'|!iljtfrI()[]-/"), set("mwMWQGO%@&")
_EAST_ASIAN = 0x2E80
_UNIT = "one node: its features, its label and the edge records it owns"
_NEIGHBOURS = "one row emptied; identifiers and splits stay"
_ACCOUNTANTS = {
    "pair": "privacy loss distributions of dominating pairs",
    "paper": "Rényi divergences over a grid of orders",
}
_POST_PROCESSING = "what is computed from the covered parts alone costs nothing more"


def write_label(
    folder: RunFolder, path: str | os.PathLike[str], *, about: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Write the privacy label of a finished run as SVG, and its fields as JSON beside it.

    Args:
        folder: the run on disk.
        path: ends in .svg; the fields beside it end in .json.
        about: a TOML file with what only people know; see `read_about`.

    Returns:
        The fields.

    Guarantees:
        Everything on it is public or covered by epsilon, so that it can be published: no path, no exact
        figure, no timing. A file that is not a privacy label is never replaced.
    """
    place = check_target(path, _MARKS, what="a privacy label")
    label = collect_label(folder, about=about)
    write_whole(place.with_suffix(".json"), json.dumps(label, indent=2, allow_nan=False).encode() + b"\n")
    write_whole(place, render_label(label).encode())
    return label


def collect_label(folder: RunFolder, *, about: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Collect the fields of a label as JSON values."""
    facts = collect_facts(folder, about=about)
    figures, strength, budget = facts["guarantee_details"], facts["strength"], facts["budget"]
    holds = facts["standing"]["kind"] == "holds"
    knows_budget = budget is not None and not budget["problem"]
    return {
        "privacy_label": FORMAT,
        "name": f"{name_model(facts)} on {name_published_data(facts)}",
        "date": facts["about"]["date"] or facts["written"][:10],
        "standing": facts["standing"]["label"],
        "level": facts["standing"]["level"],
        "guarantee": figures["kind"],
        "assumptions": [each["sentence"] for each in facts["assumptions"]],
        "definition": "(epsilon, delta)-differential privacy",
        "epsilon": figures["epsilon"],
        "delta": figures["delta"],
        "mu": None if strength is None else strength["mu"],
        "mu_is": None if strength is None else "exact" if strength["is_exact"] else "fitted at this delta",
        "best_guess_percent": 100 * facts["guarantee"]["best_guess"],
        "epsilon_two_rows": figures["epsilon_group_of_two"],
        "epsilon_edge": figures["epsilon_edge"],
        "edge": folder.plan.edge_name,
        "unit": speak(_UNIT, facts["unit"]),
        "unit_in_this_data": facts["about"]["unit_of_privacy"],
        "adjacency": figures["adjacency"],
        "neighbours": speak(_NEIGHBOURS, facts["unit"]),
        "trust": "central: whoever trains sees the data",
        "mechanisms": _list_mechanisms(folder),
        "accountant": _ACCOUNTANTS[facts["guarantee"]["accountant"]],
        "covered": facts["covers"] if holds else "",
        "predictions": facts["guarantee"]["predictions"] if holds else "not covered",
        "figures": name_standing(facts["result"]),
        "not_covered": list_uncovered(folder, facts["result"]) if holds else [],
        "post_processing": _POST_PROCESSING if holds else "",
        "spent_on_data": {key: budget[key] for key in ("before", "with_this_run", "total", "delta")}
        if knows_budget
        else None,
        "about": facts["about"],
        "software": f"hushgraph {facts['versions'].get('hushgraph', '')}".strip(),
    }


def _list_mechanisms(folder: RunFolder) -> list[dict[str, Any]]:
    """List what is released with noise: what it is, how often, and the part of the rows that one draws."""
    return [
        {"name": charge.name, "mechanism": "Gaussian", "times": charge.times, "sampling_rate": charge.rate}
        for charge in folder.plan.charges
        if folder.plan.is_private
    ]


def render_label(label: Mapping[str, Any]) -> str:
    """Draw a label as an SVG document."""
    return render_template(
        "label.svg",
        label=label,
        assumed=" ".join(merge_sentences(label["assumptions"])),
        mechanisms="; ".join(map(_name_mechanism, label["mechanisms"])),
        not_covered=_shorten(label["not_covered"]),
        speak=speak,
        wrap=_wrap,
        write_spent=write_spent,
    ).strip()


def _name_mechanism(each: Mapping[str, Any]) -> str:
    times = f", {each['times']:,} times" if each["times"] > 1 else ""
    rate = f", drawing {each['sampling_rate']:.3g} of the nodes" if each["sampling_rate"] < 1 else ""
    return f"{each['mechanism']} noise on {each['name']}{times}{rate}"


def _shorten(items: Sequence[str]) -> str:
    """Keep what each item is about: the words before its colon or comma."""
    if not items:
        return ""
    starts = [item.split(":")[0].split(",")[0].rstrip(".") for item in items]
    return "; ".join([starts[0], *(f"{start[0].lower()}{start[1:]}" for start in starts[1:])])


def _measure(text: str) -> float:
    """Estimate how wide a line is, in units of the font size; rather too wide than too narrow."""
    return sum(
        0.42
        if letter in _NARROW
        else 1.0
        if letter in _WIDE or ord(letter) >= _EAST_ASIAN
        else 0.66
        if letter.islower() or letter.isdigit()
        else 0.78
        for letter in text
    )


def _wrap(text: str, room: float) -> list[str]:
    """Break text into lines at most `room` wide; a word that is longer is cut."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if _measure(joined) <= room:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if _measure(lines[-1] + letter) > room:
                lines.append("")
            lines[-1] += letter
    return lines
