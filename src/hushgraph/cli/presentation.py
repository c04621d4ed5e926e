"""What `hushgraph train` says: before, after, and when it is stopped."""

from __future__ import annotations

import math
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._text import digits_up, rounded_up
from hushgraph.privacy.guarantee import sentence

if TYPE_CHECKING:
    from rich.console import Console

    from hushgraph.runs.folder import RunFolder
    from hushgraph.training.run import Run


def free_folder(data: str, model: str, *, parent: Path = Path("runs")) -> Path:
    """runs/<data>-<model>-<n> with the first n that is not taken."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(data).stem) or "data"
    number = 1
    while (parent / f"{stem}-{model}-{number}").exists():
        number += 1
    return parent / f"{stem}-{model}-{number}"


def announcement(folder: RunFolder, data: str) -> str:
    """One line: what will be trained on what, from public figures alone; one more where a run changes data.

    Args:
        folder: of the run.
        data: what the data is called now; a resumed run may have begun under another name.
    """
    plan, config = folder.plan, folder.config
    layers = f"{plan.num_layers} round{'s' * (plan.num_layers != 1)} of messages"
    kind = "MLP" if config.model == "mlp" else f"{config.model.upper()}, {layers}"
    how = "privately" if plan.is_private else "without privacy"
    done = _steps_done(folder)
    again = f" Going on after step {done:,}." if done else ""
    reads = f"K = {plan.max_readers}, " if plan.num_layers else ""
    # The same file may be named from the current folder or in full.
    is_other = os.path.abspath(data) != os.path.abspath(folder.data)
    other = (
        f"\nThis run began on {folder.data} and goes on with {data}: it must be the same data, of which the "
        "counts of nodes and features and the training nodes are compared, and nothing else."
    )
    drawn = f" The split {config.split} is drawn from the node ids." if config.split else ""
    return (
        f"Training {how} on {data}: {kind}, {folder.num_features:,} features, {folder.num_classes} "
        f"classes, {plan.num_train_nodes:,} training nodes; {reads}{plan.steps:,} steps of about "
        f"{plan.batch_size:,} nodes.{drawn}{again}{other * is_other}"
    )


def show(run: Run, console: Console) -> None:
    """The result as a table, and the guarantee in a sentence."""
    from rich.table import Table

    result = run.result
    rows = [
        ("validation accuracy", _percent(result["val_accuracy"])),
        ("test accuracy", _percent(result["test_accuracy"])),
        ("epsilon", rounded_up(run.epsilon)),
        ("delta", digits_up(run.delta)),
        ("guarantee", result["guarantee"]),
        ("steps", f"{run.plan.steps:,}"),
        ("seconds", f"{result['seconds']:.1f}"),
        ("folder", str(run.folder.path)),
    ]
    if result.get("secure_noise"):
        rows.insert(5, ("noise", "secure: cryptographic, exact, on a grid"))
    if "train_accuracy" in result:
        note = "  (private: the guarantee does not cover this figure)" if run.plan.is_private else ""
        rows.insert(2, ("train accuracy", _percent(result["train_accuracy"]) + note))
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table, highlight=False)
    if result.get("steps_lost"):
        console.print(
            f"\n{result['steps_lost']:,} steps were paid for and lost when the run was killed; the weights "
            "have learnt nothing from them.",
            highlight=False,
        )
    console.print(f"\n{promise(run)}", highlight=False)
    if run.plan.is_private:
        covers = "It covers the weights. " if result["guarantee"] == "holds" else ""
        console.print(
            f"{covers}The accuracies were read off the private graph and its labels.", highlight=False
        )


def promise(run: Run) -> str:
    """The sentence of the plan, unless this run broke what it rests on."""
    if "why_none" in run.result:
        without = (
            "Without the seed the epsilon above would hold."
            if run.plan.guarantee == "holds"
            else f"Nor would it be without the seed. {sentence(run.plan)}"
        )
        return "Nothing is guaranteed: the seed is fixed, so the run is reproducible, not private. " + without
    return sentence(run.plan)


def as_json(run: Run) -> dict[str, Any]:
    """The keys that other programs rely on, then where the run is."""
    return {**run.result, "out": str(run.folder.path)}


def stopped(folder: RunFolder, data: str) -> str:
    """One line for a run that Ctrl-C ended: how far it came and how to go on."""
    again = f"hushgraph train {shlex.quote(data)} --resume {shlex.quote(str(folder.path))}"
    return f"stopped after step {_steps_done(folder)} of {folder.plan.steps}; go on with: {again}"


def _steps_done(folder: RunFolder) -> int:
    from hushgraph.privacy.ledger import Ledger

    return Ledger.open(folder.ledger_path, read_only=True).steps_charged


def _percent(accuracy: float | None) -> str:
    if accuracy is None or math.isnan(accuracy):
        return "no labelled nodes"
    return f"{accuracy:.2%}"
