"""Pieces of HTML that the sections of a report are made of; everything that is text is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any


def percent(value: float | None) -> str:
    return "no labelled nodes" if value is None else f"{value:.2%}"


def number(value: Any) -> float:
    """JSON's number or "inf"."""
    return float(value)


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Sequence[int] = (),
    is_html: bool = False,
) -> str:
    """A table whose first column heads its rows.

    Args:
        caption: what it shows.
        heads: of the columns.
        rows: cells as text, or as HTML where `is_html`.
        numeric: columns that are aligned to the right.
    """
    kinds = [' class="number"' if place in numeric else "" for place in range(len(heads))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(heads, kinds, strict=True)
    )
    body = []
    for row in rows:
        first, *others = row if is_html else [escape(cell) for cell in row]
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(others, kinds[1:], strict=True))
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    inner = (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>"
    )
    return scroll(caption, inner)


def topic(about: dict[str, str]) -> str:
    return f"<h3>{escape(about['heading'])}</h3><p>{escape(about['text'])}</p>"


def bullets(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""


def glossary_of(words: Sequence[tuple[str, str]]) -> str:
    pairs = "".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in words)
    return f'<dl class="words">{pairs}</dl>'


def figure(caption: str, chart: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{scroll(caption, chart)}</figure>"


def scroll(name: str, inner: str) -> str:
    """Wide content scrolls by itself, for the keyboard too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{inner}</div>'


def value_text(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
