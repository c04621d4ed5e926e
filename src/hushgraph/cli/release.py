"""`hushgraph release`: the publishable part of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli import options, terminal

EXAMPLES = """\
hushgraph release runs/people-billboard-1
hushgraph release runs/people-billboard-1 --to s3://models/people
hushgraph release runs/people-billboard-1 --json"""


def release(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    to: Annotated[
        str | None,
        options.section("Run and output")(
            "Also copy the release to an object store, such as s3://models/people. [no copy]",
            metavar="ADDRESS",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write the part of a run that may be published.

    RUN/release holds what the guarantee covers and nothing else. Training makes it at its end. This is for
    runs of earlier versions, or after an interruption.

    --to copies it into an object store: files first, then one pointer that names them. ADDRESS in place of
    RUN is then enough for predict, report and audit.
    """
    with terminal.status("Loading PyTorch", quiet=as_json):
        from hushgraph._stores import check_address
        from hushgraph.runs.folder import RunFolder
        from hushgraph.runs.store import put_release
        from hushgraph.training.publish import publish_run

        address = None if to is None else check_address(to)
        folder = RunFolder.open(run)
        place = folder.path if folder.is_release else publish_run(folder)
        figures = folder.plan.summary()["figures"]
        if address is not None:
            put_release(place, address)
    about = (
        "and figures from noisy counts"
        if figures == "covered"
        else "without figures: the run did not pay for covered ones"
    )
    text = f"What may be published is in {place}: weights, plan, guarantee and card, {about}."
    facts = {"run": str(run), "release": str(place), "figures": figures}
    if to is not None:
        facts["to"] = to
        text += f"\nIt is also in {to}, which predict, report and hushgraph.Run.load take in place of RUN."
    terminal.finish(facts, text, as_json=as_json)
