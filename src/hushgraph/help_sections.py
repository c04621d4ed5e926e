"""Help of a command with many options, under headings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand


class SectionedCommand(TyperCommand):
    """A command whose help lists its options under the headings they were given."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Called by typer while it writes the help."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                heading = getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault("Arguments" if is_argument else heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def options(heading: str) -> Callable[..., Any]:
    """A maker of options under `heading`, from their help, which says the default itself, and their names."""

    def option(help: str, *names: str, **more: Any) -> Any:
        return typer.Option(*names, help=help, rich_help_panel=heading, show_default=False, **more)

    return option
