"""`train`: from data and an epsilon to a run."""

from __future__ import annotations

import contextlib
import os
import shutil
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from hushgraph.datasets.engine import use_engine
from hushgraph.errors import RunError
from hushgraph.models.device import choose_device
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.runs.folder import RunFolder, check_out, name_data
from hushgraph.settings import OptimizerFactory, RunSettings, Settings, complete, with_settings
from hushgraph.training.cautions import list_notes, list_warnings
from hushgraph.training.distributed import current_group
from hushgraph.training.memory import Memory
from hushgraph.training.parts import Parts
from hushgraph.training.prepare import check_model, prepare
from hushgraph.training.publish import publish_run
from hushgraph.training.run import Run
from hushgraph.training.running import run_session, temporary_folder
from hushgraph.training.session import Learner, OnStart
from hushgraph.training.trainer import Observer

__all__ = ["Run", "resume", "train"]


OnNotes = Callable[[Sequence[str]], None]
"""Called with what only the owner of the data may know, a line each."""


@with_settings(RunSettings)
def train(
    data: Any,
    *,
    observer: Observer | None = None,
    on_start: OnStart | None = None,
    on_notes: OnNotes | None = None,
    **settings: Unpack[RunSettings],
) -> Run:
    """Train a graph neural network with node-level differential privacy.

    What is left out is chosen by `hushgraph.privacy.defaults`, which reads no private data. In a process
    group of `torch.distributed`, all its processes train one model together and must all make this call; the
    first keeps the ledger and writes the run, and only there are `observer` and `on_start` called.

    Args:
        data: a PyG `Data`, a `Graph`, a NetworkX graph, a path, a pair of paths or of DataFrames (nodes,
            edges), or a catalog name.
        observer: called after every step with steps done, steps in all, epsilon so far and an accuracy, which
            is None unless the run is not private or `exact_figures` is given; never told about anything else
            that is private and not paid for. `docs/serving.md` has examples for MLflow and others.
        on_start: given the folder of the run once everything is checked, before the first step.
        on_notes: given what the owner of the data alone may know: how many cells were filled and edges
            dropped, and whether edges look directed. Nothing else is told or writes it.
        settings: listed below; those of tables may also be given together, as `columns`. A model of your own
            is a module called as module(x, blocks) with features [lines, d] of the deepest level and
            `num_layers` blocks (`hushgraph.models.blocks.Reads`), roots first; it gives scores
            [roots, classes]. `docs/own-model.md` has an example.

    Returns:
        The finished run; `run.result["warnings"]` lists what is unusual about it.

    Raises:
        InputError: before anything is written, where something given cannot be used. `GraphError`,
            `PlanError`, `ModelError` and `RunError` are kinds of it.
        BudgetExceededError: where `epsilon` at the noise given pays for no step, or where `budget` does
            not allow the run; nothing was written.

    Guarantees:
        The weights are (`run.epsilon`, `run.delta`)-differentially private for every single node, and
        `run.epsilon` is at most `epsilon`, where `run.result["guarantee"]` is "holds", on the assumptions
        that `run.result["assumptions"]` lists.
        So are the figures where `run.result["figures"]` is "covered", for every row of the validation and
        test splits: they are computed from noisy counts.
        Nothing else that training reads off private data is printed, written or told to `observer`, except
        what the guarantee does not cover: exact figures where no bound holds or `exact_figures` asks for
        them, the accuracy on the training split where `train_accuracy` does, and how long training took.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu")
        >>> run.epsilon <= 4.0, run.result["guarantee"]
        (True, 'holds')
    """
    group, parts = current_group(), Parts()
    with contextlib.ExitStack() as stack:
        with group.share_errors():
            full = complete(settings, kind=RunSettings)
            device, out, progress = full["device"], full["out"], full["progress"]
            model, optimizer = full["model"], full["optimizer"]
            choose_device(device)
            if out is not None and group.leads:
                check_out(out)
        path = stack.enter_context(temporary_folder(group)) if out is None else Path(out)
        with group.share_errors():
            own_engine: dict[str, Any] = {"memory": full["memory"], "beside": None if out is None else path}
            if on_notes is not None and group.leads:
                own_engine["tell"] = lambda text: on_notes([text])
            is_on_disk = stack.enter_context(use_engine(full["engine"], data, **own_engine))
            opened, entry = _open_budget(full["budget"])
            graph, plan, config = prepare(data, **{name: full[name] for name in Settings.__annotations__})
            folder = RunFolder.describe(path, graph, plan, config, data=name_data(data))
            folder = replace(folder, warnings=tuple(list_warnings(graph, plan, budget=opened)))
            if opened is not None:
                folder = replace(folder, budget=entry or BudgetEntry.of(opened, plan))
            if on_notes is not None and group.leads:
                own = {name: full[name] for name in ("symmetrize", "directed")}
                on_notes(list_notes(graph, numbers=config.numbers, **own))
            own_device = group.assign_device(_choose_device(device, is_on_disk=is_on_disk))
            source = Memory(folder, graph, device=own_device, parts=parts)
            learner = Learner.build(
                folder,
                source,
                group=group,
                resumed=False,
                model=model if isinstance(model, nn.Module) else None,
                optimizer=None if isinstance(optimizer, str) else optimizer,
                parts=parts,
            )
        hooks: dict[str, Any] = {"progress": progress, "observer": observer, "on_start": on_start}
        run = run_session(folder, source, learner, folder.start, group=group, parts=parts, **hooks)
    if out is None and group.leads:
        run.is_temporary = True
        weakref.finalize(run, shutil.rmtree, path, ignore_errors=True)
    return run


def _open_budget(
    budget: str | os.PathLike[str] | DataBudget | BudgetEntry | None,
) -> tuple[DataBudget | None, BudgetEntry | None]:
    """The budget as it is without this run, and the entry of the run where it has one."""
    if isinstance(budget, BudgetEntry):
        return budget.open_others(), budget
    return DataBudget.open(budget) if isinstance(budget, (str, os.PathLike)) else budget, None


def resume(
    path: str | os.PathLike[str],
    data: Any,
    *,
    model: nn.Module | None = None,
    optimizer: OptimizerFactory | None = None,
    device: str = "auto",
    progress: bool | None = None,
    observer: Observer | None = None,
    on_start: OnStart | None = None,
    charge_again: bool = False,
    engine: str = "memory",
    memory: str | None = None,
) -> Run:
    """Go on with an interrupted run: what its ledger shows as paid stays paid, and noise is drawn anew.

    The folder may have been moved. Where the run is charged to a budget, a copy of its folder is refused once
    another one went on.

    Args:
        path: the run's folder.
        data: the same data as before; it is read in the same way. Other counts of nodes or features, or other
            training nodes, are refused, also where the run was finished before; values and edges are not
            compared.
        model, optimizer: the module and the function, where they were the caller's.
        device, progress, observer, on_start: as in `train`.
        charge_again: charge this folder to the budget as a run of its own, with the price of the first: for a
            copy. It is a new charge each time that it is given.
        engine, memory: as in `train`; they need not be those that the run began with.

    Returns:
        The finished run; at once where it was finished before.

    Guarantees:
        The whole run, both parts of it, stays within the budget that it began with. No noise is used twice,
        except that of the boards of a seeded run, for which nothing is guaranteed. No board is made twice.
        A charge to the budget of the data pays for one run, however often its folder is copied or put back as
        it was earlier, unless the budget is put back with it.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu", out="some-run")
        >>> hg.resume("some-run", data).epsilon == run.epsilon
        True
    """
    group, parts = current_group(), Parts()
    with group.share_errors():
        if model is not None:
            check_model(model, names=())
        folder = RunFolder.open(path)
        if folder.is_release:
            raise RunError(
                f"run={path}: it holds what was published of a run, which cannot be resumed; give the folder "
                "of the run, or read this one with predict or report"
            )
    with contextlib.ExitStack() as stack:
        with group.share_errors():
            own_engine = use_engine(engine, data, memory=memory, beside=folder.path)
            is_on_disk = stack.enter_context(own_engine)
        if group.broadcast(lambda: folder.is_finished):
            with group.share_errors():
                # A request about other data must not be answered with this run.
                folder.read_graph(data)
            # A kill may have come before the release was made.
            if folder.guarantee.kind == "holds":
                group.broadcast(lambda: str(publish_run(folder)))
            return Run.load(path, model=model, device=device)
        with group.share_errors():
            device_of_group = group.assign_device(_choose_device(device, is_on_disk=is_on_disk))
            source = Memory(folder, folder.read_raw_graph(data), device=device_of_group, parts=parts)
            own: dict[str, Any] = {"model": model, "optimizer": optimizer, "parts": parts}
            learner = Learner.build(folder, source, group=group, resumed=True, **own)
        open_ledger = partial(folder.go_on, charge_again=charge_again, check=source.check)
        hooks: dict[str, Any] = {"progress": progress, "observer": observer, "on_start": on_start}
        return run_session(folder, source, learner, open_ledger, group=group, parts=parts, **hooks)


def _choose_device(device: str, *, is_on_disk: bool) -> torch.device:
    """The device to train on; what is larger than memory is not moved to a GPU unless that is asked for."""
    return choose_device("cpu" if is_on_disk and device == "auto" else device)
