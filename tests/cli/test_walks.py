"""Walks of newcomers with raw tables of a bank, a hospital, a music service and channels.

Each has the README and the help, and types three commands: `check`, the one that it prints, word by word, and
`report` on the folder that training names. None may fail.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hushgraph.privacy import defaults

Run = Callable[..., tuple[int, str, str]]
TABLES = runpy.run_path(str(Path(__file__).parent.parent.parent / "docs" / "examples" / "tables.py"))
pytestmark = pytest.mark.usefixtures("own_folder")


@dataclass
class Walk:
    """Types commands and counts them.

    Attributes:
        run: calls a command.
        commands: those typed so far.
        dead_ends: those that failed.
    """

    run: Run
    commands: list[str] = field(default_factory=list)
    dead_ends: list[str] = field(default_factory=list)

    def type(self, line: str) -> str:
        """Type a command as in a shell; return what it prints."""
        self.commands.append(line)
        program, *words = shlex.split(line)
        assert program == "hushgraph"
        code, out, err = self.run(*words)
        if code != 0:
            self.dead_ends.append(f"{line}: {err}")
        return out


@dataclass(frozen=True)
class Place:
    """Where somebody works, and what is done there.

    Attributes:
        check: the first command.
        rows: of the table of nodes.
        asked: flags that the printed command must have.
        task: of the run.
    """

    check: str
    rows: int
    asked: str
    task: str


PLACES = {
    "bank": Place(
        "hushgraph check bank/accounts.csv --edges 'bank/transfers_*.csv' --label fraud",
        400,
        "--positive yes --rare --class-weight no=0.1",
        "binary",
    ),
    "hospital": Place(
        "hushgraph check hospital/patients.csv --edges hospital/contacts.csv --label 'length of stay'",
        300,
        "--task number --bounds private",
        "number",
    ),
    "social": Place(
        "hushgraph check social/users.tsv --edges social/follows.csv --label genres",
        300,
        "--task labels --classes 'classical,electronic,folk,hip hop,jazz,metal,pop,rock'",
        "labels",
    ),
    "views": Place(
        "hushgraph check views/channels.csv --edges views/mentions.csv --label views",
        300,
        "--task number --bounds private",
        "number",
    ),
}


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a user would wait for; the commands themselves are as printed.
    monkeypatch.setattr(defaults, "BILLBOARD_STEPS", 2)
    monkeypatch.setattr(defaults, "_HIDDEN", 4)


def walk_to_a_report(run: Run, name: str, *, more: str = "") -> tuple[Walk, dict[str, Any]]:
    place = PLACES[name]
    TABLES[f"write_{name}"](Path(name), place.rows)
    walk = Walk(run)
    printed = walk.type(place.check + more)
    following = re.search(r"^Next: (hushgraph train .*)$", printed, re.MULTILINE)
    assert following is not None, walk.dead_ends
    assert place.asked in following[1]
    trained = walk.type(following[1])
    folder = re.search(r"^folder +(\S+)", trained, re.MULTILINE)
    assert folder is not None, walk.dead_ends
    walk.type(f"hushgraph report {folder[1]}")
    report = json.loads((Path(folder[1]) / "report.json").read_text())
    assert (Path(folder[1]) / "report.html").exists()
    assert (Path(folder[1]) / "release").is_dir()
    return walk, report


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("name", PLACES)
def test_three_commands_and_no_dead_end(name: str, run: Run) -> None:
    walk, report = walk_to_a_report(run, name)
    assert walk.dead_ends == []
    assert len(walk.commands) == 3
    assert report["guarantee"]["guarantee"] == "holds"
    # What check read off rows is listed for whoever signs.
    assert report["assumptions"]


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("name", PLACES)
def test_the_same_with_a_file_elsewhere(name: str, run: Run) -> None:
    Path("my files").mkdir()
    walk, _ = walk_to_a_report(run, name, more=" --out 'my files/other.toml'")
    assert walk.dead_ends == []
    assert "hushgraph train 'my files/other.toml'" in walk.commands[1]


@pytest.mark.usefixtures("_quick")
def test_the_release_alone_reads_raw_tables(run: Run) -> None:
    """Rules for cells and constants of scaling are part of it: new rows are written as the first were."""
    walk, _ = walk_to_a_report(run, "bank")
    (release,) = Path("runs").glob("*/release")
    release.rename("published")
    head = "account;income;age;balance;largest transfer;opened;logins;countries;paid in cash;channel\n"
    row = "{};21.050,00;24;-310,00;9.800,00;02.01.2025;140;4;61,5%;app\n"
    Path("new.csv").write_text(head + row.format("n1") + row.format("n2").replace("21.050,00", ""))
    Path("lists.csv").write_text("payer;payee;amount\nn1;account000001;1.312,54\nn2;phone7;\n")
    walk.type("hushgraph predict published new.csv --edges lists.csv --new --threshold 0.5 --out scores.csv")
    assert walk.dead_ends == []
    assert Path("scores.csv").read_text().splitlines()[0].startswith("account,class,p_yes")
    # The same accounts again, one of them written in another way.
    Path("new.csv").write_text(head + row.format("n1").replace("21.050,00", "21050.00"))
    walk.type("hushgraph predict published new.csv --edges lists.csv --new --out again.csv")
    assert len(walk.dead_ends) == 1
    assert (
        "'21050.00' is not a number; correct it (a run keeps the columns of its training)"
        in walk.dead_ends[0]
    )


def test_every_question_of_a_node_has_a_walk() -> None:
    assert {place.task for place in PLACES.values()} == {"binary", "labels", "number"}
