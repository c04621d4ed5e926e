"""How far noise moves figures that may be published, and how often their noise intervals are right.

    python benchmarks/figure_noise.py --data FOLDER --scores FOLDER [--jobs 2]
    python benchmarks/figure_noise.py --table

--data holds the .npz graphs. On every graph one model is trained for each epsilon, with default settings; its
scores are kept in --scores, and those that are there are used again. Its evaluated rows are counted once, and
noise is drawn onto the counts again and again: as much as an evaluation has that costs nothing beyond the
epsilon of the run. Noise is NumPy's, rounded: it serves for statistics, not for a release. A figure of noisy
counts is compared with the same figure of the exact scores, which no bin has rounded; a calibration error,
which is defined by bins, with that of the exact counts. Two classes: the error that comes from the width of
bins alone is compared with noise for several widths.
--table prints the tables of docs/figures.md from the record.
"""

from __future__ import annotations

import argparse
import json
import math
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.figures.describe import describe_tables, find_cell_std
from hushgraph.graph.graph import Graph
from hushgraph.tasks.class_tables import (
    CONFIDENCE_EDGES,
    SCORE_EDGES,
    compute_average_precision,
    compute_roc_auc,
    find_bins,
)
from hushgraph.tasks.task import is_labelled

RECORDS = Path(__file__).parent / "records" / "figure_noise.jsonl"
GRAPHS: dict[str, dict[str, Any]] = {
    "facebook_32_schools": {"symmetrize": True},
    "amazon_computers": {"symmetrize": True, "split": "0.6/0.2/0.2"},
    "tolokers": {"symmetrize": True},
    "ogbn_arxiv_hints": {"symmetrize": True},
    "planetoid_cora": {"symmetrize": True, "split": "0.6/0.2/0.2"},
    "twitch_de": {"symmetrize": True, "split": "0.6/0.2/0.2"},
}
# Bins, bounds of denominators and kinds of intervals were chosen while looking at the other graphs.
NOT_LOOKED_AT = ("planetoid_cora", "twitch_de")
BUDGETS = (1.0, 4.0)
HEADLINES = (
    "accuracy",
    "macro_f1",
    "majority_baseline",
    "calibration_error",
    "roc_auc",
    "average_precision",
    "recall_at_1_percent",
)
# Width of a score bin in log-odds; the range is always -10 to 10.
WIDTHS = (0.25, 0.5, 1.0, 2.0)

Record = dict[str, Any]
Floats = npt.NDArray[np.float64]


def count_rows(graph: Graph, shown: Floats, nodes: npt.NDArray[Any]) -> list[npt.NDArray[np.int64]]:
    """The exact tables of one split."""
    cells = graph.task.locate(shown[nodes], graph.y[nodes])
    return [
        np.bincount(column[column >= 0], minlength=math.prod(table.shape)).reshape(table.shape)
        for table, column in zip(graph.task.tables, cells.T, strict=True)
    ]


def compute_exact(graph: Graph, shown: Floats) -> dict[str, float]:
    """Figures of the test split from its scores; those of two classes in addition where there are two."""
    nodes = graph.test_idx[is_labelled(graph.y[graph.test_idx])]
    labels, best = graph.y[nodes], shown[nodes].argmax(1)
    others = graph.y[graph.val_idx]
    most_frequent = np.bincount(others[is_labelled(others)]).argmax()
    classes = range(graph.num_classes)
    (counted,) = graph.task.compute_figures([table[None] for table in count_rows(graph, shown, nodes)])[
        "calibration_error"
    ]
    exact = {
        "calibration_error": float(counted),
        "accuracy": float(np.mean(labels == best)),
        "macro_f1": float(f1_score(labels, best, labels=classes, average="macro", zero_division=0)),
        "majority_baseline": float(np.mean(labels == most_frequent)),
    }
    if graph.num_classes == 2:
        exact["roc_auc"] = float(roc_auc_score(labels, shown[nodes, 1]))
        exact["average_precision"] = float(average_precision_score(labels, shown[nodes, 1]))
    return exact


def find_calibration_error(graph: Graph, shown: Floats, nodes: npt.NDArray[Any]) -> float:
    """The calibration error by the mean probability of every bin, where figures take its centre."""
    labels, scores = graph.y[nodes], shown[nodes].astype(np.float64)
    if graph.num_classes == 2:
        said, is_right = scores[:, 1], labels == 1
        bins = np.clip((find_bins(said, SCORE_EDGES) - 1) // 4, 0, 9)
    else:
        said, is_right = scores.max(1), labels == scores.argmax(1)
        bins = find_bins(said, CONFIDENCE_EDGES)
    return float(np.abs(np.bincount(bins, is_right - said)).sum() / len(nodes))


def redraw(
    graph: Graph, shown: Floats, std: float, redraws: int, exact: dict[str, float]
) -> Iterator[Record]:
    """For every headline figure: error in standard errors, coverage and widths over redraws of the noise."""
    rng = np.random.default_rng(zlib.crc32(f"{std} {sorted(exact.items())}".encode()))
    splits = {
        "val": count_rows(graph, shown, graph.val_idx),
        "test": count_rows(graph, shown, graph.test_idx),
    }
    positive = shown[graph.test_idx[graph.y[graph.test_idx] == 1], 1]
    drawn: dict[str, list[tuple[float, ...]]] = {}
    std_of_cell = find_cell_std(graph.task, std)
    for _ in range(redraws):
        val, test = (
            [table + np.rint(rng.normal(0, std, table.shape)) for table in splits[split]]
            for split in ("val", "test")
        )
        described = describe_tables(graph.task, test, std_of_cell, val)
        figures = {each["figure"]: each for each in described if each["class"] is None}
        for name in HEADLINES:
            each = figures.get(name)
            if each is None or each["value"] is None:
                continue
            truth = exact.get(name)
            if name == "recall_at_1_percent":
                # The threshold is published, and the exact recall is that above it.
                truth = float(np.mean(positive > figures["threshold_at_1_percent"]["value"]))
            low, high = each["noise"]
            error = each["value"] - truth
            drawn.setdefault(name, []).append(
                (truth, error, each["noise_std"], low <= truth <= high, high - low, each["sampling_std"])
            )
    for name, rows in drawn.items():
        truth, error, noise, covered, width, sampling = np.mean(rows, axis=0)
        yield {
            "figure": name,
            "exact": round(float(truth), 5),
            "shown": len(rows) / redraws,
            "mean_error_in_standard_errors": round(float(error / noise), 3),
            "coverage": round(float(covered), 4),
            "noise_half_width": round(float(width / 2), 5),
            "sampling_half_width": round(float(1.96 * sampling), 5),
        }


def compare_widths(graph: Graph, shown: Floats, std: float) -> Iterator[Record]:
    """ROC-AUC and average precision of two classes: error of bins without noise, and noise, by width."""
    nodes = graph.test_idx[is_labelled(graph.y[graph.test_idx])]
    labels, scores = graph.y[nodes], shown[nodes, 1].astype(np.float64)
    log_odds = np.log(scores) - np.log1p(-scores)
    ranks = {"roc_auc": compute_roc_auc, "average_precision": compute_average_precision}
    truths = {
        "roc_auc": roc_auc_score(labels, scores),
        "average_precision": average_precision_score(labels, scores),
    }
    for width in WIDTHS:
        steps = round(10 / width)
        bins = np.searchsorted(np.arange(-steps, steps + 1) * width, log_odds)
        size = 2 * steps + 2
        counts = [np.bincount(bins[labels == k], minlength=size)[None].astype(np.float64) for k in (1, 0)]
        noise = np.random.default_rng(0).normal(0, std, (2, 2000, size)).round()
        for name, compute in ranks.items():
            noisy = compute(counts[0] + noise[0], counts[1] + noise[1], std)
            yield {
                "figure": name,
                "bin_width": width,
                "bins": size,
                "error_of_bins": round(float(compute(*counts, 0.0)[0] - truths[name]), 5),
                "noise_std_of_figure": round(float(noisy.std()), 5),
            }


def score(graph: Graph, epsilon: float, kept: Path) -> tuple[Floats, float]:
    """The scores of all rows by a model of this epsilon, and the noise that its tables have for nothing."""
    if not kept.exists():
        run = hg.train(graph, epsilon=epsilon, seed=0, device="cpu", progress=False)
        std = run.plan.with_evaluation(len(graph.task.tables)).table_noise
        np.savez(kept, shown=run.predict_proba(graph), std=std)
    with np.load(kept) as file:
        return file["shown"], float(file["std"])


def measure(name: str, epsilon: float, data: Path, scores: Path, redraws: int) -> list[Record]:
    """Every record of one graph and one epsilon."""
    graph = load_graph(data / f"{name}.npz", **GRAPHS[name])
    shown, std = score(graph, epsilon, scores / f"{name}-{epsilon:g}.npz")
    setting = {
        "graph": name,
        "epsilon": epsilon,
        "classes": graph.num_classes,
        "test_rows": int(is_labelled(graph.y[graph.test_idx]).sum()),
        "tables": len(graph.task.tables),
        "noise_std": round(std, 4),
        "redraws": redraws,
    }
    exact = compute_exact(graph, shown)
    labelled = graph.test_idx[is_labelled(graph.y[graph.test_idx])]
    setting["calibration_error_by_means"] = round(find_calibration_error(graph, shown, labelled), 5)
    records = [setting | record for record in redraw(graph, shown, std, redraws, exact)]
    if graph.num_classes == 2 and name not in NOT_LOOKED_AT:
        records += [setting | record for record in compare_widths(graph, shown, std)]
    return records


def write_table(records: list[Record]) -> str:
    """One row for every graph, epsilon and figure."""
    rows = [
        "| graph | epsilon | noise on a cell | figure | exact | mean error, in standard errors | covered | "
        "noise, half width | sampling, half width |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in records:
        if "coverage" not in each:
            continue
        cells = [
            each["graph"],
            f"{each['epsilon']:g}",
            f"{each['noise_std']:.1f}",
            each["figure"],
            f"{100 * each['exact']:.1f}",
            f"{each['mean_error_in_standard_errors']:+.2f}",
            f"{100 * each['coverage']:.1f}%",
            f"{100 * each['noise_half_width']:.2f}",
            f"{100 * each['sampling_half_width']:.2f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def write_widths(records: list[Record]) -> str:
    """One row for every width of bins and epsilon."""
    rows = [
        "| epsilon | width, log-odds | bins | ROC-AUC: error of bins | noise | "
        "average precision: error of bins | noise |",
        "|---|---|---|---|---|---|---|",
    ]
    kept = [each for each in records if "bin_width" in each]
    for auc in (each for each in kept if each["figure"] == "roc_auc"):
        precision = next(
            each
            for each in kept
            if each["figure"] == "average_precision"
            and (each["epsilon"], each["bin_width"]) == (auc["epsilon"], auc["bin_width"])
        )
        numbers = [
            f"{100 * each[name]:.2f}"
            for each in (auc, precision)
            for name in ("error_of_bins", "noise_std_of_figure")
        ]
        cells = [f"{auc['epsilon']:g}", f"{auc['bin_width']:g}", str(auc["bins"]), *numbers]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of .npz graphs")
    parser.add_argument("--scores", type=Path, help="folder for the scores of trained models")
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--redraws", type=int, default=1000)
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        records = [json.loads(line) for line in args.out.read_text().splitlines()]
        print(write_table(records), write_widths(records), sep="\n\n")
        return
    if args.data is None or args.scores is None:
        parser.error("--data and --scores are required")
    args.scores.mkdir(parents=True, exist_ok=True)
    each = [(name, epsilon) for name in args.graphs for epsilon in BUDGETS]
    make = partial(measure, data=args.data, scores=args.scores, redraws=args.redraws)
    with args.out.open("w") as file, ProcessPoolExecutor(args.jobs) as pool:
        for records in pool.map(make, *zip(*each, strict=True)):
            for record in records:
                print(json.dumps(record), file=file, flush=True)


if __name__ == "__main__":
    main()
