"""`hushgraph plan`: the price of a run, with or without its data, and the table that shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph._text import digits_up, rounded_up
from hushgraph.cli import options, terminal
from hushgraph.cli.options import UNUSED, ConfigFile, PrintConfig, section
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.guarantee import Guarantee, describe_guarantee, find_assumptions, judge_size, name_kind
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.settings import TABLE

if TYPE_CHECKING:
    from rich.console import Console

    from hushgraph.privacy.budget import DataBudget
    from hushgraph.privacy.plans import BillboardPlan
    from hushgraph.privacy.solve import Solved

EXAMPLES = """\
hushgraph plan demo --epsilon 4
hushgraph plan --train-nodes 90941 --batch-size 10000 --max-readers 7 \\
    --steps 600 --epsilon 4
hushgraph plan --train-nodes 90941 --batch-size 10000 --max-readers 7 \\
    --steps 668 --paper-noise-multiplier 2 --accountant paper"""

# The row of a figure that can be solved for, where it has another name.
_ROWS = {"sigma-over-clip": "sigma / C"}

_size, _output = section("Training"), section("Run and output")


@options.with_flags("plan")
def plan(
    context: typer.Context,
    data: Annotated[
        str | None, options.data_argument("What to train on, as for train. [--train-nodes instead]")
    ] = None,
    *,
    train_nodes: Annotated[int | None, _size("N, nodes in the training split. [those of DATA]")] = None,
    edges: options.Edges = None,
    data_root: options.DataRoot = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    explain: Annotated[bool, _output("Print the full statement.", "--explain")] = False,
    as_json: options.Json = False,
    **flags: Any,
) -> None:
    """Price a run without training; it spends nothing.

    With DATA, everything that is left out is chosen as train would choose it; without, give --train-nodes and
    --max-readers. Of steps, noise multiplier and epsilon give two; the third is solved for. With epsilon
    alone, steps are those that train would take. --config accepts a file for train too.
    """
    with terminal.status("Choosing noise", quiet=as_json) as line:
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
    if as_json:
        facts = list_facts(solved, is_seeded=is_seeded) | {"warnings": warnings}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    show_plan(solved, terminal.console(), explain=explain, is_seeded=is_seeded)
    terminal.warn(warnings, notes)


def ask_prepare(
    context: typer.Context, settings: dict[str, Any], line: terminal.StatusLine
) -> tuple[Solved, Any]:
    """The plan that `train` would follow on DATA with these arguments, and all that it would start from."""
    from hushgraph.privacy.solve import Solved
    from hushgraph.training.prepare import prepare

    flags = context.params
    terminal.show_loading(line, flags["data"])
    prepared = prepare(options.join_edges(flags["data"], flags["edges"]), **settings)
    noise = (flags["sigma_over_clip"], flags["paper_noise_multiplier"])
    solved_for = "sigma-over-clip" if noise == (None, None) else "steps"
    if flags["epsilon"] is None:
        solved_for = "epsilon"
    assumptions = find_assumptions(prepared.graph)
    return Solved(plan=prepared.plan, solved_for=solved_for, notes=(), assumptions=assumptions), prepared


def list_cautions(
    context: typer.Context, prepared: Any, budget: DataBudget | None = None
) -> tuple[list[str], list[str]]:
    """The warnings about a run that would start from here, and the notes for the owner of the data."""
    from hushgraph.training.cautions import list_notes, list_warnings

    flags = context.params
    return (
        list_warnings(prepared.graph, prepared.plan, budget=budget),
        list_notes(prepared.graph, symmetrize=flags["symmetrize"], directed=flags["directed"]),
    )


def _read_settings(context: typer.Context) -> dict[str, Any]:
    """The arguments of `prepare` that the flags stand for."""
    flags = context.params
    if flags["train_nodes"] is not None:
        raise InputError(
            f"--train-nodes {flags['train_nodes']} with DATA: the data says how many; leave it out"
        )
    return options.read_settings(flags)


def _solve(context: typer.Context) -> Solved:
    """Price a plan for no data in particular."""
    from hushgraph.privacy import solve as planner

    flags = context.params
    if flags["method"] == "billboard":
        raise InputError("--method billboard without DATA: give DATA, or price trees")
    missing = [
        f"--{name.replace('_', '-')}" for name in ("train_nodes", "max_readers") if flags[name] is None
    ]
    if missing:
        raise InputError(f"no {' and no '.join(missing)}: give DATA, or both; see hushgraph plan --help")
    reading = [name for name in flags if name == "edges" or (name in TABLE and TABLE[name].describes_data)]
    foreign = [options.name_flag(context, name) for name in reading if options.is_given(context, name)]
    if foreign:
        raise InputError(f"{', '.join(foreign)} without DATA: there is nothing to read; leave it out")
    layers = 1 if flags["num_layers"] is None else flags["num_layers"]
    return planner.solve(
        num_train_nodes=flags["train_nodes"],
        num_layers=0 if flags["model"] == "mlp" else layers,
        **{name: flags[name] for name in ("edge_owner", "directed")},
        **{name: flags[name] for name in ("steps", "sigma_over_clip", "paper_noise_multiplier")},
        **{name: flags[name] for name in ("epsilon", "delta", "batch_size")},
        **{name: flags[name] for name in ("max_readers", "max_reads", "sampler", "accountant")},
        **{name: flags[name] for name in ("clip", "clipping", "noise")},
    )


def list_facts(solved: Solved, *, is_seeded: bool = False) -> dict[str, Any]:
    """What `--json` prints: the keys that every command shares, then what only a plan has."""
    plan, guarantee = solved.plan, _state_guarantee(solved, is_seeded=is_seeded)
    stated = describe_guarantee(guarantee)
    # A plan spends nothing.
    del stated["epsilon_spent"]
    return {
        **plan.summary(),
        **stated,
        "train_nodes": plan.num_train_nodes,
        "layers": plan.num_layers,
        "batch_size": plan.batch_size,
        "clip": plan.clip,
        "solved_for": solved.solved_for,
        "notes": list(solved.notes),
        "statement": guarantee.statement.to_text(),
    }


def show_plan(solved: Solved, screen: Console, *, explain: bool = False, is_seeded: bool = False) -> None:
    """Print the plan as a table, its guarantee, and the plans that differ in one choice."""
    plan, guarantee = solved.plan, _state_guarantee(solved, is_seeded=is_seeded)
    rows = [("epsilon", rounded_up(guarantee.epsilon)), ("delta", digits_up(plan.delta))]
    rows += [("guarantee", guarantee.kind_in_words), *_list_rows(plan, guarantee)]
    marks = {_ROWS.get(solved.solved_for, solved.solved_for): "  <- solved for"}
    terminal.print_rows(screen, [(name, value + marks.get(name, "")) for name, value in rows])
    for note in solved.notes:
        screen.print(f"\n{note}", highlight=False)
    statement = guarantee.statement
    screen.print(f"\n{statement.to_text() if explain else statement.sentence}", highlight=False)
    if guarantee.kind != "none" and plan.steps > 0 and plan.method != "billboard":
        _show_neighbours(solved, screen)


def _state_guarantee(solved: Solved, *, is_seeded: bool) -> Guarantee:
    return Guarantee.of(solved.plan, seed_is_fixed=is_seeded, assumptions=solved.assumptions)


def _show_neighbours(solved: Solved, screen: Console) -> None:
    from rich.table import Table

    from hushgraph.privacy.solve import neighbours

    plan = solved.plan
    screen.print("\nWhat would change, with the same noise (sigma / C):")
    table = Table(box=None, pad_edge=False)
    for heading in ("if", "changed trees", "epsilon", "guarantee"):
        table.add_column(heading, justify="right" if heading in ("changed trees", "epsilon") else "left")
    for words, other in [("as planned", plan), *neighbours(plan)]:
        try:
            row = (rounded_up(other.epsilon), name_kind(other.guarantee, solved.assumptions))
        except PlanError:
            row = ("not priced", "none")
        table.add_row(words, str(other.changed_trees), *row)
    screen.print(table)
    if plan.reads_edges and plan.edge_owner == "sender" and plan.sampler == "stable":
        screen.print("D may be anything: with sender-owned edges it costs no privacy.")


def _list_rows(plan: PrivacyPlan, guarantee: Guarantee) -> list[tuple[str, str]]:
    """The figures of a plan, named and rounded for people; epsilon and noise are rounded up."""
    # Imported here: with it come the accountants, which --help should not wait for.
    from hushgraph.privacy.plans import BillboardPlan

    return [
        ("epsilon, group of two", rounded_up(guarantee.epsilon_group_of_two)),
        *(_list_board_rows(plan, guarantee) if isinstance(plan, BillboardPlan) else ()),
        ("sigma / C", digits_up(plan.sigma_over_clip, digits=6)),
        ("steps", str(plan.steps)),
        (
            "batch",
            f"{plan.batch_size} of {plan.num_train_nodes} ({plan.batches}, q = {plan.sampling_rate:.6g})",
        ),
        *(_list_tree_rows(plan) if plan.method != "billboard" else ()),
        ("edge owner", plan.edge_owner),
        ("sampler, accountant", f"{plan.sampler}, {plan.accountant}"),
    ]


def _list_board_rows(plan: BillboardPlan, guarantee: Guarantee) -> list[tuple[str, str]]:
    stated = plan.summary() | describe_guarantee(guarantee)
    boards = ", ".join(digits_up(noise, digits=6) for noise in plan.board_noise) or "none"
    return [
        (f"epsilon, one {plan.edge_name}", rounded_up(float(stated["epsilon_edge"]))),
        ("epsilon, one label", rounded_up(float(stated["epsilon_label"]))),
        ("predictions", stated["predictions"]),
        (f"noise of {plan.num_boards} board{'s' * (plan.num_boards > 1)}", boards),
        ("share of the boards", f"{plan.board_share:.2g}"),
    ]


def _list_tree_rows(plan: PrivacyPlan) -> list[tuple[str, str]]:
    return [
        ("sigma / (2 C n)", digits_up(plan.paper_noise_multiplier, digits=6)),
        ("changed trees (n)", str(plan.changed_trees)),
        ("layers (r)", str(plan.num_layers)),
        ("max readers (K)", str(plan.max_readers)),
        ("max reads (D)", "unlimited" if plan.max_reads is None else str(plan.max_reads)),
    ]
