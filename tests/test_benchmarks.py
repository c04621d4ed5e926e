"""Scripts of benchmarks/ start: they import, and every name that they take from the package is there."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark_scripts import ROOT
from effort import IS_THOROUGH

SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
# pyspark and others that a script needs and that need not be installed.
IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hushgraph"):
            raise
"""


@pytest.mark.skipif(not IS_THOROUGH, reason="`make thorough` imports them; here names are looked up")
def test_all_of_them_import() -> None:
    names = [path.stem for path in SCRIPTS]
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT / "src"), str(ROOT / "tests" / "helpers")])
    environment = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-c", IMPORT, *names]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of every import from the package, those in functions too; not those that may fail."""
    optional = {
        id(node)
        for attempt in ast.walk(tree)
        if isinstance(attempt, ast.Try)
        for part in (*attempt.body, *attempt.handlers)
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in optional or node.module is None:
            continue
        if node.module.split(".")[0] == "hushgraph":
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_names_of_the_package_are_there(path: Path) -> None:
    for module, name in imported_names(ast.parse(path.read_text())):
        there = importlib.import_module(module)
        if not hasattr(there, name):
            importlib.import_module(f"{module}.{name}")
