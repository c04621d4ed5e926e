"""Measure which lines and branches the tests run; write the record and the sentence of the README.

    python scripts/measure_coverage.py [--workers 2] [TESTS ...]

Processes that tests start are measured too. Compiled kernels run outside of Python and are left out. Without
TESTS the whole suite runs, in several times its time. The record, benchmarks/records/coverage.json, names the
tests that ran and has the counts of every room of the package.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "hushgraph"
DATA = ROOT / ".coverage"
RECORD = ROOT / "benchmarks" / "records" / "coverage.json"
README = ROOT / "README.md"
_PLACE = re.compile(r"<!-- coverage -->.*?<!-- end -->", re.DOTALL)


def summarise(report: dict[str, Any], *, tests: list[str], commit: str) -> dict[str, Any]:
    """The record, from the JSON report of coverage."""
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    rooms: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(names, 0))
    for path, file in sorted(report["files"].items()):
        if not (ROOT / path).is_relative_to(PACKAGE):
            # Tests make copies of the package, and modules of its name.
            continue
        inside = (ROOT / path).relative_to(PACKAGE).parts
        room = f"{inside[0]}/" if len(inside) > 1 else "root"
        for name in names:
            rooms[room][name] += file["summary"][name]
    total = {name: sum(room[name] for room in rooms.values()) for name in names}
    return {
        "commit": commit,
        "tests": tests or ["tests"],
        "total": total,
        "rooms": dict(sorted(rooms.items())),
    }


def give_percent(counts: dict[str, int]) -> float:
    """Lines and branches that ran, in percent of all."""
    ran = counts["covered_lines"] + counts["covered_branches"]
    return 100 * ran / max(1, counts["num_statements"] + counts["num_branches"])


def render(record: dict[str, Any]) -> str:
    """The sentence of the README."""
    total, tests = record["total"], record["tests"]
    which = "the whole suite" if tests == ["tests"] else f"a part of the suite ({', '.join(tests)})"
    lines = 100 * total["covered_lines"] / total["num_statements"]
    branches = 100 * total["covered_branches"] / total["num_branches"]
    sentence = (
        f"Coverage of {which}: {give_percent(total):.1f}% ({lines:.1f}% of lines and {branches:.1f}% of "
        "branches; compiled kernels are not counted). `make coverage` measures it."
    )
    return f"<!-- coverage -->\n\n{textwrap.fill(sentence, 120)}\n\n<!-- end -->"


def measure(tests: list[str], workers: int) -> dict[str, Any]:
    """Run the tests under coverage; the JSON report."""
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir()
    environment = {**os.environ, "COVERAGE_FILE": str(DATA / "data")}
    coverage = [sys.executable, "-m", "coverage"]
    pytest = ["-m", "pytest", "-p", "no:cacheprovider", *tests]
    spread = ["-n", str(workers), "--dist", "loadfile"] if workers > 1 else []
    ended = subprocess.run([*coverage, "run", *pytest, *spread], cwd=ROOT, env=environment, check=False)
    if ended.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with {ended.returncode}")
    out = DATA / "report.json"
    for command in (["combine", "--quiet"], ["json", "--quiet", "-o", str(out)]):
        subprocess.run([*coverage, *command], cwd=ROOT, env=environment, check=True)
    report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return report


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", metavar="TESTS")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    record = summarise(measure(given.tests, given.workers), tests=given.tests, commit=commit)
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    README.write_text(_PLACE.sub(lambda _: render(record), readme), encoding="utf-8")
    for room, counts in record["rooms"].items():
        print(f"{room:16}{give_percent(counts):6.1f}%")
    print(f"{'all':16}{give_percent(record['total']):6.1f}%")


if __name__ == "__main__":
    main()
