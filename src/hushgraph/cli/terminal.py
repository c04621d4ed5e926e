"""The terminal: results, the line that shows what a command is doing, and how it reports a failure."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer

from hushgraph.cli.options import conversion_note, nearest_flag
from hushgraph.errors import HushgraphError
from hushgraph.settings import TABLE
from hushgraph.training.progress import Heartbeat, TerminalBar, describe_progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

_LONGEST_LINE = 1_000
# How typer's error types for values that are not numbers start.
_EXPECTED = {"float": "a number", "int": "a whole number"}
# Set by torchrun and other launchers; the process of rank 0 prints for all.
_RANK = "RANK"


# `name=` at the start of a message or of a part of it; not in a path or a value.
_NAMED = re.compile(r"(?:(?<=^)|(?<=[ (]))([a-z][a-z_]*)=")
# An argument of the library in a sentence; one word alone could be meant as a word.
_WORD = re.compile(r"(?<![\w.'\"/=-])([a-z]+(?:_[a-z]+)+)(?![\w.'\"/=-]*[\w'\"/=])")
_NOT_PRIVATE = "private=False"
# An argument of the library whose parameter has another name.
_ARGUMENTS = {"num_train_nodes": "train_nodes"}


class StoppedError(Exception):
    """The user stopped a command; the message says what is kept and how to continue."""

    exit_code = 130


def console() -> Console:
    """A console on standard output; without control codes where NO_COLOR is set or it is no terminal."""
    from rich.console import Console

    # rich itself would drop colours alone and keep bold.
    return Console(color_system=None if os.environ.get("NO_COLOR") else "auto")


def print_line(screen: Console, text: str) -> None:
    """Print text as it is, wrapped by the terminal alone."""
    screen.print(text, highlight=False, markup=False, soft_wrap=True)


def print_entries(screen: Console, entries: Iterable[tuple[str, str]]) -> None:
    """Print names and values as a table without lines."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in entries:
        table.add_row(name, value)
    screen.print(table, highlight=False)


def finish(facts: Any, text: str, *, as_json: bool) -> None:
    """End a command: print the facts as a JSON object, or the text."""
    typer.echo(json.dumps(facts, allow_nan=False) if as_json else text)


def warn(warnings: Iterable[str], notes: Iterable[str], *, notices: Iterable[str] = ()) -> None:
    """Print warnings and notices on standard error, then what the owner of the data alone may know.

    The notes go to the terminal and nowhere else: not into JSON, a run or a report.
    """
    for text in warnings:
        print(f"warning: {text}", file=sys.stderr)
    for text in notices:
        print(f"notice: {text}", file=sys.stderr)
    for text in notes:
        print(f"private, for you alone: {text}", file=sys.stderr)


class StatusLine:
    """One line on standard error that shows what a command is doing, replaced and finally removed.

    Where standard error is no terminal it prints a plain line about every 10 seconds instead. It does nothing
    where `quiet` is set, and in the processes of a group after the first. Used as a context manager.

    Args:
        quiet: draw and print nothing anywhere.
        console: where to draw, instead of standard error.
        clock: gives seconds.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        is_terminal = sys.stderr.isatty() if console is None else console.is_terminal
        is_silent = quiet or not _is_first_process()
        self._is_off = is_silent or not is_terminal
        self._heartbeat = None if is_silent or is_terminal else Heartbeat(clock=clock)
        self._console = console
        # A spinner or a bar, whichever is shown.
        self._spinner: Live | None = None
        self._bar: TerminalBar | None = None

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Show what the command is doing now."""
        if self._heartbeat is not None:
            self._heartbeat.beat(text)
        if self._is_off:
            return
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        spinner = Spinner("dots", Text(f" {text}"), style="progress.spinner")
        if self._spinner is not None:
            self._spinner.update(spinner)
            return
        self.clear()
        # Results go to standard output while the line is shown, so rich must not take that over.
        self._spinner = Live(
            spinner,
            console=self._console or Console(stderr=True),
            refresh_per_second=10,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._spinner.start(refresh=True)

    def count(self, what: str, done: float, total: float, *, figures: str = "", logged: str = "") -> None:
        """Show a bar: how many of `total` are done, some figures and the time left.

        Args:
            what: is counted.
            done, total: how many.
            figures: for the eyes at the terminal.
            logged: what a line of a log may hold instead of them: nothing that is not charged.
        """
        if self._heartbeat is not None:
            self._heartbeat.beat(describe_progress(what, done, total, logged))
        if self._is_off:
            return
        if self._bar is None:
            self.clear()
            self._bar = TerminalBar(what, self._console)
        self._bar.show(done, total, figures)

    def clear(self) -> None:
        """Remove the line, so that something can be printed."""
        if self._spinner is not None:
            self._spinner.stop()
        if self._bar is not None:
            self._bar.close()
        self._spinner = self._bar = None


@contextlib.contextmanager
def status(text: str, *, quiet: bool = False) -> Iterator[StatusLine]:
    """Show a line at once, before anything slow is imported; remove it at the end."""
    with StatusLine(quiet=quiet) as line:
        line.show(text)
        yield line


def freeze_imports() -> None:
    """Leave what was imported out of searches for garbage: a million objects, most of a second at exit.

    Not once DuckDB is imported: its binding lists on standard error whatever of it is left uncollected.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def show_loading(line: StatusLine, data: str) -> None:
    """Show that DATA is being read, unless it has to be downloaded, which shows a bar of its own."""
    from hushgraph.datasets.catalog import registry as catalog

    freeze_imports()
    try:
        is_missing = catalog.on_disk(data) in ("no", "in part")
    except HushgraphError:
        # Not a name of the catalog: a path, or a mistake that loading will report.
        is_missing = False
    if is_missing:
        line.clear()
    else:
        line.show(f"Loading {data}")


def describe_failure(error: BaseException, flags: Mapping[str, str]) -> tuple[str, int] | None:
    """The message and exit code of a failure; None for an error that nobody expects.

    Args:
        error: what ended the command.
        flags: of the command, by the names of its parameters; a message that starts with a name, as
            `batch_size=0: expected ...`, gets the flag instead.
    """
    if isinstance(error, HushgraphError):
        return _use_flags(str(error), flags), error.exit_code
    if isinstance(error, StoppedError):
        return str(error), error.exit_code
    if isinstance(error, typer.TyperException):
        return _describe_usage(error), 2
    if isinstance(error, (typer.Abort, KeyboardInterrupt)):
        return "interrupted", StoppedError.exit_code
    # torch has no exception type of its own for memory that the system refuses.
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error)):
        return "not enough memory; use a smaller model, batch or graph", 1
    if isinstance(error, FloatingPointError):
        return f"{error}; use a lower learning rate", 1
    if isinstance(error, OSError):
        return f"{error}; check the disk and the permissions", 1
    return None


def fail(message: str, code: int, *, as_json: bool = False) -> int:
    """Print one line on standard error and, if asked, a JSON object on standard output; return the code."""
    line = " ".join(message.split())
    if len(line) > _LONGEST_LINE:
        # The end says what to do; what is left out is a long name or value.
        line = f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 2 :]}"
    print(f"hushgraph: {line}", file=sys.stderr)
    if as_json and _is_first_process():
        print(json.dumps({"error": line, "exit_code": code}))
    return code


def _use_flags(message: str, flags: Mapping[str, str]) -> str:
    """The message with `--flag` for the name of an argument of the library, wherever that is a flag."""

    def find(match: re.Match[str]) -> str:
        flag = f"--{match[1]}"
        # Of a setting that has another name than its flag, either may be named.
        return flag if flag in flags.values() else flags.get(_ARGUMENTS.get(match[1], match[1]), "")

    def replace_value(match: re.Match[str]) -> str:
        return f"{find(match)}=" if find(match).startswith("--") else match[0]

    def replace_word(match: re.Match[str]) -> str:
        return find(match) if find(match).startswith("--") else match[0]

    if "private" in flags:
        message = message.replace(_NOT_PRIVATE, flags["private"])
    return _WORD.sub(replace_word, _NAMED.sub(replace_value, message))


def _is_first_process() -> bool:
    return os.environ.get(_RANK, "0") == "0"


def _describe_usage(error: Any) -> str:
    """What typer could not parse, with the nearest flag that exists or where to read on."""
    context = getattr(error, "ctx", None)
    if getattr(error, "option_name", None) == "--secure-noise":
        return f"{error.message}; leave it out: exact noise is the only one"
    if hasattr(error, "possibilities") and context is not None:
        message = error.message + _suggest_flag(error.option_name, context.command)
    else:
        message = _describe_value(error) or error.format_message().rstrip(".")
    if "unexpected extra argument" in message and re.search(r"\.(csv|tsv|parquet|txt)\b", message):
        # The shell has put names of files in place of a pattern.
        message += "; quote a pattern, as --edges 'tx_*.csv', or give --edges once for each file"
    if message.endswith("?") or context is None:
        return str(message)
    return f"{message}; see {context.command_path} --help"


def _suggest_flag(flag: str, command: Any) -> str:
    known = [name[2:] for each in command.params for name in each.opts if name.startswith("--")]
    word = flag.lstrip("-").lower()
    if command.name == "plan" and any(
        word == each.key for each in TABLE.values() if "train" in each.commands
    ):
        return "; a plan does not need this flag of train: leave it out"
    near = nearest_flag(word, [*known, "help"])
    return "" if near is None else f"; did you mean --{near}{conversion_note(word)}?"


def _describe_value(error: Any) -> str | None:
    """What was given for a number and is none; typer's own message leaves out the value."""
    errors = getattr(error.__cause__, "errors", None)
    details = errors() if callable(errors) else []
    kind = str(details[0].get("type")).partition("_")[0] if details else ""
    if kind not in _EXPECTED or error.param is None:
        return None
    name, value = error.param.get_error_hint().strip("'"), str(details[0]["input"])[:60]
    return f"{name}={value!r}: expected {_EXPECTED[kind]}"
