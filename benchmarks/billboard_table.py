"""The tables of billboard accuracies in README.md and docs/defaults.md, from the records of the trials.

    python benchmarks/billboard_table.py [--validation] [--records benchmarks/records/billboard_trials.jsonl]

The trials compared settings around the rule for defaults, not the rule itself. A cell is the mean test
accuracy of the trials whose share of the budget for the boards is nearest to what the rule chooses, with two
boards and everything else at the middle of the plan "around". The share that was tested is shown beside the
share of the rule. With --validation: mean validation accuracy of each change that the rule rests on.
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

SIX_TENTHS: Record = {**MIDDLE, "boards": 2, "shares": [0.3, 0.2, 0.3, 0.2]}
CHANGES: dict[str, Record] = {
    "no board: private MLP": {**MIDDLE, "boards": 0, "shares": [0, 1, 0, 0]},
    "one board, share 0.5": MIDDLE,
    "two boards, share 0.3": SIX_TENTHS | {"shares": [0.15, 0.35, 0.15, 0.35]},
    "share 0.45": SIX_TENTHS | {"shares": [0.225, 0.275, 0.225, 0.275]},
    "share 0.6": SIX_TENTHS,
    "share 0.75": SIX_TENTHS | {"shares": [0.375, 0.125, 0.375, 0.125]},
    "0.6, readings kept apart": SIX_TENTHS | {"combine": False},
    "0.6, three boards": {**MIDDLE, "boards": 3, "shares": [0.6, 0.4, 0, 0]},
    "0.6, 600 steps": SIX_TENTHS | {"steps": 600},
    "0.6, 200 steps": SIX_TENTHS | {"steps": 200},
    "0.6, hidden 128": SIX_TENTHS | {"hidden": 128},
    "0.6, radius 6": SIX_TENTHS | {"radius": 6},
    "0.6, skip 2": SIX_TENTHS | {"skip": 2.0},
}


def board_share(setting: Record) -> float:
    """The part of the budget that both boards got together."""
    first, _, second, _ = setting["shares"]
    return round(float(first + second), 4)


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


def validation_table(records: list[Record]) -> str:
    """The Markdown table of validation accuracies: one row a change, one figure for each epsilon."""
    own = [r for r in records if r["plan"] == "around" and r["epsilon"] != "inf" and not r["new_nodes"]]
    budgets = {graph: sorted({r["epsilon"] for r in own if r["graph"] == graph}) for graph in GRAPHS}
    titles = [f"{graph}, {'/'.join(f'{e:g}' for e in budgets[graph])}" for graph in GRAPHS]
    rows = [f"| setting | {' | '.join(titles)} |", f"|{' --- |' * (1 + len(titles))}"]
    for name, setting in CHANGES.items():
        tried = [r for r in own if r["setting"] == setting]
        cells = [
            " / ".join(
                average((r for r in tried if r["graph"] == graph and r["epsilon"] == epsilon), "val")
                for epsilon in budgets[graph]
            )
            for graph in GRAPHS
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--validation", action="store_true")
    args = parser.parse_args()
    make = validation_table if args.validation else table
    print(make([json.loads(line) for line in args.records.read_text().splitlines()]))


if __name__ == "__main__":
    main()
