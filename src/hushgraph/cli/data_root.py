"""`--data-root`: where named datasets keep their files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _use(context: typer.Context, value: Path | None) -> None:
    if value is not None and not context.resilient_parsing:
        from hushgraph.datasets.catalog.data_root import override_data_root

        context.call_on_close(override_data_root(value))


DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        metavar="DIR",
        help="Files of named datasets. [HUSHGRAPH_DATA, or the user's cache]",
        callback=_use,
        expose_value=False,
        rich_help_panel="Data",
        show_default=False,
    ),
]
