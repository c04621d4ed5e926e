"""What is published about each official dataset: where its files are, what they hold, who may use them."""

from __future__ import annotations

from dataclasses import dataclass

from hushgraph.datasets.catalog.download import Remote
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph

_MB = 1_000_000
_OGB = "https://snap.stanford.edu/ogb/data/nodeproppred"
_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
_DRIVE = "https://drive.usercontent.google.com/download?confirm=t&id="


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Published figures, after symmetrization and without self-loops and repeats.

    Attributes:
        nodes, features, classes: as the names say.
        reads: directed edges; an undirected one counts twice.
        split: training, validation and test nodes, where an official split exists.
        tolerance: relative; by how much `reads` and `split` may differ, where sources round or disagree.
    """

    nodes: int
    reads: int
    features: int
    classes: int
    split: tuple[int, int, int] | None = None
    tolerance: float = 0.0

    def check(self, name: str, graph: Graph) -> None:
        """Refuse a graph that is not the one these figures describe."""
        pairs = [
            ("nodes", graph.num_nodes, self.nodes, 0.0),
            ("features", graph.num_features, self.features, 0.0),
            ("classes", int(graph.y.max(initial=-1)) + 1, self.classes, 0.0),
            ("reads", graph.num_edges, self.reads, self.tolerance),
        ]
        if self.split is not None:
            found = (graph.train_idx, graph.val_idx, graph.test_idx)
            labels = ("training nodes", "validation nodes", "test nodes")
            pairs += [
                (label, len(nodes), wanted, self.tolerance)
                for label, nodes, wanted in zip(labels, found, self.split, strict=True)
            ]
        wrong = [
            f"{label}={found:,} (expected {wanted:,})"
            for label, found, wanted, tolerance in pairs
            if abs(found - wanted) > tolerance * wanted
        ]
        if wrong:
            raise GraphError(
                f"{name}: {', '.join(wrong)}; the files are damaged or hold another dataset: delete them to "
                "have them fetched again, or give the path of your own file in place of the name"
            )


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the files of a dataset come from.

    Attributes:
        folder: the name of its folder in the data root, as `ogb` and PyG have it, so that theirs are found.
        remotes: the files to fetch, in order.
        licence: as its publisher states it.
    """

    folder: str
    remotes: tuple[Remote, ...]
    licence: str

    @property
    def about(self) -> int:
        """Bytes to fetch, roughly."""
        return sum(remote.about for remote in self.remotes)


def _ogb(name: str, about: int, licence: str) -> Source:
    remote = Remote(url=f"{_OGB}/{name}.zip", path=f"{name}.zip", about=about, unpack=name)
    return Source(folder=f"ogbn_{name}", remotes=(remote,), licence=licence)


def _planetoid(folder: str, about: int) -> Source:
    names = [f"ind.{folder.lower()}.{part}" for part in _PLANETOID_PARTS]
    each = about // len(names)
    remotes = [Remote(url=f"{_PLANETOID}/{name}", path=f"raw/{name}", about=each) for name in names]
    return Source(folder=folder, remotes=tuple(remotes), licence="MIT")


def _shchur(folder: str, file: str, about: int) -> Source:
    remote = Remote(url=f"{_SHCHUR}/{file}", path=f"raw/{file}", about=about)
    return Source(folder=folder, remotes=(remote,), licence="MIT")


# The Google Drive identifiers are those that PyG's Reddit2 uses.
_GRAPHSAINT = tuple(
    Remote(url=f"{_DRIVE}{identifier}", path=f"raw/{file}", about=about)
    for file, identifier, about in (
        ("adj_full.npz", "1sncK996BM5lpuDf75lDFqCiDZyErc1c2", 80 * _MB),
        ("feats.npy", "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3", 1_122 * _MB),
        ("class_map.json", "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u", 3 * _MB),
        ("role.json", "1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A", 2 * _MB),
    )
)

SOURCES = {
    "ogbn-arxiv": _ogb("arxiv", 81 * _MB, "ODC-BY"),
    "ogbn-products": _ogb("products", 1_461 * _MB, "Amazon licence"),
    "ogbn-mag": _ogb("mag", 413 * _MB, "ODC-BY"),
    "reddit": Source(folder="reddit", remotes=_GRAPHSAINT, licence="not stated"),
    "reddit-full": Source(
        folder="reddit_full",
        remotes=(
            Remote(
                url="https://data.dgl.ai/dataset/reddit.zip",
                path="raw/reddit.zip",
                about=1_300 * _MB,
                unpack="",
            ),
        ),
        licence="not stated",
    ),
    "cora": _planetoid("Cora", 1 * _MB),
    "citeseer": _planetoid("CiteSeer", 2 * _MB),
    "pubmed": _planetoid("PubMed", 13 * _MB),
    "coauthor-cs": _shchur("CS", "ms_academic_cs.npz", 5 * _MB),
    "coauthor-physics": _shchur("Physics", "ms_academic_phy.npz", 9 * _MB),
    "amazon-computers": _shchur("Computers", "amazon_electronics_computers.npz", 6 * _MB),
    "amazon-photo": _shchur("Photo", "amazon_electronics_photo.npz", 4 * _MB),
}

_REDDIT_SPLIT = (153_932, 23_699, 55_334)
_ARXIV_SPLIT = (90_941, 29_799, 48_603)

STATISTICS = {
    "demo": Statistics(nodes=20_000, reads=237_572, features=64, classes=8, split=(12_029, 3_978, 3_993)),
    "ogbn-arxiv": Statistics(nodes=169_343, reads=2_315_598, features=128, classes=40, split=_ARXIV_SPLIT),
    "ogbn-arxiv-disjoint": Statistics(
        nodes=169_343, reads=914_218, features=128, classes=40, split=_ARXIV_SPLIT
    ),
    # What the agglomeration of `clustering.py` gives; the authors' own split has an average degree of 13.0.
    "ogbn-arxiv-clustered": Statistics(
        nodes=169_343,
        reads=2_224_256,
        features=128,
        classes=40,
        split=(113_459, 30_481, 25_403),
        tolerance=0.04,
    ),
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
    "reddit": Statistics(
        nodes=232_965, reads=23_213_838, features=602, classes=41, split=_REDDIT_SPLIT, tolerance=0.01
    ),
    # An average degree of 54.4, as the paper has it.
    "reddit-disjoint": Statistics(
        nodes=232_965, reads=12_673_296, features=602, classes=41, split=_REDDIT_SPLIT, tolerance=0.01
    ),
    "reddit-full": Statistics(
        nodes=232_965,
        reads=114_615_892,
        features=602,
        classes=41,
        split=(153_431, 23_831, 55_703),
        tolerance=0.01,
    ),
    "cora": Statistics(nodes=2_708, reads=10_556, features=1_433, classes=7, split=(140, 500, 1_000)),
    "citeseer": Statistics(nodes=3_327, reads=9_104, features=3_703, classes=6, split=(120, 500, 1_000)),
    "pubmed": Statistics(nodes=19_717, reads=88_648, features=500, classes=3, split=(60, 500, 1_000)),
    "coauthor-cs": Statistics(nodes=18_333, reads=163_788, features=6_805, classes=15),
    "coauthor-physics": Statistics(nodes=34_493, reads=495_924, features=8_415, classes=5),
    "amazon-computers": Statistics(nodes=13_752, reads=491_722, features=767, classes=10),
    "amazon-photo": Statistics(nodes=7_650, reads=238_162, features=745, classes=8),
}
