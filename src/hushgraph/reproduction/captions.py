"""The text of figures: what was measured on which data, and whether an epsilon holds or is only claimed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hushgraph._text import rounded_up
from hushgraph.reproduction import spec
from hushgraph.reproduction.measurements import Measurement

PUBLISHED = "published by the paper"
MODE_LABELS = {
    "non-private": "no privacy, settings of the paper",
    "non-private-ours": "no privacy, our defaults",
    "sound": "sound: ε holds",
    "as-published": "as published: ε claimed by the paper",
}
_NON_PRIVATE = {"non-private": "no privacy", "non-private-ours": "no privacy, our defaults"}
_AXES = {"epsilon": "ε", "max_readers": "maximum degree K", "batch_size": "batch size m"}
_SYMBOLS = {"epsilon": "ε", "max_readers": "K", "batch_size": "m"}


def figure_title(experiment: str) -> str:
    """Return the title of an experiment, or its name in words if it is not one of the paper."""
    if experiment in spec.names():
        return spec.load(experiment).title
    words = experiment.replace("_", " ").replace("-", " ")
    return words[:1].upper() + words[1:]


def axis_label(name: str, measurements: Sequence[Measurement]) -> str:
    """Return the label of an axis; for epsilon, also whether it holds or is claimed."""
    if name != "epsilon":
        return _AXES.get(name, name.replace("_", " "))
    modes = {measurement.mode for measurement in measurements}
    status = {"sound": "holds", "as-published": "claimed by the paper"}
    parts = [f"{mode_name(mode)}: {text}" for mode, text in status.items() if mode in modes]
    return "ε (" + "; ".join(parts) + ")"


def format_setting(axes: Sequence[tuple[str, Any]]) -> str:
    """Format values of axes, such as "K = 3, m = 10,000"."""
    return ", ".join(f"{_SYMBOLS.get(name, name)} = {format_tick(value)}" for name, value in axes)


def format_tick(value: Any) -> str:
    """Format a value of an axis."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:g}"
    return f"{int(value):,}" if isinstance(value, int | float) else str(value)


def line_label(measurements: Sequence[Measurement], *, on_epsilon: bool = False) -> str:
    """Return the model, its privacy and who claims it; without a number if epsilon is the axis."""
    row, mode = measurements[0].row, measurements[0].mode
    if mode in spec.NON_PRIVATE:
        return f"{row}, {_NON_PRIVATE[mode]}"
    bound = _epsilon_bound(measurements)
    if bound is None:
        return f"{row}, {mode_name(mode)} (no ε known)"
    status = "holds" if mode == "sound" else "claimed by the paper"
    return f"{row}, {mode_name(mode)} ({'ε' if on_epsilon else bound} {status})"


def bar_label(measurements: Sequence[Measurement]) -> str:
    """Return the model, and on a second line its privacy."""
    row, mode = measurements[0].row, measurements[0].mode
    if mode in spec.NON_PRIVATE:
        return f"{row}\n{_NON_PRIVATE[mode]}"
    claimed = "claimed " if mode == "as-published" else ""
    bound = _epsilon_bound(measurements)
    return f"{row}\n{mode_name(mode)}, " + ("no ε known" if bound is None else claimed + bound)


def mode_name(mode: str) -> str:
    """Return a mode in words."""
    return mode.replace("-", " ")


def figure_notes(measurements: Sequence[Measurement], *, has_published: bool = False) -> list[str]:
    """Return what a reader must know: substitute data, claims that are not guarantees, seeds.

    Args:
        measurements: everything in the figure.
        has_published: whether the figure also shows published numbers.
    """
    notes = [
        f"Measured on {data}{'; published numbers are for' if has_published else ', not'} {column}."
        for column, data in dict.fromkeys((one.column, one.data) for one in measurements)
        if not _is_own_data(measurements[0].experiment, column, data)
    ]
    claimed = [one for one in measurements if one.mode == "as-published"]
    if claimed:
        notes.append(_claim_note(claimed))
    seeds = sorted({len(one.accuracy) for one in measurements})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spread = f"Spread: standard deviation over {count} seeds."
    notes.append("One seed, so no spread." if seeds == [1] else spread)
    if any(one.mode not in spec.NON_PRIVATE for one in measurements):
        notes.append("Runs with a fixed seed are reproducible, not private: ε is that of runs without one.")
    return notes


def _claim_note(claimed: Sequence[Measurement]) -> str:
    """Return a note about claimed epsilons: what holds instead, or would hold with public thresholds."""
    holds = _epsilon_range([one.holds for one in claimed])
    note = "As published: ε is claimed by the paper; " + (
        f"what holds for these runs is {holds}." if holds else "no ε is known to hold for these runs."
    )
    if_public = None if holds else _epsilon_range([one.if_public for one in claimed])
    return note + (f" Were their clipping thresholds public, {if_public} would hold." if if_public else "")


def _epsilon_range(epsilons: Sequence[float | None]) -> str | None:
    """Format the smallest and the largest epsilon; None if one is missing."""
    known = [epsilon for epsilon in epsilons if epsilon is not None]
    if len(known) < len(epsilons):
        return None
    low, high = rounded_up(min(known)), rounded_up(max(known))
    return f"ε = {low}" if low == high else f"ε = {low} to {high}"


def _is_own_data(experiment: str, column: str, data: str) -> bool:
    """Return whether the data is that of the paper's column, which may be a part of another dataset."""
    own = {column}
    if experiment in spec.names():
        own |= {known.dataset for known in spec.load(experiment).columns if known.name == column}
    return data.replace("_", "-") in {name.replace("_", "-") for name in own}


def _epsilon_bound(measurements: Sequence[Measurement]) -> str | None:
    known = [one.epsilon for one in measurements if one.epsilon is not None]
    return f"ε ≤ {rounded_up(max(known))}" if known and len(known) == len(measurements) else None
