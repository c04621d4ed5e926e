"""A release in an object store: files first, one pointer last, and nothing else of the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import hushgraph as hg
from hushgraph.audit.source import is_run, settings_of_run
from hushgraph.errors import RunError
from hushgraph.runs import store

ADDRESS = "memory://models/people"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A store in memory that can neither rename nor move, and an empty cache."""
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path / "cache"))
    system = fsspec.filesystem("memory")
    for name in ("mv", "rename", "move", "cp_file", "copy"):
        monkeypatch.setattr(type(system), name, None)
    system.store.clear()
    yield system
    system.store.clear()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    data = hg.datasets.synthetic(num_nodes=80, num_classes=2, seed=1)
    out = tmp_path_factory.mktemp("runs") / "run"
    return hg.train(data, epsilon=2.0, steps=3, hidden=4, device="cpu", out=out)


def test_what_was_put_there_predicts(memory: Any, trained: hg.Run, run: Any) -> None:
    code, said, _ = run("release", trained.folder.path, "--to", ADDRESS, "--json")
    assert (code, json.loads(said.splitlines()[-1])["to"]) == (0, ADDRESS)
    loaded = hg.Run.load(ADDRESS, device="cpu")
    rows = np.ones((2, trained.folder.num_features), np.float32)
    expected, _ = trained.predict_new(rows, [[1, 2], [3]])
    np.testing.assert_array_equal(loaded.predict_new(rows, [[1, 2], [3]])[0], expected)
    assert loaded.epsilon == trained.epsilon
    code, _, errors = run("report", ADDRESS, "--card")
    assert (code, "give --out README.md" in errors) == (2, True)
    assert is_run(ADDRESS)
    assert settings_of_run(ADDRESS).plan.epsilon == trained.epsilon
    assert not is_run("memory://models/nothing")
    # Path makes one slash of two.
    assert hg.Run.load(Path(ADDRESS), device="cpu").epsilon == trained.epsilon


def test_only_the_release_is_there(memory: Any, trained: hg.Run) -> None:
    store.put_release(trained.folder.release_path, ADDRESS)
    released = {path.read_bytes() for path in trained.folder.release_path.rglob("*") if path.is_file()}
    pointer = memory.cat_file(f"{ADDRESS}/{store.POINTER}")
    assert {memory.cat_file(name) for name in memory.find(ADDRESS)} == released | {pointer}


def test_a_report_in_the_folder_is_not_published(memory: Any, trained: hg.Run, tmp_path: Path) -> None:
    """It may show exact figures, where it was made from the data."""
    release = tmp_path / "release"
    shutil.copytree(trained.folder.release_path, release)
    (release / "report.html").write_text("exact")
    (release / "notes").mkdir()
    (release / "notes" / "weights.safetensors").write_text("private")
    store.put_release(release, ADDRESS)
    assert sorted(path.name for path in store.fetch_release(ADDRESS).iterdir()) == sorted(
        path.name for path in trained.folder.release_path.iterdir()
    )
    assert not {b"exact", b"private"} & {memory.cat_file(name) for name in memory.find(ADDRESS)}


def test_the_pointer_is_written_last(memory: Any, trained: hg.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever upload fails, whoever reads sees the release of before, or none."""
    release = trained.folder.release_path
    files = sum(path.is_file() for path in release.rglob("*"))
    put = type(memory).put_file
    for fails_at in range(files):
        calls = iter(range(files))

        def fail(self: Any, *given: Any, at: int = fails_at, calls: Any = calls, **more: Any) -> Any:
            if next(calls) == at:
                raise OSError("the network is gone")
            return put(self, *given, **more)

        monkeypatch.setattr(type(memory), "put_file", fail)
        with pytest.raises(RunError, match=r"memory://models/people: .*the network is gone"):
            store.put_release(release, ADDRESS)
        with pytest.raises(RunError, match="nothing was found there"):
            store.fetch_release(ADDRESS)
    monkeypatch.setattr(type(memory), "put_file", put)
    store.put_release(release, ADDRESS)
    assert store.fetch_release(ADDRESS).is_dir()


def test_a_second_release_takes_the_place_of_the_first(memory: Any, trained: hg.Run, tmp_path: Path) -> None:
    store.put_release(trained.folder.release_path, ADDRESS)
    first = store.fetch_release(ADDRESS)
    later = tmp_path / "later"
    shutil.copytree(trained.folder.release_path, later)
    (later / "README.md").write_text("another card")
    store.put_release(later, ADDRESS)
    second = store.fetch_release(ADDRESS)
    assert (second / "README.md").read_text() == "another card"
    assert (first / "README.md").read_text() != "another card"


def test_damage_is_one_line(memory: Any, trained: hg.Run) -> None:
    store.put_release(trained.folder.release_path, ADDRESS)
    digest = json.loads(memory.cat_file(f"{ADDRESS}/{store.POINTER}"))["files"]["weights.safetensors"]
    memory.pipe_file(f"{ADDRESS}/files/{digest}", b"something else")
    with pytest.raises(RunError, match=r"weights\.safetensors is damaged; put the release there again"):
        store.fetch_release(ADDRESS)
    assert not list((Path(store.data_root()) / "releases").iterdir())


@pytest.mark.parametrize(
    "pointer",
    [b"", b"[]", b'{"format": 2, "files": {}}', b'{"format": 1, "files": {"../x": "%s"}}' % (b"0" * 64)],
)
def test_a_pointer_leads_nowhere_else(memory: Any, pointer: bytes) -> None:
    memory.pipe_file(f"{ADDRESS}/{store.POINTER}", pointer)
    with pytest.raises(RunError, match="is not the pointer of a release"):
        store.fetch_release(ADDRESS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "models/people"], "'models/people': expected the address of an object store"),
        (["--to", "nowhere://models"], "nowhere://models: "),
    ],
)
def test_mistakes_are_one_line(memory: Any, trained: hg.Run, run: Any, words: list[str], said: str) -> None:
    code, out, errors = run("release", trained.folder.path, *words)
    assert (code, out) == (2, "")
    assert said in errors
    assert len(errors.splitlines()) == 1
