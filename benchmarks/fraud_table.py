"""What scaling of numbers is worth on the tables of a made-up bank: ROC-AUC, covered and exact.

    python benchmarks/fraud_table.py                      all records, into records/fraud_table.jsonl
    python benchmarks/fraud_table.py --tables FOLDER        write the tables alone, for a trial by hand

30,000 accounts, 1.5% of them fraudulent, with columns of very different scales, and transfers between them.
Who is fraudulent follows from all columns alike, each by its rank, and fraudulent accounts send money to each
other more often. A record is one run: how numbers were treated, epsilon, and the ROC-AUC of the test split,
from noisy tables (covered) and from the labels themselves (exact).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

import hushgraph as hg

RECORD = Path(__file__).parent / "records" / "fraud_table.jsonl"
ACCOUNTS, FRAUDULENT, TRANSFERS = 30_000, 0.015, 5
# How much of what decides fraud no column tells.
LUCK = 0.8
SEED = 7
SETTINGS: dict[str, Any] = {
    "classes": ["no", "yes"],
    "label": "fraud",
    "categorical": {"channel": ["app", "branch", "web"]},
    "device": "cpu",
    "progress": False,
}


def draw_columns(rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """The numbers of an account: euros, years, days, counts and a share."""
    income = rng.lognormal(10.4, 0.6, ACCOUNTS)
    return {
        "income": income.round(2),
        "age": np.clip(rng.normal(46, 15, ACCOUNTS), 18, 95).round(),
        "balance": (rng.normal(0.1, 1, ACCOUNTS) * income * 0.3).round(2),
        "largest_transfer": (rng.lognormal(-1.5, 1.0, ACCOUNTS) * income).round(2),
        "days_open": rng.exponential(1_500, ACCOUNTS).round(),
        "logins": rng.negative_binomial(2, 0.02, ACCOUNTS),
        "countries": rng.poisson(1.2, ACCOUNTS),
        "share_in_cash": rng.beta(1.2, 6, ACCOUNTS).round(4),
    }


def draw_fraud(rng: np.random.Generator, columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Who is fraudulent: the highest sums of what the columns say, each by its rank, and of luck."""
    signs = {"income": -0.6, "age": -0.7, "balance": -0.5, "largest_transfer": 1.0, "days_open": -1.0}
    signs |= {"logins": 0.6, "countries": 0.9, "share_in_cash": 1.0}
    score = sum(
        sign * stats.norm.ppf((stats.rankdata(columns[name]) - 0.5) / ACCOUNTS)
        for name, sign in signs.items()
    )
    score = score / np.std(score) + LUCK * rng.normal(size=ACCOUNTS)
    return np.asarray(score >= np.quantile(score, 1 - FRAUDULENT))


def write_tables(folder: Path) -> Path:
    """Write nodes.csv and edges.csv."""
    rng = np.random.default_rng(SEED)
    columns = draw_columns(rng)
    is_fraud = draw_fraud(rng, columns)
    channel = rng.choice(["app", "branch", "web"], ACCOUNTS)
    split = rng.permutation(np.repeat(["train", "val", "test"], [18_000, 6_000, 6_000]))
    source = np.repeat(np.arange(ACCOUNTS), TRANSFERS)
    target = rng.integers(0, ACCOUNTS, len(source))
    rings = np.flatnonzero(is_fraud)
    to_ring = is_fraud[source] & (rng.random(len(source)) < 0.3)
    target[to_ring] = rng.choice(rings, int(to_ring.sum()))
    folder.mkdir(parents=True, exist_ok=True)
    names = ["id", *columns, "channel", "fraud", "split"]
    rows = zip(*columns.values(), channel, np.where(is_fraud, "yes", "no"), split, strict=True)
    lines = [",".join(names), *(f"a{n}," + ",".join(map(str, row)) for n, row in enumerate(rows))]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    edges = [f"a{s},a{t}" for s, t in zip(source, target, strict=True)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return folder


def measure(data: Path, **settings: Any) -> dict[str, Any]:
    """Train once; return the ROC-AUC of the test split."""
    run = hg.train(data, symmetrize=True, **SETTINGS, **settings)
    graph = run.folder.read_raw_graph(data)
    score = run.predict_proba(data)[:, 1][graph.test_idx]
    is_fraud = graph.y[graph.test_idx] == 1
    ranks, positive = stats.rankdata(score), int(is_fraud.sum())
    area = (ranks[is_fraud].sum() - positive * (positive + 1) / 2) / (positive * int((~is_fraud).sum()))
    return {
        "epsilon": None if not settings.get("private", True) else run.epsilon,
        "delta": run.delta,
        "noise_of_scaling": run.plan.scaling_noise,
        "covered_auc": run.result.get("test_auc"),
        "exact_auc": round(float(area), 4),
        "seconds": run.result["seconds"],
    }


def main() -> None:
    """Write the records, or the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--runs", type=int, default=3)
    flags = parser.parse_args()
    if flags.tables is not None:
        print(write_tables(flags.tables))
        return
    with tempfile.TemporaryDirectory() as home, flags.out.open("w") as file:
        data = write_tables(Path(home) / "bank")
        for method in ({"method": "billboard"}, {"model": "mlp"}):
            for budget in ({"private": False}, {"epsilon": 4.0}):
                for numbers in ("as-is", "private"):
                    for run in range(flags.runs):
                        figures = measure(data, numbers=numbers, **budget, **method)
                        record = {"method": next(iter(method.values())), "numbers": numbers, "run": run}
                        line = json.dumps(record | figures)
                        file.write(line + "\n")
                        file.flush()
                        print(line)


if __name__ == "__main__":
    main()
