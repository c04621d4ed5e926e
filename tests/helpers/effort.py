"""How many random cases a test tries: enough to see planted faults, or many with HUSHGRAPH_THOROUGH=1."""

from __future__ import annotations

import os

IS_THOROUGH = os.environ.get("HUSHGRAPH_THOROUGH") == "1"


def choose(few: int, many: int) -> int:
    """`few` in every run of the tests, `many` in `make thorough`."""
    return many if IS_THOROUGH else few
