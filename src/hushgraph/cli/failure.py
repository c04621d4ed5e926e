"""How a command says that it failed."""

from __future__ import annotations

import sys
from typing import Any

from hushgraph.cli.choices import nearest_flag

_LONGEST = 1_000
# What the parser of values calls a text that is no number, by the beginning of its name for it.
_EXPECTED = {"float": "a number", "int": "a whole number"}


def fail(message: str, code: int) -> int:
    """One line on standard error."""
    line = " ".join(message.split())
    if len(line) > _LONGEST:
        # The end says what to do; what is left out is somebody's long name or value.
        line = f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    print(f"hushgraph: {line}", file=sys.stderr)
    return code


def usage_message(error: Any) -> str:
    """What typer could not parse, and the nearest flag that exists or where to read on."""
    context = getattr(error, "ctx", None)
    if hasattr(error, "possibilities") and context is not None:
        message = error.message + _hint(error.option_name, context.command.params)
    else:
        message = _wrong_value(error) or error.format_message().rstrip(".")
    if message.endswith("?") or context is None:
        return str(message)
    return f"{message}; see {context.command_path} --help"


def _hint(flag: str, parameters: list[Any]) -> str:
    known = [name[2:] for each in parameters for name in each.opts if name.startswith("--")]
    near = nearest_flag(flag.lstrip("-"), [*known, "help"])
    return "" if near is None else f"; did you mean --{near}?"


def _wrong_value(error: Any) -> str | None:
    """What was given for a number and is none; typer's own message leaves out the value."""
    errors = getattr(error.__cause__, "errors", None)
    found = errors() if callable(errors) else []
    kind = str(found[0].get("type")).partition("_")[0] if found else ""
    if kind not in _EXPECTED or error.param is None:
        return None
    name, value = error.param.get_error_hint().strip("'"), str(found[0]["input"])[:60]
    return f"{name}={value!r}: expected {_EXPECTED[kind]}"
