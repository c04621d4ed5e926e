"""`python -m hushgraph` is the `hushgraph` command."""

from __future__ import annotations

from hushgraph.cli.app import run

if __name__ == "__main__":
    run()
