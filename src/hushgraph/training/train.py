"""`train`: from data and an epsilon to a run."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from hushgraph.datasets.loading import load_for_training
from hushgraph.errors import InputError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.privacy.defaults import plain_defaults, private_defaults, reads_for
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.privacy.plan_fields import default_delta, plain
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder, split_id
from hushgraph.training import distributed
from hushgraph.training.agreement import check_agreement
from hushgraph.training.arguments import check_budget, check_model_given, check_names
from hushgraph.training.run import Run
from hushgraph.training.session import Observer, OptimizerFactory, Session

__all__ = ["Run", "resume", "train"]

# Beyond this the choice of defaults no longer depends on epsilon.
_LARGEST_EPSILON = 1e6


def train(
    data: Any,
    *,
    model: str | nn.Module = "gcn",
    num_layers: int = 1,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    private: bool = True,
    delta: float | None = None,
    max_readers: int | None = None,
    max_reads: int | None = None,
    edge_owner: str | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    sampler: str = "stable",
    accountant: str = "pair",
    clipping: str = "normalised",
    noise: str = "common",
    clip: float = 1.0,
    optimizer: str | OptimizerFactory = "adam",
    learning_rate: float | None = None,
    hidden: int | None = None,
    setting: str = "transductive",
    symmetrize: bool = False,
    split: str | None = None,
    split_seed: int = 0,
    num_classes: int | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    seed: int | None = None,
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
    on_start: Callable[[RunFolder], None] | None = None,
    **others: Any,
) -> Run:
    """Train a graph neural network with node-level differential privacy.

    What is left out is chosen by `hushgraph.privacy.defaults`, which reads no private data. In a process
    group of `torch.distributed`, all its processes train one model together and must all make this call; the
    first keeps the ledger and writes the run, and only there are `observer` and `on_start` called.

    Args:
        data: a PyG `Data`, a `Graph`, a NetworkX graph, a path, a pair of paths (nodes, edges) or a catalog
            name.
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
        edge_owner: "sender" or "reader"; by default the sender of an undirected
            graph, the reader of a directed one. Which it is is looked up and taken as public: one emptied
            row can make an undirected graph look directed, so give it where that matters.
        batch_size, steps, learning_rate, hidden: as the names say.
        sampler, accountant, clipping, noise, clip: see `PrivacyPlan`.
        optimizer: "adam", "sgd", or a function from parameters to a `torch.optim.Optimizer`.
        setting: "inductive" drops the edges between splits.
        symmetrize, split, split_seed, num_classes: how to read `data`. Where it has no split of its own,
            one of 0.6/0.2/0.2 is drawn from the node ids alone.
        columns: what the columns of tables mean.
        seed: makes the run reproducible and therefore not private; drawn from the operating system unless
            given.
        device: "auto", "cpu" or "cuda".
        out: folder of the run; a temporary one unless given.
        observer: told about progress; never about anything that is private and not paid for.
        on_start: given the folder of the run once everything is checked, before the first step.
        others: fields of `TrainingConfig`.

    Returns:
        The finished run.

    Raises:
        InputError: before anything is written, where something given cannot be used. `GraphError`,
            `PlanError`, `ModelError` and `RunError` are kinds of it.
        BudgetExceededError: where `epsilon` at `noise_multiplier` pays for no step.

    Guarantees:
        The weights are (`run.epsilon`, `run.delta`)-differentially private for every single node, and
        `run.epsilon` is at most `epsilon`, where `run.result["guarantee"]` is "holds".
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
    given = dict(locals())
    group = distributed.current()
    with group.agreeing():
        check_names(given.pop("others"), known=given)
        plain(given, train.__annotations__)
        check_model_given(model)
        check_budget(epsilon, noise_multiplier, private, delta, steps)
        graph, split = load_for_training(
            data,
            split=split,
            split_seed=split_seed,
            symmetrize=symmetrize,
            num_classes=num_classes,
            columns=columns,
        )
        how = {"symmetrize": symmetrize, "split": split, "split_seed": split_seed}
        if columns and (graph.columns is None or isinstance(data, Graph)):
            raise InputError(f"columns are for tables, and {_name_of(data)} is none; leave them out")
        if setting == "inductive":
            graph = graph.disjoint()
        owner = edge_owner or ("reader" if graph.is_directed else "sender")
        depth = 0 if model == "mlp" else num_layers
        slots = len(graph.train_idx)
        usual = (
            private_defaults(
                num_train_nodes=slots,
                # Without a target the rule needs some epsilon to start from; 8 is a common one.
                epsilon=8.0 if epsilon is None else min(epsilon, _LARGEST_EPSILON),
                delta=default_delta(slots) if delta is None else delta,
                num_layers=depth,
                num_classes=graph.num_classes,
                edge_owner=owner,
            )
            if private
            else plain_defaults(num_train_nodes=slots, num_classes=graph.num_classes)
        )
        config = TrainingConfig(
            model=model if isinstance(model, str) else "own",
            optimizer=optimizer if isinstance(optimizer, str) else "own",
            learning_rate=usual.learning_rate if learning_rate is None else learning_rate,
            hidden=usual.hidden if hidden is None else hidden,
            setting=setting,
            seed=seed,
            **how,  # type: ignore[arg-type]
            **{"feature_norm": usual.feature_norm, "momentum": usual.momentum, **others},
        )
        readers = usual.max_readers if max_readers is None else max_readers
        if max_reads is None and sampler != "paper":
            max_reads = usual.max_reads if max_readers is None else reads_for(readers, owner)
        plan = PrivacyPlan(
            num_train_nodes=slots,
            num_layers=depth,
            max_readers=readers,
            max_reads=max_reads,
            edge_owner=owner,
            batch_size=usual.batch_size if batch_size is None else batch_size,
            steps=usual.steps if steps is None else steps,
            clip=clip,
            noise_multiplier=noise_multiplier if private else 0.0,
            delta=delta,  # type: ignore[arg-type]
            sampler=sampler,
            accountant=accountant,
            clipping=clipping,
            noise=noise,
        )
        if private and epsilon is not None:
            plan = (
                plan.calibrated(epsilon=epsilon)
                if noise_multiplier is None
                else plan.with_steps_for(epsilon=epsilon)
            )
        folder = RunFolder(
            path=Path("" if out is None else out),
            plan=plan,
            config=config,
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            split_id=split_id(graph),
            data=_name_of(data),
            columns=graph.columns,
        )
    if out is None:
        made = group.decided(lambda: tempfile.mkdtemp(prefix="hushgraph-"))
        folder = replace(folder, path=Path(made))
    is_ours = out is None and group.leads
    try:
        with group.agreeing():
            session = Session(
                folder,
                graph,
                model=model if isinstance(model, nn.Module) else None,
                optimizer=None if isinstance(optimizer, str) else optimizer,
                device=device,
                resumed=False,
                group=group,
            )
        check_agreement(session)
        group.decided(folder.write)
        run = _lived(session, observer, on_start)
    except BaseException:
        if is_ours:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    if is_ours:
        weakref.finalize(run, shutil.rmtree, folder.path, ignore_errors=True)
    return run


def resume(
    path: str | os.PathLike[str],
    data: Any,
    *,
    model: nn.Module | None = None,
    optimizer: OptimizerFactory | None = None,
    device: str = "auto",
    observer: Observer | None = None,
    on_start: Callable[[RunFolder], None] | None = None,
) -> Run:
    """Go on with an interrupted run: what its ledger shows as paid stays paid, and noise is drawn anew.

    Args:
        path: the run's folder.
        data: the same data as before; it is read in the same way. Other counts of nodes or features, or other
            training nodes, are refused; values and edges are not compared.
        model, optimizer: the module and the function, where they were the caller's.
        device, observer, on_start: as in `train`.

    Returns:
        The finished run; at once where it was finished before.

    Guarantees:
        The whole run, both parts of it, stays within the budget that it began with. No noise is used twice.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu", out="some-run")
        >>> hg.resume("some-run", data).epsilon == run.epsilon
        True
    """
    group = distributed.current()
    with group.agreeing():
        if model is not None:
            check_model_given(model, names=())
        folder = RunFolder.open(path)
    if group.decided(lambda: folder.is_done):
        return Run.load(path, model=model, device=device)
    with group.agreeing():
        session = Session(
            folder,
            folder.read_graph(data),
            model=model,
            optimizer=optimizer,
            device=device,
            resumed=True,
            group=group,
        )
    check_agreement(session)
    return _lived(session, observer, on_start)


def _name_of(data: Any) -> str:
    """What to call the data: the path or name it was given by, of a pair the nodes; else its type."""
    named = data[0] if isinstance(data, (tuple, list)) and len(data) == 2 else data
    return os.fspath(named) if isinstance(named, (str, os.PathLike)) else type(data).__name__


def _lived(session: Session, observer: Observer | None, on_start: Callable[[RunFolder], None] | None) -> Run:
    folder, group = session.folder, session.group
    with contextlib.ExitStack() as stack:
        ledger: Ledger | None = None
        with group.agreeing():
            if group.leads:
                ledger = stack.enter_context(Ledger.open(folder.ledger_path, plan=folder.plan))
                folder.check_paid(ledger)
                if on_start is not None:
                    on_start(folder)
        result = session.finish(ledger, observer)
    metrics = group.decided(folder.metrics)
    return Run(session.model, folder.plan, folder.config, result, metrics, folder)
