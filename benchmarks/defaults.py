"""What the rules for the billboard's defaults are chosen by: single settings changed, over several splits.

    python benchmarks/defaults.py --data FOLDER --part classes --out benchmarks/records/defaults.jsonl
    python benchmarks/defaults.py --show benchmarks/records/defaults.jsonl
    python benchmarks/defaults.py --tables benchmarks/records/defaults.jsonl

FOLDER holds the .npz files of the graphs. The part "classes" looks at epsilon 1 with 1,600 to 12,000 training
rows, "rule" at what the rule chooses there, "inputs" at what list size and own place bring on small graphs,
"labels" at several labels and "starts" at what their outputs start from, and at the scale of what is read.
Rules are chosen by validation figures; coauthor_physics and planetoid_pubmed are held out: they are shown and
chose nothing. Runs are seeded so that a record can be made again; a seeded run is reproducible, not private.
Records that are in the file already are kept and not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

HELD_OUT = ("coauthor_physics", "planetoid_pubmed")
# Training, validation and test rows: large graphs get as few training rows as small ones have.
SPLITS = {
    "amazon_computers": "0.6/0.2/0.2",
    "planetoid_cora": "0.6/0.2/0.2",
    "planetoid_citeseer": "0.6/0.2/0.2",
    "ogbn_arxiv_hints": "0.06/0.1/0.84",
    "facebook_32_schools": "0.04/0.06/0.9",
    "coauthor_physics": "0.3/0.2/0.5",
    "planetoid_pubmed": "0.6/0.2/0.2",
    "deezer_hu": "0.6/0.2/0.2",
}
FIGURES = {"labels": "macro_auc", "starts": "macro_auc"}
# What `train` takes; all else is a default that is replaced.
SETTINGS = ("model", "hidden", "steps", "momentum")
# What the trials of several labels start from, which is not what the rule is by now.
PLAIN = {"num_boards": 1, "list_size": 1.0, "damped": False, "reading_scale": 0.3, "first_output": 0.0}
BASES: dict[str, dict[str, Any]] = {
    "classes": {"board_share": 0.4},
    "labels": PLAIN | {"own_place": True, "feature_norm": 6.0, "hidden": 64},
    "starts": PLAIN | {"own_place": False, "feature_norm": 1.0, "hidden": 16},
}


@cache
def load(folder: Path, name: str, split_seed: int) -> Any:
    """A graph on a random split, symmetrized; without features, one column of ones."""
    from scipy import sparse

    from hushgraph.datasets import load_graph
    from hushgraph.graph.graph import Graph
    from hushgraph.tasks.labels import Labels

    if name != "deezer_hu":
        path = folder / f"{name}.npz"
        return load_graph(path, symmetrize=True, split=SPLITS[name], split_seed=split_seed)
    with np.load(folder / f"{name}.npz") as file:
        indptr, indices = file["labels_indptr"], file["labels_indices"]
        shape = (len(indptr) - 1, len(file["label_names"]))
        y = sparse.csr_array((np.ones(len(indices), np.int64), indices, indptr), shape=shape).toarray()
        edges = file["edge_index"]
    order = np.random.default_rng(split_seed).permutation(len(y))
    train, val, test = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    return Graph.from_arrays(
        edge_index=edges,
        x=np.ones((len(y), 1), np.float32),
        y=y,
        train_idx=np.sort(train),
        val_idx=np.sort(val),
        test_idx=np.sort(test),
        symmetrize=True,
        task=Labels(num_labels=shape[1]),
    )


def list_trials(part: str, splits: int) -> Iterator[dict[str, Any]]:
    """What is tried, one setting at a time."""
    if part == "labels":
        base: dict[str, Any] = {}
        changes: list[dict[str, Any]] = [
            base,
            *({"travel": travel} for travel in (0.25, 0.5, 2.0, 4.0)),
            *({"board_share": share} for share in (0.7, 0.85, 0.95)),
            *({"board_share": 0.85, "travel": travel} for travel in (0.5, 2.0)),
            {"num_boards": 2},
            {"num_boards": 2, "board_share": 0.85},
            {"own_place": False},
            {"list_size": 0.0},
            {"damped": True},
            {"feature_norm": 1.0},
            # The board at one's own place does harm, so the rest is tried again without it.
            *(
                {"own_place": False, "board_share": share, "travel": travel}
                for share in (0.5, 0.7, 0.85, 0.95)
                for travel in (0.1, 0.25, 0.5)
            ),
            {"own_place": False, "board_share": 0.85, "travel": 0.25, "num_boards": 2},
            {"own_place": False, "board_share": 0.85, "travel": 0.25, "feature_norm": 1.0},
            {"own_place": False, "board_share": 0.85, "travel": 0.25, "damped": True},
            *(
                {"own_place": False, "board_share": 0.85, "travel": 0.25, "list_size": size}
                for size in (0.5, 2.0)
            ),
            *(
                {"own_place": False, "board_share": 0.7, "feature_norm": norm, "travel": travel}
                for norm in (0.3, 1.0)
                for travel in (1.0, 2.0)
            ),
            {"own_place": False, "board_share": 0.7, "feature_norm": 1.0, "list_size": 2.0},
            {"own_place": False, "board_share": 0.7, "feature_norm": 1.0, "num_boards": 2},
            {"own_place": False, "board_share": 0.7, "feature_norm": 1.0, "num_boards": 2, "travel": 2.0},
            *(
                {"own_place": False, "board_share": 0.7, "feature_norm": 0.3, **other}
                for other in (
                    {"hidden": 8},
                    {"hidden": 32},
                    {"hidden": 128},
                    {"steps": 100},
                    {"steps": 600},
                    {"momentum": 0.9},
                    {"num_boards": 2},
                    {"num_boards": 2, "hidden": 16},
                )
            ),
        ]
        names, epsilons = ("deezer_hu",), (1.0, 4.0)
    elif part == "starts":
        # Of 84 labels.
        rare = round(-math.log(84), 2)
        changes = [
            {},
            {"reading_scale": 0.03, "list_size": 2.0},
            {"first_output": rare},
            {"first_output": rare, "reading_scale": 0.1, "list_size": 2.0},
            {"first_output": rare, "reading_scale": 0.03},
            {"first_output": rare, "reading_scale": 0.03, "list_size": 2.0},
        ]
        names, epsilons = ("deezer_hu",), (1.0, 4.0)
    elif part == "rule":
        # Where the rule differs from a share of 0.4.
        changes = [{}]
        names, epsilons = ("planetoid_cora", "planetoid_citeseer", "ogbn_arxiv_hints"), (1.0,)
    elif part == "inputs":
        changes = [{}, {"list_size": 0.5}, {"own_place": True}, {"list_size": 0.5, "own_place": True}]
        names, epsilons = ("planetoid_cora", "planetoid_pubmed", "amazon_computers"), (1.0, 4.0)
    else:
        changes = [{"model": "mlp"}, {}]
        changes += [
            {"num_boards": boards, "board_share": share}
            for boards in (1, 2)
            for share in (0.05, 0.1, 0.2, 0.3, 0.4)
        ]
        changes += [
            {"travel": 1.5},
            {"travel": 0.7},
            {"num_boards": 1, "board_share": 0.2, "travel": 1.5},
            {"num_boards": 1, "board_share": 0.2, "travel": 0.7},
        ]
        names, epsilons = tuple(name for name in SPLITS if name != "deezer_hu"), (1.0,)
    for name in names:
        for split in range(splits):
            for epsilon in epsilons:
                for change in changes:
                    yield {"part": part, "data": name, "split": split, "epsilon": epsilon, "change": change}


def train_one(folder: Path, trial: dict[str, Any]) -> dict[str, Any]:
    """Train with the defaults but for the change of the trial."""
    import torch

    import hushgraph as hg
    from hushgraph.methods import billboard
    from hushgraph.tasks.labels import Labels

    torch.set_num_threads(1)
    usual, usual_start = billboard.choose_billboard, Labels.first_output
    change = {**BASES.get(trial["part"], {}), **trial["change"]}
    start = change.pop("first_output", None)
    settings = {name: change.pop(name) for name in SETTINGS if name in change}

    def choose(**public: Any) -> Any:
        chosen = usual(**public)
        share = change.get("board_share", chosen.board_share)
        rate = chosen.learning_rate * change.get("travel", 1.0)
        reading = {k: v for k, v in change.items() if k not in ("board_share", "travel")}
        return replace(
            chosen, board_share=share, learning_rate=rate, reading=chosen.reading._replace(**reading)
        )

    begin = time.monotonic()
    billboard.choose_billboard = choose
    if start is not None:
        Labels.first_output = property(lambda task: start)
    try:
        graph = load(folder, trial["data"], trial["split"])
        run = hg.train(
            graph,
            epsilon=trial["epsilon"],
            seed=trial["split"],
            device="cpu",
            progress=False,
            **settings,
        )
    finally:
        billboard.choose_billboard, Labels.first_output = usual, usual_start
    figure = FIGURES.get(trial["part"], "accuracy")
    return {
        **trial,
        "train_rows": len(graph.train_idx),
        "figure": figure,
        "val": run.result[f"val_{figure}"],
        "test": run.result[f"test_{figure}"],
        "seconds": round(time.monotonic() - begin, 1),
    }


SHORT = {
    "amazon_computers": "computers",
    "facebook_32_schools": "facebook, 4% to train on",
    "ogbn_arxiv_hints": "arxiv, 6% to train on",
    "planetoid_citeseer": "citeseer",
    "planetoid_cora": "cora",
    "coauthor_physics": "physics, held out",
    "planetoid_pubmed": "pubmed, held out",
}


def write_tables(records: list[dict[str, Any]]) -> dict[str, str]:
    """The tables of docs/defaults.md, by name."""
    return {
        "classes": _write_classes(records),
        "inputs": _write_inputs(records),
        "labels": _write_labels(records, "labels"),
        "starts": _write_labels(records, "starts"),
    }


def _find(records: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [r for r in records if all(r[name] == value for name, value in wanted.items())]


def _mean(rows: list[dict[str, Any]], digits: int = 1) -> str:
    """Validation figure and test figure, in percent, over the splits."""
    if not rows:
        return ""
    val, test = (100 * float(np.mean([row[split] for row in rows])) for split in ("val", "test"))
    return f"{val:.{digits}f} / {test:.{digits}f}"


def _join(heads: list[str], lines: list[list[str]]) -> str:
    table = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def _write_classes(records: list[dict[str, Any]]) -> str:
    tried = _find(records, part="classes")
    names = [name for name in SHORT if _find(tried, data=name)]
    rows = {name: _find(tried, data=name)[0]["train_rows"] for name in names}
    heads = ["setting", *(f"{SHORT[name]}: {rows[name]:,} rows" for name in names)]
    settings: dict[str, dict[str, Any]] = {"private MLP": {"model": "mlp"}, "two boards, share 0.4": {}}
    for boards, words in ((2, "two boards"), (1, "one board")):
        for share in (0.3, 0.2, 0.1, 0.05) if boards == 2 else (0.4, 0.3, 0.2, 0.1, 0.05):
            settings[f"{words}, share {share}"] = {"num_boards": boards, "board_share": share}
    lines = [
        [words, *(_mean(_find(tried, data=name, change=change)) for name in names)]
        for words, change in settings.items()
    ]
    # Where the rule keeps a share of 0.4, it is that line.
    chosen = [
        _mean(_find(records, part="rule", data=name) or _find(tried, data=name, change={})) for name in names
    ]
    return _join(heads, [*lines, ["**the rule**", *(f"**{cell}**" for cell in chosen)]])


def _write_inputs(records: list[dict[str, Any]]) -> str:
    tried = _find(records, part="inputs")
    columns = [(name, epsilon) for name in SHORT for epsilon in (1.0, 4.0) if _find(tried, data=name)]
    settings: dict[str, dict[str, Any]] = {
        "neither": {},
        "half of log(1 + list size)": {"list_size": 0.5},
        "own place": {"own_place": True},
        "both": {"list_size": 0.5, "own_place": True},
    }
    lines = [
        [
            words,
            *(_mean(_find(tried, data=name, epsilon=epsilon, change=change)) for name, epsilon in columns),
        ]
        for words, change in settings.items()
    ]
    return _join(["inputs", *(f"{SHORT[name]}, {epsilon:g}" for name, epsilon in columns)], lines)


WORDS = {
    "first_output": "start {}",
    "reading_scale": "reading {}",
    "list_size": "list size {}",
    "own_place": "own place {}",
    "feature_norm": "norm {}",
    "board_share": "share {}",
    "num_boards": "{} boards",
    "travel": "rate x {}",
    "hidden": "hidden {}",
    "steps": "{} steps",
    "momentum": "momentum {}",
    "damped": "damped {}",
}


def _write_labels(records: list[dict[str, Any]], part: str) -> str:
    tried = _find(records, part=part)
    changes: list[dict[str, Any]] = []
    for record in tried:
        if record["change"] not in changes:
            changes.append(record["change"])
    lines = [
        [
            ", ".join(words.format(change[name]) for name, words in WORDS.items() if name in change)
            or "nothing",
            *(_mean(_find(tried, change=change, epsilon=epsilon), 2) for epsilon in (1.0, 4.0)),
        ]
        for change in changes
    ]
    return _join(["changed", "epsilon 1", "epsilon 4"], lines)


def show(records: list[dict[str, Any]]) -> None:
    """Print the mean validation and test figure of every change."""
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for record in records:
        key = (record["data"], record["epsilon"], json.dumps(record["change"]))
        groups.setdefault(key, []).append(record)
    for (data, epsilon, change), rows in sorted(groups.items()):
        val, test = (100 * float(np.mean([row[split] for row in rows])) for split in ("val", "test"))
        held = " (held out)" if data in HELD_OUT else ""
        print(
            f"{data + held:32} {epsilon:g} {change:60} val {val:.2f} test {test:.2f} "
            f"({len(rows)} splits, {rows[0]['train_rows']:,} rows)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--part", choices=("classes", "rule", "inputs", "labels", "starts"), nargs="+", default=["classes"]
    )
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", type=Path, help="print the means of a record, and run nothing")
    parser.add_argument("--tables", type=Path, help="print the tables of docs/defaults.md, and run nothing")
    args = parser.parse_args()
    if args.tables is not None:
        records = [json.loads(line) for line in args.tables.read_text().splitlines()]
        print("\n\n".join(f"{name}\n\n{table}" for name, table in write_tables(records).items()))
        return
    if args.show is not None:
        show([json.loads(line) for line in args.show.read_text().splitlines()])
        return
    # One thread each: the trials fill the cores.
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    text = args.out.read_text() if args.out.exists() else ""
    records = [json.loads(line) for line in text.splitlines()]
    trials = [trial for part in args.part for trial in list_trials(part, args.splits)]
    trials = [
        trial
        for trial in trials
        if not any(trial == {name: record[name] for name in trial} for record in records)
    ]
    with (
        args.out.open("a") as out,
        ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool,
    ):
        for record in pool.map(train_one, [args.data] * len(trials), trials):
            records.append(record)
            out.write(json.dumps(record, sort_keys=True) + "\n")
            out.flush()
    show(records)


if __name__ == "__main__":
    main()
