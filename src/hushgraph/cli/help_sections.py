"""Help of a command: options under headings, then examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from hushgraph.cli.choices import check_choices, choices_in, complete_data
from hushgraph.cli.config_file import print_settings


class SectionedCommand(TyperCommand):
    """A command whose help lists its options under the headings they were given, and its examples as given.

    An option whose metavar is a list such as `adam|sgd` takes these values and no other.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Called by typer before it runs the command."""
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            check_choices(ctx)
            print_settings(ctx)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Called by typer for the usage line; it would put braces around an argument that must be given."""
        pieces = super().collect_usage_pieces(ctx)
        return [piece[1:-1] if piece.startswith("{") else piece for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Called by typer while it writes the help."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                heading = getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault("Arguments" if is_argument else heading, []).append(record)
        if len(sections) > 1 and len(sections.get("Options", [])) == 1:
            # --help alone, in a command that gave all its options other headings.
            sections[list(sections)[-2]] += sections.pop("Options")
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Called by typer at the end of the help: wrapping would break a command to copy."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():
                    formatter.write(f"  {line}\n")


def options(heading: str) -> Callable[..., Any]:
    """A maker of options under `heading`, from their help, which says the default itself, and their names."""

    def option(help: str, *names: str, metavar: str | None = None, **more: Any) -> Any:
        allowed = choices_in(metavar)
        if allowed:
            more["autocompletion"] = lambda: list(allowed)
        more |= {"metavar": metavar, "rich_help_panel": heading, "show_default": False}
        return typer.Option(*names, help=help, **more)

    return option


def data_argument(help: str) -> Any:
    """The argument DATA, whose names the shell completes."""
    return typer.Argument(metavar="DATA", help=help, autocompletion=complete_data)
