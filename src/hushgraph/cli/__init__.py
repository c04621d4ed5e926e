"""The `hushgraph` command: one module a command, with what it prints."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; see `hushgraph.cli.app.main`."""
    from hushgraph.cli import app

    return app.main(arguments)
