"""`hushgraph report`: the page for a privacy reviewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hushgraph._stores import find_address
from hushgraph.cli import options, terminal
from hushgraph.cli.compare import read_comparison
from hushgraph.cli.options import section
from hushgraph.errors import InputError

EXAMPLES = """\
hushgraph report runs/people-gcn-1
hushgraph report runs/people-gcn-1 people.npz --about release.toml
hushgraph report runs/people-gcn-1 --privacy-label
hushgraph report runs/people-gcn-1 --card"""

_output = section("Run and output")


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, or RUN/release.")],
    data: Annotated[
        str | None,
        options.data_argument("What it was trained on, for exact figures, which are not covered."),
    ] = None,
    out: Annotated[
        Path | None,
        _output("The report; the same facts as JSON go beside it. [RUN/report.html; a card: RUN/README.md]"),
    ] = None,
    about: Annotated[
        Path | None,
        _output("TOML file: purpose, owner, recipients, retention and so on. [blanks to sign]"),
    ] = None,
    audit: Annotated[
        Path | None,
        _output("Attach the record of hushgraph audit RUN --out. [RUN/audit.json, if it is there]"),
    ] = None,
    privacy_label: Annotated[
        bool,
        _output("Write a label instead, SVG and JSON. [no; then RUN/privacy-label.svg]", "--privacy-label"),
    ] = False,
    card: Annotated[
        bool, _output("Write a model card for a hub instead, with the guarantee in it.", "--card")
    ] = False,
    accuracy: Annotated[
        bool, _output("Add exact accuracies to the card; they are not covered. [no]", "--accuracy")
    ] = False,
    edges: options.Edges = None,
    data_root: options.DataRoot = None,
    as_json: options.Json = False,
) -> None:
    """Write a report on a run for a privacy reviewer.

    The guarantee in words and figures, what it covers and what it does not; one file that needs no network.
    """
    if card or privacy_label:
        flag, what = ("--card", "card") if card else ("--privacy-label", "label")
        others = {"DATA": data, "--edges": edges, "--audit": audit, "--accuracy": accuracy and not card}
        others["--privacy-label"] = privacy_label and card
        given = [name for name, value in others.items() if value]
        if given:
            raise InputError(
                f"{flag} with {', '.join(given)}: a {what} needs the run alone; leave out {given[0]}"
            )
        with terminal.status(f"Writing the {what}", quiet=as_json):
            write = _write_card if card else _write_label
            facts, text = write(run, out, accuracy=accuracy, about=about)
        terminal.finish(facts, text, as_json=as_json)
        return
    if accuracy:
        raise InputError("--accuracy: the report has accuracies without it; give it with --card only")
    with terminal.status("Writing the report" if data is None else "Loading PyTorch", quiet=as_json) as line:
        from hushgraph.report import write_report
        from hushgraph.runs.folder import RunFolder
        from hushgraph.training.run import Run

        page = _choose_place(run, out, "report.html")
        if data is not None:
            terminal.show_loading(line, data)
        comparison = read_comparison(run)
        if data is None:
            # Without weights, so that it works for a module of the user's own too.
            compared = None if comparison is None else json.loads(comparison.to_json())
            write_report(RunFolder.open(run), page, comparison=compared, about=about, audit=audit)
        else:
            Run.load(run).report(
                page, data=options.join_edges(data, edges), comparison=comparison, about=about, audit=audit
            )
    twin = page.with_suffix(".json")
    facts = {"out": str(page), "facts": str(twin), "run": str(run)}
    text = f"Report in {page}, the same facts in {twin}."
    if data is not None:
        text += " They have exact figures, which are not covered: leave out DATA for a page to publish."
    terminal.finish(facts, text, as_json=as_json)


def _choose_place(run: Path, out: Path | None, name: str) -> Path:
    """The file to write: in the folder of the run unless another is given."""
    if out is None and (address := find_address(run)) is not None:
        raise InputError(f"run={address}: files are written to disk alone; give --out {name}")
    return run / name if out is None else out


def _write_card(run: Path, out: Path | None, *, accuracy: bool, about: Path | None) -> tuple[Any, str]:
    from hushgraph.report.card import write_card
    from hushgraph.runs.folder import RunFolder

    place = _choose_place(run, out, "README.md")
    write_card(RunFolder.open(run), place, accuracy=accuracy, about=about)
    return {"out": str(place), "run": str(run), "accuracy": accuracy}, f"Model card in {place}."


def _write_label(run: Path, out: Path | None, *, accuracy: bool, about: Path | None) -> tuple[Any, str]:
    from hushgraph.report.label import write_label
    from hushgraph.runs.folder import RunFolder

    place = _choose_place(run, out, "privacy-label.svg")
    label = write_label(RunFolder.open(run), place, about=about)
    return label, f"Privacy label in {place}, the same fields in {place.with_suffix('.json')}."
