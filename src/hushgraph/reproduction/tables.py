"""Tables of results: lines from records, what a reader must know about them, and how they are written."""

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
from hushgraph.reproduction.proven_epsilon import SEED_NOTE

if TYPE_CHECKING:
    from rich.table import Table as RichTable

OTHER_DATA = "other data: not comparable"
_WORDS = ("method", "mode", "data")
"""Headings of columns that hold no numbers."""
HEADINGS = ("method", "mode", "ours", "published", "difference", "claimed epsilon", "epsilon that holds")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One method in one mode at one setting, over seeds; accuracies are on the test split, in percent.

    Attributes:
        column, data: the dataset of the experiment, and the one that was used.
        row: the method as printed.
        mode, axes: the mode, and the values of the axes.
        ours, spread: mean and standard deviation over seeds; the spread of one seed is None.
        published, published_spread: None if the paper has no number.
        comparable: whether `data` is the paper's.
        claimed, holds: the claimed epsilon, and the largest that a proof covers; None if there is none, or a
            seed has none.
        if_public: the epsilon that would hold if the clipping thresholds did not depend on private data.
        runs: digests of the records that `ours` is computed from; none of differences and statistics.
    """

    column: str
    data: str
    row: str
    mode: str = ""
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

    @property
    def epsilon(self) -> float | None:
        """The claimed epsilon if the mode is "as-published", else the one that holds."""
        return self.claimed if self.mode == "as-published" else self.holds

    @property
    def graph(self) -> str:
        """The dataset, and in brackets what stood in for it."""
        return self.column if self.comparable else f"{self.column} ({self.data})"

    def other_axes(self, name: str) -> spec.Axes:
        """Return names and values of the other axes."""
        return tuple(pair for pair in self.axes.items() if pair[0] != name)

    def texts(self) -> tuple[str, ...]:
        """Return the text under each of `HEADINGS`."""
        axes = "".join(f", {name}={value:g}" for name, value in self.axes.items())
        mark = "" if self.comparable or self.published is None else " *"
        return (
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
        return ", ".join(text for text in self.texts()[:2] if text)

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


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table or a figure as lines, with, for some experiments, the accuracy on each class, largest first."""

    name: str
    title: str
    source: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    classes: tuple[ClassRow, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether it has lines of runs, which a figure shows."""
        return any(line.runs for line in self.lines)

    @property
    def is_frontier(self) -> bool:
        """Whether it has a row for each method and a column for each epsilon."""
        return spec.load(self.name).kind == "frontier"

    def grids(self) -> dict[str, list[Sequence[str]]]:
        """Return the table of each graph, headings first."""
        graphs: dict[str, list[Line]] = {}
        for line in self.lines:
            graphs.setdefault(line.graph, []).append(line)
        if self.is_frontier:
            return {graph: _pivot(lines) for graph, lines in graphs.items()}
        return {graph: [HEADINGS, *(line.texts() for line in lines)] for graph, lines in graphs.items()}

    def markdown(self) -> str:
        """Return the tables and the notes as Markdown."""
        text = f"# {self.title}\n\n" + (f"{self.source}.\n\n" if self.source else "")
        for graph, (heads, *rows) in self.grids().items():
            text += f"## {graph}\n\n{format_markdown(heads, rows)}\n"
        if self.classes:
            text += f"## Accuracy on each class\n\n{self._class_table()}\n"
        return text + "".join(f"- {_escape(note)}\n" for note in self.notes)

    def _class_table(self) -> str:
        names = tuple(dict.fromkeys(name for one in self.classes for name in one.accuracy))
        rows = []
        for one in self.classes:
            shares = (f"{one.accuracy[name]:.2f}" if name in one.accuracy else "" for name in names)
            rows.append((one.column, str(one.number), f"{one.test_nodes:,}", *shares))
        return format_markdown(("data", "class", "test nodes", *names), rows)

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON data; every line has the digests of its records."""
        lines = [{**asdict(line), "difference": line.difference} for line in self.lines]
        return {**asdict(self), "lines": lines}


def _pivot(lines: Sequence[Line]) -> list[Sequence[str]]:
    """A row for each method, a column for each epsilon."""
    cells = {(line.row, line.axes.get("epsilon")): line for line in lines}
    epsilons = sorted({epsilon for _, epsilon in cells if epsilon is not None})
    table: list[Sequence[str]] = [
        ("method", *(f"epsilon {epsilon:g}" for epsilon in epsilons), "without noise")
    ]
    for row in dict.fromkeys(line.row for line in lines):
        shown = (cells.get((row, epsilon)) for epsilon in (*epsilons, None))
        table.append((row, *("" if line is None else _format_short(line) for line in shown)))
    return table


def _format_short(line: Line) -> str:
    return f"{line.ours:.1f}" + ("" if line.spread is None else f" ± {line.spread:.1f}")


def format_markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown; what follows methods and modes is aligned to the right."""
    rulers = ["---" if head in _WORDS else "---:" for head in headings]
    lines = [headings, rulers, *rows]
    return "".join("| " + " | ".join(_escape(cell) for cell in line) + " |\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("*", "\\*")


def build_table(
    experiment: spec.Experiment, records: Sequence[Mapping[str, Any]], *, left_out: Iterable[str] = ()
) -> Table:
    """Build the table of an experiment from its records; a cell may have records for only some seeds.

    Args:
        experiment: the experiment.
        records: of its jobs; of a seed that has several the last one counts.
        left_out: labels of runs whose budget does not cover one step; they become notes.
    """
    published = spec.published_numbers(experiment)
    lines: list[Line] = []
    classes: dict[tuple[str, int], ClassRow] = {}
    for (column, data, row, mode, axes), seeds in _group(experiment, records).items():
        ours, spread = published.get((column, row, axes), (None, None))
        accuracies = [one["ours"] for one in seeds]
        line = Line(
            **_describe_data(experiment, column, data),
            row=row,
            mode=mode,
            axes=dict(axes),
            ours=fmean(accuracies),
            spread=stdev(accuracies) if len(seeds) > 1 else None,
            published=ours,
            published_spread=spread,
            # The paper claims nothing for our own method.
            claimed=None if mode == "sound" else _find_largest(seeds, "claimed_epsilon"),
            holds=_find_largest(seeds, "epsilon_holds"),
            if_public=_find_largest(seeds, "epsilon_if_thresholds_were_public"),
            runs=tuple(one["run"] for one in seeds),
        )
        lines.append(line)
        _add_classes(classes, line, [one["per_class"] for one in seeds if "per_class" in one])
    lines += _list_differences(experiment, lines, published)
    columns = [column.name for column in experiment.columns]
    order = sorted(classes.values(), key=lambda one: (columns.index(one.column), -one.test_nodes, one.number))
    left = (f"Left out, its budget pays for no step: {label}." for label in left_out)
    notes = (*experiment.notes, *_list_notes(experiment, lines, records), *left)
    return _label_table(experiment, lines, notes, order)


def build_statistics_table(
    experiment: spec.Experiment, numbers: Mapping[tuple[str, str], Mapping[str, float]]
) -> Table:
    """Build the table of datasets from the numbers of each column, by its name and that of its data."""
    lines = [
        Line(
            **_describe_data(experiment, column, data),
            row=heading,
            axes={},
            ours=value,
            published=experiment.column(column).statistics.get(heading),
        )
        for (column, data), values in numbers.items()
        for heading, value in values.items()
    ]
    return _label_table(experiment, lines, _list_notes(experiment, lines, []))


def _label_table(
    experiment: spec.Experiment, lines: Iterable[Line], notes: Iterable[str], classes: Iterable[ClassRow] = ()
) -> Table:
    return Table(
        name=experiment.name,
        title=experiment.title,
        source=experiment.source,
        lines=tuple(lines),
        notes=tuple(notes),
        classes=tuple(classes),
    )


def _describe_data(experiment: spec.Experiment, column: str, data: str) -> dict[str, Any]:
    """Return what a line says about its data."""
    is_own = experiment.column(column).is_called(data)
    return {"column": column, "data": column if is_own else data, "comparable": is_own}


def _group(
    experiment: spec.Experiment, records: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str, str, str, spec.Axes], list[dict[str, Any]]]:
    """Group records with an accuracy by line, one for each seed, in the order of the experiment."""
    columns = [column.name for column in experiment.columns]
    shown = {
        row.row: [(row.printed, "test_accuracy"), (row.clear, "test_accuracy_in_the_clear")]
        for row in experiment.rows
    }
    names = [name for each in shown.values() for name, _ in each]
    groups: dict[tuple[str, str, str, str, spec.Axes], dict[int, dict[str, Any]]] = {}
    for record in records:
        for name, key in shown[record["row"]]:
            if name is not None and record.get(key) is not None:
                place = (
                    record["column"],
                    record["data"],
                    name,
                    record["mode"],
                    tuple(record["axes"].items()),
                )
                groups.setdefault(place, {})[record["seed"]] = {**record, "ours": 100 * record[key]}

    def find_place(key: tuple[str, str, str, str, spec.Axes]) -> tuple[int, int, list[float]]:
        return columns.index(key[0]), names.index(key[2]), [value for _, value in key[4]]

    return {key: list(groups[key].values()) for key in sorted(groups, key=find_place)}


def _find_largest(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    # If one record has no bound, there is none for all: the bound of the others would be too small.
    values = [record.get(name) for record in records]
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _add_classes(
    classes: dict[tuple[str, int], ClassRow], line: Line, seeds: Sequence[Mapping[str, Any]]
) -> None:
    """Add the accuracy of a line on every class that has test nodes, the mean over seeds."""
    for number, count in enumerate(seeds[0]["count"] if seeds else ()):
        if count:
            row = ClassRow(column=line.column, number=number, test_nodes=count, accuracy={})
            row = classes.setdefault((line.column, number), row)
            row.accuracy[line.name] = fmean(100 * one["accuracy"][number] for one in seeds)


def _list_differences(
    experiment: spec.Experiment, lines: Sequence[Line], published: Mapping[Any, spec.Published]
) -> list[Line]:
    """List the rows that are the difference of two rows, in each mode of the private one."""
    printed = {row.row: row.printed for row in experiment.rows}
    without = {
        (line.column, line.row, tuple(line.axes.items())): line.ours
        for line in lines
        if line.mode == "non-private"
    }
    return [
        Line(
            **{name: getattr(line, name) for name in ("column", "data", "mode", "axes", "comparable")},
            row=row.printed,
            ours=without[line.column, first, axes] - line.ours,
            published=published.get((line.column, row.printed, axes), (None, None))[0],
        )
        for row in experiment.rows
        if row.minus
        for first, second in [(printed[name] for name in row.minus)]
        for line in lines
        for axes in [tuple(line.axes.items())]
        if line.row == second and (line.column, first, axes) in without
    ]


def _list_notes(
    experiment: spec.Experiment, lines: Sequence[Line], records: Sequence[Mapping[str, Any]]
) -> list[str]:
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
    if any(line.runs for line in lines):
        notes += [describe_seeds(lines), *([SEED_NOTE] if experiment.has_fixed_seeds else [])]
    commits = list(dict.fromkeys(record["commit"][:7] for record in records if record.get("commit")))
    if len(commits) > 1:
        notes.append(f"Records of {len(commits)} commits: {', '.join(commits)}.")
    return notes


def describe_seeds(lines: Iterable[Line]) -> str:
    """Say over how many seeds lines are averaged."""
    seeds = sorted({len(line.runs) for line in lines if line.runs})
    if seeds == [1]:
        return "One seed, so no spread."
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"Mean and standard deviation over {count} seeds."


def render(table: Table) -> list[RichTable]:
    """Return one Rich table for each dataset, with the dataset as its title."""
    from rich.table import Table as RichTable

    tables = []
    for data, (heads, *rows) in table.grids().items():
        rendered = RichTable(title=data, title_justify="left", box=None, pad_edge=False)
        for head in heads:
            rendered.add_column(head, justify="left" if head in _WORDS else "right")
        for row in rows:
            rendered.add_row(*row)
        tables.append(rendered)
    return tables


def write(table: Table, out: Path) -> None:
    """Write NAME.md and NAME.json to the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    content = json.dumps(table.as_json(), indent=1, allow_nan=False)
    write_whole(out / f"{table.name}.md", table.markdown().encode())
    write_whole(out / f"{table.name}.json", content.encode())
