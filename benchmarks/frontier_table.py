"""Print the table of README from the records of `hushgraph reproduce frontier`.

python benchmarks/frontier_table.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

RECORDS = Path(__file__).parent / "records" / "frontier" / "frontier.jsonl"
GRAPHS = {
    "facebook_32_schools": (1.0, 4.0, 12.0),
    "ogbn_arxiv_hints": (1.0, 4.0, 12.0),
    "amazon_computers": (1.0, 4.0, 8.0),
    "planetoid_pubmed": (1.0, 4.0, 8.0),
    "planetoid_cora": (1.0, 4.0, 8.0),
    "planetoid_citeseer": (1.0, 4.0, 8.0),
}
PRIVATE = {
    "DP-MLP": ("mlp", "test_accuracy"),
    "billboard, covered": ("billboard", "test_accuracy"),
    "billboard, new nodes": ("new-nodes", "test_accuracy"),
    "billboard, in the clear": ("billboard", "test_accuracy_in_the_clear"),
    "trees, in the clear": ("trees", "test_accuracy"),
}
CEILINGS = {"GCN, not private": "ceiling-gcn", "billboard, not private": "ceiling-billboard"}
SEEDS = 3


def main() -> None:
    """Read the records and print means of three seeds, in percent; a cell with fewer runs is left empty."""
    cells: dict[tuple[str, str, float | None, str], list[float]] = defaultdict(list)
    for line in RECORDS.read_text().splitlines():
        record = json.loads(line)
        for field in ("test_accuracy", "test_accuracy_in_the_clear"):
            if record[field] is not None:
                key = (record["column"], record["row"], record["axes"].get("epsilon"), field)
                cells[key].append(100 * record[field])

    def mean(*key: str | float | None) -> str:
        values = cells.get(key, [])  # type: ignore[call-overload]
        return f"{fmean(values):.1f}" if len(values) == SEEDS else ""

    print(f"| graph | epsilon | {' | '.join([*PRIVATE, *CEILINGS])} |")
    print("|---" * (2 + len(PRIVATE) + len(CEILINGS)) + "|")
    for graph, epsilons in GRAPHS.items():
        rows = [[mean(graph, row, epsilon, field) for epsilon in epsilons] for row, field in PRIVATE.values()]
        private = [" / ".join(row) if all(row) else "" for row in rows]
        ceilings = [mean(graph, row, None, "test_accuracy") for row in CEILINGS.values()]
        shown = " / ".join(f"{epsilon:g}" for epsilon in epsilons)
        print(f"| {graph} | {shown} | {' | '.join([*private, *ceilings])} |")


if __name__ == "__main__":
    main()
