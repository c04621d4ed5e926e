"""The words of a figure: what was measured on what, and who says that an epsilon holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hushgraph._text import rounded_up
from hushgraph.reproduction import spec
from hushgraph.reproduction.measured import Cell

PUBLISHED = "published by the paper"
MODE_WORDS = {
    "non-private": "no privacy, settings of the paper",
    "non-private-ours": "no privacy, our defaults",
    "sound": "sound: ε holds",
    "as-published": "as published: ε claimed by the paper",
}
_WITHOUT = {"non-private": "no privacy", "non-private-ours": "no privacy, our defaults"}
_AXES = {"epsilon": "ε", "max_readers": "maximum degree K", "batch_size": "batch size m"}
_SYMBOLS = {"epsilon": "ε", "max_readers": "K", "batch_size": "m"}


def title(experiment: str) -> str:
    if experiment in spec.names():
        return spec.load(experiment).title
    words = experiment.replace("_", " ").replace("-", " ")
    return words[:1].upper() + words[1:]


def axis(name: str, found: Sequence[Cell]) -> str:
    """What an axis measures; for epsilon, also who says so."""
    if name != "epsilon":
        return _AXES.get(name, name.replace("_", " "))
    modes = {cell.mode for cell in found}
    says = {"sound": "holds", "as-published": "claimed by the paper"}
    return "ε (" + "; ".join(f"{spoken(mode)}: {text}" for mode, text in says.items() if mode in modes) + ")"


def setting(pairs: Sequence[tuple[str, Any]]) -> str:
    """Places on axes, as "K = 3, m = 10,000"."""
    return ", ".join(f"{_SYMBOLS.get(name, name)} = {tick(value)}" for name, value in pairs)


def tick(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:g}"
    return f"{int(value):,}" if isinstance(value, int | float) else str(value)


def label(found: Sequence[Cell], *, on_epsilon: bool = False) -> str:
    """The model, how private it is, and who says so; without a size where epsilon is the axis."""
    row, mode = found[0].row, found[0].mode
    if mode in spec.NON_PRIVATE:
        return f"{row}, {_WITHOUT[mode]}"
    size = _size(found)
    if size is None:
        return f"{row}, {spoken(mode)} (no ε known)"
    who = "holds" if mode == "sound" else "claimed by the paper"
    return f"{row}, {spoken(mode)} ({'ε' if on_epsilon else size} {who})"


def short_label(found: Sequence[Cell]) -> str:
    """The model, and below it how private it is."""
    row, mode = found[0].row, found[0].mode
    if mode in spec.NON_PRIVATE:
        return f"{row}\n{_WITHOUT[mode]}"
    claimed = "claimed " if mode == "as-published" else ""
    size = _size(found)
    return f"{row}\n{spoken(mode)}, " + ("no ε known" if size is None else claimed + size)


def spoken(mode: str) -> str:
    return mode.replace("-", " ")


def notes(found: Sequence[Cell], *, published: bool = False) -> list[str]:
    """What a reader must know: substitute data, claims that are not guarantees, seeds.

    Args:
        found: what is drawn.
        published: whether the figure has published numbers too.
    """
    said = [
        f"Measured on {data}{'; published numbers are for' if published else ', not'} {column}."
        for column, data in dict.fromkeys((cell.column, cell.data) for cell in found)
        if not _is_own(found[0].experiment, column, data)
    ]
    claimed = [cell for cell in found if cell.mode == "as-published"]
    if claimed:
        holds = _all_of([cell.holds for cell in claimed])
        said.append(
            "As published: ε is claimed by the paper; "
            + (f"what holds for these runs is {holds}." if holds else "no ε is known to hold for these runs.")
        )
        worth = None if holds else _all_of([cell.if_public for cell in claimed])
        if worth:
            said[-1] += f" Were their clipping thresholds public, {worth} would hold."
    seeds = sorted({len(cell.accuracy) for cell in found})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spread = f"Spread: standard deviation over {count} seeds."
    said.append("One seed, so no spread." if seeds == [1] else spread)
    if any(cell.mode not in spec.NON_PRIVATE for cell in found):
        said.append("Runs with a fixed seed are reproducible, not private: ε is that of runs without one.")
    return said


def _all_of(epsilons: Sequence[float | None]) -> str | None:
    """From the smallest to the largest; None where one is missing."""
    known = [epsilon for epsilon in epsilons if epsilon is not None]
    if len(known) < len(epsilons):
        return None
    low, high = rounded_up(min(known)), rounded_up(max(known))
    return f"ε = {low}" if low == high else f"ε = {low} to {high}"


def _is_own(experiment: str, column: str, data: str) -> bool:
    """Whether the data is that of the paper's column, which may be a part of a dataset with another name."""
    own = {column}
    if experiment in spec.names():
        own |= {known.dataset for known in spec.load(experiment).columns if known.name == column}
    return data.replace("_", "-") in {name.replace("_", "-") for name in own}


def _size(found: Sequence[Cell]) -> str | None:
    known = [cell.epsilon for cell in found if cell.epsilon is not None]
    return f"ε ≤ {rounded_up(max(known))}" if known and len(known) == len(found) else None
