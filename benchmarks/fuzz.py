"""Fuzz every file and every flag that the command reads: no traceback, no hang, nothing written elsewhere.

    python benchmarks/fuzz.py --inputs 10000

Inputs are drawn from a seed, so that the same numbers give the same inputs. Each is one call of the command,
in this process. The counts go to benchmarks/records/fuzz.json. tests/claims/test_fuzz.py runs 180.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from fuzz_inputs import KINDS
from fuzz_place import Place

ALLOWED = {0, 1, 2, 3, 130}
SECONDS = 30
# More memory than any of these inputs has a right to.
MEMORY = 12 << 30
RECORD = Path(__file__).parent / "records" / "fuzz.json"


@dataclass
class Found:
    """What became of the inputs of one kind."""

    inputs: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)


class TooLong(BaseException):
    """Not an Exception, so that nothing that catches those can hide it."""


def ring(number: int, frame: Any) -> None:
    raise TooLong


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(arguments: list[str]) -> tuple[int | None, str, str]:
    """Exit code (None for none), standard error, and what is wrong with that, or nothing."""
    from hushgraph.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    try:
        with at_most(SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    except TooLong:
        return None, err.getvalue(), f"took over {SECONDS} seconds"
    except BaseException:
        return None, err.getvalue(), traceback.format_exc(limit=-6)
    said = err.getvalue()
    if code not in ALLOWED:
        return code, said, f"exit code {code}"
    if code != 0 and not (said.startswith("hushgraph: ") and said.count("\n") == 1 and said.endswith("\n")):
        return code, said, f"exit code {code} with other than one line on standard error: {said[:300]!r}"
    if len(said) > 2_000:
        return code, said, f"a line of {len(said)} characters"
    return code, said, ""


def outside(root: Path, inside: Path) -> dict[str, tuple[int, int]]:
    """Everything under `root` that is not under `inside`, with size and time of change."""
    found = {}
    for path in root.rglob("*"):
        if inside not in path.parents and path != inside:
            about = path.lstat()
            found[str(path)] = (about.st_size, about.st_mtime_ns if not path.is_dir() else 0)
    return found


def fuzz(
    inputs: int,
    seed: int,
    root: Path,
    *,
    first: int = 0,
    progress: Callable[[int, str], None] = lambda done, wrong: None,
) -> dict[str, Found]:
    """Call the command on `inputs` inputs from number `first` on; good files are made under `root` before."""
    # Imported here, since its own warnings are nobody's fault.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.data  # noqa: F401
    import typer.main

    place = Place.make(root)
    # The same commands every time, and building them takes longer than most inputs do.
    build = typer.main.get_command
    typer.main.get_command = functools.lru_cache(build)
    found = {kind: Found() for kind in KINDS}
    kinds = list(KINDS)
    home, temporary = Path.cwd(), tempfile.gettempdir()
    box = root / "box"
    (root / "tmp").mkdir()
    before = outside(root, box)
    try:
        # Temporary folders are watched too: none may stay.
        tempfile.tempdir = str(root / "tmp")
        for number in range(first, first + inputs):
            kind = kinds[number % len(kinds)]
            rng = random.Random(f"{seed} {number}")
            box.mkdir()
            os.chdir(box)
            arguments = KINDS[kind](rng, place, box)
            begin = time.monotonic()
            with warnings.catch_warnings():
                # These are the ones that a user would see.
                for kind_shown in (UserWarning, RuntimeWarning):
                    warnings.simplefilter("error", kind_shown)
                code, _, wrong = call(arguments)
            about = found[kind]
            about.inputs += 1
            about.codes[str(code)] += 1
            about.slowest = max(about.slowest, time.monotonic() - begin)
            if not wrong and outside(root, box) != before:
                gc.collect()
                changed = set(outside(root, box).items()) ^ set(before.items())
                wrong = f"outside the given folder: {sorted(changed)[:3]}" if changed else ""
                before = outside(root, box)
            if not wrong and (place.root / "the-payload-ran").exists():
                wrong = "code from a file was run"
            if wrong:
                wrong = f"input {number}: {arguments}\n{wrong}"
                about.faults.append(wrong)
            os.chdir(home)
            shutil.rmtree(box)
            progress(number + 1, wrong)
    finally:
        os.chdir(home)
        tempfile.tempdir = temporary
        typer.main.get_command = build
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to try one again")
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # In memory where that is possible: every run syncs its ledger.
    root = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    begin = time.monotonic()

    def progress(done: int, wrong: str) -> None:
        if wrong:
            print(wrong, file=sys.stderr, flush=True)
        if done % 500 == 0:
            print(f"{done} inputs, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    try:
        found = fuzz(given.inputs, given.seed, root, first=given.first, progress=progress)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    faults = [fault for about in found.values() for fault in about.faults]
    record = {
        "inputs": given.inputs,
        "seed": given.seed,
        "seconds": round(time.monotonic() - begin),
        "faults": len(faults),
        "kinds": {
            kind: {
                "inputs": about.inputs,
                "exit_codes": dict(sorted(about.codes.items())),
                "slowest_seconds": round(about.slowest, 2),
                "faults": len(about.faults),
            }
            for kind, about in found.items()
        },
    }
    given.record.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
