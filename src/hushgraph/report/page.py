"""The frame of a page, and how a page and its JSON twin are written."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from hushgraph._files import write_whole
from hushgraph.errors import InputError

# What a page of ours has near its beginning, and other files hardly.
_MARK = b'content="hushgraph"'
_MARK_WITHIN = 1000

Section = tuple[str, str, str]


def page(
    *,
    title: str,
    subtitle: str,
    standing: dict[str, str],
    cards: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    footer: str,
    style: str = "",
    script: str = "",
    data: Any = None,
) -> str:
    """A whole page.

    Args:
        title, subtitle, footer: plain text.
        standing: what a reader must know first: its kind, label and sentence.
        cards: figures, each with its name.
        sections: identifier, heading and HTML of each.
        style: further CSS.
        script: the only script that the page lets run.
        data: what the script finds, as JSON, in the element "data".
    """
    template = Template(resource("template.html"))
    policy, scripts = "", ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = f"; script-src 'sha256-{digest}'"
        # Inside a script element, "<" is the only character that could end it.
        held = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        scripts = f'<script type="application/json" id="data">{held}</script>\n<script>{script}</script>'
    return template.substitute(
        policy=policy,
        style=style,
        title=escape(title),
        subtitle=escape(subtitle),
        standing=_standing(standing),
        cards=_cards(cards),
        contents="\n".join(
            f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading, _ in sections
        ),
        sections="\n".join(
            f'<section id="{name}" aria-labelledby="{name}-heading">\n'
            f'<h2 id="{name}-heading">{escape(heading)}</h2>\n{body}\n</section>'
            for name, heading, body in sections
        ),
        footer=escape(footer),
        script=scripts,
    )


def resource(name: str) -> str:
    """A file of this package, as text."""
    return files("hushgraph.report").joinpath(name).read_text(encoding="utf-8")


def check_place(path: str | os.PathLike[str], *, option: str, kind: str) -> Path:
    """Where a page goes, refused where it cannot be written or would replace what is not such a page.

    Args:
        path: ends in .html; the twin beside it ends in .json.
        option: what the user calls it.
        kind: "report" or "planner", the first key of its twin.
    """
    place = Path(path)
    if place.suffix != ".html":
        raise InputError(f"{option}={place}: expected a name that ends in .html")
    if not place.parent.is_dir():
        raise InputError(f"{option}={place}: there is no folder {place.parent}; make it first")
    for file, mark in ((place, _MARK), (place.with_suffix(".json"), f'"{kind}": 1'.encode())):
        _check_ours(file, mark, option, kind)
    return place


def write_both(place: Path, facts: dict[str, Any], html: str) -> None:
    """Write a page and the facts it shows, each whole or not at all."""
    text = json.dumps(facts, indent=2, allow_nan=False)
    write_whole(place.with_suffix(".json"), text.encode())
    write_whole(place, html.encode())


def _standing(standing: dict[str, str]) -> str:
    return (
        f'<section class="standing {standing["kind"]}" aria-label="In one sentence">'
        f'<p class="label">{escape(standing["label"])}</p><p>{escape(standing["sentence"])}</p></section>'
    )


def _cards(cards: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in cards)
    return f'<dl class="cards">{inner}</dl>'


def _check_ours(file: Path, mark: bytes, option: str, kind: str) -> None:
    if not file.exists():
        return
    named = "a planner page" if kind == "planner" else "a report"
    try:
        with file.open("rb") as opened:
            start = opened.read(_MARK_WITHIN)
    except OSError as error:
        raise InputError(f"{option}={file}: cannot be read ({error.strerror}); choose another name") from None
    if mark not in start:
        raise InputError(f"{option}={file}: it exists and is not {named}; choose another name")
