"""Tables of an experiment: ours, published, the difference, what was claimed and what holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph._text import digits_up, rounded_up
from hushgraph.reproduction import spec
from hushgraph.reproduction.grid import Job
from hushgraph.reproduction.sources import Source
from hushgraph.reproduction.worth import SEEDED

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
    """One cell in one mode; accuracies in percent.

    Attributes:
        column, data: the dataset of the paper, and what was used.
        row: the method as the paper prints it.
        ours, spread: mean and standard deviation over seeds; the spread of one seed is None.
        published, published_spread: None where the paper has no number.
        comparable: whether `data` is the paper's.
        claimed, holds: epsilon as claimed, and the largest that a proof covers; None where there is none.
        if_public: what noise and batches would be worth with thresholds that read no private data.
        runs: digests of the records behind `ours`.
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
        """Ours minus published, on the paper's data alone."""
        return None if self.published is None or not self.comparable else self.ours - self.published

    def texts(self) -> tuple[str, ...]:
        """What stands under each of `HEADINGS`."""
        axes = "".join(f", {name}={value:g}" for name, value in self.axes.items())
        data = self.column if self.data == self.column else f"{self.column} ({self.data})"
        mark = "" if self.comparable or self.published is None else " *"
        difference = "" if self.difference is None else f"{self.difference:+.2f}"
        return (
            data,
            f"{self.row}{axes}",
            self.mode,
            self._figure(self.ours, self.spread, 2),
            "" if self.published is None else self._figure(self.published, self.published_spread, 3) + mark,
            difference,
            "" if self.claimed is None else digits_up(self.claimed),
            self._holds(),
        )

    @property
    def name(self) -> str:
        """The line without its figures."""
        return ", ".join(text for text in self.texts()[1:3] if text)

    def _figure(self, value: float, spread: float | None, digits: int) -> str:
        if not self.mode:
            # A count, or a share: as many digits as it has.
            return f"{value:,.{digits}f}".rstrip("0").rstrip(".")
        return f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f} ± {spread:.{digits}f}"

    def _holds(self) -> str:
        if self.holds is not None:
            return rounded_up(self.holds)
        # A difference of two rows, and a figure of a dataset, have no epsilon to speak of.
        if not self.runs:
            return ""
        return "none" if self.if_public is None else f"none ({rounded_up(self.if_public)} **)"


@dataclass(frozen=True, kw_only=True)
class Class:
    """One class of a column: its test nodes, and the accuracy on them in percent by the name of a line."""

    column: str
    number: int
    test_nodes: int
    accuracy: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its notes, and where it was asked for the classes one by one, most frequent first."""

    name: str
    title: str
    source: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    classes: tuple[Class, ...] = ()

    def rich(self) -> list[RichTable]:
        """One table for each dataset, titled with it."""
        from rich.table import Table as RichTable

        found: dict[str, RichTable] = {}
        for line in self.lines:
            data, *texts = line.texts()
            if data not in found:
                found[data] = RichTable(title=data, title_justify="left", box=None, pad_edge=False)
                for heading in HEADINGS[1:]:
                    justify: JustifyMethod = "left" if heading in HEADINGS[:3] else "right"
                    found[data].add_column(heading, justify=justify, no_wrap=True)
            found[data].add_row(*texts)
        return list(found.values())

    def markdown(self) -> str:
        about = f"{self.source}.\n\n" if self.source else ""
        body = _markdown(HEADINGS, [line.texts() for line in self.lines])
        notes = "\n".join(f"- {note.replace('*', chr(92) + '*')}" for note in self.notes)
        return f"# {self.title}\n\n{about}{body}\n{self._by_class()}{notes}\n"

    def _by_class(self) -> str:
        names = tuple(dict.fromkeys(name for one in self.classes for name in one.accuracy))
        rows = []
        for one in self.classes:
            shares = (f"{one.accuracy[name]:.2f}" if name in one.accuracy else "" for name in names)
            rows.append((one.column, str(one.number), f"{one.test_nodes:,}", *shares))
        return _markdown(("data", "class", "test nodes", *names), rows) + "\n" if rows else ""

    def as_json(self) -> dict[str, Any]:
        """The table, every line with the digests of its records."""
        lines = [{**asdict(line), "difference": line.difference} for line in self.lines]
        return {**asdict(self), "lines": lines}

    def write(self, out: Path) -> None:
        """NAME.md and NAME.json in the folder `out`."""
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / f"{self.name}.md", self.markdown().encode())
        write_whole(out / f"{self.name}.json", json.dumps(self.as_json(), indent=1, allow_nan=False).encode())


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    found = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("*", "\\*") for cell in row) + " |\n" for row in found)


def of_records(
    experiment: spec.Experiment,
    found: Sequence[tuple[Job, Source, Mapping[str, Any]]],
    *,
    left_out: Sequence[str] = (),
) -> Table:
    """The table of an experiment from its records; a cell without all its seeds shows those it has.

    What was left out, because its budget pays for no step, is a note.
    """
    groups: dict[tuple[Any, ...], list[tuple[Job, Source, Mapping[str, Any]]]] = {}
    for job, source, record in found:
        if record["test_accuracy"] is not None:
            groups.setdefault((job.column.name, job.row.row, job.axes, job.mode), []).append(
                (job, source, record)
            )
    published = spec.published_numbers(experiment.name)
    lines = {key: _line(group, published) for key, group in groups.items()}
    shown = [*lines.values(), *_differences(experiment, lines, published)]
    return Table(
        name=experiment.name,
        title=experiment.title,
        source=experiment.source,
        lines=tuple(shown),
        notes=(
            *_notes(shown, [record for _, _, record in found]),
            *(f"Left out, its budget pays for no step: {label}." for label in left_out),
        ),
        classes=tuple(_classes(groups, lines)),
    )


def _classes(
    groups: Mapping[tuple[Any, ...], Sequence[tuple[Job, Source, Mapping[str, Any]]]],
    lines: Mapping[tuple[Any, ...], Line],
) -> list[Class]:
    """The classes of every column, where records have them: means over seeds."""
    counts: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], dict[str, float]] = {}
    for key, group in groups.items():
        kept = [record["per_class"] for _, _, record in group if record.get("per_class")]
        for number, count in enumerate(kept[0]["count"] if kept else ()):
            if count:
                counts[key[0], number] = count
                accuracies = [100 * one["accuracy"][number] for one in kept]
                found.setdefault((key[0], number), {})[lines[key].name] = fmean(accuracies)
    columns = list(dict.fromkeys(column for column, _ in counts))
    order = sorted(counts, key=lambda at: (columns.index(at[0]), -counts[at], at[1]))
    return [
        Class(column=column, number=number, test_nodes=counts[column, number], accuracy=found[column, number])
        for column, number in order
    ]


def of_statistics(
    experiment: spec.Experiment, found: Iterable[tuple[spec.Column, Source, Mapping[str, float]]]
) -> Table:
    """The table of datasets."""
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
        for column, source, figures in found
        for heading, value in figures.items()
    ]
    return Table(
        name=experiment.name,
        title=experiment.title,
        source=experiment.source,
        lines=tuple(lines),
        notes=tuple(_notes(lines, [])),
    )


def _line(group: Sequence[tuple[Job, Source, Mapping[str, Any]]], published: Mapping[Any, Any]) -> Line:
    job, source, _ = group[0]
    records = [record for _, _, record in group]
    accuracies = [100 * record["test_accuracy"] for record in records]
    # A constant line of a figure, as of GCN, has no place on the axis.
    printed = published.get((job.column.name, job.row.printed, job.axes), (None, None))
    return Line(
        column=job.column.name,
        data=source.name if not source.comparable else job.column.name,
        row=job.row.printed,
        mode=job.mode,
        axes=dict(job.axes),
        ours=fmean(accuracies),
        spread=stdev(accuracies) if len(accuracies) > 1 else None,
        published=printed[0],
        published_spread=printed[1],
        comparable=source.comparable,
        # The paper claims nothing for what is not its own way of doing it.
        claimed=None if job.mode == "sound" else _largest(record["claimed_epsilon"] for record in records),
        holds=_largest(record["epsilon_holds"] for record in records),
        if_public=_largest(record["epsilon_if_thresholds_were_public"] for record in records),
        runs=tuple(record["run"] for record in records),
    )


def _differences(
    experiment: spec.Experiment, lines: Mapping[tuple[Any, ...], Line], published: Mapping[Any, Any]
) -> list[Line]:
    """Rows that are one row minus another: of a private row in each of its modes."""
    found = []
    for row in experiment.rows:
        if not row.minus:
            continue
        first, second = row.minus
        for (column, name, axes, mode), less in lines.items():
            more = lines.get((column, first, axes, "non-private"))
            if name != second or more is None:
                continue
            printed = published.get((column, row.printed, axes), (None, None))[0]
            found.append(
                Line(
                    column=column,
                    data=less.data,
                    row=row.printed,
                    mode=mode,
                    axes=dict(axes),
                    ours=more.ours - less.ours,
                    published=printed,
                    comparable=less.comparable,
                )
            )
    return found


def _notes(lines: Sequence[Line], records: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = []
    if any(not line.comparable and line.published is not None for line in lines):
        notes.append(f"* {OTHER_DATA}; the published number belongs to the dataset named first.")
    if any(line.holds is None and line.if_public is not None for line in lines):
        notes.append(
            "** What noise and batches would be worth if the clipping thresholds read no private data. They "
            "do, so no epsilon holds."
        )
    notes += list(dict.fromkeys(_reason(record) for record in records if record["mode"] == "as-published"))
    if records:
        notes.append(SEEDED)
    commits = list(dict.fromkeys(str(record["commit"])[:7] for record in records if record.get("commit")))
    if len(commits) > 1:
        notes.append(f"Records of {len(commits)} commits: {', '.join(commits)}.")
    return notes


def _reason(record: Mapping[str, Any]) -> str:
    reason = str(record["holds_reason"]).split(". Were")[0]
    return f"as-published, {reason}."


def _largest(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if not found or None in found else max(v for v in found if v is not None)
