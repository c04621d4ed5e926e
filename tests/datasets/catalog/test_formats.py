"""Small graphs in the official formats."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from hushgraph.datasets import load
from hushgraph.datasets.catalog import download
from hushgraph.errors import DownloadError, GraphError
from hushgraph.graph.graph import Graph

# Six nodes in a chain, of three classes; 0 and 3 train, 1 and 4 validate, 2 and 5 test.
EDGES = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 3]])
FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2) / 8 - 0.5
LABELS = np.array([0, 1, 2, 0, 1, 2])
SPLITS = {"train": [0, 3], "valid": [1, 4], "test": [2, 5]}


def write_csv(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(",".join(str(value) for value in np.atleast_1d(row)) for row in rows)
    path.write_bytes(gzip.compress(f"{lines}\n".encode()))


def write_ogb(folder: Path, split: str) -> None:
    write_csv(folder / "raw/edge.csv.gz", EDGES)
    write_csv(folder / "raw/node-feat.csv.gz", FEATURES)
    write_csv(folder / "raw/node-label.csv.gz", LABELS)
    write_csv(folder / "raw/num-node-list.csv.gz", [6])
    write_csv(folder / "raw/num-edge-list.csv.gz", [len(EDGES)])
    for name, nodes in SPLITS.items():
        write_csv(folder / "split" / split / f"{name}.csv.gz", nodes)


def write_mag(folder: Path) -> None:
    """Papers as above, and authors, who are to be left alone."""
    write_csv(folder / "raw/relations/paper___cites___paper/edge.csv.gz", EDGES)
    write_csv(folder / "raw/relations/author___writes___paper/edge.csv.gz", [[99, 0]])
    write_csv(folder / "raw/node-feat/paper/node-feat.csv.gz", FEATURES)
    write_csv(folder / "raw/node-label/paper/node-label.csv.gz", LABELS)
    for name, nodes in SPLITS.items():
        write_csv(folder / "split/time/paper" / f"{name}.csv.gz", nodes)


def adjacency() -> Any:
    ones = np.ones(len(EDGES))
    half = sparse.coo_matrix((ones, (EDGES[:, 0], EDGES[:, 1])), shape=(6, 6))
    return (half + half.T).tocsr()


def write_graphsaint(folder: Path) -> None:
    folder.mkdir(parents=True)
    sparse.save_npz(folder / "adj_full.npz", adjacency())
    np.save(folder / "feats.npy", FEATURES.astype(np.float64))
    (folder / "class_map.json").write_text(json.dumps({str(v): int(c) for v, c in enumerate(LABELS)}))
    (folder / "role.json").write_text(json.dumps(dict(zip(("tr", "va", "te"), SPLITS.values(), strict=True))))


def write_full_reddit(folder: Path) -> None:
    folder.mkdir(parents=True)
    kinds = np.array([1, 2, 3, 1, 2, 3])
    np.savez(folder / "reddit_data.npz", feature=FEATURES, label=LABELS, node_types=kinds)
    sparse.save_npz(folder / "reddit_graph.npz", adjacency().tocoo())


def write_shchur(path: Path) -> None:
    path.parent.mkdir(parents=True)
    parts: dict[str, Any] = {}
    one_way = sparse.csr_matrix((np.ones(len(EDGES)), (EDGES[:, 0], EDGES[:, 1])), shape=(6, 6))
    for kind, matrix in (("adj", one_way), ("attr", sparse.csr_matrix(np.maximum(FEATURES * 8, 0)))):
        parts |= {f"{kind}_{name}": getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    # The real files carry names as objects, which must not be touched.
    names = np.array([{"a": 1}] * 6, dtype=object)
    np.savez(path, labels=LABELS, node_names=names, **parts)


def write_planetoid(folder: Path) -> npt.NDArray[np.int64]:
    """510 known nodes and four test nodes of CiteSeer in disorder, one of whose numbers is skipped."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    known, places = 510, np.array([514, 510, 513, 511])
    features = sparse.csr_matrix((rng.random((known, 7)) < 0.3).astype(np.float32))
    tested = sparse.csr_matrix(rng.random((4, 7)).astype(np.float32))
    classes, more = np.eye(3)[rng.integers(3, size=known)], np.eye(3)[[2, 0, 1, 1]]
    graph: defaultdict[int, list[int]] = defaultdict(list)
    for node in range(515):
        graph[node] += [(node + 1) % 515, (node - 1) % 515]
    graph[0].append(0)
    parts = {"x": features[:4], "allx": features, "tx": tested, "y": classes[:4], "ally": classes, "ty": more}
    for part, value in (parts | {"graph": graph}).items():
        (folder / f"ind.citeseer.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.citeseer.test.index").write_text("".join(f"{place}\n" for place in places))
    return places


@pytest.fixture
def unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any content are read."""
    monkeypatch.setattr(download, "SHA256", {})


def load_small(name: str, root: Path) -> Graph:
    return load(name, root, check_statistics=False)


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    return {(int(u), int(w)) for us, ws in graph.edge_chunks() for u, w in zip(us, ws, strict=True)}


BOTH = {(int(u), int(w)) for u, w in EDGES} | {(int(w), int(u)) for u, w in EDGES}


def check_chain(graph: Graph) -> None:
    assert edges_of(graph) == BOTH
    assert not graph.is_directed
    np.testing.assert_array_equal(graph.y, LABELS)
    for nodes, wanted in zip((graph.train_idx, graph.val_idx, graph.test_idx), SPLITS.values(), strict=True):
        assert nodes.tolist() == wanted


@pytest.mark.parametrize(
    ("name", "folder", "split"),
    [("ogbn-arxiv", "ogbn_arxiv", "time"), ("ogbn-products", "ogbn_products", "sales_ranking")],
)
def test_ogb(name: str, folder: str, split: str, tmp_path: Path) -> None:
    write_ogb(tmp_path / folder, split)
    graph = load_small(name, tmp_path)
    check_chain(graph)
    np.testing.assert_array_equal(graph.x, FEATURES)
    assert graph.num_classes == {"ogbn-arxiv": 40, "ogbn-products": 47}[name]


def test_mag_is_papers_that_cite_papers(tmp_path: Path) -> None:
    write_mag(tmp_path / "ogbn_mag")
    graph = load_small("ogbn-mag", tmp_path)
    check_chain(graph)
    assert graph.num_classes == 349


def test_reddit(tmp_path: Path) -> None:
    write_graphsaint(tmp_path / "reddit/raw")
    graph = load_small("reddit", tmp_path)
    check_chain(graph)
    np.testing.assert_array_equal(graph.x, FEATURES)


def test_full_reddit(tmp_path: Path) -> None:
    write_full_reddit(tmp_path / "reddit_full/raw")
    check_chain(load_small("reddit-full", tmp_path))


def test_disjoint(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv", "time")
    write_graphsaint(tmp_path / "reddit/raw")
    for name in ("ogbn-arxiv-disjoint", "reddit-disjoint"):
        # Of the chain's edges only 0 - 3 stays inside a split.
        assert edges_of(load_small(name, tmp_path)) == {(0, 3), (3, 0)}


def test_clustered_by_the_file_of_the_authors(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv", "time")
    (tmp_path / "ogbn_arxiv/split/clustered.csv").write_text("0\n0\n1\n1\n2\n2\n")
    graph = load_small("ogbn-arxiv-clustered", tmp_path)
    assert (graph.train_idx.tolist(), graph.test_idx.tolist()) == ([0, 1], [4, 5])
    assert edges_of(graph) == {(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)}
    (tmp_path / "ogbn_arxiv/split/clustered.csv").write_text("0\n0\n3\n")
    with pytest.raises(GraphError, match=r"clustered.csv holds 3 values; expected 6, each 0, 1 or 2"):
        load_small("ogbn-arxiv-clustered", tmp_path)


def test_clustered_without_that_file(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv", "time")
    graph = load_small("ogbn-arxiv-clustered", tmp_path)
    assert len(graph.train_idx) + len(graph.val_idx) + len(graph.test_idx) == 6


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("coauthor-cs", "CS/raw/ms_academic_cs.npz"),
        ("coauthor-physics", "Physics/raw/ms_academic_phy.npz"),
        ("amazon-computers", "Computers/raw/amazon_electronics_computers.npz"),
        ("amazon-photo", "Photo/raw/amazon_electronics_photo.npz"),
    ],
)
@pytest.mark.usefixtures("unpinned")
def test_coauthor_and_amazon(name: str, file: str, tmp_path: Path) -> None:
    write_shchur(tmp_path / file)
    graph = load_small(name, tmp_path)
    assert edges_of(graph) == BOTH
    np.testing.assert_array_equal(graph.x.toarray(), FEATURES > 0)
    np.testing.assert_array_equal(graph.y, LABELS)
    assert len(graph.train_idx) + len(graph.val_idx) + len(graph.test_idx) == 6
    assert graph.has_declared_classes


@pytest.mark.usefixtures("unpinned")
def test_planetoid(tmp_path: Path) -> None:
    places = write_planetoid(tmp_path / "CiteSeer/raw")
    graph = load_small("citeseer", tmp_path)
    ring = {(node, (node + 1) % 515) for node in range(515)}
    assert edges_of(graph) == ring | {(w, u) for u, w in ring}
    assert sparse.issparse(graph.x)
    assert graph.train_idx.tolist() == [0, 1, 2, 3]
    assert graph.val_idx.tolist() == list(range(4, 504))
    assert graph.test_idx.tolist() == sorted(places)
    assert graph.y[[510, 511, 513, 514]].tolist() == [0, 1, 1, 2]


class _Touch:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made-by-a-pickle",)


def test_a_pickle_that_is_not_the_published_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_planetoid(tmp_path / "CiteSeer/raw")
    for path in (tmp_path / "CiteSeer/raw").iterdir():
        path.write_bytes(pickle.dumps(_Touch()))
    with pytest.raises(DownloadError, match=r"ind.citeseer.x has sha256=.*; delete it to download it again"):
        load_small("citeseer", tmp_path)
    assert not (tmp_path / "made-by-a-pickle").exists()


def test_without_pyg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    write_graphsaint(tmp_path / "reddit/raw")
    with pytest.raises(GraphError, match=r"reads these files and is not installed; pip install 'hushgraph"):
        load_small("reddit", tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv", "time")
    write_graphsaint(tmp_path / "reddit/raw")
    damage = [
        ("ogbn-arxiv", "ogbn_arxiv/raw/edge.csv.gz", "edge.csv.gz cannot be read"),
        ("reddit", "reddit/raw/role.json", r"reddit: PyG cannot read it \(.*; delete the folder"),
    ]
    for name, file, message in damage:
        content = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(content[: len(content) // 2])
        with pytest.raises(GraphError, match=message):
            load_small(name, tmp_path)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv", "time")
    write_csv(tmp_path / "ogbn_arxiv/raw/edge.csv.gz", [[0, 1, 2]])
    with pytest.raises(GraphError, match=r"edge.csv.gz holds 1 rows of 3 numbers; expected rows of 2"):
        load_small("ogbn-arxiv", tmp_path)


def test_other_sizes_than_the_published_ones_are_refused(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv", "time")
    with pytest.raises(
        GraphError,
        match=r"ogbn-arxiv: nodes=6 \(expected 169,343\), features=2 \(expected 128\), classes=3 "
        r"\(expected 40\), reads=12 \(expected 2,315,598\), training nodes=2 \(expected 90,941\), .*; the "
        r"files are damaged or hold another",
    ):
        load("ogbn-arxiv-disjoint", tmp_path)
