"""Promise: under one charge at most one set of tables is ever visible, wherever a run is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph._files import draft_path
from hushgraph.errors import RunError
from hushgraph.figures.tables import NoisyTables
from hushgraph.graph.graph import Graph
from hushgraph.privacy.charges import FIGURES
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training.parts import Parts
from own_parts import train_with

SETTINGS: dict[str, Any] = {"epsilon": 2.0, "steps": 4, "hidden": 4, "device": "cpu"}
REAL = Parts()


class KilledError(Exception):
    """Ends a run at an exact point."""


def die(*_: Any, **__: Any) -> Any:
    raise KilledError


def charge_and_die(ledger: Any, charge: Any, **given: Any) -> None:
    REAL.charge(ledger, charge, **given)
    if charge.name == FIGURES:
        raise KilledError


def release_and_die(*given: Any, **named: Any) -> Any:
    REAL.release_tables(*given, **named)
    raise KilledError


def announce_and_die(tables: Any, path: Path, announce: Callable[[], None]) -> None:
    announce()
    raise KilledError


def save_and_die(tables: Any, path: Path, announce: Callable[[], None]) -> None:
    REAL.save_counts(tables, path, announce)
    raise KilledError


# Where a run is killed, in the order of what happens.
KILLS: dict[str, Parts] = {
    "after the charge": Parts(charge=charge_and_die),
    "before the count": Parts(count_rows=die),
    "before the noise": Parts(release_tables=die),
    "after the noise": Parts(release_tables=release_and_die),
    "before the file": Parts(save_counts=die),
    "after the line": Parts(save_counts=announce_and_die),
    "after the file": Parts(save_counts=save_and_die),
}
UNSEEN = [name for name in KILLS if name not in ("after the line", "after the file")]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4, seed=1)


@pytest.fixture(scope="module")
def killed(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed at each of these points, and one that is done."""
    home = tmp_path_factory.mktemp("killed")
    for name, parts in KILLS.items():
        with pytest.raises(KilledError):
            train_with(parts, graph, home / name, **SETTINGS)
    train_with(REAL, graph, home / "done", **SETTINGS)
    return home


@pytest.fixture
def run(request: pytest.FixtureRequest, killed: Path, tmp_path: Path) -> Path:
    shutil.copytree(killed / request.param, tmp_path / "run")
    return tmp_path / "run"


def at(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("run", names, indirect=True)


def count_charges(path: Path) -> int:
    plan = RunFolder.open(path).plan
    charge = plan.evaluation_charge
    assert charge is not None
    return Ledger.open(path / "ledger.jsonl", plan=plan, read_only=True).count_charged(charge)


def list_releases(path: Path) -> list[str]:
    """Digests of tables in the ledger, in order."""
    lines = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    return [line["digest"] for line in lines if line.get("released") == FIGURES]


def digest(path: Path) -> str:
    return NoisyTables.load(path / "figures.json", plan=RunFolder.open(path).plan.fingerprint()).digest


def refuse(path: Path, graph: Graph, *words: str) -> None:
    with pytest.raises(RunError) as caught:
        hg.resume(path, graph, device="cpu")
    for word in words:
        assert word in str(caught.value)


@at(*UNSEEN)
def test_what_nobody_saw_is_made_under_the_charge_that_paid_for_it(run: Path, graph: Graph) -> None:
    assert not list(run.glob("figures*"))
    assert (count_charges(run), list_releases(run)) == (1, [])
    done = hg.resume(run, graph, device="cpu")
    assert (done.result["guarantee"], done.result["figures"]) == ("holds", "covered")
    assert count_charges(run) == 1
    assert list_releases(run) == [digest(run)]


@at("after the line")
def test_what_may_have_been_seen_is_not_made_again(run: Path, graph: Graph) -> None:
    assert not list(run.glob("figures*"))
    for _ in range(3):
        refuse(run, graph, "figures was released and is missing", "charges the data anew")
        assert not list(run.glob("figures*"))
        assert not (run / "release").exists()
    assert len(list_releases(run)) == 1


@at("after the file")
def test_tables_that_are_there_are_kept(run: Path, graph: Graph) -> None:
    before = (run / "figures.json").read_bytes()
    done = hg.resume(run, graph, device="cpu")
    assert (run / "figures.json").read_bytes() == before
    assert count_charges(run) == 1
    assert list_releases(run) == [digest(run)]
    shown = json.loads((run / "release" / "figures.json").read_text())
    assert shown["tables"] == json.loads(before)["tables"]
    assert done.figures == shown["figures"]
    # Nor are they made once more by a run that is done.
    hg.resume(run, graph, device="cpu")
    assert (run / "figures.json").read_bytes() == before


@at("after the file")
def test_a_second_evaluation_is_never_made(run: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"count_rows": die, "release_tables": die, "save_counts": die}
    monkeypatch.setattr(Parts.__init__, "__kwdefaults__", {**Parts.__init__.__kwdefaults__, **defaults})
    assert hg.resume(run, graph, device="cpu").result["figures"] == "covered"


@at("after the file", "done")
def test_tables_that_were_moved_away_end_the_run(run: Path, graph: Graph) -> None:
    """Of a finished run, the release that is there stays as it is, and none is made without its tables."""
    (run / "figures.json").rename(run.parent / "kept")
    is_done = (run / "release").exists()
    shutil.rmtree(run / "release", ignore_errors=True)
    words = ("figures.json is missing",) if is_done else ("figures was released and is missing",)
    refuse(run, graph, *words)
    assert not (run / "figures.json").exists()
    assert not (run / "release").exists()
    (run.parent / "kept").rename(run / "figures.json")
    assert hg.resume(run, graph, device="cpu").result["guarantee"] == "holds"
    assert (run / "release" / "figures.json").exists()


@at("after the file", "done")
def test_other_tables_in_their_place_are_refused(run: Path, graph: Graph, killed: Path) -> None:
    """Of a run with the same plan, so that nothing but the digest tells them apart."""
    other = "done" if not (run / "release").exists() else "after the file"
    shutil.copyfile(killed / other / "figures.json", run / "figures.json")
    refuse(run, graph, "not the one that this run released")


@at("after the file")
def test_a_complete_draft_is_the_release_and_half_of_one_ends_the_run(run: Path, graph: Graph) -> None:
    file, before = run / "figures.json", digest(run)
    content = file.read_bytes()
    file.unlink()
    draft_path(file).write_bytes(content[: len(content) // 2])
    refuse(run, graph, "is not complete", "charges the data anew")
    draft_path(file).write_bytes(content)
    hg.resume(run, graph, device="cpu")
    assert digest(run) == before
    assert not draft_path(file).exists()


@at("after the charge")
def test_tables_without_a_line_of_their_own_are_put_on_record(run: Path, graph: Graph, killed: Path) -> None:
    shutil.copyfile(killed / "done" / "figures.json", run / "figures.json")
    hg.resume(run, graph, device="cpu")
    assert list_releases(run) == [digest(run)] == list_releases(killed / "done")


def test_the_charge_and_the_digest_come_first(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "run"
    seen: list[tuple[str, int, int, bool]] = []

    def note(what: str) -> None:
        seen.append((what, count_charges(path), len(list_releases(path)), (path / "figures.json").exists()))

    def count_rows(*given: Any, **named: Any) -> Any:
        note("count")
        return REAL.count_rows(*given, **named)

    def save_counts(tables: Any, file: Path, announce: Callable[[], None]) -> None:
        def announce_noted() -> None:
            announce()
            note("announced")

        note("save")
        REAL.save_counts(tables, file, announce_noted)
        note("saved")

    train_with(Parts(count_rows=count_rows, save_counts=save_counts), graph, path, **SETTINGS)
    assert seen == [
        ("count", 1, 0, False),
        ("count", 1, 0, False),
        ("save", 1, 0, False),
        ("announced", 1, 1, False),
        ("saved", 1, 1, True),
    ]
