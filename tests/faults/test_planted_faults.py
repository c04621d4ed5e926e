"""The list of planted faults fits source and tests; the command that plants them tells seen from unseen.

`make faults` plants them, which takes minutes. Here the list is only read.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "plant_faults.py"
KINDS = {
    "sensitivity",
    "noise",
    "key",
    "charge",
    "clipping",
    "batch",
    "split",
    "look-up",
    "file",
    "price",
    "guarantee",
}


def load_script() -> ModuleType:
    described = importlib.util.spec_from_file_location("plant_faults", SCRIPT)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    # Dataclasses look their module up by its name.
    sys.modules["plant_faults"] = module
    described.loader.exec_module(module)
    return module


script = load_script()
FAULTS = script.read_faults()


@cache
def functions_of(path: Path) -> frozenset[str]:
    return frozenset(
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    )


def test_there_are_many_of_every_kind() -> None:
    assert len(FAULTS) >= 40
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.kind for fault in FAULTS} == KINDS
    for run in ("memory", "resumed", "engine"):
        assert sum(fault.run == run for fault in FAULTS) >= 4
    assert {fault.run for fault in FAULTS} == {"memory", "resumed", "engine"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Any) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", fault.name)
    assert re.fullmatch(r"[A-Z][^\n]+\.", fault.breaks)
    source = (ROOT / fault.file).read_text()
    assert source.count(fault.old) == 1, f"{fault.file}: where has this gone? {fault.old!r}"
    # It is a mistake that runs, not one that any test would see.
    ast.parse(source.replace(fault.old, fault.new))
    assert fault.old != fault.new
    assert fault.tests
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert not name or name.partition("[")[0] in functions_of(ROOT / file), test


def test_the_record_says_which_test_saw_each() -> None:
    """`python scripts/plant_faults.py NAME` adds the line of a new fault."""
    lines = [json.loads(line) for line in script.RECORD.read_text().splitlines()]
    assert [line["name"] for line in lines] == [fault.name for fault in FAULTS]
    for line, fault in zip(lines, FAULTS, strict=True):
        named = [test for test in fault.tests if line["seen_by"].startswith(test)]
        assert named, f"{fault.name} was seen by {line['seen_by']}, which is not named for it; plant it again"


def make_tree(folder: Path) -> Path:
    """A package of three modules with compiled code; the second takes a constant from the first."""
    package = folder / "src" / "package"
    (package / "__pycache__").mkdir(parents=True)
    sources = {"first": "SIZE = 3\n", "second": "from package.first import SIZE\n", "third": "import math\n"}
    for name, text in {**sources, "__init__": ""}.items():
        (package / f"{name}.py").write_text(text)
        for compiled in (f"{name}.cpython-311.pyc", f"{name}.kernel-7.py311.nbi"):
            (package / "__pycache__" / compiled).write_text("compiled")
    return folder


def make_fault(**changes: Any) -> Any:
    given = {"name": "a-fault", "kind": "noise", "run": "memory", "breaks": "It.", "tests": ("test_it.py",)}
    given |= {"file": "src/package/first.py", "old": "SIZE = 3", "new": "SIZE = 4"}
    return script.Fault(**given | changes)


def test_what_was_compiled_from_a_changed_file_goes(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    make_fault().plant(tree)
    assert (tree / "src" / "package" / "first.py").read_text() == "SIZE = 4\n"
    left = {path.name.partition(".")[0] for path in (tree / "src" / "package" / "__pycache__").iterdir()}
    assert left == {"third", "__init__"}


@pytest.mark.parametrize("old", ["SIZE = 5", "S"])
def test_text_that_is_not_there_once_is_refused(tmp_path: Path, old: str) -> None:
    text = "SIZE = 3\nS = 1\n"
    (make_tree(tmp_path) / "src" / "package" / "first.py").write_text(text)
    with pytest.raises(ValueError, match=r"a-fault: its old text occurs [02] times"):
        make_fault(old=old).plant(tmp_path)


@pytest.mark.parametrize(
    ("new", "test", "is_seen"),
    [
        ("SIZE = 4", "assert SIZE == 3", True),
        ("SIZE = 4", "assert SIZE > 2", False),
        # A file that cannot be imported is no test that fails, and neither is one that hangs.
        ("SIZES = 3", "assert SIZE == 3", False),
        ("SIZE = 4", "while SIZE == 4: pass", False),
    ],
    ids=["seen", "unseen", "broken", "hangs"],
)
def test_only_a_test_that_fails_has_seen_a_fault(
    tmp_path: Path, new: str, test: str, is_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path / "clean")
    path = tmp_path / "test_it.py"
    path.write_text(f"from package.second import SIZE\n\n\ndef test_size() -> None:\n    {test}\n")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "_LIMIT_SECONDS", 1 if "while" in test else 60)
    line = script.try_fault(make_fault(new=new), tmp_path / "clean", tmp_path)
    assert line["seen_by"] == ("test_it.py::test_size" if is_seen else None)
    if is_seen:
        assert script.check_without_fault([make_fault()], tmp_path / "clean", 2)


def test_a_fault_that_cannot_be_planted_was_not_seen(tmp_path: Path) -> None:
    make_tree(tmp_path / "clean")
    line = script.try_fault(make_fault(old="SIZE = 5"), tmp_path / "clean", tmp_path)
    assert line["seen_by"] is None


def test_tests_that_fail_without_a_fault_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it() -> None:\n    assert False\n")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    assert not script.check_without_fault([make_fault()], tmp_path, 1)
    assert "FAILED test_it.py::test_it" in capsys.readouterr().err


def test_the_record_keeps_what_was_not_planted_again(tmp_path: Path) -> None:
    record = tmp_path / "faults.jsonl"
    faults = [make_fault(name=name) for name in ("one", "two", "three")]
    script.write_record(faults, [{"name": fault.name, "seconds": 1.0} for fault in faults], record)
    script.write_record(faults[1:], [{"name": "three", "seconds": 2.0}], record)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert lines == [{"name": "two", "seconds": 1.0}, {"name": "three", "seconds": 2.0}]


def test_parts_are_all_faults_once_and_are_written_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def pretend(fault: Any, clean: Path, folder: Path) -> dict[str, Any]:
        tried.append(fault.name)
        return {"name": fault.name, "seen_by": "it" if fault.name != FAULTS[0].name else None}

    monkeypatch.setattr(script, "try_fault", pretend)
    monkeypatch.setattr(script, "check_without_fault", lambda *_: True)
    before, record = script.RECORD.read_text(), tmp_path / "faults.jsonl"
    codes = [script.main(["--part", f"{part}/3", "--record", str(record)]) for part in (3, 1, 2)]
    # The fault that was not seen is in the first part.
    assert codes == [0, 1, 0]
    assert sorted(tried) == sorted(fault.name for fault in FAULTS)
    assert [json.loads(line)["name"] for line in record.read_text().splitlines()] == [
        fault.name for fault in FAULTS
    ]
    assert script.RECORD.read_text() == before


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b"])
def test_a_part_that_is_none_is_refused(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--part", part])
    assert "expected I/N" in capsys.readouterr().err
