"""The runner of all experiments: trains the runs without a record, and builds tables from records."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import BudgetExceededError, InputError
from hushgraph.privacy.choices import Device
from hushgraph.reproduction import jobs, spec
from hushgraph.reproduction.arrivals import measure_in_the_clear, measure_new_nodes, take_out_test_nodes
from hushgraph.reproduction.data_sources import GENERATED, MissingDataError, Source, Sources
from hushgraph.reproduction.jobs import Job
from hushgraph.reproduction.proven_epsilon import find_proven_epsilon
from hushgraph.reproduction.records import Records, relabel
from hushgraph.reproduction.tables import Table, build_statistics_table, build_table
from hushgraph.tasks.classes import ClassEvaluation

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.training.run import Run

# Seconds between two checks of what other processes are training.
_POLL_SECONDS = 0.5
Say = Callable[[str], None]
Observe = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a reproduction.

    Attributes:
        out: the folder of records and tables.
        substitutes, quick: as in `Sources`.
        modes, seeds, only: as in `list_jobs`.
        device: as in `train`.
    """

    out: Path
    substitutes: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = spec.DP_MODES
    seeds: int | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of this call, with or without a record.

    Attributes:
        job: the cell, mode and seed.
        arguments: the arguments of `train`, before they are fitted to the data.
        labels: the labels of its record; `run` is a digest of everything that determines the run.
    """

    job: Job
    arguments: dict[str, Any]
    labels: dict[str, Any]

    @property
    def name(self) -> str:
        """One line that identifies it."""
        return f"{self.job.experiment.name}: {self.job.label}"


class Reproduction:
    """The experiments of one call.

    Args:
        names: the names of the experiments.
        options: the options of all of them.
        say: called with one line of text at a time.

    Guarantees:
        A record is on disk when its run ends; an interruption loses at most the run in progress.
    """

    def __init__(self, names: Sequence[str], options: Options, *, say: Say) -> None:
        self.options, self.say = options, say
        self.experiments = [spec.load(name) for name in names]
        self.sources = Sources(options.substitutes, quick=options.quick)
        self.records = Records(options.out / "records.jsonl")
        if options.quick and any(record.get("data") != GENERATED for record in self.records.all):
            raise InputError(
                f"out={options.out}: it has records of real data, whose tables --quick would replace; "
                "choose another folder"
            )
        self.skipped: list[str] = []
        self.left_out: dict[str, list[str]] = {}
        self._check_patterns()
        self.plan = [
            planned for each in self.experiments for planned in self._plan_runs(each, options, self._skip)
        ]
        self.described = {
            experiment.name: [
                column
                for column in experiment.columns
                if jobs.matches(column.name, None, options.only) and self._find_source(column, self._skip)
            ]
            for experiment in self.experiments
            if experiment.kind == "statistics"
        }
        if not self.plan and not any(self.described.values()):
            reason = self.skipped[0] if self.skipped else "no cell matches --only and --mode"
            others = [line.partition(":")[0] for line in self.skipped[1:]]
            more = f"; so are {', '.join(others)}" if others else ""
            raise InputError(f"nothing is left to run: {reason}{more}")
        # After all columns: if nothing is left, the error contains these lines.
        for line in self.skipped:
            self.say(line)

    @property
    def left(self) -> list[PlannedRun]:
        """The runs without a record, including those that share the training of another run."""
        return [planned for planned in self.plan if self.records.find(**planned.labels) is None]

    @property
    def trainings(self) -> int:
        """The number of runs to train: equal runs are trained once."""
        runs = {planned.labels["run"] for planned in self.left}
        return sum(self.records.of_run(run) is None for run in runs)

    def run(self, begin: Callable[[int, str], None], observe: Observe) -> None:
        """Train the runs that are left, except those that other processes with the same folder train.

        Args:
            begin: called with the number of runs done and the label of the next.
            observe: called with the number of steps done and the total; may raise KeyboardInterrupt.
        """
        left = self.left
        total, done, has_announced = len(left), 0, False
        while left:
            waiting = []
            for planned in left:
                with self.records.claimed(planned.labels["run"]) as is_mine:
                    if not is_mine:
                        waiting.append(planned)
                        continue
                    begin(done, planned.name)
                    self._make_record(planned, f"[{done + 1}/{total}]", observe)
                    done += 1
            if waiting == left:
                if not has_announced:
                    self.say(f"runs that other processes train: {len(waiting)}; waiting for them")
                has_announced = True
                observe(0, 1)
                time.sleep(_POLL_SECONDS)
            left = waiting

    def _make_record(self, planned: PlannedRun, number: str, observe: Observe) -> None:
        """Make the record of a run: keep it if it exists, copy that of an equal run, or train."""
        self.records.refresh()
        if self.records.find(**planned.labels) is not None:
            return
        known = self.records.of_run(planned.labels["run"])
        if known is not None:
            self.records.append(relabel(known, planned.labels))
            return
        try:
            record = self._train(planned, observe)
        except BudgetExceededError as error:
            self.say(f"{planned.name}: left out, {error}")
            self.left_out.setdefault(planned.job.experiment.name, []).append(planned.job.label)
            return
        self.records.append(record)
        accuracy = 100 * (record["test_accuracy"] or 0)
        self.say(f"{number} {planned.name}: {accuracy:.2f}% in {record['seconds']:.1f} s")

    def tables(self) -> list[Table]:
        """Build one table for each experiment with statistics or records, of this call or of earlier ones."""
        built = []
        for experiment in self.experiments:
            records = self._list_records(experiment)
            if described := self.described.get(experiment.name):
                numbers = {
                    (column.name, self.sources.source(column).name): _measure_graph(
                        self.sources.graph(column), column.setting
                    )
                    for column in described
                }
                built.append(build_statistics_table(experiment, numbers))
            elif records:
                left_out = self.left_out.get(experiment.name, ())
                built.append(build_table(experiment, records, left_out=left_out))
        return built

    def _list_records(self, experiment: spec.Experiment) -> list[dict[str, Any]]:
        """Return the records of an experiment, of this call and of earlier ones with any options."""
        seeds = [r["seed"] for r in self.records.all if r["experiment"] == experiment.name]
        options = replace(self.options, modes=spec.DP_MODES, only=(), seeds=max(seeds, default=0) + 1)
        records = [self.records.find(**planned.labels) for planned in self._plan_runs(experiment, options)]
        return [record for record in records if record is not None]

    def _check_patterns(self) -> None:
        """Raise InputError for a pattern that matches no cell of any experiment."""
        columns = dict.fromkeys(column.name for e in self.experiments for column in e.columns)
        rows = [row for experiment in self.experiments for row in experiment.rows if not row.minus]
        for pattern in self.options.only:
            if not any(jobs.matches(column, row, (pattern,)) for column in columns for row in (None, *rows)):
                choices = f"datasets are {', '.join(columns)}"
                choices += f"; models are {', '.join(dict.fromkeys(row.row for row in rows))}" if rows else ""
                raise InputError(f"--only {pattern}: no cell has this name; {choices}")

    def _plan_runs(
        self, experiment: spec.Experiment, options: Options, skip: Say | None = None
    ) -> list[PlannedRun]:
        """Return the runs of an experiment with these options."""
        planned = []
        for job in jobs.list_jobs(
            experiment, modes=options.modes, seeds=options.seeds, only=options.only, quick=options.quick
        ):
            source = self._find_source(job.column, skip)
            if source is None:
                continue
            arguments = jobs.train_arguments(job, quick=options.quick)
            reading = job.reading(source.reading)
            labels = {
                "experiment": experiment.name,
                "column": job.column.name,
                "data": source.name,
                "row": job.row.row,
                "mode": job.mode,
                "axes": {n: v if n == "epsilon" else int(v) for n, v in job.axes},
                "seed": job.seed,
                "run": jobs.run_digest(arguments, data=source.name, reading=reading, seed=job.seed),
            }
            planned.append(PlannedRun(job=job, arguments=arguments, labels=labels))
        return planned

    def _find_source(self, column: spec.Column, skip: Say | None = None) -> Source | None:
        """Return the data of a column; without any, tell `skip` and return None."""
        try:
            return self.sources.source(column)
        except MissingDataError as error:
            if skip is not None:
                skip(f"{column.name}: skipped, {error}")
            return None

    def _skip(self, line: str) -> None:
        if line not in self.skipped:
            self.skipped.append(line)

    def _train(self, planned: PlannedRun, observe: Observe) -> dict[str, Any]:
        from hushgraph.training.train import train

        job = planned.job
        graph = self.sources.graph(job.column, job.seed)
        graph, arrivals = take_out_test_nodes(graph) if job.row.new_nodes else (graph, None)
        arguments = jobs.fit_to_data(planned.arguments, len(graph.train_idx))
        run = train(
            graph,
            **arguments,
            seed=job.seed if job.experiment.has_fixed_seeds else None,
            # The graphs are public, and what is compared is accuracy itself.
            exact_figures=True,
            device=self.options.device,
            observer=lambda done, total, epsilon, accuracy: observe(done, total),
        )
        # A quick run does not spend the budget: claim what the paper's accountant gives for its few steps.
        is_short = self.options.quick and job.mode == "as-published"
        record = planned.labels | {"claimed_epsilon": run.plan.epsilon if is_short else job.epsilon}
        record |= _build_record(run, planned, graph)
        if arrivals is not None:
            record["test_accuracy"] = measure_new_nodes(run, arrivals)
        if job.row.clear is not None:
            record["test_accuracy_in_the_clear"] = measure_in_the_clear(run, graph)
        return record


def _build_record(run: Run, planned: PlannedRun, graph: Graph) -> dict[str, Any]:
    from hushgraph.gradients.clip import group_of
    from hushgraph.runs.versions import versions

    proven = find_proven_epsilon(run.plan, len({group_of(name) for name, _ in run.model.named_parameters()}))
    figures = run.result.get("exact_figures", run.result)
    record = {
        "test_accuracy": figures["test_accuracy"],
        "val_accuracy": figures["val_accuracy"],
        "epsilon_holds": proven.holds,
        "epsilon_if_thresholds_were_public": proven.if_public,
        "holds_reason": proven.reason,
        "guarantee": run.result["guarantee"],
        "assumptions": run.result["assumptions"],
        "predictions": run.result["predictions"],
        "asked": planned.arguments,
        "train_nodes": len(graph.train_idx),
        "delta": run.plan.delta if run.plan.is_private else None,
        "plan": json.loads(run.plan.to_json()),
        "config": json.loads(run.config.to_json()),
        "ledger_digest": hashlib.sha256(run.folder.ledger_path.read_bytes()).hexdigest(),
        "seconds": run.result["seconds"],
        "device": run.result["device"],
        "versions": dict(versions()),
        "commit": find_commit(),
    }
    if planned.job.experiment.kind == "classes":
        evaluation = run.evaluate(graph)
        if isinstance(evaluation, ClassEvaluation):
            counts = evaluation.class_counts.tolist()
            pairs = zip(evaluation.class_accuracy.tolist(), counts, strict=True)
            accuracy = [None if count == 0 else float(value) for value, count in pairs]
            record["per_class"] = {"count": counts, "accuracy": accuracy}
    return record


def _measure_graph(graph: Graph, setting: str | None) -> dict[str, float]:
    """Return the numbers of the paper's table of datasets."""
    reads = graph.disjoint().num_edges if setting == "inductive" else graph.num_edges
    parts = {"Train": graph.train_idx, "Val": graph.val_idx, "Test": graph.test_idx}
    return {
        "Nodes": graph.num_nodes,
        "Avg. Degree": reads / graph.num_nodes,
        "Features": graph.num_features,
        "Classes": graph.num_classes,
        **{name: len(nodes) / graph.num_nodes for name, nodes in parts.items()},
    }


def find_commit() -> str | None:
    """Return the commit of the running source tree, or HUSHGRAPH_COMMIT for a copy without history."""
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
