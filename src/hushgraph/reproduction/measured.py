"""Records of an experiment, brought together by cell: one model at one setting, over its seeds."""

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
class Cell:
    """What was measured for one model at one setting.

    Attributes:
        experiment, column, data, row, mode, axes: as in the records; axes sorted by name.
        accuracy: on the test split, 0 to 1, by seed.
        claimed, holds: the largest epsilon of the cell's records; None where one has none.
        if_public: the same, of what would hold had clipping thresholds not been read off private gradients.
        classes: counts, and accuracies by seed, of the classes on the test split.
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
        return fmean(self.accuracy.values())

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; 0 for one seed."""
        return stdev(self.accuracy.values()) if len(self.accuracy) > 1 else 0.0

    @property
    def epsilon(self) -> float | None:
        """The claimed epsilon of a run as published, the one that holds otherwise."""
        return self.claimed if self.mode == "as-published" else self.holds

    def axis(self, name: str) -> Any:
        return dict(self.axes).get(name)

    def beside(self, name: str) -> tuple[tuple[str, Any], ...]:
        """Its places on the other axes."""
        return tuple(pair for pair in self.axes if pair[0] != name)


def read_records(records: Path | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Checked records from a file of JSON lines or from memory; those without an accuracy are left out."""
    where = str(records) if isinstance(records, Path) else "records"
    rows = _lines(records) if isinstance(records, Path) else enumerate(records, start=1)
    found = [_checked(record, f"{where}, record {number}") for number, record in rows]
    if not found:
        raise InputError(f"{where}: no records; run the experiment first")
    measured = [record for record in found if record.get("test_accuracy") is not None]
    if not measured:
        raise InputError(f"{where}: no test_accuracy in {len(found)} records; run the experiment first")
    return measured


def cells(records: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Checked records by cell, in the order of first appearance; of two with one seed the later counts."""
    groups: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
    for record in records:
        axes = tuple(sorted((record.get("axes") or {}).items()))
        key = (*(record[name] for name in _NAMES), axes)
        groups.setdefault(key, {})[record.get("seed", 0)] = record
    return [
        Cell(
            **dict(zip((*_NAMES, "axes"), key, strict=True)),
            accuracy={seed: float(record["test_accuracy"]) for seed, record in group.items()},
            claimed=_largest(record.get("claimed_epsilon") for record in group.values()),
            holds=_largest(record.get("epsilon_holds") for record in group.values()),
            if_public=_largest(record.get("epsilon_if_thresholds_were_public") for record in group.values()),
            classes=_classes([record.get("per_class") for record in group.values()]),
        )
        for key, group in groups.items()
    ]


def _lines(path: Path) -> list[tuple[int, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected a file of JSON lines") from None
    found = []
    # The last line is empty, or one that is still being written.
    for number, line in enumerate(lines[:-1], start=1):
        if line.strip():
            try:
                found.append((number, json.loads(line)))
            except ValueError as error:
                raise InputError(
                    f"{path}, line {number}: not JSON ({error}); expected one record a line"
                ) from None
    return found


def _checked(record: Any, where: str) -> dict[str, Any]:
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
    # One record without a bound leaves the cell without one: that of the others would flatter it.
    found = list(values)
    return float(max(found)) if found and all(_is_number(value) for value in found) else None


def _classes(found: list[Any]) -> tuple[tuple[int, ...], tuple[tuple[float, ...], ...]] | None:
    kept = [one for one in found if one]
    if not kept:
        return None
    accuracies = tuple(
        tuple(float(value) if _is_number(value) else math.nan for value in one["accuracy"]) for one in kept
    )
    return tuple(int(value) for value in kept[0]["count"]), accuracies
