"""Records survive a crash, and damage is not read over."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hushgraph.errors import InputError, RunError
from hushgraph.reproduction.records import Records, relabel


def record(seed: int, run: str = "r") -> dict[str, Any]:
    return {
        "experiment": "degree",
        "column": "c",
        "row": "GCN",
        "mode": "sound",
        "axes": {"max_readers": 3},
        "seed": seed,
        "run": run,
    }


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.jsonl"
    Records(path).append(record(0))
    records = Records(path)
    records.append(record(1, "s"))
    again = Records(path)
    assert [one["seed"] for one in again.all] == [0, 1]
    assert again.find(seed=1, axes={"max_readers": 3.0}) == record(1, "s")
    assert again.find(seed=2) is None
    assert again.of_run("r") == record(0)
    assert again.of_run("t") is None


def test_a_line_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    Records(path).append(record(0))
    complete = path.read_bytes()
    path.write_bytes(complete + complete[:40])
    records = Records(path)
    records.append(record(1))
    assert [one["seed"] for one in Records(path).all] == [0, 1]


@pytest.mark.parametrize("line", ["not JSON", "[1]", '{"experiment": "degree"}', "3"])
def test_any_other_damage_is_an_error(tmp_path: Path, line: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"records\.jsonl, line 1: no "):
        Records(path)


def test_a_shared_run_says_whose_it_was() -> None:
    shared = relabel(record(0), {"experiment": "curves", "axes": {}})
    assert (shared["experiment"], shared["axes"]) == ("curves", {})
    assert shared["shared_with"] == "degree: c, GCN, sound"


def test_processes_see_what_others_add(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    first, second = Records(path), Records(path)
    first.append(record(0))
    second.append(record(1, "s"))
    assert [one["seed"] for one in second.all] == [0, 1]
    assert first.of_run("s") is None
    first.refresh()
    assert first.of_run("s") == record(1, "s")


def test_one_process_at_a_time_has_a_run(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    ask = (
        "import sys; from pathlib import Path; from hushgraph.reproduction.records import Records\n"
        "with Records(Path(sys.argv[1])).claimed(sys.argv[2]) as mine: print(mine)"
    )

    def may_train(run: str) -> str:
        command = [sys.executable, "-c", ask, str(path), run]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    records = Records(path)
    with records.claimed("0123456789abcdef") as is_mine:
        assert is_mine
        assert may_train("0123456789abcdef") == "False"
        assert may_train("1123456789abcdef") == "True"
        # Reading and adding must not give up the claim.
        records.append(record(0))
        records.refresh()
        assert may_train("0123456789abcdef") == "False"
    assert may_train("0123456789abcdef") == "True"


def test_a_line_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    Records(path).append(record(0))
    complete = path.read_bytes()
    path.write_bytes(complete + complete[:40])
    assert [one["seed"] for one in Records(path).all] == [0]
    assert path.read_bytes() == complete + complete[:40]


def test_a_folder_without_locks_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr("filelock.lock_descriptor", refuse)
    refused = pytest.raises(RunError, match=r"cannot be written to \(no locks here\); choose another --out")
    with refused, Records(tmp_path / "records.jsonl").claimed("0123456789abcdef"):
        pass


def test_a_folder_that_cannot_be_written_to_is_told_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    records = Records(tmp_path / "file" / "records.jsonl")
    refused = pytest.raises(RunError, match=r"cannot be written to .*; choose another --out")
    with refused, records.claimed("0123456789abcdef"):
        pass


def test_what_another_process_holds_is_not_tidied_away(tmp_path: Path) -> None:
    path = tmp_path / "out" / "records.jsonl"
    records = Records(path)
    with records.claimed("1123456789abcdef"):
        pass
    hold = (
        "import sys; from pathlib import Path; from hushgraph.reproduction.records import Records\n"
        "with Records(Path(sys.argv[1])).claimed('0123456789abcdef'): print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", hold, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        records.tidy()
        assert list(path.parent.iterdir())
        other.communicate("\n")
    records.tidy()
    assert not path.parent.exists()


def test_a_folder_of_one_s_own_goes_and_another_s_stays(tmp_path: Path) -> None:
    for folder, stays in ((tmp_path / "mine", False), (tmp_path, True)):
        records = Records(folder / "records.jsonl")
        with records.claimed("0123456789abcdef"):
            pass
        records.tidy()
        assert folder.exists() == stays
        assert not list(tmp_path.glob("**/*.lock"))
