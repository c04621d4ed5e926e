"""How long commands take on a terminal, until their first line, and at most without any output.

    python benchmarks/bench_startup.py [NAME...] [--repeats 3] [--against CHECKOUT] [--record FILE]

Every command runs in a process of its own on a pseudo-terminal. With another checkout, both are run in turn,
so that a busy moment does not fall on one of them alone; the table has medians. A record is added to.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from terminal_gaps import Gaps, run_on_terminal  # noqa: E402

PLAN = "plan --method trees --train-nodes 90941 --max-readers 7 --steps 600 --epsilon 4"
# The first makes the run that others read; it is run in any case.
COMMANDS = {
    "train": "train demo --epsilon 4 --steps 50 --out {run}",
    "predict": "predict first demo --out {new}.csv",
    "report": "report first --out {new}.html",
    "compare": "compare demo --epsilon 4 --steps 10 --out {new}",
    "audit": "audit first --trials 200",
    "plan": f"{PLAN} --batch-size 10000",
    "plan-full": f"{PLAN} --batch-size 90941",
    "plan-data": "plan demo --epsilon 4",
    "datasets": "datasets",
    "help": "--help",
    "version": "--version",
}


def run(source: Path, command: str, folder: Path, number: int) -> Gaps:
    """Run one command with files of its own."""
    names = {"run": f"run-{number}" if number else "first", "new": f"new-{len(list(folder.iterdir()))}"}
    gaps = run_on_terminal(command.format(**names).split(), folder, source=source)
    if gaps.exit_code:
        raise SystemExit(f"{command}: exit code {gaps.exit_code}\n{gaps.text[-500:]}")
    return gaps


def tabulate(names: list[str], sources: dict[str, Path], repeats: int) -> list[str]:
    """Measure and return lines of text."""
    taken: dict[tuple[str, str], list[Gaps]] = {}
    with tempfile.TemporaryDirectory() as place:
        for label in sources:
            (Path(place) / label).mkdir()
            # What is compiled on first use is compiled here.
            run(sources[label], COMMANDS["train"], Path(place) / label, 0)
        for number in range(1, repeats + 1):
            for name, (label, source) in product(names, sources.items()):
                gaps = run(source, COMMANDS[name], Path(place) / label, number)
                taken.setdefault((name, label), []).append(gaps)
    heads = [f"{'whole':>8}{'first':>8}{'silent':>8}" for _ in sources]
    lines = [f"{'seconds':26}" + "".join(f"{label:>24}" for label in sources), " " * 26 + "".join(heads)]
    for name in names:
        figures = ""
        for label in sources:
            of = taken[name, label]
            for values in ([g.seconds for g in of], [g.first for g in of], [g.longest for g in of]):
                figures += f"{statistics.median(values):8.2f}"
        lines.append(f"{name:26}{figures}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--against", type=Path, help="an older checkout")
    parser.add_argument("--record", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    sources = {} if arguments.against is None else {"before": arguments.against.resolve() / "src"}
    sources["now"] = ROOT / "src"
    lines = [
        f"python benchmarks/bench_startup.py {' '.join([*arguments.names, ''])}--repeats {arguments.repeats}"
        + (" --against an older checkout" if arguments.against else ""),
        f"{os.cpu_count()} processors, median of {arguments.repeats}: whole command, until its first line, "
        "longest time without output",
        *tabulate(arguments.names or list(COMMANDS), sources, arguments.repeats),
    ]
    print("\n".join(lines))
    if arguments.record is not None:
        with arguments.record.open("a") as record:
            record.write("\n".join([*lines, "", ""]))


if __name__ == "__main__":
    main()
