"""Templates, their filters, and how a page and its JSON twin are written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._files import check_parent, write_whole
from hushgraph._text import digits_down, digits_up, rounded_up
from hushgraph.errors import InputError, explain
from hushgraph.figures.names import format_figure, name_figure

if TYPE_CHECKING:
    from jinja2 import Template

    from hushgraph.runs.folder import RunFolder

_MARK_WITHIN = 1000


def check_outside_release(folder: RunFolder, place: Path, *, what: str) -> None:
    """Raise InputError where `what`, which the guarantee does not cover, would lie in `release/`."""
    if place.resolve().is_relative_to(folder.release_path.resolve()):
        raise InputError(
            f"out={place}: {what} is not covered, and a release holds nothing else; choose another folder"
        )


def render_template(name: str, **context: Any) -> str:
    """Render a template of this package."""
    return load_template(name).render(**context)


@cache
def load_template(name: str) -> Template:
    """Load a template of this package: pages escape every value, and a missing one is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hushgraph.report"),
        # A card is Markdown, where HTML's escapes would be shown.
        autoescape=lambda name: not str(name).endswith(".md"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at": "{:.1f}".format,
        "count_runs": _count_runs,
        "digits_down": digits_down,
        "digits_up": digits_up,
        "epsilon": format_epsilon,
        "figure": lambda value, name: format_figure(name, value),
        "figure_name": name_figure,
        "guess": format_guess,
        "interval": format_interval,
        "json": json.dumps,
        "percent": format_percent,
        "rounded_up": rounded_up,
        "setting": format_value,
    }
    return environment.get_template(name)


def check_target(path: str | os.PathLike[str], marks: Mapping[str, bytes], *, what: str) -> Path:
    """Return where a file goes; raise InputError where it cannot be written or would replace another file.

    Args:
        path: of the file.
        marks: by ending, what is near the beginning of such files of ours: of this one, then of its twins.
        what: the file is.
    """
    place, suffix = Path(path), next(iter(marks))
    if place.suffix != suffix:
        raise InputError(f"out={place}: expected a name that ends in {suffix}")
    check_parent(place)
    for ending, mark in marks.items():
        file = place.with_suffix(ending)
        with explain(InputError, f"out={file}: cannot be read", "choose another name"):
            start = file.read_bytes()[:_MARK_WITHIN] if file.exists() else mark
        if mark not in start:
            raise InputError(f"out={file}: it exists and is not {what}; choose another name")
    return place


def write_page(place: Path, facts: Mapping[str, Any], html: str) -> None:
    """Write a page and the facts it shows, each as a whole or not at all."""
    text = json.dumps(facts, indent=2, allow_nan=False)
    write_whole(place.with_suffix(".json"), text.encode())
    write_whole(place, html.encode())


def format_percent(value: float | None) -> str:
    """Format a share of 1, or say that there is none."""
    return "no labelled nodes" if value is None else f"{value:.2%}"


def format_value(value: Any) -> str:
    """Format a setting; the JSON twin has all digits."""
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_value, value)) or "none"
    if isinstance(value, float):
        return digits_down(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def format_guess(share: float) -> str:
    """Format how often a guess is right, rounded up, with more digits near 100%."""
    text = rounded_up(100 * share)
    return f"{digits_up(100 * share, digits=6) if text == '100.00' else text}%"


def format_epsilon(value: float | str) -> str:
    """Format an epsilon of a JSON file, where infinity is "inf"."""
    return rounded_up(float(value))


def format_interval(ends: Sequence[float | None] | None, figure: str) -> str:
    """Format the ends of an interval of a figure."""
    if ends is None or None in ends:
        return "none"
    return " to ".join(format_figure(figure, end) for end in ends if end is not None)


def _count_runs(number: int) -> str:
    return "no run" if number == 0 else "1 run" if number == 1 else f"{number:,} runs"
