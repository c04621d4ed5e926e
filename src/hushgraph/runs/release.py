"""The publishable part of a run whose guarantee holds: what the guarantee covers, and nothing else.

release.json            plan, task, declared names, guarantee, and the result as far as it is covered
weights.safetensors     of the model
board-1.safetensors     the boards of a billboard run
scaling.json            noisy histograms, and the constants that numbers are scaled with
halfway.safetensors     the weights that the ballots of a second board come from
figures.json            noisy tables of counts, and the figures computed from them
README.md               the model card

Everything else of a run stays outside: the ledger, checkpoints, exact figures, timings, paths, seeds, keys.
Which public split was drawn from the identifiers is in release.json by its number: whoever predicts for the
rows of the run must know which of them cast ballots.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hushgraph import __version__
from hushgraph._files import whole_folder, write_whole
from hushgraph.errors import RunError, WriteError, explain
from hushgraph.privacy.guarantee import describe_guarantee
from hushgraph.privacy.lines import MALFORMED
from hushgraph.runs.about import damage_error, find_checksum, read_fields, write_fields
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.consistency import BOARD_FILES
from hushgraph.runs.folder import FIGURES_FILE, SCALING_FILE, RunFolder
from hushgraph.runs.result import check_covered_result

ABOUT = "release.json"
FORMAT = 1
CARD = "README.md"
# Files that are released as they are.
_RELEASED = ("weights.safetensors", "halfway.safetensors", SCALING_FILE, *BOARD_FILES)
RELEASE_FILES = (*_RELEASED, FIGURES_FILE, ABOUT, CARD)
"""The names of all files that a release may hold."""
# Of data that is no tables; left out where nothing is declared.
_RECORDS = ("edge_weight", "people")
# How a run was watched is nobody else's business.
_PRIVATE_SETTINGS = ("seed", "exact_figures", "train_accuracy", "evaluate_every")
# How the public split was drawn, by its names in a configuration and in the file.
_SPLIT = {"split": "shares", "split_seed": "draw"}


def write_release(folder: RunFolder, card: str, figures: Mapping[str, Any]) -> Path:
    """Make `release/` in the folder of a finished run, as a whole or not at all; return its path.

    A release that is there already stays as it is: it is the same run.

    Args:
        folder: of a finished run whose guarantee holds.
        card: the model card, without anything that is not covered.
        figures: the keys of the result that are computed from the noisy tables; empty where there are none.

    Raises:
        RunError: if the run is not finished, or its guarantee does not hold.

    Guarantees:
        Every file is a function of released values and declared constants.
    """
    folder.check_finished()
    place = folder.release_path
    if place.exists():
        return place
    check_publishable(folder)
    advice = f"free space, then make it with hushgraph release {folder.path}"
    with explain(WriteError, f"{place}: cannot be written", advice), whole_folder(place) as draft:
        for name in _RELEASED:
            _link(folder.path / name, draft / name)
        result = _list_covered(folder, figures)
        if folder.figures_path.exists():
            tables = json.loads(folder.figures_path.read_text())
            _write_json(draft / FIGURES_FILE, tables | {"figures": result["figure_table"]})
        _write_json(draft / ABOUT, _describe(folder, result))
        write_whole(draft / CARD, card.encode())
        _level_times(draft)
    return place


def check_publishable(folder: RunFolder) -> None:
    """Refuse a run whose guarantee does not hold, with the reason."""
    if folder.guarantee.kind != "holds":
        why = " ".join(reason.sentence for reason in folder.guarantee.why)
        raise RunError(
            f"run={folder.path}: its guarantee does not hold, so nothing of it may be published as private. "
            f"{why}"
        )


def open_release(path: Path) -> RunFolder:
    """The run in a folder that holds a release alone; RunError where it is damaged."""
    about = _read_about(path)
    try:
        split = about["public_split"]
        config = about["config"] | {name: split[public] for name, public in _SPLIT.items()}
        fields = read_fields(about | {"config": config})
        split_id = str(split["training_nodes"])
        return RunFolder(path=path, **fields, split_id=split_id, data="unnamed data", is_release=True)
    except MALFORMED as error:
        raise damage_error(path, ABOUT, error) from None


def list_files(place: Path) -> list[Path]:
    """The files of a release, and nothing else that somebody keeps in its folder."""
    return [path for name in RELEASE_FILES if (path := place / name).is_file()]


def read_covered_result(path: Path) -> dict[str, Any]:
    """The result of a release, as far as it is covered."""
    return check_covered_result(_read_about(path).get("result"), path / ABOUT)


def list_settings(config: TrainingConfig) -> dict[str, Any]:
    """The settings of a run that may be published, with those of its public split."""
    written = {name: value for name, value in asdict(config).items() if name not in _PRIVATE_SETTINGS}
    return {name: value for name, value in written.items() if name not in _RECORDS or value is not None}


def _describe(folder: RunFolder, result: Mapping[str, Any]) -> dict[str, Any]:
    config = list_settings(folder.config)
    split = {public: config.pop(name) for name, public in _SPLIT.items()}
    about = write_fields(folder) | {
        "format": FORMAT,
        "hushgraph": __version__,
        "config": config,
        "task": folder.task.to_json(),
        # With the digest of which identifiers are in the training split, all of which is public.
        "public_split": split | {"training_nodes": folder.split_id},
        "guarantee": folder.guarantee.to_json(),
        "statement": folder.guarantee.statement.to_text(),
        "result": dict(result),
    }
    return about | {"sum": find_checksum(about)}


def _list_covered(folder: RunFolder, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a run, as far as plan, guarantee and noisy tables give it."""
    stated = folder.plan.summary() | describe_guarantee(folder.guarantee) | folder.stated_task
    return {**stated, "val_accuracy": None, "test_accuracy": None, "figure_table": [], **figures}


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((path / ABOUT).read_text())
        if about["format"] != FORMAT:
            raise RunError(f"run={path}: {ABOUT} has format {about['format']!r}; update hushgraph")
        if about.pop("sum") != find_checksum(about):
            raise RunError(f"run={path}: {ABOUT} was edited; restore it")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RunError(f"run={path}: {ABOUT} is damaged ({type(error).__name__}); restore it") from None
    return about


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(values, indent=1, sort_keys=True, allow_nan=False).encode())


def _level_times(place: Path) -> None:
    """Give all files one time: from that of the board to that of the weights are the seconds of training."""
    now = time.time()
    for file in place.iterdir():
        os.utime(file, (now, now))


def _link(source: Path, target: Path) -> None:
    """Give a file a second name; copy it where the file system has no links."""
    if source.exists():
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
