"""Write the accuracies of README.md and docs/frontier.md from the committed records of `reproduce frontier`.

    python benchmarks/frontier_page.py

A table stands between <!-- frontier NAME --> and <!-- end -->; the figure is docs/assets/frontier.svg.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from hushgraph.reproduction import frontier
from hushgraph.reproduction.frontier import Line

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "records" / "frontier" / "frontier.jsonl"
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


def read_lines() -> list[Line]:
    """The rows of the committed records that were measured with every seed."""
    records = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    return [line for line in frontier.summarise(records) if len(line.runs) == frontier.SEEDS]


def fill(page: str, lines: Sequence[Line]) -> str:
    """Return the page with its tables written anew."""

    def write_table(place: re.Match[str]) -> str:
        name = place["name"]
        of_graph = [line for line in lines if line.data == name]
        table = _overview(lines) if name == "overview" else frontier.format_graph(of_graph)
        return f"{place[1]}\n{table}\n\n{place[3]}"

    return _PLACE.sub(write_table, page)


def _overview(lines: Sequence[Line]) -> str:
    """One row for each graph; private methods at a small, a middle and a large epsilon."""
    cells = {(line.data, line.row, line.epsilon): f"{line.ours:.1f}" for line in lines}
    shown = " / ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    heads = [f"at epsilon {shown}", *PRIVATE, *CEILINGS]
    table = [heads, ["---"] * len(heads)]
    for data in dict.fromkeys(line.data for line in lines):
        private = [
            " / ".join(cells.get((data, row, epsilon), "") for epsilon in EPSILONS)
            for row in PRIVATE.values()
        ]
        table.append([data, *private, *(cells.get((data, row, None), "") for row in CEILINGS)])
    return "\n".join("| " + " | ".join(entries) + " |" for entries in table)


def main() -> None:
    """Write both pages and the figure."""
    lines = read_lines()
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
    frontier.draw(lines, FIGURE)


if __name__ == "__main__":
    main()
