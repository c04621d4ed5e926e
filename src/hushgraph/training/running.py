"""From a plan or a folder to a run: open the ledger, take the steps, say where a run is kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hushgraph.errors import RunError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.checkpoint import read_progress
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder
from hushgraph.training.distributed import Group
from hushgraph.training.interruption import delay_interrupts
from hushgraph.training.memory import Memory
from hushgraph.training.parts import Parts
from hushgraph.training.prepare import OptimizerFactory
from hushgraph.training.progress import choose_bar, watch_steps
from hushgraph.training.run import Run
from hushgraph.training.session import Learner, OnStart, Session, check_agreement
from hushgraph.training.source import Source
from hushgraph.training.trainer import Observer

OpenLedger = Callable[[], Ledger]
"""Charges a run to the budget of its data, if it has one, and opens its ledger."""
Begin = Callable[[RunFolder, Graph, Parts], tuple[Source, OpenLedger]]
"""From the folder of a new run to where its rows are, and what opens its ledger."""


def begin_in_memory(folder: RunFolder, graph: Graph, parts: Parts) -> tuple[Memory, OpenLedger]:
    """Rows in memory, and nothing released before the first board or step."""
    return Memory(folder, graph, device=torch.device("cpu"), parts=parts), folder.start


def run_plan(
    path: str | os.PathLike[str],
    graph: Graph,
    plan: PrivacyPlan,
    config: TrainingConfig,
    *,
    begin: Begin = begin_in_memory,
    data: str = "a graph in memory",
    optimizer: OptimizerFactory | None = None,
    parts: Parts | None = None,
) -> Run:
    """Train by a plan of the caller's, in one process on the CPU: for engines, mechanisms and audits.

    Args:
        path: the folder of the run, which is not there yet.
        graph, plan, config: as `hushgraph.prepare` gives them, or changed.
        begin: where rows are, and what is charged and released before the first board or step.
        data: what the data is called.
        optimizer: where it is the caller's.
        parts: the collaborators; an audit replaces some.
    """
    group, parts = Group(), parts or Parts()
    folder = RunFolder.describe(path, graph, plan, config, data=data)
    source, open_ledger = begin(folder, graph, parts)
    common: dict[str, Any] = {"group": group, "parts": parts}
    learner = Learner.build(folder, source, resumed=False, optimizer=optimizer, **common)
    return run_session(folder, source, learner, open_ledger, progress=False, **common)


def run_session(
    folder: RunFolder,
    source: Source,
    learner: Learner,
    open_ledger: OpenLedger,
    *,
    group: Group,
    parts: Parts,
    progress: bool | None = None,
    observer: Observer | None = None,
    on_start: OnStart | None = None,
) -> Run:
    """Begin or go on with a run, and take its steps; where they end early, say how to go on.

    Args:
        folder, source, learner: of the run; everything about them is checked.
        open_ledger: charges the run and opens its ledger.
        group, progress, observer, on_start: as in `hushgraph.train`.
        parts: the collaborators; an audit replaces some.
    """
    check_agreement(folder, source, group)
    with contextlib.ExitStack() as stack:
        ledger: Ledger | None = None

        def begin() -> None:
            nonlocal ledger
            ledger = stack.enter_context(open_ledger())
            if on_start is not None:
                on_start(folder)

        group.broadcast(begin)
        session = Session(
            folder=folder, source=source, learner=learner, ledger=ledger, group=group, parts=parts
        )
        is_watched = group.leads and (progress or (progress is None and observer is None))
        make_bar = choose_bar(progress) if is_watched else None
        try:
            # A caller with an observer may handle Ctrl-C; otherwise the steps that are charged are taken.
            if observer is not None and not is_watched:
                return session.run(observer)
            with delay_interrupts() as check:
                own = (lambda *_: check()) if observer is None else observer
                with watch_steps(make_bar, own) as observe:
                    return session.run(observe)
        except BaseException as error:
            if group.leads and _has_charges(folder.path):
                note = _describe_kept(folder, source.resume_call)
                error.add_note(note)
                if make_bar is not None:
                    print(note, file=sys.stderr)
            raise


def _describe_kept(folder: RunFolder, resume_call: str) -> str:
    done = read_progress(folder.checkpoint_path).step
    return (
        f"Stopped after step {done:,} of {folder.plan.steps:,}. The run and what it spent are kept in "
        f"{folder.path}; {resume_call} goes on."
    )


def _has_charges(path: Path) -> bool:
    """Whether the run in this folder has spent anything, or a budget was charged for it."""
    if not (path / "ledger.jsonl").exists():
        return False
    try:
        ledger, entry = Ledger.open(path / "ledger.jsonl", read_only=True), RunFolder.open(path).budget
    except RunError:
        # What cannot be read may show charges.
        return True
    has_spent = ledger.steps_charged + ledger.releases_charged > 0
    return has_spent or (entry is not None and DataBudget.may_hold(entry.file, entry.run))


@contextlib.contextmanager
def temporary_folder(group: Group) -> Iterator[Path]:
    """A folder of this group's own, which goes where training fails before anything was charged."""
    path = Path(group.broadcast(partial(tempfile.mkdtemp, prefix="hushgraph-")))
    try:
        yield path
    except BaseException:
        if group.leads and not _has_charges(path):
            shutil.rmtree(path, ignore_errors=True)
        raise
