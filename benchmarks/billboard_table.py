"""The README's table of billboard accuracies, from the records of the trials.

    python benchmarks/billboard_table.py [--records benchmarks/records/billboard_trials.jsonl]

The trials compared settings around the rule for defaults, not the rule itself. A cell is the mean test
accuracy of the trials whose share of the budget for the boards is nearest to what the rule chooses, with two
boards and everything else at the middle of the plan "around". The share that was tested is shown beside the
share of the rule.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from hushgraph.privacy.defaults import choose_billboard
from hushgraph.privacy.fields import default_delta

RECORDS = Path(__file__).parent / "records" / "billboard_trials.jsonl"
# Training nodes and classes: public figures, which the rule for defaults looks at.
GRAPHS = {
    "facebook_32_schools": (123_488, 6),
    "ogbn_arxiv_hints": (90_941, 40),
    "amazon_computers": (8_251, 10),
    "planetoid_pubmed": (11_830, 3),
    "planetoid_cora": (1_624, 7),
    "planetoid_citeseer": (1_996, 6),
}
# What all settings of the plan "around" share; other keys of a setting, but for its shares, are changes.
MIDDLE = {"skip": 1.0, "zero_output": True, "travel": 5.6, "half_noise": 0.0026}

Record = dict[str, Any]


def board_share(setting: Record) -> float:
    """The part of the budget that both boards got together."""
    first, _, second, _ = setting["shares"]
    return round(first + second, 4)


def is_middle(setting: Record) -> bool:
    """Whether nothing but the boards' share differs from the middle of the plan: two boards, equal halves."""
    rest = {name: value for name, value in setting.items() if name not in ("shares", "boards")}
    if rest != MIDDLE or setting.get("boards") != 2:
        return False
    first, early, second, late = setting["shares"]
    return bool(abs(first - second) < 1e-3 and abs(early - late) < 1e-3)


def is_features_alone(setting: Record) -> bool:
    """Whether no board was cast: a private MLP on a node's own features."""
    return setting.get("boards") == 0 and {k: setting[k] for k in setting if k in MIDDLE} == MIDDLE


def nearest(records: Iterable[Record], share: float) -> list[Record]:
    """The records whose share is nearest to `share`."""
    kept = list(records)
    best = min({board_share(r["setting"]) for r in kept}, key=lambda tested: abs(tested - share))
    return [r for r in kept if board_share(r["setting"]) == best]


def average(records: Iterable[Record], key: str) -> str:
    """Mean of a column, with one digit."""
    return f"{mean(r[key] for r in records):.1f}"


def table(records: list[Record]) -> str:
    """The Markdown table."""
    rows = [
        "| graph | epsilon | share (rule) | private MLP | covered | new nodes | in the clear |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for graph, (num_train_nodes, num_classes) in GRAPHS.items():
        own = [r for r in records if r["graph"] == graph and r["plan"] == "around" and r["epsilon"] != "inf"]
        for epsilon in sorted({r["epsilon"] for r in own}):
            here = [r for r in own if r["epsilon"] == epsilon]
            share = choose_billboard(
                num_train_nodes=num_train_nodes,
                num_classes=num_classes,
                epsilon=epsilon,
                delta=default_delta(num_train_nodes),
            ).board_share
            middle = [r for r in here if is_middle(r["setting"])]
            covered = nearest((r for r in middle if not r["new_nodes"]), share)
            new = nearest((r for r in middle if r["new_nodes"]), share)
            alone = [r for r in here if is_features_alone(r["setting"]) and not r["new_nodes"]]
            cells = [
                graph,
                f"{epsilon:g}",
                f"{board_share(covered[0]['setting']):g} ({share:g})",
                average(alone, "test"),
                average(covered, "test"),
                average(new, "test"),
                average(covered, "test_logs"),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, default=RECORDS)
    args = parser.parse_args()
    print(table([json.loads(line) for line in args.records.read_text().splitlines()]))


if __name__ == "__main__":
    main()
