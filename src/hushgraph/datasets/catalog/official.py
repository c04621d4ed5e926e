"""Published facts about each official dataset: its downloads, checksums, sizes and licence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph

_MB = 1_000_000
_OGB = "https://snap.stanford.edu/ogb/data/nodeproppred"
_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
_SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
_DRIVE = "https://drive.usercontent.google.com/download?confirm=t&id="
_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Published sizes, after symmetrization and without self-loops and repeats.

    Attributes:
        nodes, features, classes: their numbers.
        reads: the number of directed edges; an undirected edge counts twice.
        split: the numbers of training, validation and test nodes, if there is an official split.
        tolerance: the largest relative difference of `reads` and `split`, for sources that round or disagree.
    """

    nodes: int
    reads: int
    features: int
    classes: int
    split: tuple[int, int, int] | None = None
    tolerance: float = 0.0

    def check(self, name: str, graph: Graph) -> None:
        """Raise GraphError if the graph does not have these sizes."""
        sizes = [
            ("nodes", graph.num_nodes, self.nodes, 0.0),
            ("features", graph.num_features, self.features, 0.0),
            ("classes", int(graph.y.max(initial=-1)) + 1, self.classes, 0.0),
            ("reads", graph.num_edges, self.reads, self.tolerance),
        ]
        if self.split is not None:
            splits = (graph.train_idx, graph.val_idx, graph.test_idx)
            labels = ("training nodes", "validation nodes", "test nodes")
            sizes += [
                (label, len(nodes), expected, self.tolerance)
                for label, nodes, expected in zip(labels, splits, self.split, strict=True)
            ]
        wrong = [
            f"{label}={actual:,} (expected {expected:,})"
            for label, actual, expected, tolerance in sizes
            if abs(actual - expected) > tolerance * expected
        ]
        if wrong:
            raise GraphError(
                f"{name}: {', '.join(wrong)}; the files are damaged or hold another dataset: delete them to "
                "download them again, or give the path of your own file instead of the name"
            )


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the files of a dataset come from.

    Attributes:
        reader: the class of PyG that reads the files; "ogb" for those of the Open Graph Benchmark.
        folder: the name of its folder in the data root. `ogb` and PyG use the same, so their files are found.
        downloads: the address of every file, by its path in the folder.
        size: the approximate number of bytes to download.
        licence: as stated by the publisher.
        archive_root: for an archive, the folder in it whose content is extracted ("" for everything).
        contents: the files that are read from an archive; empty if the downloads are read themselves.
    """

    reader: str
    folder: str
    downloads: Mapping[str, str]
    size: int
    licence: str = "MIT"
    archive_root: str = ""
    contents: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read, relative to the folder."""
        return self.contents or tuple(self.downloads)

    @property
    def is_pinned(self) -> bool:
        """Whether the SHA-256 of every download is known, so that a changed one is refused."""
        return all(PurePosixPath(path).name in SHA256 for path in self.downloads)


# SHA-256 of every download whose value is known; docs/datasets.md names the sources of these values.
SHA256 = {
    "arxiv.zip": "49f85c801589ecdcc52cfaca99693aaea7b8af16a9ac3f41dd85a5f3193fe276",
    "products.zip": "5ea0a112edaec2141c0a2a612dd4aed58df97ff3e1ab1a0ca8238f43cbbb50a8",
    "mag.zip": "2afe62ead87f2c301a7398796991d347db85b2d01c5442c95169372bf5a9fca4",
    "reddit.zip": "9a16353c28f8ddd07148fc5ac9b57b818d7911ea0fbe9052d66d49fc32b372bf",
    "ms_academic_cs.npz": "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
    "ms_academic_phy.npz": "e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375",
    "amazon_electronics_computers.npz": "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
    "amazon_electronics_photo.npz": "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
}


def _ogb(name: str, size: int, licence: str, *tables: str, split: str) -> Source:
    """The archive of an OGB dataset: edges, features and labels, then the three parts of the split."""
    parts = (f"{split}/{part}.csv.gz" for part in ("train", "valid", "test"))
    return Source(
        reader="ogb",
        folder=f"ogbn_{name}",
        downloads={f"{name}.zip": f"{_OGB}/{name}.zip"},
        size=size,
        licence=licence,
        archive_root=name,
        contents=(*tables, *parts),
    )


def _planetoid(name: str, folder: str, size: int) -> Source:
    downloads = {f"raw/ind.{name}.{part}": f"{_PLANETOID}/ind.{name}.{part}" for part in _PLANETOID_PARTS}
    return Source(reader="Planetoid", folder=folder, downloads=downloads, size=size)


def _shchur(reader: str, folder: str, file: str, size: int) -> Source:
    return Source(reader=reader, folder=folder, downloads={f"raw/{file}": f"{_SHCHUR}/{file}"}, size=size)


_TABLES = ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz")

SOURCES = {
    "ogbn-arxiv": _ogb("arxiv", 83 * _MB, "ODC-BY", *_TABLES, split="split/time"),
    "ogbn-products": _ogb("products", 1_461 * _MB, "Amazon licence", *_TABLES, split="split/sales_ranking"),
    # It has one folder per type of node; only papers are read.
    "ogbn-mag": _ogb(
        "mag",
        413 * _MB,
        "ODC-BY",
        "raw/relations/paper___cites___paper/edge.csv.gz",
        "raw/node-feat/paper/node-feat.csv.gz",
        "raw/node-label/paper/node-label.csv.gz",
        split="split/time/paper",
    ),
    # The files of GraphSAINT, as PyG's Reddit2 names them.
    "reddit": Source(
        reader="Reddit2",
        folder="reddit",
        downloads={
            "raw/adj_full.npz": f"{_DRIVE}1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
            "raw/feats.npy": f"{_DRIVE}1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
            "raw/class_map.json": f"{_DRIVE}1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
            "raw/role.json": f"{_DRIVE}1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
        },
        size=1_207 * _MB,
        licence="not stated",
    ),
    "reddit-full": Source(
        reader="Reddit",
        folder="reddit_full",
        downloads={"raw/reddit.zip": "https://data.dgl.ai/dataset/reddit.zip"},
        size=1_398 * _MB,
        licence="not stated",
        contents=("raw/reddit_data.npz", "raw/reddit_graph.npz"),
    ),
    "cora": _planetoid("cora", "Cora", 1 * _MB),
    "citeseer": _planetoid("citeseer", "CiteSeer", 2 * _MB),
    "pubmed": _planetoid("pubmed", "PubMed", 13 * _MB),
    "coauthor-cs": _shchur("Coauthor", "CS", "ms_academic_cs.npz", 13 * _MB),
    "coauthor-physics": _shchur("Coauthor", "Physics", "ms_academic_phy.npz", 16 * _MB),
    "amazon-computers": _shchur("Amazon", "Computers", "amazon_electronics_computers.npz", 32 * _MB),
    "amazon-photo": _shchur("Amazon", "Photo", "amazon_electronics_photo.npz", 17 * _MB),
}

_ARXIV = Statistics(nodes=169_343, reads=2_315_598, features=128, classes=40, split=(90_941, 29_799, 48_603))
_REDDIT = Statistics(
    nodes=232_965,
    reads=23_213_838,
    features=602,
    classes=41,
    split=(153_932, 23_699, 55_334),
    tolerance=0.01,
)

STATISTICS = {
    "demo": Statistics(nodes=20_000, reads=237_572, features=64, classes=8, split=(12_029, 3_978, 3_993)),
    "ogbn-arxiv": _ARXIV,
    "ogbn-arxiv-disjoint": replace(_ARXIV, reads=914_218),
    # The result of `clustering.py`; the split of the authors has an average degree of 13.0.
    "ogbn-arxiv-clustered": replace(_ARXIV, reads=2_224_256, split=(113_459, 30_481, 25_403), tolerance=0.04),
    "ogbn-products": Statistics(
        nodes=2_449_029,
        reads=123_718_024,
        features=100,
        classes=47,
        split=(196_615, 39_323, 2_213_091),
        tolerance=0.001,
    ),
    "ogbn-mag": Statistics(
        nodes=736_389,
        reads=10_792_672,
        features=128,
        classes=349,
        split=(629_571, 64_879, 41_939),
        tolerance=0.001,
    ),
    "reddit": _REDDIT,
    # An average degree of 54.4, as in the paper.
    "reddit-disjoint": replace(_REDDIT, reads=12_673_296),
    "reddit-full": replace(_REDDIT, reads=114_615_892, split=(153_431, 23_831, 55_703)),
    "cora": Statistics(nodes=2_708, reads=10_556, features=1_433, classes=7, split=(140, 500, 1_000)),
    "citeseer": Statistics(nodes=3_327, reads=9_104, features=3_703, classes=6, split=(120, 500, 1_000)),
    "pubmed": Statistics(nodes=19_717, reads=88_648, features=500, classes=3, split=(60, 500, 1_000)),
    "coauthor-cs": Statistics(nodes=18_333, reads=163_788, features=6_805, classes=15),
    "coauthor-physics": Statistics(nodes=34_493, reads=495_924, features=8_415, classes=5),
    "amazon-computers": Statistics(nodes=13_752, reads=491_722, features=767, classes=10),
    "amazon-photo": Statistics(nodes=7_650, reads=238_162, features=745, classes=8),
}
