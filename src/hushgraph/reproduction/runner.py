"""One thin runner for every experiment: trains what is not on record yet, and puts records into tables."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import BudgetExceededError, InputError
from hushgraph.reproduction import grid, spec, tables
from hushgraph.reproduction.grid import Job
from hushgraph.reproduction.records import Records, relabelled
from hushgraph.reproduction.sources import GENERATED, MissingDataError, Source, Sources
from hushgraph.reproduction.worth import worth

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.training.run import Run

# Seconds between two looks at what other processes are training.
_PATIENCE = 0.5
DP_MODES = ("as-published", "sound")
Say = Callable[[str], None]
Observe = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to reproduce.

    Attributes:
        out: the folder of records and tables.
        data_root, substitutes, quick: as in `Sources`.
        modes, seeds, only: as in `grid.jobs`.
        device: as in `train`.
    """

    out: Path
    data_root: Path | None = None
    substitutes: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = DP_MODES
    seeds: int | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run, where its data comes from, and what is known about it.

    Attributes:
        run: digest of everything that decides the run.
        labels: of its record.
        is_done: whether its record is there.
    """

    job: Job
    source: Source
    asked: dict[str, Any]
    run: str
    labels: dict[str, Any]
    is_done: bool


class Reproduction:
    """The experiments of one call.

    Args:
        names: of experiments.
        options: how.
        say: takes one line at a time.

    Guarantees:
        A record is on disk when its run ends; an interruption loses at most the run in progress.
    """

    def __init__(self, names: Sequence[str], options: Options, *, say: Say) -> None:
        self.options, self.say = options, say
        self.experiments = [spec.load(name) for name in names]
        self.sources = Sources(options.data_root, options.substitutes, quick=options.quick)
        self.records = Records(options.out / "records.jsonl")
        if options.quick and any(record.get("data") != GENERATED for record in self.records.all):
            raise InputError(
                f"out={options.out}: it has records of real data, whose tables --quick would replace; "
                "choose another folder"
            )
        self.skipped: list[str] = []
        self.left_out: dict[str, list[str]] = {}
        self._check_patterns()
        self.plan = [planned for experiment in self.experiments for planned in self._planned(experiment)]
        self.described = {
            experiment.name: self._columns(experiment)
            for experiment in self.experiments
            if experiment.kind == "statistics"
        }
        if not self.plan and not any(self.described.values()):
            reason = self.skipped[0] if self.skipped else "no cell matches --only and --mode"
            others = [line.partition(":")[0] for line in self.skipped[1:]]
            more = f"; so are {', '.join(others)}" if others else ""
            raise InputError(f"nothing is left to run: {reason}{more}")
        # Not as they are found: where nothing is left the error says them.
        for line in self.skipped:
            self.say(line)

    @property
    def left(self) -> list[Planned]:
        """The runs without a record, those that another one will serve included."""
        return [planned for planned in self.plan if not planned.is_done]

    @property
    def trainings(self) -> int:
        """How many of them have to be trained: equal runs are trained once."""
        return len({p.run for p in self.left if self.records.of_run(p.run) is None})

    def run(self, begin: Callable[[int, str], None], observe: Observe) -> None:
        """Train what is left, but for what other processes with the same folder train.

        Args:
            begin: told the number of runs done and the label of the next.
            observe: told steps done and steps in all; may raise KeyboardInterrupt.
        """
        left = self.left
        total, done, is_waiting = len(left), 0, False
        while left:
            taken = []
            for planned in left:
                with self.records.claimed(planned.run) as is_mine:
                    if not is_mine:
                        taken.append(planned)
                        continue
                    begin(done, f"{planned.job.experiment.name}: {planned.job.label}")
                    self._made(planned, f"[{done + 1}/{total}]", observe)
                    done += 1
            if taken == left:
                if not is_waiting:
                    self.say(f"runs that other processes train: {len(taken)}; waiting for them")
                is_waiting = True
                observe(0, 1)
                time.sleep(_PATIENCE)
            left = taken

    def _made(self, planned: Planned, number: str, observe: Observe) -> None:
        """The record of a run: there already, that of an equal run, or trained."""
        self.records.refresh()
        if self._record(planned) is not None:
            return
        name = f"{planned.job.experiment.name}: {planned.job.label}"
        known = self.records.of_run(planned.run)
        if known is not None:
            self.records.append(relabelled(known, planned.labels.items()))
            return
        try:
            record = self._trained(planned, observe)
        except BudgetExceededError as error:
            self.say(f"{name}: left out, {error}")
            self.left_out.setdefault(planned.job.experiment.name, []).append(planned.job.label)
            return
        self.records.append(record)
        self.say(f"{number} {name}: {100 * (record['test_accuracy'] or 0):.2f}% in {record['seconds']:.1f} s")

    def tables(self) -> list[tables.Table]:
        """One table for each experiment that has statistics or records, of this call or of earlier ones."""
        found = []
        for experiment in self.experiments:
            if experiment.kind == "statistics":
                facts = [
                    (column, source, _statistics(self.sources.graph(column), column.setting))
                    for column, source in self.described[experiment.name]
                ]
                found += [tables.of_statistics(experiment, facts)] if facts else []
                continue
            records = [(p, r) for p in self._everything(experiment) if (r := self._record(p)) is not None]
            if records:
                left_out = self.left_out.get(experiment.name, ())
                made = [(p.job, p.source, r) for p, r in records]
                found.append(tables.of_records(experiment, made, left_out=left_out))
        return found

    def recorded(self) -> list[dict[str, Any]]:
        """The records of these experiments, of this call and of earlier ones."""
        planned = [p for experiment in self.experiments for p in self._everything(experiment)]
        return [record for one in planned if (record := self._record(one)) is not None]

    def _everything(self, experiment: spec.Experiment) -> list[Planned]:
        """All runs that may have a record, whatever this call was to make."""
        known = [r["seed"] for r in self.records.all if r["experiment"] == experiment.name]
        everything = replace(self.options, modes=DP_MODES, only=(), seeds=max(known, default=0) + 1)
        return self._planned(experiment, everything)

    def _check_patterns(self) -> None:
        """Refuse a pattern that is for no cell of any experiment asked for."""
        columns = dict.fromkeys(column.name for e in self.experiments for column in e.columns)
        rows = [row for experiment in self.experiments for row in experiment.rows if not row.minus]
        for pattern in self.options.only:
            by_cell = (grid.wanted(column, row, (pattern,)) for column in columns for row in rows)
            if not any(_matches(column, (pattern,)) for column in columns) and not any(by_cell):
                choices = f"datasets are {', '.join(columns)}"
                choices += f"; models are {', '.join(dict.fromkeys(row.row for row in rows))}" if rows else ""
                raise InputError(f"--only {pattern}: no cell goes by this name; {choices}")

    def _planned(self, experiment: spec.Experiment, options: Options | None = None) -> list[Planned]:
        """The runs of an experiment by these options, those of this call unless given."""
        is_call = options is None
        options = options or self.options
        found, missing = [], set()
        for job in grid.jobs(
            experiment, modes=options.modes, seeds=options.seeds, only=options.only, quick=options.quick
        ):
            if job.column.name in missing:
                continue
            try:
                source = self.sources.source(job.column)
            except MissingDataError as error:
                missing.add(job.column.name)
                if is_call:
                    self._skip(job.column.name, error)
                continue
            asked = grid.asked(job, quick=options.quick)
            reading = {**source.reading, "per_class": experiment.kind == "classes"}
            run = grid.digest(asked, data=source.name, reading=reading, seed=job.seed)
            labels = {
                "experiment": experiment.name,
                "column": job.column.name,
                "data": source.name,
                "row": job.row.row,
                "mode": job.mode,
                "axes": {n: v if n == "epsilon" else int(v) for n, v in job.axes},
                "seed": job.seed,
            }
            is_done = self.records.find(run=run, **labels) is not None
            found.append(
                Planned(job=job, source=source, asked=asked, run=run, labels=labels, is_done=is_done)
            )
        return found

    def _columns(self, experiment: spec.Experiment) -> list[tuple[spec.Column, Source]]:
        found = []
        for column in experiment.columns:
            if self.options.only and not _matches(column.name, self.options.only):
                continue
            try:
                found.append((column, self.sources.source(column)))
            except MissingDataError as error:
                self._skip(column.name, error)
        return found

    def _record(self, planned: Planned) -> dict[str, Any] | None:
        return self.records.find(run=planned.run, **planned.labels)

    def _skip(self, column: str, error: Exception) -> None:
        line = f"{column}: skipped, {error}"
        if line not in self.skipped:
            self.skipped.append(line)

    def _trained(self, planned: Planned, observe: Observe) -> dict[str, Any]:
        from hushgraph.training.train import train

        graph = self.sources.graph(planned.job.column)
        wanted = grid.fitted(planned.asked, len(graph.train_idx))
        run = train(
            graph,
            **wanted,
            seed=planned.job.seed,
            device=self.options.device,
            observer=lambda done, total, epsilon, accuracy: observe(done, total),
        )
        # A few steps are no budget: what the paper's accountant claims for them is their own.
        few = self.options.quick and planned.job.mode == "as-published"
        claimed = run.plan.epsilon if few else planned.job.epsilon
        return planned.labels | {"claimed_epsilon": claimed} | _record_of(run, planned, graph)


def _matches(column: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(column.lower(), pattern.lower()) for pattern in patterns)


def _record_of(run: Run, planned: Planned, graph: Graph) -> dict[str, Any]:
    from hushgraph.gradients.clip import group_of
    from hushgraph.runs.folder import versions

    value = worth(run.plan, len({group_of(name) for name, _ in run.model.named_parameters()}))
    record = {
        "test_accuracy": run.result["test_accuracy"],
        "val_accuracy": run.result["val_accuracy"],
        "epsilon_holds": value.holds,
        "epsilon_if_thresholds_were_public": value.if_public,
        "holds_reason": value.reason,
        "delta": run.plan.delta if run.plan.is_private else None,
        "plan": json.loads(run.plan.to_json()),
        "config": json.loads(run.config.to_json()),
        "ledger_digest": hashlib.sha256(run.folder.ledger_path.read_bytes()).hexdigest(),
        "seconds": run.result["seconds"],
        "device": run.result["device"],
        "versions": versions(),
        "commit": _commit(),
        "run": planned.run,
    }
    if planned.job.experiment.kind == "classes":
        found = run.evaluate(graph)
        if found is not None:
            accuracy = [None if count == 0 else float(a) for a, count in zip(*_both(found), strict=True)]
            record["per_class"] = {"count": found.class_counts.tolist(), "accuracy": accuracy}
    return record


def _both(found: Any) -> tuple[list[float], list[int]]:
    return found.class_accuracy.tolist(), found.class_counts.tolist()


def _statistics(graph: Graph, setting: str | None) -> dict[str, float]:
    """The figures of the paper's table of datasets."""
    reads = graph.disjoint().num_edges if setting == "inductive" else graph.num_edges
    parts = {"Train": graph.train_idx, "Val": graph.val_idx, "Test": graph.test_idx}
    return {
        "Nodes": graph.num_nodes,
        "Avg. Degree": reads / graph.num_nodes,
        "Features": graph.num_features,
        "Classes": graph.num_classes,
        **{name: len(nodes) / graph.num_nodes for name, nodes in parts.items()},
    }


def _commit() -> str | None:
    """The commit of the source tree that runs, or HUSHGRAPH_COMMIT for a copy without its history."""
    if given := os.environ.get("HUSHGRAPH_COMMIT"):
        return given
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
