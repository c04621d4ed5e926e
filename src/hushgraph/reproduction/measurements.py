"""Measurements: the records of one model at one setting, grouped over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

_NAMES = ("experiment", "column", "data", "row", "mode")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The accuracy of one model at one setting, with what is known about its epsilon.

    Attributes:
        experiment, column, data, row, mode, axes: as in the records.
        accuracy: on the test split, 0 to 1, by seed.
        claimed, holds: the largest epsilon of the records; None if one of them has none.
        if_public: the largest epsilon that would hold if clipping thresholds did not depend on private
            gradients; None if one of the records has none.
        classes: the sizes of the classes in the test split, and the accuracies on them by seed.
        runs: digests of the records.
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
    runs: tuple[str, ...]

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


def group_records(records: Iterable[Mapping[str, Any]]) -> list[Measurement]:
    """Group records with an accuracy over seeds, in order of first appearance; a seed's last one counts."""
    groups: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
    for record in records:
        if record["test_accuracy"] is not None:
            key = (*(record[name] for name in _NAMES), tuple(record["axes"].items()))
            groups.setdefault(key, {})[record["seed"]] = record
    return [
        Measurement(
            **dict(zip((*_NAMES, "axes"), key, strict=True)),
            accuracy={seed: record["test_accuracy"] for seed, record in group.items()},
            claimed=_largest(group, "claimed_epsilon"),
            holds=_largest(group, "epsilon_holds"),
            if_public=_largest(group, "epsilon_if_thresholds_were_public"),
            classes=_collect_classes(
                [record["per_class"] for record in group.values() if "per_class" in record]
            ),
            runs=tuple(record["run"] for record in group.values()),
        )
        for key, group in groups.items()
    ]


def _largest(group: Mapping[int, Mapping[str, Any]], name: str) -> float | None:
    # If one record has no bound, there is none for all: the bound of the others would be too small.
    values = [record.get(name) for record in group.values()]
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _collect_classes(
    known: list[Mapping[str, Any]],
) -> tuple[tuple[int, ...], tuple[tuple[float, ...], ...]] | None:
    accuracies = tuple(
        tuple(math.nan if value is None else value for value in one["accuracy"]) for one in known
    )
    return (tuple(known[0]["count"]), accuracies) if known else None
