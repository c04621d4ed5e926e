"""Training five models on one split, charged together, and going on where that was interrupted."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hushgraph._files import write_whole
from hushgraph.comparison.result import BILLBOARD, FOLDERS, NAMES, TREES, Comparison, Entry, Total
from hushgraph.errors import InputError, PlanError, RunError, explain
from hushgraph.figures.names import KEYS
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.privacy.guarantee import Guarantee
from hushgraph.privacy.run_charge import RunCharge, compose_charges, describe_composition
from hushgraph.settings import ENGINE, TABLE, RunSettings, check_names, with_settings

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.runs.folder import RunFolder
    from hushgraph.training.prepare import Prepared
    from hushgraph.training.run import Run
    from hushgraph.training.session import OnStart
    from hushgraph.training.trainer import Observer

SETTINGS = "settings.json"
DEMO_MARK = ".hushgraph-demo"
"""A file in the folder of a demo, which the next demo may replace."""
_BY_PLAN = {
    ("trees", False): "GNN",
    ("rows", False): "MLP",
    ("billboard", True): BILLBOARD,
    ("trees", True): TREES,
    ("rows", True): "DP-MLP",
}
# What each is besides the settings that they share.
_OWN: Mapping[str, dict[str, Any]] = {
    "GNN": {"private": False},
    "MLP": {"private": False, "model": "mlp"},
    BILLBOARD: {"method": "billboard"},
    TREES: {},
    "DP-MLP": {"model": "mlp"},
}
# Private runs first: theirs are the plans that can be refused.
_ORDER = (BILLBOARD, TREES, "DP-MLP", "GNN", "MLP")
_MODELS = ("gcn", "gin", "gat")
# Bounds that training without privacy has no use for: it reads as much as its own defaults let it.
_PRIVATE_ONLY = {"epsilon", "max_readers", "max_reads", "sampler", "accountant", "noise", "clipping", "clip"}
# How the data is read, which is done once.
_READING = {"edge_weight", "symmetrize", "split", "split_seed", "num_classes", "columns"}
_READING |= {name for name, entry in TABLE.items() if entry.column is not None}
_OURS = ("private", "sigma_over_clip", "paper_noise_multiplier", "method", "setting", *ENGINE)
# In the settings of a comparison: where each of its private runs is charged.
_ENTRIES = "entries"


@with_settings(RunSettings, without=(*_OURS, "progress"))
def compare(
    data: Any,
    *,
    name: str | None = None,
    observer: Observer | None = None,
    on_start: OnStart | None = None,
    **settings: Unpack[RunSettings],
) -> Comparison:
    """Train five models on the same data and split: two without privacy, three at one epsilon.

    GNN and MLP are trained without privacy, DP-Billboard by the billboard, DP-GNN on trees, and DP-MLP reads
    no edges.

    Args:
        data: as in `train`.
        name: what to call the data; as it was given unless said otherwise.
        observer, on_start: as in `train`, for each run.
        settings: listed below, for all runs; `epsilon`, which must be given, is that of each private run, and
            `model` is "gcn", "gin" or "gat". Those that bound what a private run may read are not for the
            runs without privacy, those of trees not for the billboard. `out` gets a folder for each run:
            `gnn`, `mlp`, `dp-billboard`, `dp-gnn` and `dp-mlp`; the same call goes on with what it finds
            there after an interruption. All private runs are charged to `budget` together before the first
            begins.

    Returns:
        Entries with what the task is judged by on the validation and test splits, and the runs.

    Guarantees:
        Each private run spends at most `epsilon`, and `cost` says what publishing all of them costs. What is
        refused is refused before anything is written. A comparison that goes on is not charged again.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> comparison = hg.compare(data, epsilon=2.0, steps=3, hidden=8, device="cpu")
        >>> [entry.name for entry in comparison.entries]
        ['GNN', 'MLP', 'DP-Billboard', 'DP-GNN (trees)', 'DP-MLP']
    """
    for ours in _OURS:
        if ours in settings:
            raise InputError(f"{ours}: compare sets it for each of its runs; leave it out")
    check_names(settings, TABLE, who="compare")
    given: dict[str, Any] = {"epsilon": None, "model": "gcn", "num_layers": 1, **settings}
    if given["model"] not in _MODELS:
        raise InputError(
            f"model={given['model']!r}: expected one of {', '.join(_MODELS)}, to be compared with an MLP"
        )
    out, budget, device = given.pop("out", None), given.pop("budget", None), given.pop("device", "auto")
    seed = given.get("seed")
    from hushgraph.models.device import choose_device
    from hushgraph.runs.folder import check_out
    from hushgraph.training.train import resume, train

    where = None if out is None else Path(out)
    opened: DataBudget | None = DataBudget.open(budget) if isinstance(budget, (str, os.PathLike)) else budget
    charged_to = None if opened is None else os.path.abspath(opened.path)
    described = _describe_settings({"data": data, "budget": charged_to, **given})
    known = None if where is None else _read_begun(where, described)
    if where is not None and known is None:
        check_out(where, besides={DEMO_MARK})
    each = {which: _arguments_of(which, given) for which in _ORDER}
    prepared = _prepare_all(data, each)
    choose_device(device)
    folders = {which: None if where is None else where / FOLDERS[which] for which in each}
    for folder in folders.values():
        if folder is not None and not folder.exists():
            check_out(folder)
    entries: dict[str, BudgetEntry] = {}
    if opened is not None:
        entries = _charge_all(opened, prepared, folders, where, described, known)

    def begin(folder: RunFolder) -> None:
        # Not before everything is checked: a comparison that is refused leaves no folder behind.
        if where is not None and not (where / SETTINGS).exists():
            _write_settings(where, described)
        if on_start is not None:
            on_start(folder)

    watching: dict[str, Any] = {"device": device, "observer": observer, "on_start": begin}
    runs: dict[str, Run] = {}
    for which, arguments in each.items():
        folder = folders[which]
        if known is not None and folder is not None and folder.exists():
            runs[which] = resume(folder, data, **watching)
        else:
            runs[which] = train(data, out=folder, budget=entries.get(which), **watching, **arguments)
    ordered = {which: runs[which] for which in NAMES}
    return Comparison(
        data=runs["GNN"].folder.data if name is None else name,
        seeded=seed is not None,
        entries=tuple(_describe_run(which, run) for which, run in ordered.items()),
        total=_add_up(ordered.values()),
        assumptions=runs[BILLBOARD].folder.assumptions,
        notices=tuple(_judge_graph(runs[BILLBOARD], runs["DP-MLP"])),
        runs=ordered,
    )


def _judge_graph(reads_graph: Run, reads_rows: Run) -> list[str]:
    """Whether the graph helps, where both runs have covered figures."""
    from hushgraph.training.cautions import list_comparison_notices

    tables = {BILLBOARD: reads_graph.figures, "DP-MLP": reads_rows.figures}
    figure = reads_graph.folder.task.judged_by
    return list_comparison_notices(tables, figure=figure) if all(tables.values()) else []


def name_run(folder: RunFolder) -> str:
    """Which run of a comparison a run is, by what it trains."""
    return _BY_PLAN[folder.plan.method, folder.plan.is_private]


def _arguments_of(which: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `train` for one of the runs."""
    own = _OWN[which]
    left_out: set[str] = set() if own.get("private", True) else _PRIVATE_ONLY
    if "method" in own:
        left_out = {name for name, entry in TABLE.items() if entry.trees}
    return {key: value for key, value in given.items() if key not in left_out} | own


def _prepare_all(data: Any, each: Mapping[str, Mapping[str, Any]]) -> dict[str, Prepared]:
    """Read the data once and refuse what any of the runs would refuse; all of them have one graph."""
    from hushgraph.training.prepare import prepare

    (first, given), *rest = each.items()
    prepared = {first: prepare(data, **given)}
    graph = prepared[first].graph
    _check_trees(graph)
    for which, arguments in rest:
        own = {key: value for key, value in arguments.items() if key not in _READING}
        prepared[which] = prepare(graph, **own)._replace(graph=graph)
    return prepared


def _check_trees(graph: Graph) -> None:
    """Refuse what models on trees cannot read; another method, which they advise, is no choice here."""
    cannot = {
        "person": graph.persons is not None,
        "places": any(each.info.num_places is not None for each in graph.relations),
    }
    for name in (name for name, is_given in cannot.items() if is_given):
        raise PlanError(
            f"{name}: two of the five models are on trees, which cannot read that; leave it out, or run "
            "hushgraph train with and without --model mlp"
        )


def _charge_all(
    budget: DataBudget,
    prepared: Mapping[str, Prepared],
    folders: Mapping[str, Path | None],
    where: Path | None,
    settings: Mapping[str, str],
    known: Mapping[str, Any] | None,
) -> dict[str, BudgetEntry]:
    """Charge all private runs together, unless they were charged before; return where each is charged."""
    budget = replace(budget, command="compare")
    private = {which: each for which, each in prepared.items() if each.plan.is_private}
    if known is None:
        entries = {which: BudgetEntry.of(budget, each.plan) for which, each in private.items()}
    else:
        entries = _parse_entries(known, where)
    charges = [
        entries[which].price(
            each.plan,
            Guarantee.of(each.plan, seed_is_fixed=each.config.seed is not None),
            data=settings["data"],
            folder=str(folders[which] or ""),
        )
        for which, each in private.items()
    ]
    new = where if known is None else None
    is_folder = new is not None and new.exists()
    try:
        with budget.charging(*charges):
            # Before the charge, so that a comparison that is killed here finds its entries again.
            if new is not None:
                _write_settings(new, settings, entries)
    except RunError:
        if new is not None and not budget.may_hold(budget.path, *(charge.run for charge in charges)):
            with contextlib.suppress(OSError):
                (new / SETTINGS).unlink(missing_ok=True)
                if not is_folder:
                    new.rmdir()
        raise
    return entries


def _add_up(runs: Iterable[Run]) -> Total:
    """What all private runs cost together, at the largest of their deltas."""
    charges = [
        RunCharge.of_plan(
            run.plan, run.folder.guarantee, run=str(run.folder.path), command="compare", data=""
        )
        for run in runs
        if run.plan.is_private
    ]
    delta = max(charge.delta for charge in charges)
    epsilon = compose_charges(charges, delta)
    return Total(epsilon, delta if math.isfinite(epsilon) else 1.0, describe_composition(charges))


def _describe_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that two calls must share to be one comparison."""
    named = {key: value for key, value in settings.items() if value is not None}
    if isinstance(settings["data"], os.PathLike):
        named["data"] = os.fspath(settings["data"])
    elif not isinstance(settings["data"], (str, tuple)):
        # An object has no name; a run that goes on compares its counts and its training nodes.
        named["data"] = type(settings["data"]).__name__
    return {key: value if isinstance(value, str) else repr(value) for key, value in named.items()}


def _write_settings(
    out: Path, settings: Mapping[str, str], entries: Mapping[str, BudgetEntry] | None = None
) -> None:
    """Note what the comparison in this folder is, and where its runs are charged."""
    about: dict[str, Any] = dict(settings)
    if entries:
        about[_ENTRIES] = {which: asdict(entry) for which, entry in entries.items()}
    with explain(RunError, f"out={out}: cannot be created", "choose another folder"):
        out.mkdir(parents=True, exist_ok=True)
    write_whole(out / SETTINGS, json.dumps(about, indent=2, sort_keys=True).encode())


def _parse_entries(known: Mapping[str, Any], out: Path | None) -> dict[str, BudgetEntry]:
    """Where the runs of a comparison are charged, by its settings."""
    try:
        entries = {which: BudgetEntry.from_json(fields) for which, fields in known[_ENTRIES].items()}
        return {which: entry for which, entry in entries.items() if entry is not None}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RunError(f"out={out}: {SETTINGS} is damaged; restore it, or choose another folder") from None


def _read_begun(out: Path, settings: Mapping[str, str]) -> dict[str, Any] | None:
    """What the comparison in this folder is, if there is one; RunError where it has other settings."""
    file = out / SETTINGS
    try:
        known = json.loads(file.read_text())
        if not isinstance(known, dict):
            raise ValueError("no object")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file}: cannot be read ({error}); restore it or choose another folder") from None
    # What was left out and what was given as its default are the same.
    usual = _describe_settings({name: entry.default for name, entry in TABLE.items()} | {"data": ""})
    for key in sorted({*known, *settings} - {_ENTRIES}):
        before, now = known.get(key, usual.get(key)), settings.get(key, usual.get(key))
        if before != now:
            raise RunError(
                f"out={out}: its comparison has {key}={before}, and {key}={now} is "
                "asked for; ask for the same to go on, or choose another folder"
            )
    return known


def _describe_run(name: str, run: Run) -> Entry:
    judged_by = run.folder.task.judged_by
    figure = KEYS.get(judged_by, judged_by)
    return Entry(
        name=name,
        model=run.config.model,
        method=run.plan.method,
        private=run.plan.is_private,
        predictions=run.result["predictions"],
        epsilon=run.epsilon,
        delta=run.delta,
        guarantee=run.result["guarantee"],
        validation=run.result.get(f"val_{figure}"),
        test=run.result.get(f"test_{figure}"),
        macro_f1=run.result.get("test_macro_f1"),
        seconds=run.result["seconds"],
        plan=run.plan.fingerprint(),
        figures=run.result["figures"],
        figure=figure,
    )
