"""Tables in object stores are copied to work space, and read as files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import hushgraph as hg
from hushgraph.datasets.engine import use_engine
from hushgraph.errors import HushgraphError

NODES = "id,label,x,split\n" + "".join(f"p{i},{i % 2},{i / 10},train\n" for i in range(20))
EDGES = "source,target\n" + "".join(f"p{i},p{(i * 7 + 1) % 20}\n" for i in range(20))
ADDRESS = "memory://bank"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe_file("/bank/nodes.csv", NODES.encode())
    lines = EDGES.splitlines(keepends=True)
    system.pipe_file("/bank/edges/1.csv", "".join(lines[:9]).encode())
    system.pipe_file("/bank/edges/2.csv", "".join([lines[0], *lines[9:]]).encode())
    system.pipe_file("/bank/edges/_SUCCESS", b"")
    yield system
    system.store.clear()


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv")


@pytest.mark.parametrize("edges", [f"{ADDRESS}/edges", f"{ADDRESS}/edges/*.csv", "mapping"])
@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_they_are_what_files_are(
    memory: Any, files: tuple[str, str], edges: str, engine: str, tmp_path: Path
) -> None:
    data: Any = (f"{ADDRESS}/nodes.csv", edges)
    if edges == "mapping":
        (tmp_path / "graph.toml").write_text(f'nodes = "{ADDRESS}/nodes.csv"\nedges = "{ADDRESS}/edges"\n')
        data = str(tmp_path / "graph.toml")
    work = tmp_path / "run"
    with use_engine(engine, data, beside=work):
        found = hg.datasets.load_graph(data, num_classes=2)
        expected = hg.datasets.load_graph(files, num_classes=2)
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y, expected.y)
    # Copies are as private as the tables.
    assert not (tmp_path / "run.work").exists()


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (f"{ADDRESS}/nothing", "memory://bank/nothing: no table there; expected files that end in"),
        ("nowhere://bank/nodes.csv", "nowhere://bank/nodes.csv: "),
        ("spark-table:bank.people", "people: Spark alone reads it; add --engine spark"),
    ],
)
def test_mistakes_are_one_line(memory: Any, nodes: str, said: str) -> None:
    with pytest.raises(HushgraphError, match=said) as caught:
        hg.datasets.load_graph((nodes, f"{ADDRESS}/edges"), num_classes=2)
    assert "\n" not in str(caught.value)


def test_auto_needs_sizes(memory: Any) -> None:
    data = (f"{ADDRESS}/nodes.csv", f"{ADDRESS}/edges")
    with (
        pytest.raises(HushgraphError, match="its size is not known; give --engine memory or duckdb"),
        use_engine("auto", data),
    ):
        pass


def test_a_run_on_a_store(memory: Any, run: Any, tmp_path: Path) -> None:
    words = ["--edges", f"{ADDRESS}/edges", "--num-classes", "2", "--epsilon", "4", "--steps", "2"]
    out = tmp_path / "run"
    code, _, errors = run("train", f"{ADDRESS}/nodes.csv", *words, "--hidden", "4", "--out", out)
    assert code == 0, errors
    scores = tmp_path / "scores.csv"
    code, _, errors = run(
        "predict", out, f"{ADDRESS}/nodes.csv", "--edges", f"{ADDRESS}/edges", "--out", scores
    )
    assert code == 0, errors
    assert len(scores.read_text().splitlines()) == 21
