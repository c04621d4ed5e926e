"""`write_report`: the page and its JSON twin, written whole or not at all."""

from __future__ import annotations

import json
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError
from hushgraph.report import sections
from hushgraph.report.facts import facts, finished
from hushgraph.report.markup import percent
from hushgraph.statement import digits_up, rounded_up
from hushgraph.whole_file import write_whole

if TYPE_CHECKING:
    from hushgraph.comparison import Comparison
    from hushgraph.finished_run import Run

_SECTIONS = (
    ("guarantee", "The guarantee in full", sections.guarantee),
    ("spending", "Epsilon spent, accuracy reached", sections.spending),
    ("results", "Results", sections.test),
    ("comparison", "Comparison", sections.comparison),
    ("configuration", "Configuration", sections.configuration),
    ("provenance", "Ledger and versions", sections.provenance),
    ("words", "Words on this page", sections.glossary),
)
# What a report of ours has near its beginning, and other files hardly.
_MARKS = {".html": b'content="hushgraph"', ".json": b'"report": 1'}
_MARK_WITHIN = 1000


def write_report(
    run: Run | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    data: Any = None,
    comparison: Comparison | None = None,
) -> None:
    """Write the report of a finished run: one HTML file that needs nothing else, and its JSON twin.

    Args:
        run: the run, or its folder.
        path: ends in .html; the twin beside it ends in .json.
        data: what the run was trained on, for results per class on the test split.
        comparison: what `compare` gave, where there is one.

    Guarantees:
        Both files hold the same facts. A file that is no report is never replaced.
    """
    finished(run)
    page = Path(path)
    twin = page.with_suffix(".json")
    if page.suffix != ".html":
        raise InputError(f"out={page}: expected a name that ends in .html")
    if not page.parent.is_dir():
        raise InputError(f"out={page}: there is no folder {page.parent}; make it first")
    for file in (page, twin):
        _check_ours(file)
    found = facts(run, data=data, comparison=comparison)
    text = json.dumps(found, indent=2, allow_nan=False)
    html = render(found)
    write_whole(twin, text.encode())
    write_whole(page, html.encode())


def render(found: dict[str, Any]) -> str:
    """The page that shows these facts."""
    shown = [
        (name, heading, make(found))
        for name, heading, make in _SECTIONS
        if name != "comparison" or found["comparison"] is not None
    ]
    if found["standing"]["kind"] != "holds":
        other = {"claimed": "The claim in full", "seeded": "What would hold without the seed"}
        first = other.get(found["standing"]["kind"], "No guarantee")
        shown[0] = (shown[0][0], first, shown[0][2])
    template = Template(files("hushgraph.report").joinpath("template.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=f"Privacy report: {escape(_model(found))} on {escape(_data(found))}",
        subtitle=f"One training run, with what it promises about each single node. Written "
        f"{escape(found['written'])} by hushgraph {escape(found['versions'].get('hushgraph', ''))}.",
        standing=_standing(found),
        cards=_cards(found),
        contents="\n".join(f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading, _ in shown),
        sections="\n".join(
            f'<section id="{name}" aria-labelledby="{name}-heading">\n'
            f'<h2 id="{name}-heading">{escape(heading)}</h2>\n{body}\n</section>'
            for name, heading, body in shown
        ),
        footer="The file with the same name and the ending .json holds the same facts for programs.",
    )


def _model(found: dict[str, Any]) -> str:
    model = found["config"]["model"]
    name = "own model" if model == "own" else model.upper()
    return f"DP-{name}" if found["standing"]["kind"] == "holds" else name


def _data(found: dict[str, Any]) -> str:
    # Data that was given as an object has no name but its type's.
    return "an unnamed graph" if found["data"] in ("Graph", "Data") else str(found["data"])


def _standing(found: dict[str, Any]) -> str:
    standing = found["standing"]
    return (
        f'<section class="standing {standing["kind"]}" aria-label="In one sentence">'
        f'<p class="label">{escape(standing["label"])}</p><p>{escape(standing["sentence"])}</p></section>'
    )


def _cards(found: dict[str, Any]) -> str:
    about, kind = found["guarantee"], found["standing"]["kind"]
    note = {"holds": "", "claimed": ", claimed", "seeded": ", if it were not seeded"}.get(kind, "")
    cards = [(f"epsilon, one node{note}", rounded_up(float(about["epsilon"])))]
    if kind != "none":
        cards += [
            (f"epsilon, two nodes{note}", rounded_up(float(about["epsilon_group_of_two"]))),
            ("delta", digits_up(about["delta"])),
        ]
    cards.append(("test accuracy (not covered)", percent(found["result"]["test_accuracy"])))
    inner = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in cards)
    return f'<dl class="cards">{inner}</dl>'


def _check_ours(file: Path) -> None:
    """Refuse to replace what is not a report."""
    if not file.exists():
        return
    try:
        with file.open("rb") as opened:
            start = opened.read(_MARK_WITHIN)
    except OSError as error:
        raise InputError(f"out={file}: cannot be read ({error.strerror}); choose another name") from None
    if _MARKS[file.suffix] not in start:
        raise InputError(f"out={file}: it exists and is not a report; choose another name")
