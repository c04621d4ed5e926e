"""The table and the figure of an experiment of the kind "frontier": accuracy against epsilon."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph.reproduction.spec import Experiment

if TYPE_CHECKING:
    from rich.table import Table as RichTable

# Column, data, printed row and epsilon.
_Place = tuple[str, str, str, float | None]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table at one epsilon; accuracies on the test split, in percent.

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
    """One table for each graph: a row for each method, a column for each epsilon."""

    name: str
    title: str
    lines: tuple[Line, ...]

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

    @property
    def graphs(self) -> list[str]:
        """The graphs that have lines."""
        return list(dict.fromkeys(line.data for line in self.lines))

    def grid(self, data: str) -> list[list[str]]:
        """Return the table of one graph, its headings first."""
        lines = [line for line in self.lines if line.data == data]
        epsilons = sorted({line.epsilon for line in lines if line.epsilon is not None})
        cells = {(line.row, line.epsilon): str(line) for line in lines}
        rows = dict.fromkeys(line.row for line in lines)
        return [
            ["method", *(f"epsilon {epsilon:g}" for epsilon in epsilons), "without noise"],
            *([row, *(cells.get((row, epsilon), "") for epsilon in (*epsilons, None))] for row in rows),
        ]

    def rich(self) -> list[RichTable]:
        """Return one Rich table for each graph, with the graph as its title."""
        from rich.table import Table as RichTable

        tables = []
        for data in self.graphs:
            heads, *rows = self.grid(data)
            table = RichTable(*heads, title=data, title_justify="left", box=None, pad_edge=False)
            for row in rows:
                table.add_row(*row)
            tables.append(table)
        return tables

    def markdown(self, data: str) -> str:
        """Return the table of one graph as Markdown."""
        heads, *rows = self.grid(data)
        ruler = ["---"] + ["---:"] * (len(heads) - 1)
        return "\n".join("| " + " | ".join(entries) + " |" for entries in (heads, ruler, *rows))

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON data; every line has the digests of its records."""
        return asdict(self)

    def write(self, out: Path) -> None:
        """Write NAME.md and NAME.json to the folder `out`."""
        out.mkdir(parents=True, exist_ok=True)
        text = f"# {self.title}\n\n" + "\n".join(f"- {note}" for note in self.notes) + "\n"
        text += "".join(f"\n## {data}\n\n{self.markdown(data)}\n" for data in self.graphs)
        write_whole(out / f"{self.name}.md", text.encode())
        write_whole(out / f"{self.name}.json", json.dumps(self.as_json(), indent=1).encode())

    def draw(self, path: Path, *, notes: Sequence[str] | None = None) -> None:
        """Draw one panel for each graph, in the format of the path's suffix."""
        from hushgraph.plots.frontier import FrontierLine, draw_frontier

        panels: dict[str, list[FrontierLine]] = {}
        for data, row in dict.fromkeys((line.data, line.row) for line in self.lines):
            points = tuple(
                (line.epsilon, line.ours, line.spread or 0.0)
                for line in self.lines
                if (line.data, line.row) == (data, row)
            )
            panels.setdefault(data, []).append(FrontierLine(label=row, points=points))
        draw_frontier(panels, path, title=self.title, notes=list(self.notes if notes is None else notes))


def build_frontier(experiment: Experiment, records: Sequence[Mapping[str, Any]]) -> FrontierTable:
    """Average records over seeds; lines are in the order of graphs, rows and epsilons of the experiment."""
    graphs = [column.name for column in experiment.columns]
    groups: dict[_Place, dict[int, tuple[Mapping[str, Any], float]]] = {}
    printed: list[str] = []
    for row in experiment.rows:
        accuracies = {row.printed: "test_accuracy"}
        if row.clear is not None:
            accuracies[row.clear] = "test_accuracy_in_the_clear"
        printed += accuracies
        for record in (record for record in records if record["row"] == row.row):
            for name, key in accuracies.items():
                place = record["column"], record["data"], name, record["axes"].get("epsilon")
                # The last record of a seed counts.
                groups.setdefault(place, {})[record["seed"]] = record, 100 * record[key]
    order = sorted(
        groups, key=lambda key: (graphs.index(key[0]), key[1], printed.index(key[2]), key[3] or 0.0)
    )
    lines = tuple(_build_line(key, list(groups[key].values())) for key in order)
    return FrontierTable(name=experiment.name, title=experiment.title, lines=lines)


def _build_line(key: _Place, group: Sequence[tuple[Mapping[str, Any], float]]) -> Line:
    values = [value for _, value in group]
    holds = [record["epsilon_holds"] for record, _ in group]
    return Line(
        data=key[1],
        row=key[2],
        epsilon=key[3],
        ours=fmean(values),
        spread=stdev(values) if len(values) > 1 else None,
        epsilon_holds=None if None in holds else max(holds),
        runs=tuple(record["run"] for record, _ in group),
    )
