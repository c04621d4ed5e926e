"""The `hushgraph` command: its parts, its help, and what becomes of an error."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from hushgraph._files import check_system
from hushgraph.cli.options import check_choices, print_settings
from hushgraph.cli.terminal import StoppedError, describe_failure, fail, freeze_imports
from hushgraph.errors import ReportedError
from hushgraph.training.interruption import handle_as_ctrl_c

# Commands in the order of the help: the module of each, and the name of its examples there.
_COMMANDS = {
    "check": ("check", "EXAMPLES"),
    "plan": ("plan", "EXAMPLES"),
    "train": ("train", "EXAMPLES"),
    "budget": ("budget", "EXAMPLES"),
    "predict": ("predict", "EXAMPLES"),
    "compare": ("compare", "EXAMPLES"),
    "release": ("release", "EXAMPLES"),
    "export": ("export", "EXAMPLES"),
    "report": ("report", "EXAMPLES"),
    "audit": ("audit", "EXAMPLES"),
    "demo": ("compare", "DEMO_EXAMPLES"),
    "datasets": ("datasets", "EXAMPLES"),
    "reproduce": ("reproduce", "EXAMPLES"),
}
# Objects made between two searches for garbage, of each of Python's three generations.
_COLLECTION = (200_000, 50, 50)
# How the help names types of values.
_TYPE = re.compile(r" <([^<>]+)>")
_TYPES = {"int": "INTEGER", "int range": "INTEGER", "float": "NUMBER", "path": "PATH", "list[Path]": "PATH"}
# `plan --config` accepts a file for `train`, so it needs the flags of both.
_TOGETHER = {"plan": ("plan", "train")}


@dataclass
class _Call:
    """What `main` has to know about a call to report its failure.

    Attributes:
        as_json: whether the caller wants JSON.
        flags: of the command, by the names of its parameters.
    """

    as_json: bool
    flags: dict[str, str] = field(default_factory=dict)


class SectionedCommand(TyperCommand):
    """A command whose help lists options under headings and examples line by line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Called by typer before it runs the command."""
        if isinstance(ctx.obj, _Call):
            ctx.obj.flags = {str(each.name): max(each.opts, key=len) for each in self.params}
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            if isinstance(ctx.obj, _Call):
                # A configuration file may ask for JSON too.
                ctx.obj.as_json |= bool(ctx.params.get("as_json"))
            check_choices(ctx)
            print_settings(ctx)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Called by typer for the usage line; typer would put braces around a required argument."""
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
                named = (_name_type(record[0], is_argument=is_argument), record[1])
                sections.setdefault("Arguments" if is_argument else heading, []).append(named)
        if len(sections) > 1 and len(sections.get("Options", [])) == 1:
            # --help alone, in a command whose options all have other headings.
            sections[list(sections)[-2]] += sections.pop("Options")
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(_fold(names, formatter.width - 2), words) for names, words in records])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Called by typer at the end of the help; wrapping would break a command to copy."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():
                    formatter.write(f"  {line}\n")


def _name_type(names: str, *, is_argument: bool) -> str:
    """An option with the type of its value as a word; typer would print `<list[Path]>`.

    An argument is named by its own word.
    """
    return _TYPE.sub("" if is_argument else lambda match: f" {_TYPES.get(match[1], 'TEXT')}", names)


def _fold(names: str, width: int) -> str:
    """An option and its choices, broken after the last choice that fits."""
    if len(names) <= width or "|" not in names[:width]:
        return names
    end = names.rindex("|", 0, width) + 1
    return f"{names[:end]}\n{' ' * 10}{names[end:]}"


def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Graph neural networks with node-level differential privacy."""
    if version:
        from hushgraph import __version__

        typer.echo(f"hushgraph {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def build_app(names: Iterable[str] = tuple(_COMMANDS)) -> typer.Typer:
    """Build the command line with these commands; only their modules are imported."""
    app = typer.Typer(
        name="hushgraph",
        help="Graph neural networks with node-level differential privacy.",
        epilog="Start with: hushgraph demo. Every command has a --help of its own, with examples.",
        context_settings={"help_option_names": ["--help", "-h"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(root)
    for name in names:
        place, examples = _COMMANDS[name]
        module = import_module(f"hushgraph.cli.{place}")
        app.command(cls=SectionedCommand, epilog=getattr(module, examples))(getattr(module, name))
    return app


def _choose_commands(words: Sequence[str]) -> Sequence[str]:
    """The commands that a call needs: the one that it names, or all where it names none that exists."""
    if list(words) == ["--version"]:
        return ()
    if not words or words[0] not in _COMMANDS:
        return tuple(_COMMANDS)
    return _TOGETHER.get(words[0], words[:1])


def run() -> NoReturn:
    """Run `main` as the `hushgraph` command and end the process with its exit code."""
    # Imports make a million objects that are no garbage, and looking for some among them takes half a second.
    gc.set_threshold(*_COLLECTION)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except ValueError:
            # It is closed.
            code = code or 1
        except OSError:
            # The reader has left, or the disk is full; Python would complain again at exit.
            code = code or 1
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    freeze_imports()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after `hushgraph`; those of this process unless given.

    Returns:
        The exit code: 0 done, 1 failed, 2 bad input, 3 over budget, 130 interrupted. With `--json`, a command
        that fails prints an object with `error` and `exit_code` as the last line of standard output.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    call = _Call(as_json="--json" in words)
    try:
        check_system()
        with _treat_sigterm_as_interrupt():
            app = build_app(_choose_commands(words))
            code = app(args=words, prog_name="hushgraph", standalone_mode=False, obj=call)
    except BrokenPipeError:
        # The reader of our output has left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ReportedError as error:
        # Another process of the group has said why.
        return error.exit_code
    except (Exception, KeyboardInterrupt) as error:
        failure = describe_failure(error, call.flags)
        if failure is None:
            if call.as_json:
                print(json.dumps({"error": f"{type(error).__name__}: {error}", "exit_code": 1}))
            raise
        return fail(*failure, as_json=call.as_json)
    if code == StoppedError.exit_code:
        # typer turns Ctrl-C into an exit code of its own.
        return fail("interrupted", code, as_json=call.as_json)
    return code if isinstance(code, int) else 0


@contextlib.contextmanager
def _treat_sigterm_as_interrupt() -> Iterator[None]:
    """Within this context SIGTERM, which machines are stopped with, ends a command as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handle_as_ctrl_c)
    try:
        yield
    finally:
        # Keep a handler that someone else installed meanwhile, as a failing process of a group does.
        if signal.getsignal(signal.SIGTERM) is handle_as_ctrl_c:
            signal.signal(signal.SIGTERM, before)
