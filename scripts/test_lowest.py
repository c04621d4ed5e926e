"""Run the quick part of the tests with the oldest versions that the metadata allows.

    python scripts/test_lowest.py [FOLDER] [--tests PATH ...]

uv resolves pyproject.toml and its extras to the lowest versions of all direct dependencies, for the Python
that runs this script. They are installed into an environment of their own in FOLDER (.lowest unless given),
and the tests run there from the source tree. torch is the exception: it has the version of constraints.txt,
so its own lower bound is not tried. Tools of the tests have the versions of constraints.txt; pandas, Polars,
scikit-learn and matplotlib, whose objects users give and get, are at their lowest too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("export", "pyg")
# Of the extra `dev`: at their lowest, and as pinned.
LOWEST_TOOLS = ("matplotlib", "pandas", "polars", "scikit-learn")
PINNED_TOOLS = ("hypothesis", "mpmath", "pytest", "pytest-xdist")
# What touches every dependency: tables, locks, accounting, kernels, training, export, commands.
TESTS = (
    "tests/accounting",
    "tests/billboard",
    "tests/cli/test_help.py",
    "tests/cli/test_predict_new.py",
    "tests/cli/test_train.py",
    "tests/datasets",
    "tests/export",
    "tests/graph",
    "tests/inference",
    "tests/noise",
    "tests/privacy",
    "tests/report/test_report.py",
    "tests/runs",
    "tests/test_estimator.py",
    "tests/test_files.py",
    "tests/training/test_serving.py",
    "tests/training/test_train.py",
)


def read_pins() -> dict[str, str]:
    """The versions of constraints.txt by name."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))


def list_tools() -> list[str]:
    """What the tests need beside the package, as requirements."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        dev = tomllib.load(file)["project"]["optional-dependencies"]["dev"]
    lowest = [needed for needed in dev if needed.partition(">=")[0] in LOWEST_TOOLS]
    pins = read_pins()
    # PyYAML comes with mkdocs, which is not installed here; 6.0.2 is the first with wheels for Python 3.13.
    return [*lowest, *(f"{name}=={pins[name]}" for name in PINNED_TOOLS), "pyyaml>=6.0.2"]


def resolve(folder: Path, uv: Path) -> Path:
    """Write the lowest versions to a file of requirements, without torch and what it brings."""
    tools, override, out = (folder / name for name in ("tools.in", "override.txt", "lowest.txt"))
    tools.write_text("\n".join(list_tools()) + "\n", encoding="utf-8")
    override.write_text(f"torch=={read_pins()['torch']}\n", encoding="utf-8")
    command = [str(uv), "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--no-annotate"]
    command += ["--no-header", "--python", sys.executable, "--override", str(override)]
    command += [word for extra in EXTRAS for word in ("--extra", extra)]
    _run([*command, str(ROOT / "pyproject.toml"), str(tools), "--output-file", str(out)])
    brought = re.compile(r"(torch|triton|nvidia-[\w-]+|cuda-[\w-]+)==")
    lines = [line for line in out.read_text(encoding="utf-8").splitlines() if not brought.match(line)]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out


def make_environment(folder: Path) -> Path:
    """An empty environment; returns its Python."""
    venv.create(folder, with_pip=True, clear=True)
    return folder / "bin" / "python"


def main() -> None:
    """Resolve, install, run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / ".lowest")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), metavar="PATH")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tools = make_environment(folder / "tools")
    _run([str(tools), "-m", "pip", "install", "--quiet", "uv"])
    lowest = resolve(folder, tools.with_name("uv"))
    python = make_environment(folder / "environment")
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    _run([*pip, f"torch=={read_pins()['torch']}"])
    _run([*pip, "--requirement", str(lowest)])
    print(lowest.read_text(encoding="utf-8"), flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *given.tests]
    raise SystemExit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")


if __name__ == "__main__":
    main()
