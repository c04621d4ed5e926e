"""From an experiment to its runs: every cell, mode and seed, and what `train` is asked for."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from hushgraph.reproduction.spec import NON_PRIVATE, Axes, Cell, Column, Experiment, Row, cell, common

# Looking at the validation split between steps, and pricing them, would only cost time.
_NEVER = 1_000_000_000
_QUICK_STEPS = 3
_QUICK_HIDDEN = 8


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: a cell in a mode with a seed."""

    experiment: Experiment
    column: Column
    row: Row
    cell: Cell
    mode: str
    axes: Axes
    seed: int

    @property
    def epsilon(self) -> float | None:
        """The budget that the paper claims for this cell; None without noise."""
        if not self.row.private:
            return None
        return dict(self.axes).get("epsilon", self.experiment.epsilon)

    @property
    def setting(self) -> str:
        return self.column.setting or self.experiment.setting

    @property
    def label(self) -> str:
        """One line that tells this run from the others of its experiment."""
        axes = "".join(f", {name}={value:g}" for name, value in self.axes)
        return f"{self.column.name}, {self.row.row}{axes}, {self.mode}, seed {self.seed}"


def jobs(
    experiment: Experiment,
    *,
    modes: Sequence[str],
    seeds: int | None = None,
    only: Sequence[str] = (),
    quick: bool = False,
) -> list[Job]:
    """The runs of an experiment, cell by cell.

    Args:
        experiment: what to run.
        modes: of private rows; rows without noise always run.
        seeds: how many runs a cell has; the experiment's own number unless given.
        only: patterns of a column, a row or column/row; any of them.
        quick: the first column that is left and the ends of every axis, once.
    """
    count = 1 if quick else experiment.seeds if seeds is None else seeds
    columns = [c for c in experiment.columns if any(wanted(c.name, r, only) for r in experiment.rows)]
    found = []
    for column in columns[:1] if quick else columns:
        for row in experiment.rows:
            settings = cell(experiment, row, column.name)
            if row.minus or settings is None or not wanted(column.name, row, only):
                continue
            for axes in _points(experiment, row, quick):
                for mode in row.modes:
                    # Varying a setting is about the paper's model; our defaults are one more point of theirs.
                    if mode == "non-private-ours" and axes:
                        continue
                    if mode in NON_PRIVATE or mode in modes:
                        found += [
                            Job(
                                experiment=experiment,
                                column=column,
                                row=row,
                                cell=settings,
                                mode=mode,
                                axes=axes,
                                seed=seed,
                            )
                            for seed in range(count)
                        ]
    return found


def asked(job: Job, *, quick: bool = False) -> dict[str, Any]:
    """The arguments of `train`, but for what depends on the number of training nodes; see `fitted`."""
    axes = dict(job.axes)
    found: dict[str, Any] = {"model": job.row.model, "num_layers": job.row.layers, "setting": job.setting}
    found["evaluate_every"] = _NEVER
    if job.mode == "sound":
        # Our defaults: nothing is chosen here but what the experiment varies.
        found["epsilon"] = job.epsilon
        found |= {name: int(value) for name, value in axes.items() if name != "epsilon"}
    elif job.mode == "non-private-ours":
        found["private"] = False
    else:
        found |= _as_printed(job)
    if quick:
        found |= {"hidden": _QUICK_HIDDEN, "steps": _QUICK_STEPS}
        if "noise_multiplier" in found:
            # Noise and steps are given, so epsilon follows.
            del found["epsilon"]
    return found


def fitted(asked_for: Mapping[str, Any], num_train_nodes: int) -> dict[str, Any]:
    """What was asked for, made to fit the data: a batch is at most all training nodes."""
    found = dict(asked_for)
    if found.get("batch_size") is not None:
        found["batch_size"] = min(found["batch_size"], num_train_nodes)
    epochs = found.pop("epochs", None)
    if epochs is not None and "steps" not in found:
        steps = round(epochs * num_train_nodes / found["batch_size"])
        found["steps"] = min(max(steps, common().least_steps), common().most_steps)
    return found


def digest(asked_for: Mapping[str, Any], *, data: str, reading: Mapping[str, Any], seed: int) -> str:
    """What makes two runs the same run, whichever table asks for them."""
    about = {"asked": dict(asked_for), "data": data, "reading": dict(reading), "seed": seed}
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _as_printed(job: Job) -> dict[str, Any]:
    """The paper's settings: its sampler, batches, clipping, noise and accountant."""
    own, paper, is_mlp = job.cell, common(), job.row.model == "mlp"
    axes = dict(job.axes)
    batch = int(axes.get("batch_size", own.batch_size or 0))
    found: dict[str, Any] = {
        "max_readers": 0 if is_mlp else int(axes.get("max_readers", own.max_readers or 0)),
        "batch_size": batch,
        "sampler": "paper",
        "accountant": "paper",
        "optimizer": job.row.optimizer,
        "learning_rate": own.lr,
        "momentum": paper.beta1 if job.row.optimizer == "adam" else 0.0,
        "activation": (own.activation or "").lower(),
        "encoder_layers": own.n_enc,
        "decoder_layers": own.n_dec,
        "hidden": paper.hidden,
        "schedule": "constant",
        "average": 0.0,
        "feature_norm": 0.0,
        # The paper draws its subgraphs once.
        "resample_every": _NEVER,
    }
    if not job.row.private:
        return found | {"private": False, "epochs": paper.epochs}
    scale = batch / (own.batch_size or batch) if job.experiment.noise_follows_batch else 1.0
    found |= {"epsilon": job.epsilon, "noise_multiplier": (own.noise_multiplier or 0.0) * scale}
    found |= {"clipping": "percentile", "noise": "per-layer"}
    if is_mlp:
        # The paper trains DP-MLP with ordinary DP-Adam, whose accountant is the pair accountant at n = 1.
        found["accountant"] = "pair"
    return found


def _points(experiment: Experiment, row: Row, quick: bool) -> Iterator[Axes]:
    """The axes that mean something to a row: without noise no epsilon, without edges no degree."""
    axes = {
        name: (values[0], values[-1]) if quick else values
        for name, values in experiment.axes.items()
        if not (name == "epsilon" and not row.private) and not (name == "max_readers" and row.model == "mlp")
    }
    for values in itertools.product(*axes.values()):
        yield tuple(zip(axes, values, strict=True))


def wanted(column: str, row: Row, only: Sequence[str]) -> bool:
    """Whether a cell matches any of the patterns, or there are none; a row goes by its printed name too."""
    names = [column, *(name for one in (row.row, row.printed) for name in (one, f"{column}/{one}"))]
    return not only or any(fnmatch(name.lower(), pattern.lower()) for pattern in only for name in names)
