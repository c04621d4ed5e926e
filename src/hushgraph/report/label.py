"""The privacy label of a run: its guarantee on one small picture, and the same fields as JSON.

The fields are those that registries of deployments of differential privacy ask for, and the factors by which
NIST SP 800-226 has a guarantee judged. docs/sign-off.md has the table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hushgraph._files import write_whole
from hushgraph._text import digits_up, rounded_up
from hushgraph.privacy.units import speak
from hushgraph.report.budget import write_spent
from hushgraph.report.charts import element
from hushgraph.report.facts import collect_facts, list_uncovered
from hushgraph.report.pages import check_replaceable, check_target, format_epsilon, format_guess
from hushgraph.report.report import name_model, name_published_data
from hushgraph.report.results import name_standing

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

FORMAT = 1
_SVG_MARK, _JSON_MARK = b"<title>Privacy label", b'"privacy_label": 1'
_WIDTH, _MARGIN, _PADDING = 390.0, 6.0, 16.0
_BASE, _SMALL = 13.0, 11.5
_LINE = 1.35
# Widths of letters in units of the font size, as in the widest of these fonts; bold letters are wider.
_NARROW, _WIDE = set(" ,.:;'|!iljtfrI()[]-/"), set("mwMWQGO%@&")
_BOLD = 1.12
_EAST_ASIAN = 0x2E80
_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_INK, _SOFT, _PAPER = "#1a1f26", "#4c5561", "#ffffff"
_COLOURS = {"holds": "#0f6b3a", "claimed": "#7a4a00", "large": "#7a4a00"}
_ALARM = "#a3161f"
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
    place = check_label_path(path)
    label = collect_label(folder, about=about)
    write_whole(place.with_suffix(".json"), json.dumps(label, indent=2, allow_nan=False).encode() + b"\n")
    write_whole(place, render_label(label).encode())
    return label


def check_label_path(path: str | os.PathLike[str]) -> Path:
    """Return where a label goes; raise InputError where it cannot be written or would replace a file."""
    place = check_target(path, suffix=".svg", option="out")
    for file, mark in ((place, _SVG_MARK), (place.with_suffix(".json"), _JSON_MARK)):
        check_replaceable(file, mark, option="out", what="a privacy label")
    return place


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
    """Draw a label as an SVG document of 390 units width, without scripts and external fonts."""
    colour = _COLOURS.get(label["level"], _ALARM)
    draw = _Column()
    draw.write("Privacy label", size=22, weight=700)
    draw.write(label["name"], size=_BASE, colour=_SOFT)
    draw.rule(6)
    draw.write(label["standing"], size=15, weight=700, colour=colour)
    unit = "person" if label["adjacency"].startswith("person") else "node"
    for name, value in _list_headline(label):
        draw.pair(speak(name, unit), value, size=17 if name in ("epsilon", "delta") else _BASE)
    draw.rule(3)
    for name, value in _list_fields(label):
        draw.field(name, value)
    draw.rule(3)
    draw.write(f"{label['software']}, {label['date']}", size=_SMALL, colour=_SOFT)
    return str(draw.finish(f"Privacy label: {label['name']}", label["standing"]))


def _list_headline(label: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the figures of the guarantee; without one, epsilon alone."""
    rows = [("epsilon", format_epsilon(label["epsilon"]))]
    if label["guarantee"] == "none":
        return rows
    rows.append(("delta", digits_up(label["delta"])))
    if label["mu"] is not None:
        note = "" if label["mu_is"] == "exact" else f", {label['mu_is']}"
        rows.append((f"mu{note}", rounded_up(label["mu"])))
        guess = format_guess(label["best_guess_percent"] / 100)
        rows.append(("a guess about one row, right at most", guess))
    edge = label["epsilon_edge"]
    rows.append((f"epsilon, one {label['edge']}", "no bound" if edge is None else format_epsilon(edge)))
    rows.append(("epsilon, two rows", format_epsilon(label["epsilon_two_rows"])))
    spent = label["spent_on_data"]
    if spent is not None:
        rows.append(("spent on this data, with this run", write_spent(spent)))
    return rows


def _list_fields(label: Mapping[str, Any]) -> list[tuple[str, str]]:
    about = label["about"]
    rows = [
        ("Unit of privacy", label["unit"]),
        ("In this data a unit is", label["unit_in_this_data"]),
        ("Neighbours", f"{label['neighbours']} ({label['adjacency']})"),
        ("Trust", label["trust"]),
        ("Mechanisms", "; ".join(map(_name_mechanism, label["mechanisms"])) or "no noise"),
        ("Accountant", label["accountant"] if label["mechanisms"] else None),
        ("Covered", label["covered"]),
        ("Predictions", label["predictions"]),
        ("Figures of quality", label["figures"]),
        ("Not covered", _shorten(label["not_covered"])),
        ("Assumed", " ".join(label["assumptions"])),
        ("Post-processing", label["post_processing"]),
        ("Purpose", about["purpose"]),
        ("Owner and contact", about["owner"]),
        ("Recipients", about["recipients"]),
        ("Retention", about["retention"]),
        ("Approved by", about["approved_by"]),
    ]
    return [(name, value) for name, value in rows if value]


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


class _Column:
    """Text from top to bottom, wrapped by hand: SVG does not."""

    def __init__(self) -> None:
        self._top = _MARGIN + _PADDING - 6
        self._parts: list[Markup] = []

    @property
    def _left(self) -> float:
        return _MARGIN + _PADDING

    @property
    def _right(self) -> float:
        return _WIDTH - self._left

    def write(self, text: str, *, size: float, weight: int = 400, colour: str = _INK) -> None:
        """Add a paragraph."""
        room = (self._right - self._left) / (size * (_BOLD if weight > 400 else 1.0))
        for line in _wrap(text, room):
            self._top += _LINE * size
            self._place(self._left, line, size, weight, colour)

    def pair(self, name: str, value: str, *, size: float) -> None:
        """Add a name on the left and its value on the right of one line."""
        self._top += _LINE * size + 2
        self._place(self._left, name, size, 400, _INK)
        self._place(self._right, value, size, 700, _INK, anchor="end")

    def field(self, name: str, value: str) -> None:
        """Add a name and, below it, its text."""
        self._top += 5
        self.write(name, size=_SMALL, weight=700)
        self.write(value, size=_SMALL, colour=_SOFT)

    def rule(self, thickness: float) -> None:
        """Add a line across."""
        self._top += 9
        box = {"x": self._left, "y": self._top, "width": self._right - self._left, "height": thickness}
        self._parts.append(element("rect", fill=_INK, **box))
        self._top += thickness + 1

    def finish(self, title: str, description: str) -> Markup:
        """Return the document."""
        height = self._top + _PADDING + _MARGIN
        frame = {"width": _WIDTH - 2 * _MARGIN, "height": height - 2 * _MARGIN}
        box = element("rect", x=_MARGIN, y=_MARGIN, rx=4, fill=_PAPER, stroke=_INK, stroke_width=1.5, **frame)
        content = [element("title", title), element("desc", description), box, *self._parts]
        return element(
            "svg",
            Markup().join(content),
            xmlns="http://www.w3.org/2000/svg",
            role="img",
            width=f"{_WIDTH:.0f}",
            height=f"{height:.0f}",
            viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}",
            font_family=_FONT,
        )

    def _place(
        self, x: float, text: str, size: float, weight: int, colour: str, anchor: str = "start"
    ) -> None:
        style = {"font_size": size, "font_weight": weight, "fill": colour, "text_anchor": anchor}
        self._parts.append(element("text", text, x=x, y=self._top, **style))
