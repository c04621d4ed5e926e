"""Build the wheel, install it alone into an empty environment, and run `hushgraph demo` there.

    python scripts/check_wheel.py [FOLDER]

The environment is made in FOLDER, or in a temporary one that goes afterwards. The versions are those of
constraints.txt. torch is installed first, by its exact pin, so that nothing pulls another build.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_BUILD = "import sys; from setuptools import build_meta as b; print(b.build_wheel(sys.argv[1]))"
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


def build_wheel(folder: Path) -> Path:
    """The wheel of this source tree, built without network from a copy, so that nothing is left in it."""
    copy = folder / "source"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in _SOURCES:
        shutil.copy(ROOT / name, copy / name)
    built = _run([sys.executable, "-c", _BUILD, str(folder)], cwd=copy).splitlines()[-1]
    return folder / built


def install(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel and what it depends on; returns the folder of its commands."""
    venv.create(folder, with_pip=True, clear=True)
    commands = folder / "bin"
    constraints = ROOT / "constraints.txt"
    torch = next(line for line in constraints.read_text().splitlines() if line.startswith("torch=="))
    pip = [str(commands / "python"), "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
    _run([*pip, torch], cwd=folder)
    _run([*pip, str(wheel)], cwd=folder)
    return commands


def check_demo(commands: Path, folder: Path) -> dict[str, Any]:
    """What `hushgraph demo --json` prints last, run outside of the source tree."""
    out = _run([str(commands / "hushgraph"), "demo", "--out", "demo", "--json"], cwd=folder)
    facts: dict[str, Any] = json.loads(out.splitlines()[-1])
    if not (folder / "demo" / "report.html").is_file():
        raise SystemExit("hushgraph demo wrote no report")
    return facts


def _run(command: list[str], *, cwd: Path) -> str:
    # The source tree must not be found in place of what is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, install, run, and say what was seen."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        wheel = build_wheel(folder)
        commands = install(wheel, folder / "environment")
        facts = check_demo(commands, folder)
        version = _run([str(commands / "hushgraph"), "--version"], cwd=folder).strip()
        print(f"{wheel.name} installed alone: {version}; demo wrote a report of {len(facts['rows'])} models")


if __name__ == "__main__":
    main()
