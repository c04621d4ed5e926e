"""Linux and macOS are supported; on Windows every command and every ledger says so in one line."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

import pytest

import hushgraph as hg
from hushgraph._files import lock_file
from hushgraph.cli.app import main
from hushgraph.errors import RunError

ROOT = Path(__file__).parent.parent


@pytest.fixture
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Windows")


@pytest.mark.usefixtures("_windows")
@pytest.mark.parametrize(
    "command", [["--version"], ["train", "demo", "--epsilon", "4"], ["budget", "b.ledger"]]
)
def test_commands_say_what_to_do_on_windows(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Windows" in err
    assert "WSL 2" in err


@pytest.mark.usefixtures("_windows")
def test_nothing_private_happens_on_windows(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="Linux and macOS"):
        lock_file(tmp_path / "ledger.lock")
    data = hg.datasets.synthetic(num_nodes=60, num_classes=2, seed=1)
    with pytest.raises(RunError, match="Linux and macOS"):
        hg.train(data, epsilon=4.0, steps=1, hidden=4, device="cpu", out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_metadata_names_the_systems() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    systems = {line for line in classifiers if line.startswith("Operating System")}
    assert systems == {"Operating System :: MacOS", "Operating System :: POSIX :: Linux"}
