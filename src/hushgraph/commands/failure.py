"""How a command says that it failed."""

from __future__ import annotations

import sys


def fail(message: str, code: int) -> int:
    """One line on standard error."""
    print("hushgraph: " + " ".join(message.split()), file=sys.stderr)
    return code
