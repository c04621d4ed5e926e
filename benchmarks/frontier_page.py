"""Write the accuracies of README.md and docs/frontier.md from the committed records of `reproduce frontier`.

    python benchmarks/frontier_page.py

A table stands between <!-- frontier NAME --> and <!-- end -->; the figure is docs/assets/frontier.svg.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hushgraph.plots import canvas
from hushgraph.reproduction import spec
from hushgraph.reproduction.figures import build_figure
from hushgraph.reproduction.records import Records
from hushgraph.reproduction.tables import Table, build_table, format_markdown

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "records" / "frontier" / "records.jsonl"
PAGES = (ROOT / "README.md", ROOT / "docs" / "frontier.md")
FIGURE = ROOT / "docs" / "assets" / "frontier.svg"
# The columns of the table in README: a heading and the row of the frontier that it shows.
PRIVATE = {
    "DP-MLP": "DP-MLP",
    "**billboard, covered**": "DP-Billboard, covered",
    "billboard, new nodes": "DP-Billboard, new nodes",
    "billboard, in the clear": "DP-Billboard, in the clear",
    "trees, in the clear": "DP-GNN (trees)",
}
CEILINGS = ("MLP", "GCN", "GAT", "Billboard without noise")
EPSILONS = (1.0, 4.0, 8.0)
_PLACE = re.compile(r"(<!-- frontier (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read_table() -> Table:
    """The lines of the committed records that were measured with every seed."""
    experiment = spec.load("frontier")
    table = build_table(experiment, Records(RECORDS).all)
    return replace(table, lines=tuple(line for line in table.lines if len(line.runs) == experiment.seeds))


def fill(page: str, frontier: Table) -> str:
    """Return the page with its tables written anew."""

    def write_table(place: re.Match[str]) -> str:
        if place["name"] == "overview":
            return f"{place[1]}\n{_overview(frontier)}\n\n{place[3]}"
        heads, *rows = frontier.grids()[place["name"]]
        return f"{place[1]}\n{format_markdown(heads, rows)}\n{place[3]}"

    return _PLACE.sub(write_table, page)


def _overview(frontier: Table) -> str:
    """One row for each graph; private methods at a small, a middle and a large epsilon."""
    cells = {(line.column, line.row, line.axes.get("epsilon")): f"{line.ours:.1f}" for line in frontier.lines}
    shown = " / ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    heads = [f"at epsilon {shown}", *PRIVATE, *CEILINGS]
    table = [heads, ["---"] * len(heads)]
    for data in frontier.grids():
        private = [
            " / ".join(cells.get((data, row, epsilon), "") for epsilon in EPSILONS)
            for row in PRIVATE.values()
        ]
        table.append([data, *private, *(cells.get((data, row, None), "") for row in CEILINGS)])
    return "\n".join("| " + " | ".join(entries) + " |" for entries in table)


def main() -> None:
    """Write both pages and the figure."""
    frontier = read_table()
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8"), frontier), encoding="utf-8")
    with canvas.drawing():
        canvas.save(build_figure(frontier), FIGURE, title=frontier.title)


if __name__ == "__main__":
    main()
