"""The files of an export: model.onnx, board.parquet, rules.json and README.md, from a release alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph import __version__
from hushgraph._files import whole_folder, write_whole
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import combine_boards, place_weights
from hushgraph.errors import InputError, RunError, WriteError, explain
from hushgraph.export.onnx_model import build_onnx, check_exportable, name_shown
from hushgraph.graph.cell_rules import CYCLES, EVERY_COLUMN, rule_for
from hushgraph.graph.columns import Columns
from hushgraph.inference.predictions import save
from hushgraph.report.pages import render_template
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.release import check_publishable
from hushgraph.scaling.scaler import LARGEST

FORMAT = 1
MODEL, BOARD, RULES, README = "model.onnx", "board.parquet", "rules.json", "README.md"
# In board.parquet: the relation of a place, if any, its name and its weight; its numbers are n0, n1, ...
_RELATION, _PLACE, _WEIGHT = "relation", "place", "weight"


def export_run(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write a released model so that other programs serve it, as a whole or not at all; return the folder.

    Args:
        path: of a run with a release, or of a release.
        out: a folder that does not exist yet, or is empty.

    Raises:
        RunError: where there is no release, or where a model alone cannot make the predictions of the run.

    Guarantees:
        Every file is a function of files of the release.
    """
    place = Path(out)
    release = open_published(path)
    check_exportable(release)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"out={place}: it exists and is not an empty folder; choose another one")
    model = release.build_model()
    release.load_weights(model)
    board: Board | None = None
    parts: tuple[float, ...] = ()
    if release.num_boards:
        board, parts = combine_boards(release.load_boards(), centred=release.task.is_centred, in_place=True)
    content = build_onnx(release, model, noise_std=0.0 if board is None else board.noise_std)
    rules = describe_rules(release, board, parts)
    failed = f"out={place}: cannot be written"
    with explain(WriteError, failed, "choose another"), whole_folder(place) as draft:
        write_whole(draft / MODEL, content)
        if board is not None:
            _write_board(draft / BOARD, board, damped=release.config.damped)
        write_whole(draft / RULES, json.dumps(rules, indent=1, allow_nan=False).encode())
        write_whole(draft / README, render_template("export.md", rules=rules).encode())
    return place


def open_published(path: str | os.PathLike[str]) -> RunFolder:
    """The release of a run, or the release that is given; RunError with the reason where there is none."""
    folder = RunFolder.open(path)
    if folder.is_release:
        return folder
    folder.check_finished()
    if not folder.release_path.is_dir():
        check_publishable(folder)
        raise RunError(
            f"run={folder.path}: it has no release, and only what was released is exported; make it with "
            f"hushgraph release {folder.path}"
        )
    return RunFolder.open(folder.release_path)


def _write_board(path: Path, board: Board, *, damped: bool) -> None:
    """Write every place with its name, the weight of readings and its numbers."""
    columns: dict[str, Any] = {}
    if board.blocks:
        columns[_RELATION] = np.repeat(
            [block.name for block in board.blocks], [block.size for block in board.blocks]
        )
        names = np.concatenate(
            [_name_places(block.names, block.size).astype(np.str_) for block in board.blocks]
        )
    else:
        names = _name_places(board.names, board.num_places)
    columns[_PLACE] = names if names.dtype.kind in "iu" else names.astype(np.str_)
    columns[_WEIGHT] = place_weights(board, damped=damped)
    save(path, [columns | {f"n{number}": board.values[:, number] for number in range(board.width)}])


def _name_places(names: Any, count: int) -> Any:
    """The names of places, or their numbers where they have none."""
    return np.arange(count) if names is None else names


def describe_rules(folder: RunFolder, board: Board | None, parts: tuple[float, ...]) -> dict[str, Any]:
    """What else a program needs to know, as JSON values.

    Args:
        folder: of the release.
        board: all boards together; None where there is none.
        parts: of each board in it.
    """
    names, task, result = folder.class_names, folder.task, folder.result()
    outputs = [str(number) for number in range(task.num_outputs)] if names is None else list(names)
    rules: dict[str, Any] = {
        "format": FORMAT,
        "hushgraph": __version__,
        "task": task.to_json(),
        "question": task.question,
        "output": name_shown(task),
        "output_names": outputs if name_shown(task) == "probabilities" else ["number"],
        "num_features": folder.num_features,
        "features": None if folder.columns is None else describe_features(folder.columns),
        "missing": [] if folder.columns is None else list(folder.columns.missing),
        "numbers": describe_scaling(folder),
        "feature_norm": {
            "value": folder.config.feature_norm,
            "how": "model.onnx scales every row of features to this norm; 0 leaves them",
        },
        "reading": None if board is None else _describe_reading(folder, board, parts),
    }
    keys = ("epsilon", "delta", "adjacency", "guarantee", "assumptions", "predictions", "figures")
    return rules | {
        "privacy": {key: result[key] for key in keys if key in result},
        "statement": folder.guarantee.statement.to_text(),
        "figure_table": result.get("figure_table", []),
    }


def _name_kind(names: Any) -> str:
    """What places are called."""
    if names is None:
        return "numbers from 0"
    return "integers" if names.dtype.kind in "iu" else "text"


def _describe_records(folder: RunFolder, board: Board) -> dict[str, Any]:
    """What rows list where records are of relations, have weights, or name places that are not people."""
    declared = folder.edge_weight
    relations = [
        {
            "name": block.name,
            "kind": block.kind,
            "places": block.size,
            "names": "hashed" if block.kind == "hashed" else _name_kind(block.names),
            "is_weighted": block.is_weighted,
        }
        for block in board.blocks
    ]
    return {
        "relations": relations,
        "weight_function": "none" if declared is None else declared.function,
        "how_records": "a row has a reading of every relation, one after another in this order; weight of a "
        "place is multiplied by the weight of the record. That is weight_function of a number, summed over "
        "repeats; what is not finite and above 0 is left out. Without is_weighted it is 1, and repeats count "
        "once. Of kind hashed, the place of a name is the number of the first 15 hexadecimal digits of its "
        "MD5, modulo places. list_size is over all relations",
    }


def _describe_reading(folder: RunFolder, board: Board, parts: tuple[float, ...]) -> dict[str, Any]:
    config = folder.config
    records = _describe_records(folder, board) if board.blocks else {"relations": []}
    lister = "target" if folder.plan.edge_owner == "reader" else "source"
    return {
        "width": board.width,
        "places": board.num_places,
        "names": _name_kind(board.node_names),
        "listed_by": "either end" if config.symmetrize else lister,
        "list_size": config.list_size,
        "how": "reading = sum of weight * numbers over the different places that a row lists and the board "
        "has, divided by the root of the sum of weight^2; 0 for an empty list",
        **records,
        "board": {
            "noise_std": board.noise_std,
            "parts": list(parts),
            "centred": folder.task.is_centred,
            "damped": config.damped,
            "how": "numbers are the mean of the released boards by these parts, less the mean over a place "
            "where centred. weight = 1 / sqrt(1 + max(0, |numbers|^2 / noise_std^2 - width) / width) where "
            "damped, else 1; with noise_std 0, 1 takes its place",
        },
        "scale": config.reading_scale,
        "radius": config.reading_radius,
        "own_place": config.own_place,
        "in_the_model": "model.onnx multiplies a reading by scale / noise_std, then divides it by "
        "sqrt(1 + |reading|^2 / radius^2); where list_size is above 0, it takes log(1 + number of these "
        "places) * list_size too. Inputs of a row's own place are 0 for a new row and are left out",
    }


def describe_scaling(folder: RunFolder) -> dict[str, Any]:
    """The constants that model.onnx scales numbers with, by column."""
    scales: dict[str, Any] = {}
    if folder.columns is not None and folder.scaler is not None:
        for name, scale in zip(folder.columns.features or (), folder.scaler.scales, strict=True):
            if scale is not None:
                scales[name] = {"centre": scale.centre, "spread": scale.spread, "asinh": scale.log}
    return {
        "columns": scales,
        "how": f"model.onnx computes (x - centre) / spread, of asinh(x) where asinh, cut at {LARGEST:g} in "
        "size; a row whose features are all 0 stays so, and NaN, for an empty cell of a column with "
        "a constant to fill it, becomes 0. Give numbers as they are in the data",
    }


def describe_features(columns: Columns) -> list[dict[str, Any]]:
    """The features in order: of which column, from which place on, and how a cell becomes them."""
    features: list[dict[str, Any]] = []
    first = 0

    def add(column: str, kind: str, width: int, **more: Any) -> None:
        nonlocal first
        features.append({"column": column, "kind": kind, "first": first, **more})
        first += width

    for name in columns.features or ():
        more: dict[str, Any] = {"fill": columns.constants.get(name)}
        rule = _describe_number(columns, name)
        add(name, "number", 1, **more | ({"rule": rule} if rule else {}))
    for name, values in columns.categorical.items():
        has_other = columns.unknown_category == "other"
        add(name, "category", len(values) + has_other, values=list(values), unknown=columns.unknown_category)
    for name, buckets in columns.hashed.items():
        add(name, "hash", buckets, buckets=buckets)
    for name in columns.indicators:
        add(name, "missing", 1)
    for name, parts in columns.cycles.items():
        for part in parts:
            how = f"sin and cos of 2 pi {part} / {CYCLES[part]}, {part} counted from 0; 0 without a date"
            add(name, "cycle", 2, part=part, rule=how)
    return features


def _describe_number(columns: Columns, name: str) -> str | None:
    """How a cell is written that is no plain number; None for a plain one."""
    if name in columns.dates:
        form = rule_for(columns.date_format, name) or "year-month-day, with or without a time"
        return f"days since {columns.dates[name]}, with the time of day as a fraction; written as {form}"
    if name in columns.booleans:
        return "1 for true and yes, 0 for false and no"
    rules = []
    for mark, words in ((columns.decimal, "before decimals"), (columns.thousands, "between thousands")):
        if rule_for(mark, name) not in (None, "." if mark is columns.decimal else None):
            rules.append(f"{rule_for(mark, name)!r} stands {words}")
    if name in columns.percent or EVERY_COLUMN in columns.percent:
        rules.append("what ends in % is divided by 100")
    return "; ".join(rules) or None
