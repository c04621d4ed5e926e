"""The runs of an experiment: one job for every cell, mode and seed, and the arguments of `train`."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any

from hushgraph.reproduction.spec import (
    NON_PRIVATE,
    Axes,
    Cell,
    Column,
    Experiment,
    Row,
    find_cell,
    load_common,
)

# Evaluating and pricing between steps would only cost time.
_NEVER = 1_000_000_000
_QUICK_STEPS = 3
_QUICK_HIDDEN = 8


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: a cell of the table, in a mode, with a seed."""

    experiment: Experiment
    column: Column
    row: Row
    cell: Cell
    mode: str
    axes: Axes
    seed: int

    @property
    def epsilon(self) -> float | None:
        """The budget that the paper claims for this cell; None if it is not private."""
        if not self.row.private:
            return None
        return dict(self.axes).get("epsilon", self.experiment.epsilon)

    @property
    def setting(self) -> str:
        """The setting of the column, else that of the experiment."""
        return self.column.setting or self.experiment.setting

    def reading(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """Return how its graph is read, for its digest; `source` holds the options of the source."""
        if self.experiment.has_fixed_seeds:
            return {**source, "per_class": self.experiment.kind == "classes"}
        return {
            "symmetrize": self.column.symmetrize,
            "split": self.column.split,
            "split_seed": None if self.column.split is None else self.seed,
            "has_new_nodes": self.row.new_nodes,
        }

    @property
    def label(self) -> str:
        """One line that identifies this run within its experiment."""
        axes = "".join(f", {name}={value:g}" for name, value in self.axes)
        return f"{self.column.name}, {self.row.row}{axes}, {self.mode}, seed {self.seed}"


def list_jobs(
    experiment: Experiment,
    *,
    modes: Sequence[str],
    seeds: int | None = None,
    only: Sequence[str] = (),
    quick: bool = False,
) -> list[Job]:
    """List the runs of an experiment, cell by cell.

    Args:
        experiment: the experiment.
        modes: the modes of private rows; rows without noise always run.
        seeds: the number of runs per cell; that of the experiment by default.
        only: patterns of a column, a row or column/row; a cell must match one of them.
        quick: run only the first matching column and both ends of every axis, with one seed.
    """
    count = 1 if quick else experiment.seeds if seeds is None else seeds
    columns = [c for c in experiment.columns if any(matches(c.name, r, only) for r in experiment.rows)]
    jobs = []
    for column in columns[:1] if quick else columns:
        for row in experiment.rows:
            settings = find_cell(row, column.name)
            if row.minus or settings is None or not matches(column.name, row, only):
                continue
            for axes in _iter_axes(experiment, row, quick):
                for mode in row.modes:
                    # An ablation varies the paper's settings, so our defaults have no place in it.
                    if mode == "non-private-ours" and axes:
                        continue
                    if mode in NON_PRIVATE or mode in modes:
                        job = Job(
                            experiment=experiment,
                            column=column,
                            row=row,
                            cell=settings,
                            mode=mode,
                            axes=axes,
                            seed=0,
                        )
                        jobs += [replace(job, seed=seed) for seed in range(count)]
    return jobs


def train_arguments(job: Job, *, quick: bool = False) -> dict[str, Any]:
    """Return the arguments of `train`, before `fit_to_data` adapts them to the number of training nodes."""
    axes = dict(job.axes)
    model = {"model": job.row.model, "num_layers": job.row.layers, "setting": job.setting}
    arguments: dict[str, Any] = {**(job.row.arguments or model), "evaluate_every": _NEVER}
    if job.mode == "sound":
        # Our defaults, except for what the experiment varies.
        arguments["epsilon"] = job.epsilon
        arguments |= {name: int(value) for name, value in axes.items() if name != "epsilon"}
    elif job.mode == "non-private-ours":
        arguments["private"] = False
    else:
        arguments |= _paper_arguments(job)
    if quick:
        arguments |= {"hidden": _QUICK_HIDDEN, "steps": _QUICK_STEPS}
        if "paper_noise_multiplier" in arguments:
            # Noise and steps determine epsilon.
            del arguments["epsilon"]
    return arguments


def fit_to_data(arguments: Mapping[str, Any], num_train_nodes: int) -> dict[str, Any]:
    """Limit the batch to the training nodes, and convert epochs to steps."""
    fitted = dict(arguments)
    if fitted.get("batch_size") is not None:
        fitted["batch_size"] = min(fitted["batch_size"], num_train_nodes)
    epochs = fitted.pop("epochs", None)
    if epochs is not None and "steps" not in fitted:
        steps = round(epochs * num_train_nodes / fitted["batch_size"])
        fitted["steps"] = min(max(steps, load_common()["least_steps"]), load_common()["most_steps"])
    return fitted


def run_digest(arguments: Mapping[str, Any], *, data: str, reading: Mapping[str, Any], seed: int) -> str:
    """Return a digest of everything that determines a run; equal runs of two tables have the same."""
    # Records carry digests that were made while this setting had another name.
    names = {"paper_noise_multiplier": "noise_multiplier"}
    asked = {names.get(name, name): value for name, value in arguments.items()}
    content = {"asked": asked, "data": data, "reading": dict(reading), "seed": seed}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _paper_arguments(job: Job) -> dict[str, Any]:
    """Return the paper's settings: its sampler, batches, clipping, noise and accountant."""
    own, paper, is_mlp = job.cell, load_common(), job.row.model == "mlp"
    axes = dict(job.axes)
    batch = int(axes.get("batch_size", own.batch_size or 0))
    arguments: dict[str, Any] = {
        "max_readers": 0 if is_mlp else int(axes.get("max_readers", own.max_readers or 0)),
        "batch_size": batch,
        "sampler": "paper",
        "accountant": "paper",
        "optimizer": job.row.optimizer,
        "learning_rate": own.lr,
        "momentum": paper["beta1"] if job.row.optimizer == "adam" else 0.0,
        "activation": (own.activation or "").lower(),
        "encoder_layers": own.n_enc,
        "decoder_layers": own.n_dec,
        "hidden": paper["hidden"],
        "schedule": "constant",
        "average": 0.0,
        "feature_norm": 0.0,
        # The paper draws its subgraphs once.
        "resample_every": _NEVER,
    }
    if not job.row.private:
        return arguments | {"private": False, "epochs": paper["epochs"]}
    scale = batch / (own.batch_size or batch) if job.experiment.noise_follows_batch else 1.0
    arguments |= {"epsilon": job.epsilon, "paper_noise_multiplier": (own.noise_multiplier or 0.0) * scale}
    arguments |= {"clipping": "percentile", "noise": "per-layer"}
    if is_mlp:
        # The paper trains DP-MLP with ordinary DP-Adam, whose accountant is the pair accountant at n = 1.
        arguments["accountant"] = "pair"
    return arguments


def _iter_axes(experiment: Experiment, row: Row, quick: bool) -> Iterator[Axes]:
    """Yield the values of the axes that apply to a row: no epsilon without noise, no degree without edges."""
    axes = {
        name: (values[0], values[-1]) if quick else values
        for name, values in experiment.axes.items()
        if not (name == "epsilon" and not row.private) and not (name == "max_readers" and row.model == "mlp")
    }
    for values in itertools.product(*axes.values()):
        yield tuple(zip(axes, values, strict=True))


def matches(column: str, row: Row | None, only: Sequence[str]) -> bool:
    """Return whether a cell matches one of the patterns, by the name or printed name of its row."""
    rows = () if row is None else (row.row, row.printed)
    names = [column, *(name for one in rows for name in (one, f"{column}/{one}"))]
    return not only or any(fnmatch(name.lower(), pattern.lower()) for pattern in only for name in names)
