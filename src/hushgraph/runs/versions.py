"""The versions that a run is made with."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_VERSIONED = ("hushgraph", "torch", "numpy", "dp-accounting", "numba", "safetensors")


@cache
def versions() -> Mapping[str, str]:
    """The versions that the run was made with."""
    names = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            names[name] = version(name)
        except PackageNotFoundError:
            names[name] = "unknown"
    return names
