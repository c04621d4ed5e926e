"""`python -m hushgraph` is the `hushgraph` command."""

from __future__ import annotations

import sys

from hushgraph.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
