"""Puts what `hushgraph COMMAND --help` prints today into the page of the command line."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

MARK = "<!-- help of every command -->"
_COLUMNS = "88"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    return markdown.replace(MARK, _sections()) if MARK in markdown else markdown


def _sections() -> str:
    from hushgraph.cli.app import build_app

    commands = build_app().registered_commands
    names = [command.name or getattr(command.callback, "__name__", "") for command in commands]
    return "\n\n".join(f"## hushgraph {name}\n\n```text\n{_help(name)}\n```" for name in names)


def _help(name: str) -> str:
    from hushgraph.cli.app import main

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _COLUMNS
    try:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = main([name, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    if code != 0:
        raise RuntimeError(f"hushgraph {name} --help ended with exit code {code}")
    return said.getvalue().strip()
