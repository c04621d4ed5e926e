"""`hushgraph datasets` and `--data-root`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hushgraph.cli.app import main
from hushgraph.datasets import names
from hushgraph.datasets.catalog import registry as catalog
from hushgraph.datasets.catalog.data_root import data_root
from hushgraph.errors import DownloadError


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "--data-root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[0].split()) == "name nodes edges features classes licence download sha256 on disk"
    assert [line.split()[0] for line in lines[1 : len(names()) + 1]] == list(names())
    arxiv = next(line for line in lines if line.startswith("ogbn-arxiv "))
    sizes = ["ogbn-arxiv", "169,343", "2,315,598", "128", "40", "ODC-BY", "83", "MB"]
    assert arxiv.split() == [*sizes, "pinned", "no"]
    reddit = next(line for line in lines if line.startswith("reddit "))
    assert reddit.split()[-3:] == ["not", "pinned", "no"]
    assert str(tmp_path) in lines[-1]
    assert list(tmp_path.iterdir()) == []
    assert data_root() != tmp_path


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cora.npz").write_bytes(b"")
    assert main(["datasets", "cora", "--data-root", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["data_root"] == str(tmp_path)
    [cora] = found["datasets"]
    assert (cora["name"], cora["nodes"], cora["edges"], cora["on_disk"]) == ("cora", 2_708, 10_556, "yes")


def test_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "demo", "--download"]) == 0
    assert "8 planted classes" in capsys.readouterr().out
    assert main(["datasets", "dmo"]) == 2
    assert "did you mean 'demo'?" in capsys.readouterr().err
    assert main(["datasets", "--download"]) == 2
    assert "give the name of the dataset" in capsys.readouterr().err


def test_a_failed_download_is_one_line_and_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Path:
        raise DownloadError("no connection")

    monkeypatch.setattr(catalog, "fetch", refuse)
    assert main(["datasets", "ogbn-arxiv", "--download", "--data-root", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "hushgraph: ogbn-arxiv: no connection; try again where there is a network, or put"
    )
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ["train", "cora", "--epsilon", "1"],
        ["compare", "cora", "--epsilon", "1"],
    ],
)
def test_commands_look_in_the_data_root(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = {"edge_index": [[0, 1], [1, 2]], "x": np.eye(3), "y": [0, 1, 2]}
    np.savez(tmp_path / "cora.npz", **parts, train_idx=[0], val_idx=[1], test_idx=[2])  # type: ignore[arg-type]
    assert main([*command, "--data-root", str(tmp_path)]) == 2
    assert "cora: nodes=3 (expected 2,708)" in capsys.readouterr().err
