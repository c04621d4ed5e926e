"""How long `import hushgraph` and the commands that touch no data take, each in a process of its own.

python benchmarks/bench_startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 5
PLAN = "plan --train-nodes 90941 --max-readers 5 --batch-size 10000 --steps 600 --epsilon 8"
PROGRAMS = {
    "python": ["-c", "pass"],
    "import hushgraph": ["-c", "import hushgraph"],
    "hushgraph --version": ["-m", "hushgraph", "--version"],
    "hushgraph --help": ["-m", "hushgraph", "--help"],
    "hushgraph plan": ["-m", "hushgraph", *PLAN.split()],
}


def seconds(arguments: list[str]) -> float:
    """Wall-clock seconds of one process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    # Interleaved, so that a busy moment does not fall on one of them alone.
    taken = [{name: seconds(arguments) for name, arguments in PROGRAMS.items()} for _ in range(REPEATS)]
    print(f"seconds, median and fastest of {REPEATS}")
    for name in PROGRAMS:
        times = [each[name] for each in taken]
        print(f"{name:20} {statistics.median(times):6.2f} {min(times):6.2f}")


if __name__ == "__main__":
    main()
