"""`hushgraph plan`: the price of a run, with or without its data, and the table that shows it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph._text import digits_up, rounded_up
from hushgraph.cli import options, terminal
from hushgraph.cli.options import UNUSED, ConfigFile, PrintConfig, section
from hushgraph.errors import InputError, PlanError
from hushgraph.graph.columns import Columns
from hushgraph.privacy.changes import rows_emptied
from hushgraph.privacy.guarantee import Guarantee, describe_guarantee, find_assumptions, judge_size, name_kind
from hushgraph.privacy.plans import PrivacyPlan, json_number
from hushgraph.privacy.units import speak
from hushgraph.settings import TABLE, Settings, complete, list_settings

if TYPE_CHECKING:
    from rich.console import Console

    from hushgraph.privacy.budget import DataBudget
    from hushgraph.privacy.solve import Solved

EXAMPLES = """\
hushgraph plan demo --epsilon 4 --budget people.ledger
hushgraph plan --train-nodes 90941 --batch-size 10000 --max-readers 7 \\
    --steps 600 --epsilon 4
hushgraph plan --train-nodes 90941 --batch-size 10000 --max-readers 7 \\
    --steps 668 --paper-noise-multiplier 2 --accountant paper
hushgraph plan --train-nodes 90941 --num-classes 5 --epsilon 4 --group-size 3"""

# Flags of data that change a price without it: what records are, and whose nodes are.
_RECORDS = ("edge_weight", "half_life", "edge_date", "since", "until", "relation", "places", "person")
_TASK = ("task", "positive", "rare")
# Without DATA, what each method needs to be told, and which other flags about data it reads.
_PUBLIC: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "billboard": (("train_nodes", "num_classes", "epsilon"), ("num_classes", "classes", *_TASK, *_RECORDS)),
    "trees": (("train_nodes", "max_readers"), ("person",)),
    "rows": (("train_nodes",), ("num_classes", "classes", "person")),
}
_NO_BUDGET = "no budget: give --epsilon=E or --sigma-over-clip=S"
_BUDGET = ("epsilon", "sigma_over_clip", "paper_noise_multiplier", "delta", "steps")
# Trees cost the same for every number of classes, and tables of figures from three on.
_USUAL_CLASSES = 3
# The row of a figure that can be solved for, where it has another name.
_NAMES = {"sigma-over-clip": "sigma / C"}

# Groups are priced for every way to be of three kinds; beyond this it would take long, and say nothing.
_LARGEST_GROUP = 300
# A year of monthly runs.
_YEAR = 12

_size, _output = section("Training"), section("Run and output")
_budget = section("Budget")


@options.with_flags("plan")
def plan(
    context: typer.Context,
    data: Annotated[
        str | None, options.data_argument("What to train on, as for train. [--train-nodes instead]")
    ] = None,
    *,
    train_nodes: Annotated[int | None, _size("N, nodes in the training split. [those of DATA]")] = None,
    budget: Annotated[
        Path | None, _budget("Count how many such runs fit into this budget of the data. [none]")
    ] = None,
    group_size: Annotated[
        int | None, _budget("Also price a group of so many rows, emptied together. [two rows]")
    ] = None,
    edges: options.Edges = None,
    data_root: options.DataRoot = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    explain: Annotated[bool, _output("Print the full statement.", "--explain")] = False,
    as_json: options.Json = False,
    **flags: Any,
) -> None:
    """Price a run without training; it spends nothing.

    With DATA, everything that is left out is chosen as train would choose it. Without, give --train-nodes,
    and for the billboard --num-classes, for trees --max-readers. Of steps, noise and epsilon give
    two; the third is solved for. With epsilon alone, steps are those that train would take. --config accepts
    a file for train too.
    """
    if group_size is not None and not 1 <= group_size <= _LARGEST_GROUP:
        raise InputError(f"group_size={group_size}: expected 1 to {_LARGEST_GROUP} rows")
    with terminal.status("Choosing noise", quiet=as_json) as line:
        from hushgraph.privacy.budget import DataBudget

        opened = None if budget is None else DataBudget.open(budget)
        warnings: list[str] = []
        notes: list[str] = []
        if data is None:
            solved = _solve(context)
            size = judge_size(solved.plan.epsilon, solved.plan.delta)
            warnings = [] if size is None else [size.sentence]
        else:
            solved, prepared = ask_prepare(context, _read_settings(context), line)
            warnings, notes = list_cautions(context, prepared)
        is_seeded = "seed" in context.meta.get(UNUSED, ())
        group = None if group_size is None else price_group(solved.plan, group_size)
        forecast = None
        if opened is not None:
            line.show("Counting the runs that fit")
            forecast = forecast_runs(opened, solved, is_seeded=is_seeded)
    if as_json:
        facts = list_facts(solved, is_seeded=is_seeded) | {"warnings": warnings}
        if group is not None:
            facts |= {"group_size": group_size, "epsilon_group": json_number(group)}
        if forecast is not None:
            facts |= forecast[0]
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    screen = terminal.console()
    more = [] if group is None else [(f"epsilon, group of {group_size}", rounded_up(group))]
    show_plan(solved, screen, explain=explain, is_seeded=is_seeded, more=more)
    if forecast is not None:
        terminal.print_line(screen, f"\n{forecast[1]}")
    terminal.warn(warnings, notes)


def price_group(plan: PrivacyPlan, size: int) -> float:
    """Epsilon when `size` rows are emptied together; infinite where the accountant refuses to price that."""
    try:
        return plan.price(rows_emptied(size))
    except PlanError:
        return math.inf


def forecast_runs(budget: DataBudget, solved: Solved, *, is_seeded: bool) -> tuple[dict[str, Any], str]:
    """What runs like a planned one would do to the budget of the data: what `--json` adds, and in words."""
    from hushgraph.privacy.budget import MOST_RUNS
    from hushgraph.privacy.run_charge import RunCharge

    guarantee = _state_guarantee(solved, is_seeded=is_seeded)
    charge = RunCharge.of_plan(solved.plan, guarantee, run="planned", command="plan", data="")
    fit, after, total = budget.count_runs(charge), budget.price_more(charge, _YEAR), budget.total
    left = None if total is None else max(0.0, total - after)
    facts = {
        "budget": str(budget.path),
        "runs_that_fit": fit,
        f"epsilon_after_{_YEAR}_runs": json_number(after),
        f"epsilon_left_after_{_YEAR}_runs": left,
    }
    limit = "no total is set" if total is None else f"its total is epsilon {total:g}"
    begin = (
        f"Budget {budget.path}: {limit} at delta = {digits_up(budget.delta)}, and "
        f"{rounded_up(budget.spent)} is spent."
    )
    year = f"A run every month for a year would bring what is spent to {rounded_up(after)}"
    if math.isinf(charge.epsilon):
        return facts, f"{begin} This run has no guarantee, so no total allows it."
    if left is None or fit is None:
        return facts, f"{begin} {year}."
    if not fit:
        with_one = rounded_up(budget.price_more(charge, 1))
        return facts, f"{begin} No run like this one fits: it would be {with_one}; take a smaller epsilon."
    more = "1 more run like this one fits." if fit == 1 else f"{fit:,} more runs like this one fit."
    counted = f"At least {more}" if fit == MOST_RUNS else more
    if fit < _YEAR:
        return facts, f"{begin} {counted} {year}, which the total does not allow."
    return facts, f"{begin} {counted} {year} and leave {math.floor(left * 100) / 100:.2f}."


def ask_prepare(
    context: typer.Context, settings: dict[str, Any], line: terminal.StatusLine
) -> tuple[Solved, Any]:
    """The plan that `train` would follow on DATA with these arguments, and all that it would start from."""
    from hushgraph.privacy.solve import Solved
    from hushgraph.training.prepare import prepare

    flags = context.params
    terminal.show_loading(line, flags["data"])
    prepared = prepare(options.join_edges(flags["data"], flags["edges"]), **settings)
    solved = Solved(
        plan=prepared.plan,
        solved_for=_name_solved(flags),
        notes=(),
        assumptions=find_assumptions(prepared.graph),
        task=prepared.graph.task.name,
    )
    return solved, prepared


def list_cautions(
    context: typer.Context, prepared: Any, budget: DataBudget | None = None
) -> tuple[list[str], list[str]]:
    """The warnings about a run that would start from here, and the notes for the owner of the data."""
    from hushgraph.training.cautions import list_notes, list_warnings

    flags = context.params
    return (
        list_warnings(prepared.graph, prepared.plan, budget=budget),
        list_notes(
            prepared.graph,
            numbers=prepared.config.numbers,
            symmetrize=flags["symmetrize"],
            directed=flags["directed"],
        ),
    )


def _read_settings(context: typer.Context) -> dict[str, Any]:
    """The arguments of `prepare` that the flags stand for."""
    flags = context.params
    if flags["train_nodes"] is not None:
        raise InputError(
            f"--train-nodes {flags['train_nodes']} with DATA: the data says how many; leave it out"
        )
    if not _has_budget(flags):
        raise InputError(_NO_BUDGET)
    settings = options.read_settings(flags)
    # Of a plan it is no setting of the run.
    del settings["budget"]
    return settings


def _solve(context: typer.Context) -> Solved:
    """Price a plan for no data in particular, by the rules that train follows, from public numbers alone."""
    from hushgraph.methods.base import PublicFigures, describe_task
    from hushgraph.methods.choose import choose_method
    from hushgraph.privacy.fields import check_budget
    from hushgraph.privacy.solve import Solved
    from hushgraph.tasks.choose import choose_class_task

    flags = context.params
    settings = complete({name: flags[name] for name in list_settings(Settings) if name in flags})
    method = choose_method(settings)
    needed, allowed = _PUBLIC[method.name]
    if _has_budget(flags):
        # First, since the noise would ask for what trees alone need.
        check_budget(private=True, **{name: settings[name] for name in _BUDGET})
    _check_public(context, needed, allowed=allowed)
    if not _has_budget(flags):
        raise InputError(_NO_BUDGET)
    nodes, names = flags["train_nodes"], _read_names(flags)
    if nodes < 1:
        raise InputError(f"train_nodes={nodes}: expected 1 or more")
    knows_classes = flags["num_classes"] is not None or bool(flags["classes"])
    classes = _count_classes(flags, names) if knows_classes else _USUAL_CLASSES
    task = choose_class_task(classes, names, **{name: flags[name] for name in _TASK})
    public = PublicFigures(
        num_nodes=nodes,
        num_train_nodes=nodes,
        num_classes=classes,
        **describe_task(task),
        **_describe_records(flags),
    )
    plan = method.plan(public, settings).plan
    solved_for = _name_solved(flags)
    notes = [
        f"--{name.replace('_', '-')} was not given; a run takes {getattr(plan, name):,} by default."
        for name in ("steps", "batch_size")
        if flags[name] is None and name != solved_for
    ]
    if plan.reads_edges and plan.edge_owner == "reader" and flags["max_reads"] is None and plan.max_reads:
        bound = f"D = K = {plan.max_reads}"
        notes.append(f"--max-reads was not given; reader-owned edges need one, so {bound}.")
    if not knows_classes and plan.can_evaluate:
        notes.append("--num-classes was not given; figures are those of three classes or more.")
    return Solved(
        plan=plan, solved_for=solved_for, notes=tuple(notes), task=task.name if knows_classes else None
    )


def _has_budget(flags: Mapping[str, Any]) -> bool:
    """Whether epsilon or the noise is given."""
    return any(flags[name] is not None for name in ("epsilon", "sigma_over_clip", "paper_noise_multiplier"))


def _name_solved(flags: Mapping[str, Any]) -> str:
    """Which of steps, noise and epsilon follows from the others."""
    if flags["epsilon"] is None:
        return "epsilon"
    has_noise = flags["sigma_over_clip"] is not None or flags["paper_noise_multiplier"] is not None
    return "steps" if has_noise else "sigma-over-clip"


def _describe_records(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags say about records and persons, as `train` would find it in data with these columns."""
    settings = options.read_settings(flags)
    given = {"edge_weight": settings["edge_weight"], **(settings["columns"] or {})}
    columns = Columns(**{name: given[name] for name in _RECORDS if given.get(name) is not None})
    relations = max(1, len(columns.relation_names)) + (columns.places is not None)
    return {
        "is_weighted": columns.is_weighted,
        "num_relations": relations,
        "has_places": columns.places is not None,
        "protects": "node" if columns.person is None else "person",
    }


def _check_public(context: typer.Context, needed: Sequence[str], *, allowed: Sequence[str] = ()) -> None:
    """Raise InputError where a public number is missing, or where there is nothing that a flag could read."""
    flags = context.params
    missing = [
        options.name_flag(context, name)
        for name in needed
        if flags[name] is None and not (name == "num_classes" and flags["classes"])
    ]
    if missing and all(name.endswith("--epsilon") for name in missing):
        # No data says it.
        raise InputError(_NO_BUDGET)
    if missing:
        trees = " (--max-readers for trees)" if "--num-classes" in missing else ""
        them = "it" if len(missing) == 1 else "all of them"
        raise InputError(
            f"no {' and no '.join(missing)}{trees}: give {them}, or DATA; see hushgraph plan --help"
        )
    reading = [name for name in flags if name == "edges" or (name in TABLE and TABLE[name].describes_data)]
    foreign = options.list_given(context, [name for name in reading if name not in allowed])
    if foreign:
        raise InputError(f"{', '.join(foreign)} without DATA: there is nothing to read; leave it out")


def _read_names(flags: Mapping[str, Any]) -> list[str] | None:
    """The names in --classes, which may be a number here: no model has one class, so it is no name."""
    names = (options.read_settings({"classes": flags["classes"]})["columns"] or {}).get("classes")
    is_number = names is not None and len(names) == 1 and names[0].isdecimal()
    return None if names is None or is_number else list(dict.fromkeys(names))


def _count_classes(flags: Mapping[str, Any], names: Sequence[str] | None) -> int:
    """The number of classes: --num-classes, or that of --classes."""
    number, given = flags["num_classes"], flags["classes"]
    listed = number if not given else int(given[0]) if names is None else len(names)
    if number is not None and number != listed:
        raise InputError(
            f"--num-classes {number} with --classes {','.join(given)}: that is {listed}; give one of them"
        )
    if listed < 2:
        raise InputError(f"num_classes={listed}: expected 2 or more")
    return listed


def list_facts(solved: Solved, *, is_seeded: bool = False) -> dict[str, Any]:
    """What `--json` prints: the keys that every command shares, then what only a plan has."""
    plan, guarantee = solved.plan, _state_guarantee(solved, is_seeded=is_seeded)
    stated = describe_guarantee(guarantee)
    # A plan spends nothing.
    del stated["epsilon_spent"]
    return {
        **plan.summary(),
        **stated,
        "task": solved.task,
        "train_nodes": plan.num_train_nodes,
        "layers": plan.num_layers,
        "batch_size": plan.batch_size,
        "clip": plan.clip,
        "solved_for": solved.solved_for,
        "notes": list(solved.notes),
        "statement": guarantee.statement.to_text(),
    }


def show_plan(
    solved: Solved,
    screen: Console,
    *,
    explain: bool = False,
    is_seeded: bool = False,
    more: Iterable[tuple[str, str]] = (),
) -> None:
    """Print the plan as a table with `more` entries, its guarantee, and plans that differ in one choice."""
    plan, guarantee = solved.plan, _state_guarantee(solved, is_seeded=is_seeded)
    rows = [("epsilon", rounded_up(guarantee.epsilon)), ("delta", digits_up(plan.delta))]
    rows += [("guarantee", guarantee.kind_in_words), *_list_entries(plan, guarantee, more)]
    marks = {_NAMES.get(solved.solved_for, solved.solved_for): "  <- solved for"}
    shown = [(speak(name, plan.protects), value + marks.get(name, "")) for name, value in rows]
    terminal.print_entries(screen, shown)
    for note in solved.notes:
        screen.print(f"\n{note}", highlight=False)
    statement = guarantee.statement
    screen.print(f"\n{statement.to_text() if explain else statement.sentence}", highlight=False)
    if guarantee.kind != "none" and plan.steps > 0:
        _show_neighbours(solved, screen)


def _state_guarantee(solved: Solved, *, is_seeded: bool) -> Guarantee:
    return Guarantee.of(solved.plan, seed_is_fixed=is_seeded, assumptions=solved.assumptions)


def _show_neighbours(solved: Solved, screen: Console) -> None:
    from rich.table import Table

    from hushgraph.privacy.solve import neighbours

    plan, others = solved.plan, neighbours(solved.plan)
    if not others:
        return
    screen.print("\nWhat would change, with the same noise (sigma / C):")
    table = Table(box=None, pad_edge=False)
    for heading in ("if", "changed trees", "epsilon", "guarantee"):
        table.add_column(heading, justify="right" if heading in ("changed trees", "epsilon") else "left")
    for words, other in [("as planned", plan), *others]:
        try:
            row = (rounded_up(other.epsilon), name_kind(other.guarantee, solved.assumptions))
        except PlanError:
            row = ("not priced", "none")
        table.add_row(words, str(other.changed_trees), *row)
    screen.print(table)
    if plan.reads_edges and plan.edge_owner == "sender" and plan.sampler == "stable":
        screen.print("D may be anything: with sender-owned edges it costs no privacy.")


def _list_entries(
    plan: PrivacyPlan, guarantee: Guarantee, more: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The figures of a plan, named and rounded for people; epsilon and noise are rounded up."""
    stated = plan.summary() | describe_guarantee(guarantee)
    return [
        ("epsilon, group of two", rounded_up(guarantee.epsilon_group_of_two)),
        *more,
        (f"epsilon, one {plan.edge_name}", rounded_up(float(stated["epsilon_edge"]))),
        ("epsilon, one label", rounded_up(float(stated["epsilon_label"]))),
        ("predictions", stated["predictions"]),
        *(_list_scaling(plan) if plan.num_scaled else ()),
        ("sigma / C", digits_up(plan.sigma_over_clip, digits=6)),
        ("steps", str(plan.steps)),
        (
            "batch",
            f"{plan.batch_size} of {plan.num_train_nodes} ({plan.batches}, q = {plan.sampling_rate:.6g})",
        ),
        *plan.list_own_figures(),
        ("edge owner", plan.edge_owner),
        ("sampler, accountant", f"{plan.sampler}, {plan.accountant}"),
    ]


def _list_scaling(plan: PrivacyPlan) -> list[tuple[str, str]]:
    columns = f"{plan.num_scaled} column{'s' * (plan.num_scaled > 1)}"
    return [(f"noise of scaling, {columns}", digits_up(plan.scaling_noise, digits=6))]
