"""The terminal that results are shown on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Standard output, without any control codes where NO_COLOR is set or it is no terminal."""
    from rich.console import Console

    # rich itself would drop colours alone and keep bold.
    return Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
