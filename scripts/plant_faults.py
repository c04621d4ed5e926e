"""Plant faults one at a time, each in a copy of the source, and check that the tests named for it fail.

    python scripts/plant_faults.py                   all of tests/faults/faults.toml
    python scripts/plant_faults.py NAME ...          some of them
    python scripts/plant_faults.py --jobs 1          one at a time; two unless given
    python scripts/plant_faults.py --part 1/2        the first, third, fifth ... of them

The same tests must pass on a copy without a fault first. Which test saw which fault is written to
benchmarks/records/faults.jsonl, or to the file of `--record`, as soon as it is known. The exit code is 0 if
every fault was seen.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FAULTS = ROOT / "tests" / "faults" / "faults.toml"
RECORD = ROOT / "benchmarks" / "records" / "faults.jsonl"
# A fault whose tests take longer is not seen: a hang is no failure.
_LIMIT_SECONDS = 300
_LIMIT_SECONDS_WITHOUT_FAULT = 1_200


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mistake in one file, and the tests that should see it.

    Attributes:
        name: short, of words with hyphens.
        kind: what the changed line decides, such as "noise" or "charge".
        run: which runs have the fault: "memory", "resumed" or "engine".
        breaks: what goes wrong, in one sentence.
        file: the file, from the root of the repository.
        old, new: the text that is replaced, which occurs once in the file, and what replaces it.
        tests: test files or node identifiers; one that fails is enough.
    """

    name: str
    kind: str
    run: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def plant(self, tree: Path) -> None:
        """Change the file in a copy of the source; raise ValueError where the text is not there once."""
        path = tree / self.file
        source = path.read_text(encoding="utf-8")
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: its old text occurs {source.count(self.old)} times in {self.file}"
            )
        path.write_text(source.replace(self.old, self.new), encoding="utf-8")
        drop_caches(tree, path)


def read_faults(path: Path = FAULTS) -> list[Fault]:
    """The faults of a TOML file, in order."""
    with path.open("rb") as file:
        entries: list[dict[str, Any]] = tomllib.load(file)["fault"]
    return [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def drop_caches(tree: Path, changed: Path) -> None:
    """Remove compiled code of a changed file and of all files that import it, directly or not.

    numba compiles functions and constants of other files into a kernel, and renews a kernel only when its own
    file changes.
    """
    package = tree / "src"
    files = {_name_module(path, package): path for path in package.rglob("*.py")}
    imports = {module: set(_list_imports(path)) for module, path in files.items()}
    stale = {_name_module(changed, package)}
    while grown := {module for module in files if imports[module] & stale} - stale:
        stale |= grown
    for module in stale:
        path = files[module]
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def _name_module(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _list_imports(path: Path) -> Iterable[str]:
    """Every module that a file may take a name from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@dataclass(frozen=True)
class Outcome:
    """What pytest said: its exit code, None for one that was ended at the limit, and the failed tests."""

    code: int | None
    failed: list[str]
    seconds: float
    output: str


def run_tests(tree: Path, tests: Sequence[str], limit: float) -> Outcome:
    """Run tests of the checkout on a copy of the source, up to the first that fails."""
    options = ["-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
    begin = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            output, code = "", None
        finally:
            # Tests start processes too, which would outlive one that was ended.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    words = [line.split(" - ")[0].split(" ", 1) for line in output.splitlines()]
    failed = [word[1] for word in words if word[0] in ("FAILED", "ERROR") and "::" in word[-1]]
    return Outcome(code, failed, time.monotonic() - begin, output)


def check_without_fault(faults: Sequence[Fault], tree: Path, jobs: int) -> bool:
    """Whether all named tests pass on a copy as it is; kernels that they compile stay in the copy."""
    tests = sorted({test for fault in faults for test in fault.tests})
    # Tests of one file together: they share what is slow to make.
    files = sorted({test.partition("::")[0] for test in tests})
    parts = [[test for test in tests if test.partition("::")[0] in files[job::jobs]] for job in range(jobs)]
    with ThreadPoolExecutor(jobs) as workers:
        outcomes = list(
            workers.map(lambda part: run_tests(tree, part, _LIMIT_SECONDS_WITHOUT_FAULT), filter(None, parts))
        )
    for outcome in outcomes:
        if outcome.code != 0:
            print(outcome.output, file=sys.stderr)
    return all(outcome.code == 0 for outcome in outcomes)


def try_fault(fault: Fault, clean: Path, folder: Path) -> dict[str, Any]:
    """Plant a fault in a copy of its own and run its tests; return the line of the record."""
    tree = folder / fault.name
    shutil.copytree(clean, tree)
    try:
        fault.plant(tree)
        outcome = run_tests(tree, fault.tests, _LIMIT_SECONDS)
    except ValueError as error:
        outcome = Outcome(-1, [], 0.0, str(error))
    finally:
        shutil.rmtree(tree)
    # 1: tests failed. Anything else, such as a file that cannot be imported, is no test that saw the fault.
    seen_by = outcome.failed[0] if outcome.code == 1 and outcome.failed else None
    if seen_by is None:
        reason = "took too long" if outcome.code is None else f"exit code {outcome.code}"
        print(f"NOT SEEN  {fault.name} ({reason}): {fault.breaks}\n{outcome.output}", flush=True)
    else:
        print(f"seen      {fault.name}  {outcome.seconds:.0f} s  {seen_by}", flush=True)
    line = {"name": fault.name, "kind": fault.kind, "run": fault.run, "file": fault.file}
    return {**line, "seen_by": seen_by, "seconds": round(outcome.seconds, 1)}


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a record by the names of their faults."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["name"]: line for line in lines}


def write_record(faults: Sequence[Fault], lines: Iterable[dict[str, Any]], path: Path) -> None:
    """Replace the lines of these faults; those of faults that are no longer listed go."""
    by_name = read_record(path) | {line["name"]: line for line in lines}
    kept = [by_name[fault.name] for fault in faults if fault.name in by_name]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))


def read_part(text: str) -> tuple[int, int]:
    """A part such as "1/2": its number from 1, and how many there are."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text}: expected I/N with 1 <= I <= N, such as 1/2")
    return int(found[1]), int(found[2])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Check that the tests see planted faults.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Names of faults; all unless given.")
    parser.add_argument("--jobs", type=int, default=2, help="Faults that are tried at a time.")
    parser.add_argument("--part", type=read_part, default=(1, 1), metavar="I/N", help="Every Nth of them.")
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE", help="Where lines go.")
    given = parser.parse_args(arguments)
    listed = read_faults()
    unknown = sorted(set(given.names) - {fault.name for fault in listed})
    if unknown or given.jobs < 1:
        parser.error(f"unknown faults: {', '.join(unknown)}" if unknown else "--jobs: expected at least 1")
    part, parts = given.part
    faults = [fault for fault in listed if not given.names or fault.name in given.names][part - 1 :: parts]
    # Those that took longest last time begin, so that no job waits for one of them in the end.
    earlier = {name: line["seconds"] for name, line in read_record(RECORD).items()}
    faults.sort(key=lambda fault: earlier.get(fault.name, math.inf), reverse=True)
    begin = time.monotonic()
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="hushgraph-faults-") as name:
        clean = Path(name) / "clean"
        # Without what was compiled before: it may be older than what it was compiled from.
        shutil.copytree(
            ROOT / "src", clean / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        if not check_without_fault(faults, clean, given.jobs):
            print("the named tests fail without a fault; repair them first", file=sys.stderr)
            return 1
        print(f"All named tests pass without a fault ({time.monotonic() - begin:.0f} s).", flush=True)
        with ThreadPoolExecutor(given.jobs) as workers:
            tried = [workers.submit(try_fault, fault, clean, Path(name)) for fault in faults]
            for each in as_completed(tried):
                lines.append(each.result())
                write_record(listed, lines[-1:], given.record)
    seen = sum(line["seen_by"] is not None for line in lines)
    print(f"{seen} of {len(lines)} faults were seen in {time.monotonic() - begin:.0f} s.")
    return 0 if seen == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
