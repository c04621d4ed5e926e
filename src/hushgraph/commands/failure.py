"""How a command says that it failed."""

from __future__ import annotations

import sys
from typing import Any

_LONGEST = 1_000


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
    near = getattr(error, "possibilities", None)
    message = f"{error.message}; did you mean {near[0]}?" if near else error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    if message.endswith("?") or context is None:
        return str(message)
    return f"{message}; see {context.command_path} --help"
