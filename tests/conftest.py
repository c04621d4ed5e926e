"""One thread for every test, Ctrl-C as in a terminal, and what tests of the command share."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# On small inputs threads only wait for each other. Those of numpy and SciPy start with the import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell lets commands in the background ignore SIGINT, and their children too; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collectstart() -> None:
    """Called in processes that run tests; the one that only hands out files needs nothing of this."""
    prepare()


@functools.cache
def prepare() -> None:
    """One thread, and commands that are built once."""
    # Until all tests are imported, nothing is garbage.
    gc.disable()
    import numba
    import torch
    import typer.main

    from hushgraph.cli import app

    torch.set_num_threads(1)
    numba.set_num_threads(1)
    # Commands are built anew whenever one is called, which takes longer than most of what tests call.
    build = functools.cache(app.build_app)
    app.build_app = lambda names=tuple(app._COMMANDS): build(tuple(names))
    typer.main.get_command = functools.cache(typer.main.get_command)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays until the end: modules and tests, a million objects."""
    gc.enable()
    gc.freeze()
    atexit.register(gc.unfreeze)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Let the second process read the files from the last on, so that each compiles half of them."""
    report = yield
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


# Two processes take whole files, in this order and then all others. The first two files compile different
# kernels, which both processes use afterwards. The longest follow, so that no core waits for one at the end.
FIRST = (
    "claims/test_clipped_sum.py",
    "claims/test_board_faults.py",
    "training/test_distributed.py",
    "test_documentation.py",
    "cli/test_silence.py",
    "reproduction/test_quick.py",
    "test_site.py",
    "browser/test_pages.py",
    "claims/test_rings.py",
    "claims/test_norms.py",
    "privacy/test_charges.py",
    "audit/test_attack.py",
    "claims/test_budget.py",
    "test_packaging.py",
    "engines/test_streaming.py",
    "claims/test_billboard.py",
    "claims/test_extreme_features.py",
    "claims/test_stability.py",
    "claims/test_billboard_runs.py",
    "cli/test_audit.py",
    "training/test_threads.py",
    "claims/test_one_row.py",
    "audit/test_billboard.py",
    "audit/test_numbers.py",
    "cli/test_mistakes.py",
    "training/test_train.py",
    "claims/test_resume.py",
    "claims/test_dominating_pair.py",
    "claims/test_one_row_decides_nothing.py",
    "claims/test_fuzz.py",
    "datasets/tables/test_reading.py",
    "audit/test_scene.py",
    "cli/test_terminal.py",
    "datasets/tables/test_mistakes.py",
    "accounting/test_pair_accountant.py",
    "cli/test_completion.py",
    "accounting/test_calibrate.py",
    "test_benchmarks.py",
    "engines/test_duck.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: (places.get(item.path, len(FIRST)), item.path))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls the command; gives its exit code, output and errors."""

    from hushgraph.cli.app import main

    def call(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is one that only this test uses."""
    monkeypatch.chdir(tmp_path)
