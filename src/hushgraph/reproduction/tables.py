"""Tables of results: ours beside the published numbers, and accuracy against epsilon."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph._text import digits_up, rounded_up
from hushgraph.reproduction import spec
from hushgraph.reproduction.data_sources import Source
from hushgraph.reproduction.measurements import Measurement, group_records
from hushgraph.reproduction.proven_epsilon import SEED_NOTE

if TYPE_CHECKING:
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
        return (
            data,
            f"{self.row}{axes}",
            self.mode,
            self._format(self.ours, self.spread, 2),
            "" if self.published is None else self._format(self.published, self.published_spread, 3) + mark,
            "" if self.difference is None else f"{self.difference:+.2f}",
            "" if self.claimed is None else digits_up(self.claimed),
            # Differences of rows and statistics of datasets have no epsilon.
            format_holds(self.holds, self.if_public, mark=" **") if self.runs else "",
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


def format_holds(holds: float | None, if_public: float | None, *, mark: str = "") -> str:
    """Format the epsilon that holds, or what would hold if clipping thresholds were public."""
    if holds is not None:
        return rounded_up(holds)
    return "none" if if_public is None else f"none ({rounded_up(if_public)}{mark})"


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One class of a column: its number of test nodes, and the accuracy on them in percent, by line."""

    column: str
    number: int
    test_nodes: int
    accuracy: dict[str, float]


def format_markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], ruler: str = "---") -> str:
    """Return a table as Markdown; `ruler` is that of all columns but the first."""
    lines = [headings, ["---", *[ruler] * (len(headings) - 1)], *rows]
    return "".join("| " + " | ".join(cell.replace("*", "\\*") for cell in row) + " |\n" for row in lines)


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of the paper with, for some experiments, the accuracy on each class, most frequent first."""

    name: str
    title: str
    source: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    classes: tuple[ClassRow, ...] = ()

    def grids(self) -> dict[str, list[Sequence[str]]]:
        """Return what the terminal shows of each dataset, headings first."""
        grids: dict[str, list[Sequence[str]]] = {}
        for line in self.lines:
            data, *texts = line.texts()
            grids.setdefault(data, [HEADINGS[1:]]).append(texts)
        return grids

    def markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        source = f"{self.source}.\n\n" if self.source else ""
        body = format_markdown(HEADINGS, [line.texts() for line in self.lines])
        notes = "\n".join(f"- {note.replace('*', chr(92) + '*')}" for note in self.notes)
        return f"# {self.title}\n\n{source}{body}\n{self._class_table()}{notes}\n"

    def _class_table(self) -> str:
        names = tuple(dict.fromkeys(name for one in self.classes for name in one.accuracy))
        rows = []
        for one in self.classes:
            shares = (f"{one.accuracy[name]:.2f}" if name in one.accuracy else "" for name in names)
            rows.append((one.column, str(one.number), f"{one.test_nodes:,}", *shares))
        return format_markdown(("data", "class", "test nodes", *names), rows) + "\n" if rows else ""

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON data; every line has the digests of its records."""
        lines = [{**asdict(line), "difference": line.difference} for line in self.lines]
        return {**asdict(self), "lines": lines}


def build_table(
    experiment: spec.Experiment,
    records: Sequence[Mapping[str, Any]],
    sources: Mapping[str, Source | None],
    *,
    left_out: Sequence[str] = (),
) -> PaperTable:
    """Build the table of an experiment from its records; a cell may have records for only some seeds.

    Args:
        experiment: the experiment.
        records: of its jobs.
        sources: the data of each column.
        left_out: labels of runs whose budget does not cover one step; they become notes.
    """
    published = spec.published_numbers(experiment.name)
    printed = {row.row: row.printed for row in experiment.rows}
    measured = group_records(records)
    lines = []
    for one in measured:
        ours, spread = published.get((one.column, printed[one.row], one.axes), (None, None))
        lines.append(
            Line(
                **_describe_data(one.column, sources[one.column]),
                row=printed[one.row],
                mode=one.mode,
                axes=dict(one.axes),
                ours=100 * one.mean,
                spread=100 * one.spread if len(one.accuracy) > 1 else None,
                published=ours,
                published_spread=spread,
                # The paper claims nothing for our own method.
                claimed=None if one.mode == "sound" else one.claimed,
                holds=one.holds,
                if_public=one.if_public,
                runs=one.runs,
            )
        )
    classes = _build_class_rows(list(zip(lines, measured, strict=True)))
    lines += _build_differences(experiment, lines, published)
    notes = (
        *_build_notes(lines, records),
        *(f"Left out, its budget pays for no step: {label}." for label in left_out),
    )
    return _label_table(experiment, lines, notes, classes)


def _label_table(
    experiment: spec.Experiment, lines: Sequence[Line], notes: Sequence[str], classes: Sequence[ClassRow] = ()
) -> PaperTable:
    return PaperTable(
        name=experiment.name,
        title=experiment.title,
        source=experiment.source,
        lines=tuple(lines),
        notes=tuple(notes),
        classes=tuple(classes),
    )


def build_statistics_table(
    experiment: spec.Experiment,
    numbers: Mapping[str, Mapping[str, float]],
    sources: Mapping[str, Source | None],
) -> PaperTable:
    """Build the table of datasets from the numbers of each column."""
    lines = [
        Line(
            **_describe_data(column, sources[column]),
            row=heading,
            mode="",
            axes={},
            ours=value,
            published=experiment.column(column).statistics.get(heading),
        )
        for column, values in numbers.items()
        for heading, value in values.items()
    ]
    return _label_table(experiment, lines, _build_notes(lines, []))


def _describe_data(column: str, source: Source | None) -> dict[str, Any]:
    """Return what a line says about its data."""
    other = None if source is None or source.comparable else source.name
    return {"column": column, "data": other or column, "comparable": other is None}


def _build_class_rows(measured: Sequence[tuple[Line, Measurement]]) -> list[ClassRow]:
    """Build the rows of classes from the measurements that have them, with means over seeds."""
    rows: dict[tuple[str, int], ClassRow] = {}
    for line, one in measured:
        sizes, by_seed = one.classes or ((), ())
        for number, count in enumerate(sizes):
            if count:
                row = ClassRow(column=one.column, number=number, test_nodes=count, accuracy={})
                accuracies = rows.setdefault((one.column, number), row).accuracy
                accuracies[line.name] = fmean(100 * accuracies[number] for accuracies in by_seed)
    columns = list(dict.fromkeys(column for column, _ in rows))
    return sorted(rows.values(), key=lambda row: (columns.index(row.column), -row.test_nodes, row.number))


def _build_differences(
    experiment: spec.Experiment, lines: Sequence[Line], published: Mapping[Any, Any]
) -> list[Line]:
    """Build the rows that are the difference of two rows, in each mode of the private one."""
    printed = {row.row: row.printed for row in experiment.rows}
    without = {
        (line.column, line.row, tuple(line.axes.items())): line
        for line in lines
        if line.mode == "non-private"
    }
    differences = []
    for row in (row for row in experiment.rows if row.minus):
        first, second = (printed[name] for name in row.minus)
        for line in (line for line in lines if line.row == second):
            axes = tuple(line.axes.items())
            minuend = without.get((line.column, first, axes))
            if minuend is not None:
                differences.append(
                    Line(
                        column=line.column,
                        data=line.data,
                        row=row.printed,
                        mode=line.mode,
                        axes=line.axes,
                        ours=minuend.ours - line.ours,
                        published=published.get((line.column, row.printed, axes), (None, None))[0],
                        comparable=line.comparable,
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
    reasons = [record["holds_reason"] for record in records if record["mode"] == "as-published"]
    notes += dict.fromkeys(f"as-published, {reason.split('. Were')[0]}." for reason in reasons)
    notes += dict.fromkeys(a["sentence"] for record in records for a in record.get("assumptions", ()))
    if records:
        notes.append(SEED_NOTE)
    commits = list(dict.fromkeys(record["commit"][:7] for record in records if record.get("commit")))
    if len(commits) > 1:
        notes.append(f"Records of {len(commits)} commits: {', '.join(commits)}.")
    return notes


@dataclass(frozen=True, kw_only=True)
class FrontierLine:
    """One row of the frontier at one epsilon; accuracies on the test split, in percent.

    Attributes:
        data, row: the graph and the row.
        epsilon: None without noise.
        ours, spread: mean and standard deviation over seeds; the spread of one seed is None.
        epsilon_holds: the largest epsilon of its runs; None without noise.
        runs: digests of its records.
    """

    data: str
    row: str
    epsilon: float | None
    ours: float
    spread: float | None
    epsilon_holds: float | None
    runs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.ours:.1f}" + ("" if self.spread is None else f" ± {self.spread:.1f}")


@dataclass(frozen=True, kw_only=True)
class FrontierTable:
    """Accuracy against epsilon: for each graph a row for each method, a column for each epsilon."""

    name: str
    title: str
    lines: tuple[FrontierLine, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader of the table and of the figure must know."""
        seeds = sorted({len(line.runs) for line in self.lines})
        count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        return [
            "Test accuracy in percent, only epsilon given, symmetrized. "
            + ("One seed." if seeds == [1] else f"Mean and standard deviation over {count} seeds."),
            "Runs have no fixed seed: epsilon holds for weights and boards of every one. These accuracies "
            "read test labels and are not covered.",
            "Covered: predictions for everybody else are covered by the same epsilon. In the clear and on "
            "trees, predictions read neighbours without noise and are not covered.",
            "New nodes: test nodes are taken out before board and training and arrive afterwards, at no "
            "charge.",
            "Split: that of the file for facebook_32_schools and ogbn_arxiv_hints, else random 60/20/20 by "
            "seed.",
        ]

    def grids(self) -> dict[str, list[Sequence[str]]]:
        """Return the table of each graph, headings first."""
        grids: dict[str, list[Sequence[str]]] = {}
        for data in dict.fromkeys(line.data for line in self.lines):
            lines = [line for line in self.lines if line.data == data]
            epsilons = sorted({line.epsilon for line in lines if line.epsilon is not None})
            cells = {(line.row, line.epsilon): str(line) for line in lines}
            grids[data] = [
                ["method", *(f"epsilon {epsilon:g}" for epsilon in epsilons), "without noise"],
                *(
                    [row, *(cells.get((row, epsilon), "") for epsilon in (*epsilons, None))]
                    for row in dict.fromkeys(line.row for line in lines)
                ),
            ]
        return grids

    def markdown(self) -> str:
        """Return the notes and the table of each graph as Markdown."""
        text = f"# {self.title}\n\n" + "\n".join(f"- {note}" for note in self.notes) + "\n"
        for data, (heads, *rows) in self.grids().items():
            text += f"\n## {data}\n\n{format_markdown(heads, rows, '---:')}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON data; every line has the digests of its records."""
        return asdict(self)


def build_frontier(experiment: spec.Experiment, records: Sequence[Mapping[str, Any]]) -> FrontierTable:
    """Average records over seeds; lines are in the order of graphs, rows and epsilons of the experiment."""
    graphs = [column.name for column in experiment.columns]
    measured: list[Measurement] = []
    for row in experiment.rows:
        for name, key in ((row.printed, "test_accuracy"), (row.clear, "test_accuracy_in_the_clear")):
            own = [record for record in records if name is not None and record["row"] == row.row]
            measured += group_records(
                {**record, "row": name, "test_accuracy": 100 * record[key]} for record in own
            )
    rows = list(dict.fromkeys(one.row for one in measured))
    measured.sort(
        key=lambda one: (graphs.index(one.column), one.data, rows.index(one.row), one.axis("epsilon") or 0.0)
    )
    lines = [
        FrontierLine(
            data=one.data,
            row=one.row,
            epsilon=one.axis("epsilon"),
            ours=one.mean,
            spread=one.spread if len(one.accuracy) > 1 else None,
            epsilon_holds=one.holds,
            runs=one.runs,
        )
        for one in measured
    ]
    return FrontierTable(name=experiment.name, title=experiment.title, lines=tuple(lines))


def render(table: PaperTable | FrontierTable) -> list[RichTable]:
    """Return one Rich table for each dataset, with the dataset as its title."""
    from rich.table import Table as RichTable

    tables = []
    for data, (heads, *rows) in table.grids().items():
        rendered = RichTable(title=data, title_justify="left", box=None, pad_edge=False)
        for head in heads:
            rendered.add_column(head, justify="left" if head in ("method", "mode") else "right")
        for row in rows:
            rendered.add_row(*row)
        tables.append(rendered)
    return tables


def write(table: PaperTable | FrontierTable, out: Path) -> None:
    """Write NAME.md and NAME.json to the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    content = json.dumps(table.as_json(), indent=1, allow_nan=False)
    write_whole(out / f"{table.name}.md", table.markdown().encode())
    write_whole(out / f"{table.name}.json", content.encode())
