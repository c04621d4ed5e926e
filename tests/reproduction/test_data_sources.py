"""Where the data of a column comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgraph.errors import InputError
from hushgraph.reproduction import spec
from hushgraph.reproduction.data_sources import MissingDataError, Sources, parse_substitutes, split_by_group

SCHOOLS = spec.load("inductive-facebook").columns[0]
ARXIV = spec.load("transductive").column("ogbn-arxiv")
CLUSTERED = spec.load("inductive").column("ogbn-arxiv-clustered")
DISJOINT = spec.load("inductive").column("ogbn-arxiv-disjoint")


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path))


def write_graph(path: Path, nodes: int = 32) -> None:
    ring = np.arange(nodes)
    np.savez(
        path,
        edge_index=np.stack([ring, (ring + 1) % nodes]),
        x=np.eye(nodes, 4, dtype=np.float32),
        y=np.where(ring == 3, -1, ring % 2),
        train_idx=[0],
        val_idx=[1],
        test_idx=[2],
        school=ring,
    )


def test_a_substitute_serves_every_column_of_its_dataset_once(tmp_path: Path) -> None:
    write_graph(tmp_path / "mine.npz")
    sources = Sources({"ogbn-arxiv": "mine.npz"})
    source = sources.source(ARXIV)
    assert (source.name, source.comparable) == ("mine", False)
    assert sources.graph(ARXIV) is sources.graph(DISJOINT)
    assert sources.graph(ARXIV).num_edges == 64


def test_a_substitute_is_clustered_where_its_dataset_would_be(tmp_path: Path) -> None:
    write_graph(tmp_path / "mine.npz", nodes=48)
    sources = Sources({"ogbn-arxiv": "mine.npz"})
    assert sources.source(CLUSTERED).reading != sources.source(DISJOINT).reading
    graph = sources.graph(CLUSTERED)
    assert [len(graph.train_idx), len(graph.val_idx), len(graph.test_idx)] == [32, 8, 8]
    assert graph.num_edges < 96
    own = Sources({"ogbn-arxiv": "none.npz", "ogbn-arxiv-clustered": "mine.npz"})
    assert own.graph(CLUSTERED).train_idx.tolist() == [0]


def test_a_split_without_test_nodes_is_refused(tmp_path: Path) -> None:
    # 32 nodes on a ring are too few communities for three parts.
    write_graph(tmp_path / "mine.npz")
    with pytest.raises(InputError, match="ogbn-arxiv-clustered: no test nodes in mine"):
        Sources({"ogbn-arxiv": "mine.npz"}).graph(CLUSTERED)


def test_whole_groups_go_to_the_splits(tmp_path: Path) -> None:
    write_graph(tmp_path / "facebook_32_schools.npz")
    sources = Sources({})
    graph = sources.graph(SCHOOLS)
    assert sources.source(SCHOOLS).comparable
    assert [len(graph.train_idx), len(graph.val_idx), len(graph.test_idx)] == [20, 4, 8]
    assert graph.val_idx.tolist() == [1, 9, 17, 25]
    # Node 3 has no label; its edges stay inside the split all the same.
    assert graph.test_idx.tolist() == [3, 7, 11, 15, 19, 23, 27, 31]


def test_a_file_without_groups_is_refused(tmp_path: Path) -> None:
    write_graph(tmp_path / "mine.npz")
    graph = Sources({"ogbn-arxiv": "mine.npz"}).graph(ARXIV)
    with pytest.raises(InputError, match="no array college"):
        split_by_group(graph, tmp_path / "mine.npz", "college")
    with pytest.raises(InputError, match="x has shape"):
        split_by_group(graph, tmp_path / "mine.npz", "x")


def test_missing_data_says_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="hushgraph datasets ogbn-arxiv --download"):
        Sources({}).source(ARXIV)
    with pytest.raises(MissingDataError, match=r"none\.npz does not exist"):
        Sources({"ogbn-arxiv": "none.npz"}).source(ARXIV)


def test_a_substitute_for_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean ogbn-arxiv"):
        Sources({"ogbn-arxv": "mine.npz"})
    with pytest.raises(InputError, match="expected NAME=FILE"):
        parse_substitutes(["ogbn-arxiv"])
    assert parse_substitutes(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
