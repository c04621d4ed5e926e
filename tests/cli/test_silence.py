"""No command leaves a terminal without output for long."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from effort import IS_THOROUGH
from hushgraph.cli.app import main
from terminal_gaps import run_on_terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are Unix's")

FIRST_LINE, LONGEST_SILENCE = 1.0, 2.0
_NUMPY_SECONDS = 0.2


def measure_business() -> float:
    """How much slower than a quiet one this machine is just now, at least 1."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    return max(1.0, (time.monotonic() - begin) / _NUMPY_SECONDS)


@pytest.fixture(scope="module")
def business(folder: Path) -> list[float]:
    """As measured between commands: the last before a command is the one behind the command before."""
    return [measure_business()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run; what is compiled on first use is compiled then, and kept for other processes."""
    path = tmp_path_factory.mktemp("silence")
    run = str(path / "first")
    assert main(["train", "demo", "--epsilon", "4", "--steps", "20", "--quiet", "--out", run]) == 0
    (path / "tables").mkdir()
    (path / "tables" / "nodes.csv").write_text("id,age,label\na,1,0\nb,2,1\nc,3,1\n")
    (path / "tables" / "edges.csv").write_text("source,target\na,b\nb,c\n")
    return path


COMMANDS = [
    "train demo --epsilon 4 --steps 20 --out again",
    "audit first --trials 20",
    "plan --method trees --train-nodes 90941 --max-readers 5 --batch-size 10000 --epsilon 8",
    "check tables --out check.toml",
]
# The first trains as often as it has models; the others import what those above import, and then do little.
COMMANDS += [
    "compare demo --epsilon 4 --steps 3 --out comparison",
    "predict first demo --out predictions.csv",
    "report first",
    "datasets",
] * IS_THOROUGH


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_not_silent(folder: Path, business: list[float], command: str) -> None:
    gaps = run_on_terminal(command.split(), folder)
    assert gaps.exit_code == 0, gaps.text
    # Twice the limit on a quiet machine, since no test should depend on a moment.
    business.append(measure_business())
    allowed = 2 * max(business[-2:])
    assert gaps.first <= FIRST_LINE * allowed
    assert gaps.longest <= LONGEST_SILENCE * allowed


def test_a_silent_command_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "hushgraph.py").write_text("import time\nprint('a')\ntime.sleep(0.6)\nprint('b')\n")
    gaps = run_on_terminal([], tmp_path)
    assert gaps.exit_code == 0
    # What is printed may be read late.
    assert gaps.longest >= 0.4
    assert gaps.first < gaps.longest + 0.6
