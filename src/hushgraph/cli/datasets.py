"""`hushgraph datasets`: the catalog, and what of it is on disk."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from hushgraph.cli import options, terminal
from hushgraph.cli.options import section
from hushgraph.errors import InputError

EXAMPLES = """\
hushgraph datasets
hushgraph datasets ogbn-arxiv --download --data-root data"""


def datasets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of them. [all]")] = None,
    download: Annotated[bool, section("Data")("Fetch the missing files of NAME.", "--download")] = False,
    data_root: options.DataRoot = None,
    as_json: options.Json = False,
) -> None:
    """List the datasets that have a name and what is on disk.

    Training on a name fetches what is missing; --download does so ahead of time.
    """
    if download and name is None:
        raise InputError("--download without NAME: give the name of the dataset to fetch")
    with terminal.status("Reading the catalog", quiet=as_json) as line:
        from hushgraph.datasets.catalog import registry as catalog
        from hushgraph.datasets.catalog.data_root import data_root as find_root

        if download and name is not None:
            # A download has a bar of its own.
            line.clear()
            catalog.fetch_files(name)
        facts = [_list_facts(each) for each in ([name] if name else catalog.names())]
        folder = find_root()
    if as_json:
        typer.echo(json.dumps({"data_root": str(folder), "datasets": facts}))
    else:
        _show_table(facts, f"Files are in {folder}; `generated-N` is a name for every number of nodes N.")


def _list_facts(name: str) -> dict[str, Any]:
    from hushgraph.datasets.catalog import registry as catalog

    known, source = catalog.statistics(name), catalog.source(name)
    return {
        "name": name,
        "description": catalog.describe(name),
        "nodes": known.nodes if known else None,
        "edges": known.reads if known else None,
        "features": known.features if known else None,
        "classes": known.classes if known else None,
        "split": known.split if known else None,
        "licence": source.licence if source else None,
        "download_bytes_about": source.size if source else 0,
        "checksums": ("pinned" if source.is_pinned else "not pinned") if source else None,
        "on_disk": catalog.on_disk(name),
    }


def _show_table(facts: list[dict[str, Any]], footer: str) -> None:
    rows = [("name", "nodes", "edges", "features", "classes", "licence", "download", "sha256", "on disk")]
    for each in facts:
        counts = ["" if each[key] is None else f"{each[key]:,}" for key in rows[0][1:5]]
        about = (each["licence"] or "", _format_size(each), each["checksums"] or "", each["on_disk"])
        rows.append((each["name"], *counts, *about))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    texts = {0, 5, 7, 8}
    # Lines longer than 80 columns are not cut: a terminal wraps them, and a pipe gets them unchanged.
    for row in rows:
        cells = zip(row, widths, strict=True)
        line = (c.ljust(w) if i in texts else c.rjust(w) for i, (c, w) in enumerate(cells))
        typer.echo("  ".join(line).rstrip())
    if len(facts) == 1:
        typer.echo(f"\n{facts[0]['description']}.")
    typer.echo(f"\nEdges count both directions. {footer}")


def _format_size(facts: dict[str, Any]) -> str:
    about = facts["download_bytes_about"]
    if about == 0:
        return ""
    return f"{about / 1e9:.1f} GB" if about >= 1e9 else f"{about / 1e6:.0f} MB"
