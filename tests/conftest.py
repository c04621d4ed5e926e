"""One thread for every test, no waiting for disks, Ctrl-C as in a terminal, and what tests share."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import itertools
import math
import os
import random
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_URANDOM, _RANDBITS = os.urandom, secrets.randbits

# On small inputs threads only wait for each other. Those of numpy and SciPy start with the import; processes
# that tests start inherit the settings.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# A shell lets commands in the background ignore SIGINT, and their children too; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collectstart() -> None:
    """Called in processes that run tests; the one that only hands out tests needs nothing of this."""
    prepare()


@functools.cache
def prepare() -> None:
    """One thread, no waiting for disks, and commands that are built once."""
    # Until all tests are imported, nothing is garbage.
    gc.disable()
    import numba
    import torch
    import typer.main

    from hushgraph.cli import app
    from hushgraph.figures import describe

    torch.set_num_threads(1)
    numba.set_num_threads(1)
    # Only a machine that loses its power tells what was synced, and no test does that. Tests of the order
    # of what is synced put their own function here.
    os.fsync = lambda file: None
    # Commands are built anew whenever one is called, which takes longer than most of what tests call.
    build = functools.cache(app.build_app)
    app.build_app = lambda names=tuple(app._COMMANDS): build(tuple(names))
    typer.main.get_command = functools.cache(typer.main.get_command)
    lend_databases()
    # Intervals of figures take more time than most runs of tests. `exact_intervals` has all draws.
    describe._NOISE_DRAWS, describe._SAMPLING_DRAWS = 400, 100


def lend_databases() -> None:
    """Open databases of files inside one DuckDB: starting one takes 10 ms, more than reading small tables."""
    import duckdb

    connect, numbers = duckdb.connect, itertools.count()
    shared: list[duckdb.DuckDBPyConnection] = []

    @contextlib.contextmanager
    def lend(path: str, config: dict[str, str]) -> Iterator[duckdb.DuckDBPyConnection]:
        if not shared:
            shared.append(connect())
        name = f"lent{next(numbers)}"
        with shared[0].cursor() as connection:
            for setting, value in config.items():
                connection.execute(f"SET {setting} = '{value}'")
            connection.execute(f"ATTACH '{path}' AS {name}")
            connection.execute(f"USE {name}")
            try:
                yield connection
            finally:
                connection.execute("USE memory")
                connection.execute(f"DETACH {name}")

    def choose(path: str = ":memory:", **settings: Any) -> Any:
        return lend(path, **settings) if path.endswith("/tables") else connect(path, **settings)

    duckdb.connect = choose


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Random bytes of a test follow from its name, so that it fails always or never.

    Many tests train private runs or estimate epsilon, and with fresh noise one of thousands fails by chance.
    HUSHGRAPH_FRESH_NOISE=1 takes noise from the operating system. Processes that a test starts always do.
    """
    if os.environ.get("HUSHGRAPH_FRESH_NOISE") == "1":
        return
    from hushgraph.noise.normal import KEY_BYTES

    streams, numbers = threading.local(), itertools.count()

    def find_stream() -> random.Random:
        # One for each thread: noise that is drawn ahead must not shift what the test itself draws.
        if not hasattr(streams, "own"):
            number = next(numbers)
            streams.own = random.Random(f"{item.nodeid} {number}" if number else item.nodeid)
        return streams.own

    def draw(size: int) -> bytes:
        # Keys alone: a compiler that names its files asks too.
        return find_stream().randbytes(size) if size == KEY_BYTES else _URANDOM(size)

    find_stream()
    os.urandom = draw
    secrets.randbits = lambda bits: find_stream().getrandbits(bits)


def pytest_runtest_teardown() -> None:
    os.urandom, secrets.randbits = _URANDOM, _RANDBITS


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays until the end: modules and tests, a million objects."""
    gc.enable()
    gc.freeze()
    atexit.register(gc.unfreeze)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Calls the command; gives its exit code, output and errors."""

    from hushgraph.cli.app import main
    from hushgraph.training import progress

    # A slow machine must not add lines.
    monkeypatch.setattr(progress, "_BEAT", math.inf)

    def call(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def exact_intervals() -> Iterator[None]:
    """Ends of intervals of figures come from as many draws as in the product."""
    from hushgraph.figures import describe

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(describe, "_NOISE_DRAWS", 4000)
        patch.setattr(describe, "_SAMPLING_DRAWS", 500)
        yield


@pytest.fixture
def small_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain checks of a third as many rows: every fault is as plain there."""
    from hushgraph.audit import watched

    monkeypatch.setattr(watched, "_NODES", 80)
    monkeypatch.setattr(watched, "_EDGES", 400)


@pytest.fixture
def quick_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits make no plain checks and attack a row of many places a few times: most of their time.

    For tests of other parts. `tests/claims/test_board_faults.py` makes the checks with every fault.
    """
    from hushgraph.audit import attack

    monkeypatch.setattr(attack, "check_runs", lambda *_: ())
    monkeypatch.setattr(attack, "_LARGE_TRIALS", 20)


@pytest.fixture(scope="module", autouse=True)
def _own_registers() -> Iterator[None]:
    """Tasks, charges, plans and clipping rules that the tests of a file register are gone after it."""
    from hushgraph.privacy import clipping
    from hushgraph.privacy.charges import charge
    from hushgraph.privacy.plans import plan
    from hushgraph.tasks import task

    registers: list[dict[str, Any]] = [task._TASKS, charge._KINDS, plan._METHODS, clipping._RULES]
    before = [set(register) for register in registers]
    yield
    for register, known in zip(registers, before, strict=True):
        for name in set(register) - known:
            # Modules of the package are imported once.
            if not register[name].__module__.startswith("hushgraph."):
                del register[name]


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is one that only this test uses."""
    monkeypatch.chdir(tmp_path)
