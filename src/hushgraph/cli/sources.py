"""Where the value of a parameter came from: the command line, the file of --config, or its default."""

from __future__ import annotations

from typing import Any

# Where a context keeps the path that --config gave.
CONFIG = "hushgraph.runs.config"


def is_given(context: Any, name: str) -> bool:
    """Whether the command line or the file gives this parameter."""
    return _source(context, name) in ("COMMANDLINE", "DEFAULT_MAP")


def where_given(context: Any, name: str) -> str:
    """`FILE: ` where the file gives this parameter, otherwise nothing."""
    return f"{context.meta[CONFIG]}: " if _source(context, name) == "DEFAULT_MAP" else ""


def _source(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else str(source.name)
