"""Measurements: the records of one model at one setting, grouped over seeds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from hushgraph.errors import InputError

MODES = ("non-private", "non-private-ours", "sound", "as-published")
_NAMES = ("experiment", "column", "data", "row", "mode")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The accuracy of one model at one setting, with what is known about its epsilon.

    Attributes:
        experiment, column, data, row, mode, axes: as in the records; axes sorted by name.
        accuracy: on the test split, 0 to 1, by seed.
        claimed, holds: the largest epsilon of the records; None if one of them has none.
        if_public: the largest epsilon that would hold if clipping thresholds did not depend on private
            gradients; None if one of the records has none.
        classes: the sizes of the classes in the test split, and the accuracies on them by seed.
    """

    experiment: str
    column: str
    data: str
    row: str
    mode: str
    axes: tuple[tuple[str, Any], ...]
    accuracy: Mapping[int, float]
    claimed: float | None
    holds: float | None
    if_public: float | None
    classes: tuple[tuple[int, ...], tuple[tuple[float, ...], ...]] | None

    @property
    def mean(self) -> float:
        """The mean accuracy over seeds."""
        return fmean(self.accuracy.values())

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; 0 for one seed."""
        return stdev(self.accuracy.values()) if len(self.accuracy) > 1 else 0.0

    @property
    def epsilon(self) -> float | None:
        """The claimed epsilon if the mode is "as-published", else the one that holds."""
        return self.claimed if self.mode == "as-published" else self.holds

    def axis(self, name: str) -> Any:
        """Return the value of an axis; None if it does not vary along it."""
        return dict(self.axes).get(name)

    def other_axes(self, name: str) -> tuple[tuple[str, Any], ...]:
        """Return names and values of the other axes."""
        return tuple(pair for pair in self.axes if pair[0] != name)


def read_records(records: Path | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read and check records from a file of JSON lines or from memory; skip those without an accuracy."""
    where = str(records) if isinstance(records, Path) else "records"
    numbered = _read_lines(records) if isinstance(records, Path) else enumerate(records, start=1)
    checked = [_check(record, f"{where}, record {number}") for number, record in numbered]
    if not checked:
        raise InputError(f"{where}: no records; run the experiment first")
    measured = [record for record in checked if record.get("test_accuracy") is not None]
    if not measured:
        raise InputError(f"{where}: no test_accuracy in {len(checked)} records; run the experiment first")
    return measured


def group_records(records: Iterable[Mapping[str, Any]]) -> list[Measurement]:
    """Group checked records over seeds, in order of first appearance; the last record of a seed counts."""
    groups: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
    for record in records:
        axes = tuple(sorted((record.get("axes") or {}).items()))
        key = (*(record[name] for name in _NAMES), axes)
        groups.setdefault(key, {})[record.get("seed", 0)] = record
    return [
        Measurement(
            **dict(zip((*_NAMES, "axes"), key, strict=True)),
            accuracy={seed: float(record["test_accuracy"]) for seed, record in group.items()},
            claimed=_largest(record.get("claimed_epsilon") for record in group.values()),
            holds=_largest(record.get("epsilon_holds") for record in group.values()),
            if_public=_largest(record.get("epsilon_if_thresholds_were_public") for record in group.values()),
            classes=_collect_classes([record.get("per_class") for record in group.values()]),
        )
        for key, group in groups.items()
    ]


def _read_lines(path: Path) -> list[tuple[int, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected a file of JSON lines") from None
    records = []
    # The last line is empty, or still being written.
    for number, line in enumerate(lines[:-1], start=1):
        if line.strip():
            try:
                records.append((number, json.loads(line)))
            except ValueError as error:
                raise InputError(
                    f"{path}, line {number}: not JSON ({error}); expected one record per line"
                ) from None
    return records


def _check(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise InputError(f"{where}: {type(record).__name__}, expected an object; run the experiment again")
    missing = [name for name in _NAMES if not isinstance(record.get(name), str)]
    if missing:
        raise InputError(f"{where}: no text for {', '.join(missing)}; run the experiment again")
    if not re.fullmatch(r"[\w-]+", record["experiment"]):
        raise InputError(
            f"{where}: experiment={record['experiment']!r}, expected letters, digits and hyphens"
        )
    if record["mode"] not in MODES:
        raise InputError(f"{where}: mode={record['mode']!r}, expected one of {', '.join(MODES)}")
    accuracy = record.get("test_accuracy")
    if accuracy is not None and not (_is_number(accuracy) and 0 <= accuracy <= 1):
        raise InputError(f"{where}: test_accuracy={accuracy!r}, expected a number from 0 to 1")
    if not isinstance(record.get("axes") or {}, Mapping):
        raise InputError(f"{where}: axes={record['axes']!r}, expected an object")
    return dict(record)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _largest(values: Iterable[Any]) -> float | None:
    # If one record has no bound, there is none for all: the bound of the others would be too small.
    numbers = list(values)
    return float(max(numbers)) if numbers and all(_is_number(value) for value in numbers) else None


def _collect_classes(
    per_class: list[Any],
) -> tuple[tuple[int, ...], tuple[tuple[float, ...], ...]] | None:
    known = [one for one in per_class if one]
    if not known:
        return None
    accuracies = tuple(
        tuple(float(value) if _is_number(value) else math.nan for value in one["accuracy"]) for one in known
    )
    return tuple(int(value) for value in known[0]["count"]), accuracies
