"""Tables of results: ours, published, the difference, the claimed epsilon and the one that holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph._text import digits_up, rounded_up
from hushgraph.reproduction import spec
from hushgraph.reproduction.data_sources import Source
from hushgraph.reproduction.jobs import Job
from hushgraph.reproduction.measurements import Measurement, group_records
from hushgraph.reproduction.proven_epsilon import SEED_NOTE

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table as RichTable

OTHER_DATA = "other data: not comparable"
HEADINGS = (
    "data",
    "method",
    "mode",
    "ours",
    "published",
    "difference",
    "claimed epsilon",
    "epsilon that holds",
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One cell of a table in one mode; accuracies are in percent.

    Attributes:
        column, data: the dataset of the paper, and the one that was used.
        row: the method as printed in the paper.
        mode, axes: the mode, and the values of the axes.
        ours, spread: mean and standard deviation over seeds; the spread of one seed is None.
        published, published_spread: None if the paper has no number.
        comparable: whether `data` is the paper's.
        claimed, holds: the claimed epsilon, and the largest that a proof covers; None if there is none.
        if_public: the epsilon that would hold if the clipping thresholds did not depend on private data.
        runs: digests of the records that `ours` is computed from.
    """

    column: str
    data: str
    row: str
    mode: str
    axes: Mapping[str, float]
    ours: float
    spread: float | None = None
    published: float | None = None
    published_spread: float | None = None
    comparable: bool = True
    claimed: float | None = None
    holds: float | None = None
    if_public: float | None = None
    runs: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """Ours minus published; None unless the data is the paper's."""
        return None if self.published is None or not self.comparable else self.ours - self.published

    def texts(self) -> tuple[str, ...]:
        """Return the text under each of `HEADINGS`."""
        axes = "".join(f", {name}={value:g}" for name, value in self.axes.items())
        data = self.column if self.data == self.column else f"{self.column} ({self.data})"
        mark = "" if self.comparable or self.published is None else " *"
        difference = "" if self.difference is None else f"{self.difference:+.2f}"
        return (
            data,
            f"{self.row}{axes}",
            self.mode,
            self._format(self.ours, self.spread, 2),
            "" if self.published is None else self._format(self.published, self.published_spread, 3) + mark,
            difference,
            "" if self.claimed is None else digits_up(self.claimed),
            self._format_holds(),
        )

    @property
    def name(self) -> str:
        """The method and the mode."""
        return ", ".join(text for text in self.texts()[1:3] if text)

    def _format(self, value: float, spread: float | None, digits: int) -> str:
        if not self.mode:
            # A count or a share: without trailing zeros.
            return f"{value:,.{digits}f}".rstrip("0").rstrip(".")
        return f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f} ± {spread:.{digits}f}"

    def _format_holds(self) -> str:
        if self.holds is not None:
            return rounded_up(self.holds)
        # Differences of rows and statistics of datasets have no epsilon.
        if not self.runs:
            return ""
        return "none" if self.if_public is None else f"none ({rounded_up(self.if_public)} **)"


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One class of a column: its number of test nodes, and the accuracy on them in percent, by line."""

    column: str
    number: int
    test_nodes: int
    accuracy: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its notes and, for some experiments, the accuracy on each class, most frequent first."""

    name: str
    title: str
    source: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    classes: tuple[ClassRow, ...] = ()

    def rich(self) -> list[RichTable]:
        """Return one Rich table for each dataset, with the dataset as its title."""
        from rich.table import Table as RichTable

        tables: dict[str, RichTable] = {}
        for line in self.lines:
            data, *texts = line.texts()
            if data not in tables:
                tables[data] = RichTable(title=data, title_justify="left", box=None, pad_edge=False)
                for heading in HEADINGS[1:]:
                    justify: JustifyMethod = "left" if heading in HEADINGS[:3] else "right"
                    tables[data].add_column(heading, justify=justify, no_wrap=True)
            tables[data].add_row(*texts)
        return list(tables.values())

    def markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        source = f"{self.source}.\n\n" if self.source else ""
        body = _format_markdown(HEADINGS, [line.texts() for line in self.lines])
        notes = "\n".join(f"- {note.replace('*', chr(92) + '*')}" for note in self.notes)
        return f"# {self.title}\n\n{source}{body}\n{self._class_table()}{notes}\n"

    def _class_table(self) -> str:
        names = tuple(dict.fromkeys(name for one in self.classes for name in one.accuracy))
        rows = []
        for one in self.classes:
            shares = (f"{one.accuracy[name]:.2f}" if name in one.accuracy else "" for name in names)
            rows.append((one.column, str(one.number), f"{one.test_nodes:,}", *shares))
        return _format_markdown(("data", "class", "test nodes", *names), rows) + "\n" if rows else ""

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON data; every line has the digests of its records."""
        lines = [{**asdict(line), "difference": line.difference} for line in self.lines]
        return {**asdict(self), "lines": lines}

    def write(self, out: Path) -> None:
        """Write NAME.md and NAME.json to the folder `out`."""
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / f"{self.name}.md", self.markdown().encode())
        write_whole(out / f"{self.name}.json", json.dumps(self.as_json(), indent=1, allow_nan=False).encode())


def _format_markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("*", "\\*") for cell in row) + " |\n" for row in lines)


def build_table(
    experiment: spec.Experiment,
    recorded: Sequence[tuple[Job, Source, Mapping[str, Any]]],
    *,
    left_out: Sequence[str] = (),
) -> Table:
    """Build the table of an experiment from its records; a cell may have records for only some seeds.

    Args:
        experiment: the experiment.
        recorded: its jobs with their data and records.
        left_out: labels of runs whose budget does not cover one step; they become notes.
    """
    groups: dict[tuple[Any, ...], list[tuple[Job, Source, Mapping[str, Any]]]] = {}
    for job, source, record in recorded:
        if record["test_accuracy"] is not None:
            groups.setdefault((job.column.name, job.row.row, job.axes, job.mode), []).append(
                (job, source, record)
            )
    published = spec.published_numbers(experiment.name)
    measurements = {key: group_records(record for _, _, record in group)[0] for key, group in groups.items()}
    lines = {key: _build_line(group, measurements[key], published) for key, group in groups.items()}
    all_lines = [*lines.values(), *_build_differences(experiment, lines, published)]
    return Table(
        name=experiment.name,
        title=experiment.title,
        source=experiment.source,
        lines=tuple(all_lines),
        notes=(
            *_build_notes(all_lines, [record for _, _, record in recorded]),
            *(f"Left out, its budget pays for no step: {label}." for label in left_out),
        ),
        classes=tuple(_build_class_rows(measurements, lines)),
    )


def _build_class_rows(
    measurements: Mapping[tuple[Any, ...], Measurement], lines: Mapping[tuple[Any, ...], Line]
) -> list[ClassRow]:
    """Build the rows of classes from the measurements that have them, with means over seeds."""
    counts: dict[tuple[str, int], int] = {}
    accuracy: dict[tuple[str, int], dict[str, float]] = {}
    for key, measurement in measurements.items():
        sizes, by_seed = measurement.classes or ((), ())
        for number, count in enumerate(sizes):
            if count:
                counts[key[0], number] = count
                mean = fmean(100 * accuracies[number] for accuracies in by_seed)
                accuracy.setdefault((key[0], number), {})[lines[key].name] = mean
    columns = list(dict.fromkeys(column for column, _ in counts))
    order = sorted(counts, key=lambda key: (columns.index(key[0]), -counts[key], key[1]))
    return [
        ClassRow(
            column=column, number=number, test_nodes=counts[column, number], accuracy=accuracy[column, number]
        )
        for column, number in order
    ]


def build_statistics_table(
    experiment: spec.Experiment, statistics: Iterable[tuple[spec.Column, Source, Mapping[str, float]]]
) -> Table:
    """Build the table of datasets."""
    lines = [
        Line(
            column=column.name,
            data=source.name if not source.comparable else column.name,
            row=heading,
            mode="",
            axes={},
            ours=value,
            published=column.statistics.get(heading),
            comparable=source.comparable,
        )
        for column, source, numbers in statistics
        for heading, value in numbers.items()
    ]
    return Table(
        name=experiment.name,
        title=experiment.title,
        source=experiment.source,
        lines=tuple(lines),
        notes=tuple(_build_notes(lines, [])),
    )


def _build_line(
    group: Sequence[tuple[Job, Source, Mapping[str, Any]]],
    measurement: Measurement,
    published: Mapping[Any, Any],
) -> Line:
    job, source, _ = group[0]
    printed = published.get((job.column.name, job.row.printed, job.axes), (None, None))
    return Line(
        column=job.column.name,
        data=source.name if not source.comparable else job.column.name,
        row=job.row.printed,
        mode=job.mode,
        axes=dict(job.axes),
        ours=100 * measurement.mean,
        spread=100 * measurement.spread if len(measurement.accuracy) > 1 else None,
        published=printed[0],
        published_spread=printed[1],
        comparable=source.comparable,
        # The paper claims nothing for our own method.
        claimed=None if job.mode == "sound" else measurement.claimed,
        holds=measurement.holds,
        if_public=measurement.if_public,
        runs=tuple(record["run"] for _, _, record in group),
    )


def _build_differences(
    experiment: spec.Experiment, lines: Mapping[tuple[Any, ...], Line], published: Mapping[Any, Any]
) -> list[Line]:
    """Build the rows that are the difference of two rows, in each mode of the private one."""
    differences = []
    for row in experiment.rows:
        if not row.minus:
            continue
        first, second = row.minus
        for (column, name, axes, mode), subtrahend in lines.items():
            minuend = lines.get((column, first, axes, "non-private"))
            if name != second or minuend is None:
                continue
            printed = published.get((column, row.printed, axes), (None, None))[0]
            differences.append(
                Line(
                    column=column,
                    data=subtrahend.data,
                    row=row.printed,
                    mode=mode,
                    axes=dict(axes),
                    ours=minuend.ours - subtrahend.ours,
                    published=printed,
                    comparable=subtrahend.comparable,
                )
            )
    return differences


def _build_notes(lines: Sequence[Line], records: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = []
    if any(not line.comparable and line.published is not None for line in lines):
        notes.append(f"* {OTHER_DATA}; the published number belongs to the dataset named first.")
    if any(line.holds is None and line.if_public is not None for line in lines):
        notes.append(
            "** What noise and batches would be worth if the clipping thresholds did not depend on private "
            "data. They do, so no epsilon holds."
        )
    notes += list(
        dict.fromkeys(_format_reason(record) for record in records if record["mode"] == "as-published")
    )
    notes += list(dict.fromkeys(a["sentence"] for record in records for a in record.get("assumptions", ())))
    if records:
        notes.append(SEED_NOTE)
    commits = list(dict.fromkeys(str(record["commit"])[:7] for record in records if record.get("commit")))
    if len(commits) > 1:
        notes.append(f"Records of {len(commits)} commits: {', '.join(commits)}.")
    return notes


def _format_reason(record: Mapping[str, Any]) -> str:
    reason = str(record["holds_reason"]).split(". Were")[0]
    return f"as-published, {reason}."
