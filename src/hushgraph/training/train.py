"""`train`: from data and an epsilon to a run."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from hushgraph.errors import RunError
from hushgraph.graph.columns import Columns
from hushgraph.models.device import choose_device
from hushgraph.privacy import choices
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import ENGINE_FILE, RunFolder, check_out, name_data
from hushgraph.training.boards import check_released
from hushgraph.training.cautions import list_notes, list_warnings
from hushgraph.training.distributed import Group, current_group
from hushgraph.training.prepare import OptimizerFactory, check_model, prepare
from hushgraph.training.progress import choose_bar, watch_steps
from hushgraph.training.run import Run
from hushgraph.training.session import OnStart, Session
from hushgraph.training.trainer import Observer, delay_interrupts

__all__ = ["Run", "resume", "train"]

_Value = TypeVar("_Value")
# Arguments of `train` that `prepare` has no use for.
_NOT_SETTINGS = {"data", "budget", "device", "out", "progress", "observer", "on_start", "on_notes", "others"}

OnNotes = Callable[[Sequence[str]], None]
"""Called with what only the owner of the data may know, a line each."""


def train(
    data: Any,
    *,
    method: choices.Method | None = None,
    model: choices.Model | nn.Module | None = None,
    num_layers: int | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    private: bool = True,
    delta: float | None = None,
    max_readers: int | None = None,
    max_reads: int | None = None,
    edge_owner: choices.EdgeOwner = "sender",
    directed: bool = False,
    batch_size: int | None = None,
    steps: int | None = None,
    sampler: choices.Sampler = "stable",
    accountant: choices.Accountant = "pair",
    clipping: choices.Clipping = "normalised",
    noise: choices.Noise = "common",
    clip: float = 1.0,
    optimizer: choices.Optimizer | OptimizerFactory = "adam",
    learning_rate: float | None = None,
    hidden: int | None = None,
    setting: choices.Setting = "transductive",
    symmetrize: bool = False,
    split: str | None = None,
    split_seed: int = 0,
    num_classes: int | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    seed: int | None = None,
    device: choices.Device = "auto",
    out: str | os.PathLike[str] | None = None,
    budget: str | os.PathLike[str] | DataBudget | BudgetEntry | None = None,
    progress: bool | None = None,
    observer: Observer | None = None,
    on_start: OnStart | None = None,
    on_notes: OnNotes | None = None,
    **others: Any,
) -> Run:
    """Train a graph neural network with node-level differential privacy.

    What is left out is chosen by `hushgraph.privacy.defaults`, which reads no private data. In a process
    group of `torch.distributed`, all its processes train one model together and must all make this call; the
    first keeps the ledger and writes the run, and only there are `observer` and `on_start` called.

    Args:
        data: a PyG `Data`, a `Graph`, a NetworkX graph, a path, a pair of paths or of DataFrames (nodes,
            edges), or a catalog name.
        method: "billboard" pays for the graph once and covers predictions too; "trees" is the paper's. The
            billboard unless an argument is given that only trees have, such as a model by name.
        model: "gcn", "gin", "gat", "mlp", or an instance of a module of your own, called as
            module(x, blocks) with features [rows, d] of the deepest level and `num_layers` blocks
            (`hushgraph.models.blocks.Reads`), roots first; it gives scores [roots, classes]. Its parameters
            are in Linear, LayerNorm, Embedding or Scale layers. `docs/own-model.md` has an example.
        num_layers: r, rounds of message passing.
        epsilon: the budget. With `noise_multiplier` too, as many steps are taken as it pays for.
        noise_multiplier: lambda = sigma / (2 C n).
        private: False trains without clipping and noise; epsilon is then infinite.
        delta: 1 / (10 N) unless given.
        max_readers, max_reads: K and D.
        edge_owner: whose row holds an edge record: "sender", whom it names first, or "reader". It is never
            looked up in the data.
        directed: whether an edge is one record; otherwise it is two, and `epsilon_edge` prices both.
        batch_size, steps, learning_rate, hidden: as the names say.
        sampler, accountant, clipping, noise, clip: see `PrivacyPlan`.
        optimizer: "adam", "sgd", or a function from parameters to a `torch.optim.Optimizer`.
        setting: "inductive" drops the edges between splits.
        symmetrize, split, split_seed, num_classes: how to read `data`. Where it has no split of its own,
            one of 0.6/0.2/0.2 is drawn from the node ids alone. Where it does not declare its classes, give
            `num_classes`: otherwise they are taken from the labels, and the guarantee says that it assumes
            them to be public.
        columns: what the columns of tables mean.
        seed: makes the run reproducible and therefore not private; drawn from the operating system unless
            given.
        device: "auto", "cpu" or "cuda".
        out: folder of the run; a temporary one unless given, which `Run.save` copies.
        budget: the budget of the data, which the whole planned cost of the run is charged to before it
            begins: a file that `hushgraph budget` or `DataBudget.create` wrote. An entry in it names a run
            that was charged before, as `compare` charges all of its runs.
        progress: False shows no bar, True always does. By default there is one in terminals and notebooks,
            unless there is an `observer`. It shows steps and epsilon.
        observer: told about progress; never about anything that is private and not paid for.
        on_start: given the folder of the run once everything is checked, before the first step.
        on_notes: given what the owner of the data alone may know: how many cells were filled and edges
            dropped, and whether edges look directed. Nothing else is told or writes it.
        others: fields of `TrainingConfig` and, for tables, of `Columns`; `split_column` names its `split`.

    Returns:
        The finished run; `run.result["warnings"]` lists what is unusual about it.

    Raises:
        InputError: before anything is written, where something given cannot be used. `GraphError`,
            `PlanError`, `ModelError` and `RunError` are kinds of it.
        BudgetExceededError: where `epsilon` at `noise_multiplier` pays for no step, or where `budget` does
            not allow the run; nothing was written.

    Guarantees:
        The weights are (`run.epsilon`, `run.delta`)-differentially private for every single node, and
        `run.epsilon` is at most `epsilon`, where `run.result["guarantee"]` is "holds", on the assumptions
        that `run.result["assumptions"]` lists.
        Nothing else that training reads off private data is printed, written or told to `observer`, except
        what the guarantee does not cover: accuracies on the validation and test splits, and on the training
        split where `train_accuracy` asks for it, and how long training took.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu")
        >>> run.epsilon <= 4.0, run.result["guarantee"]
        (True, 'holds')
    """
    settings = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
    group = current_group()
    with group.share_errors():
        choose_device(device)
        if out is not None and group.leads:
            check_out(out)
        opened, entry = _open_budget(budget)
        graph, plan, config = prepare(data, **settings, **others)
        folder = RunFolder.describe(out or "", graph, plan, config, data=name_data(data))
        folder = replace(folder, warnings=tuple(list_warnings(graph, plan, budget=opened)))
        if opened is not None:
            folder = replace(folder, budget=entry or BudgetEntry.of(opened, plan))
        if on_notes is not None and group.leads:
            on_notes(list_notes(graph, symmetrize=symmetrize, directed=directed))
        session = Session(
            folder,
            graph,
            model=model if isinstance(model, nn.Module) else None,
            optimizer=None if isinstance(optimizer, str) else optimizer,
            device=choose_device(device),
            resumed=False,
            group=group,
        )
    if group.size > 1:
        session.check_agreement()
    if out is not None:
        return _run(session, progress, observer, on_start)
    with _temporary_folder(group) as path:
        session.folder = replace(folder, path=path)
        run = _run(session, progress, observer, on_start)
    if group.leads:
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


def _in_leader(group: Group, make: Callable[[], _Value]) -> _Value:
    """Call `make` in the process that leads; every process of its group gets the value."""
    return make() if group.size == 1 else group.broadcast(make)


def _begin(session: Session, on_start: OnStart | None, *, charge_again: bool) -> None:
    """Open the ledger and charge the run to the budget of its data."""
    folder = session.folder
    with contextlib.ExitStack() as stack:
        if session.resumed:
            is_engine = (folder.path / ENGINE_FILE).exists()
            check = None if is_engine else partial(check_released, folder)
            ledger = folder.go_on(charge_again=charge_again, check=check)
        else:
            ledger = folder.start()
        session.ledger = stack.enter_context(ledger)
        if on_start is not None:
            on_start(folder)
        # From here on `_run` closes it.
        stack.pop_all()


def _run(
    session: Session,
    progress: bool | None,
    observer: Observer | None,
    on_start: OnStart | None,
    *,
    charge_again: bool = False,
) -> Run:
    """Take the steps under a bar; where they end early, say where the run is and how to go on."""
    _in_leader(session.group, partial(_begin, session, on_start, charge_again=charge_again))
    is_watched = session.group.leads and (progress or (progress is None and observer is None))
    make_bar = None
    try:
        # A caller with an observer may handle Ctrl-C; otherwise the steps that are charged are taken.
        if observer is not None and not is_watched:
            return session.run(observer)
        with delay_interrupts() as check:
            make_bar = choose_bar(progress) if is_watched else None
            own = (lambda *_: check()) if observer is None else observer
            with watch_steps(make_bar, own) as observe:
                return session.run(observe)
    except BaseException as error:
        if session.group.leads and _has_charges(session.folder.path):
            note = _describe_kept(session.folder)
            error.add_note(note)
            if make_bar is not None:
                print(note, file=sys.stderr)
        raise
    finally:
        if session.ledger is not None:
            session.ledger.close()


def _describe_kept(folder: RunFolder) -> str:
    done = folder.read_progress().step
    return (
        f"Stopped after step {done:,} of {folder.plan.steps:,}. The run and what it spent are kept in "
        f"{folder.path}; hushgraph.resume({str(folder.path)!r}, data) goes on."
    )


def _has_charges(path: Path) -> bool:
    """Whether the run in this folder has spent anything."""
    if not (path / "ledger.jsonl").exists():
        return False
    try:
        ledger = Ledger.open(path / "ledger.jsonl", read_only=True)
    except RunError:
        # What cannot be read may show charges.
        return True
    return ledger.steps_charged + ledger.releases_charged > 0


@contextlib.contextmanager
def _temporary_folder(group: Group) -> Iterator[Path]:
    """A folder of this group's own, which goes where training fails before anything was charged."""
    path = Path(_in_leader(group, partial(tempfile.mkdtemp, prefix="hushgraph-")))
    try:
        yield path
    except BaseException:
        if group.leads and not _has_charges(path):
            shutil.rmtree(path, ignore_errors=True)
        raise


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
    group = current_group()
    with group.share_errors():
        if model is not None:
            check_model(model, names=())
        folder = RunFolder.open(path)
    if group.broadcast(lambda: folder.is_finished):
        with group.share_errors():
            # A request about other data must not be answered with this run.
            folder.read_graph(data)
        return Run.load(path, model=model, device=device)
    with group.share_errors():
        session = Session(
            folder,
            folder.read_graph(data),
            model=model,
            optimizer=optimizer,
            device=choose_device(device),
            resumed=True,
            group=group,
        )
    if group.size > 1:
        session.check_agreement()
    return _run(session, progress, observer, on_start, charge_again=charge_again)
