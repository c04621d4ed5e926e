"""Scripts of benchmarks/, which is no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """The module of benchmarks/NAME.py."""
    found = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    # Dataclasses look their module up.
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module
