"""Named datasets: names, files in the data root, statistics."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hushgraph.datasets import describe, load, load_graph, names
from hushgraph.datasets.catalog import download
from hushgraph.datasets.catalog import registry as catalog
from hushgraph.datasets.catalog.data_root import data_root, override_data_root
from hushgraph.datasets.catalog.official import SOURCES, STATISTICS
from hushgraph.errors import DownloadError, GraphError

SHARED = Path(__file__).parents[4] / "shared" / "data"


def test_every_name_is_described() -> None:
    assert {"demo", "ogbn-arxiv", "ogbn-products", "ogbn-mag", "reddit", "cora"} <= set(names())
    assert {"ogbn-arxiv-disjoint", "ogbn-arxiv-clustered", "reddit-disjoint"} <= set(names())
    assert list(names()) == sorted(names())
    assert all(describe(name) and "\n" not in describe(name) for name in names())
    assert set(STATISTICS) == set(names())


# Nodes, average degree, features, classes and split of the paper's table. Its 21.7 for ogbn-mag is the
# average degree of all its nodes and relations, and not of the papers that cite each other.
PAPER = {
    "ogbn-arxiv": (169_343, 13.7, 128, 40, (0.54, 0.18, 0.28)),
    "ogbn-arxiv-disjoint": (169_343, 5.5, 128, 40, (0.54, 0.18, 0.28)),
    "ogbn-arxiv-clustered": (169_343, 13.0, 128, 40, (0.67, 0.18, 0.15)),
    "ogbn-products": (2_449_029, 50.5, 100, 47, (0.08, 0.02, 0.90)),
    "ogbn-mag": (736_389, 14.7, 128, 349, (0.85, 0.09, 0.05)),
    "reddit": (232_965, 99.6, 602, 41, (0.66, 0.10, 0.24)),
    "reddit-disjoint": (232_965, 54.4, 602, 41, (0.66, 0.10, 0.24)),
}


@pytest.mark.parametrize("name", PAPER)
def test_statistics_are_those_of_the_paper(name: str) -> None:
    nodes, degree, features, classes, shares = PAPER[name]
    known = STATISTICS[name]
    assert (known.nodes, known.features, known.classes) == (nodes, features, classes)
    # The paper counts the edge between two papers that cite each other twice.
    assert known.reads / known.nodes == pytest.approx(degree, abs=0.15)
    assert known.split is not None
    assert sum(known.split) == nodes
    assert [part / nodes for part in known.split] == pytest.approx(shares, abs=0.0075)


def test_demo_loads() -> None:
    STATISTICS["demo"].check("demo", load("demo"))


def test_generated_at_any_size() -> None:
    graph = load("generated-3000")
    assert graph.num_nodes == 3_000
    counts = np.bincount(graph.y)
    assert counts[0] > 5 * counts[-1] > 0
    assert np.array_equal(graph.indices, load("generated-3000").indices)
    assert describe("generated-3000").startswith("generated: 3,000 nodes")
    with pytest.raises(GraphError, match="generated-9: too few nodes for ten classes; expected at least 50"):
        load("generated-9")
    with pytest.raises(GraphError, match="did you mean 'generated-20000'"):
        load("generated-")


@pytest.mark.usefixtures("own_folder")
def test_nearest_name_is_suggested() -> None:
    with pytest.raises(GraphError, match=r"'dmo' is neither a file nor a known name; did you mean 'demo'\?"):
        load("dmo")
    with pytest.raises(GraphError, match=r"did you mean 'ogbn-arxiv'\?"):
        load("ogbn_arxiv")
    with pytest.raises(GraphError, match=r"known names: amazon-computers, .*, demo, .*, generated-N"):
        load("xyz")


def test_a_path_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_npz(tmp_path / "people.npz")
    for path in (str(tmp_path / "people.npz"), tmp_path / "people.npz", str(tmp_path)):
        with pytest.raises(GraphError, match=r"this is a path, .*; use hg\.datasets\.load_graph\(path\), or"):
            load(path)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="neither a file nor a known name"):
        load(str(tmp_path / "nobody.npz"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "generated-60").mkdir()
    assert load("generated-60").num_nodes == 60


def test_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHGRAPH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_root() == tmp_path / "hushgraph"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "hushgraph"
    monkeypatch.setenv("HUSHGRAPH_DATA", "from-variable")
    assert data_root() == Path("from-variable")
    undo = override_data_root(Path("chosen"))
    assert (data_root(), data_root("given")) == (Path("chosen"), Path("given"))
    undo()
    assert data_root() == Path("from-variable")


def small_npz(path: Path) -> None:
    parts = {"edge_index": [[0, 1], [1, 2]], "x": np.eye(3), "y": [0, 1, 2]}
    np.savez(path, **parts, train_idx=[0], val_idx=[1], test_idx=[2])  # type: ignore[arg-type]


def test_a_file_with_the_name_is_taken(tmp_path: Path) -> None:
    small_npz(tmp_path / "ogbn-arxiv.npz")
    assert catalog.on_disk("ogbn-arxiv-disjoint", tmp_path) == "yes"
    graph = load("ogbn-arxiv", tmp_path, check_statistics=False)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (3, 4, 40)
    assert load("ogbn-arxiv-disjoint", tmp_path, check_statistics=False).num_edges == 0
    with pytest.raises(GraphError, match=r"ogbn-arxiv: nodes=3 \(expected 169,343\)"):
        load_graph("ogbn-arxiv", root=tmp_path)


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "coauthor-physics", "amazon-computers"])
def test_real_graphs_have_the_published_statistics(name: str) -> None:
    if catalog.on_disk(name, SHARED) != "yes":
        pytest.skip(f"{name} is not here")
    assert load(name, SHARED).num_nodes == STATISTICS[name].nodes


def test_arxiv_has_the_published_edges() -> None:
    path = SHARED / "ogbn_arxiv_hints.npz"
    if not path.is_file():
        pytest.skip("the graph of ogbn-arxiv is not here")
    graph = load_graph(path, symmetrize=True)
    assert graph.num_edges == STATISTICS["ogbn-arxiv"].reads
    assert graph.disjoint().num_edges == STATISTICS["ogbn-arxiv-disjoint"].reads


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def refuse(url: str, path: Path) -> None:
        asked.append(url)
        raise DownloadError(f"{url} cannot be downloaded (nobody is there)")

    monkeypatch.setattr(catalog, "fetch", refuse)
    return asked


@pytest.fixture
def unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any content are read."""
    monkeypatch.setattr(download, "SHA256", {})


def test_without_a_network(offline: list[str], tmp_path: Path) -> None:
    with pytest.raises(
        DownloadError,
        match=r"ogbn-arxiv: https://.*/arxiv.zip cannot be downloaded \(nobody is there\); try again where "
        r"there is a network, or put arxiv.zip into .*ogbn_arxiv yourself",
    ):
        load("ogbn-arxiv-clustered", tmp_path)
    assert offline == [SOURCES["ogbn-arxiv"].downloads["arxiv.zip"]]
    assert catalog.on_disk("ogbn-arxiv", tmp_path) == "no"


@pytest.mark.usefixtures("unpinned")
def test_an_archive_brought_by_hand(offline: list[str], tmp_path: Path) -> None:
    archive = tmp_path / "ogbn_arxiv" / "arxiv.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as opened:
        for file in SOURCES["ogbn-arxiv"].files:
            opened.writestr(f"arxiv/{file}", "x")
    assert catalog.on_disk("ogbn-arxiv", tmp_path) == "in part"
    assert catalog.fetch_files("ogbn-arxiv-disjoint", tmp_path) == tmp_path / "ogbn_arxiv"
    assert catalog.on_disk("ogbn-arxiv", tmp_path) == "yes"
    assert archive.is_file()
    assert offline == []


@pytest.mark.usefixtures("unpinned")
def test_an_archive_that_lacks_files(offline: list[str], tmp_path: Path) -> None:
    (tmp_path / "ogbn_mag").mkdir()
    with zipfile.ZipFile(tmp_path / "ogbn_mag" / "mag.zip", "w") as opened:
        opened.writestr("mag/README", "x")
    with pytest.raises(
        GraphError, match=r"ogbn-mag: .*ogbn_mag lacks raw/relations/paper___cites___paper/edge"
    ):
        catalog.fetch_files("ogbn-mag", tmp_path)
    assert offline == []


def test_an_archive_of_another_content_is_refused(offline: list[str], tmp_path: Path) -> None:
    (tmp_path / "ogbn_mag").mkdir()
    (tmp_path / "ogbn_mag" / "mag.zip").write_bytes(b"something else")
    with pytest.raises(DownloadError, match=r"ogbn-mag: .*mag.zip has sha256=.*, expected 2afe62ead87f2c30"):
        catalog.fetch_files("ogbn-mag", tmp_path)
    assert offline == []


@pytest.mark.usefixtures("unpinned")
def test_a_fetched_archive_goes_once_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bring(url: str, path: Path) -> None:
        path.parent.mkdir(parents=True)
        with zipfile.ZipFile(path, "w") as opened:
            for file in ("reddit_data.npz", "reddit_graph.npz"):
                opened.writestr(file, "x")

    monkeypatch.setattr(catalog, "fetch", bring)
    catalog.fetch_files("reddit-full", tmp_path)
    assert sorted(os.listdir(tmp_path / "reddit_full/raw")) == ["reddit_data.npz", "reddit_graph.npz"]


def test_generated_graphs_need_no_files(tmp_path: Path) -> None:
    assert catalog.on_disk("demo", tmp_path) == "not needed"
    assert catalog.fetch_files("demo", tmp_path) is None
    assert catalog.source("demo") is None
    assert catalog.statistics("generated-50") is None
