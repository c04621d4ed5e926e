"""The datasets that have a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from hushgraph.datasets.catalog import reddit
from hushgraph.datasets.catalog.data_root import data_root
from hushgraph.datasets.catalog.download import DownloadError, Remote, download_bar, fetch, unpack
from hushgraph.datasets.catalog.official import SOURCES, STATISTICS, Source, Statistics
from hushgraph.datasets.catalog.ogb import ogb_files, read_ogb
from hushgraph.datasets.catalog.planetoid import planetoid_files, read_planetoid
from hushgraph.datasets.catalog.shchur import read_shchur
from hushgraph.datasets.paths import is_there, shown
from hushgraph.datasets.splits import given_split
from hushgraph.datasets.synthetic import synthetic
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph

_GENERATED = re.compile(r"generated-([1-9][0-9]{0,9})")
_FEWEST = 50
# Graphs without an official split get this one, drawn by node id.
_SPLIT = "0.6/0.2/0.2"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named dataset.

    Attributes:
        description: one line.
        generate: for a generated graph.
        files: of an official one, what must be in its folder, relative to it.
        read: the arguments of `Graph.from_arrays` from the folder, perhaps without a split.
        base: the dataset this one is derived from.
        derive: from the graph of `base` and its folder.
    """

    description: str
    generate: Callable[[], Graph] | None = None
    files: tuple[str, ...] = ()
    read: Callable[[Path], dict[str, Any]] | None = None
    base: str | None = None
    derive: Callable[[Graph, Path], Graph] | None = None


def _ogb(name: str, description: str) -> Entry:
    return Entry(description=description, files=ogb_files(SOURCES[name].folder), read=read_ogb)


def _planetoid(name: str, description: str) -> Entry:
    return Entry(
        description=description,
        files=tuple(f"raw/{file}" for file in planetoid_files(name)),
        read=lambda folder: read_planetoid(folder / "raw", name),
    )


def _shchur(name: str, description: str) -> Entry:
    file = SOURCES[name].remotes[0].path
    return Entry(description=description, files=(file,), read=lambda folder: read_shchur(folder / file))


def _disjoint(base: str) -> Entry:
    return Entry(
        description=f"{base} without edges between splits",
        base=base,
        derive=lambda graph, _: graph.disjoint(),
    )


def _clustered(graph: Graph, folder: Path) -> Graph:
    """By the authors' file of splits where it is at hand, else by our reading of how they made it."""
    parts = given_split(folder / "split" / "clustered", graph.num_nodes)
    if parts is None:
        from hushgraph.datasets.catalog.clustering import clustered_split

        parts = clustered_split(graph)
    return replace(graph, train_idx=parts[0], val_idx=parts[1], test_idx=parts[2]).disjoint()


_ENTRIES = {
    "amazon-computers": _shchur("amazon-computers", "goods bought together, by category; random split"),
    "amazon-photo": _shchur("amazon-photo", "goods bought together, by category; random split"),
    "citeseer": _planetoid("citeseer", "papers and citations, by subject; public split"),
    "coauthor-cs": _shchur("coauthor-cs", "authors who wrote together, by field; random split"),
    "coauthor-physics": _shchur("coauthor-physics", "authors who wrote together, by field; random split"),
    "cora": _planetoid("cora", "papers and citations, by subject; public split"),
    "demo": Entry(
        description="generated: 20,000 nodes, 8 planted classes, power-law degrees, weak features",
        generate=synthetic,
    ),
    "ogbn-arxiv": _ogb("ogbn-arxiv", "computer science papers and citations, by subject; split by time"),
    "ogbn-arxiv-clustered": Entry(
        description="ogbn-arxiv split along communities, without edges between splits",
        base="ogbn-arxiv",
        derive=_clustered,
    ),
    "ogbn-arxiv-disjoint": _disjoint("ogbn-arxiv"),
    "ogbn-mag": _ogb("ogbn-mag", "papers and citations, by venue; split by time"),
    "ogbn-products": _ogb("ogbn-products", "goods bought together, by category; split by sales"),
    "pubmed": _planetoid("pubmed", "papers and citations, by subject; public split"),
    "reddit": Entry(
        description="posts with common commenters, by community; split by time; the edges of GraphSAGE",
        files=tuple(f"raw/{file}" for file in reddit.GRAPHSAINT_FILES),
        read=lambda folder: reddit.read_graphsaint(folder / "raw"),
    ),
    "reddit-disjoint": _disjoint("reddit"),
    "reddit-full": Entry(
        description="reddit with five times as many edges, as DGL and PyG have it",
        files=tuple(f"raw/{file}" for file in reddit.FULL_FILES),
        read=lambda folder: reddit.read_full(folder / "raw"),
    ),
}


def names() -> tuple[str, ...]:
    """The known names, sorted; `generated-N` is one for every N."""
    return tuple(sorted(_ENTRIES))


def describe(name: str) -> str:
    """One line about the dataset `name`."""
    return _entry(name).description


def statistics(name: str) -> Statistics | None:
    """What is known about the dataset `name`; None for `generated-N`."""
    _entry(name)
    return STATISTICS.get(name)


def source(name: str) -> Source | None:
    """Where its files come from; None for generated ones."""
    return SOURCES.get(_entry(name).base or name)


def base(name: str) -> str | None:
    """The dataset that `name` is derived from, if any."""
    return _ENTRIES[name].base if name in _ENTRIES else None


def derived(name: str, graph: Graph, folder: Path) -> Graph:
    """What `name` is to its base, made of another graph; `folder` may hold a file of splits for it."""
    derive = _entry(name).derive
    return graph if derive is None else derive(graph, folder)


def load(name: str, root: str | PathLike[str] | None = None, *, check_statistics: bool = True) -> Graph:
    """Load the dataset `name`, an undirected graph; files it lacks are fetched first.

    Arguments:
        name: one of `names()`, or `generated-N` for any number of nodes N.
        root: the folder for files; by default the one of the variable HUSHGRAPH_DATA, or hushgraph in the
            user's cache. A file NAME.npz there, in the format of `load_npz`, is taken in place of the
            official files.
        check_statistics: refuse files whose sizes are not the published ones.
    """
    entry, folder = _entry(name), data_root(root)
    if entry.generate is not None:
        return entry.generate()
    origin = entry.base or name
    graph = _from_file(origin, folder) or _from_official(origin, folder)
    if check_statistics:
        STATISTICS[origin].check(origin, graph)
    if entry.derive is None:
        return graph
    found = derived(name, graph, folder / SOURCES[origin].folder)
    if check_statistics:
        STATISTICS[name].check(name, found)
    return found


def on_disk(name: str, root: str | PathLike[str] | None = None) -> str:
    """What is there of the files of `name`: "yes", "in part", "no", or "not needed" for generated graphs."""
    entry, folder = _entry(name), data_root(root)
    if entry.generate is not None:
        return "not needed"
    origin = entry.base or name
    place = folder / SOURCES[origin].folder
    if _npz(origin, folder) is not None or not _missing(origin, place):
        return "yes"
    begun = [remote.path for remote in SOURCES[origin].remotes]
    some = any((place / file).is_file() for file in _ENTRIES[origin].files)
    some = some or any((place / f"{path}{end}").is_file() for path in begun for end in ("", ".part"))
    return "in part" if some else "no"


def fetch_files(name: str, root: str | PathLike[str] | None = None) -> Path | None:
    """Bring the files of `name` to disk, as far as they are missing, and give their folder."""
    entry, folder = _entry(name), data_root(root)
    if entry.generate is not None:
        return None
    origin = entry.base or name
    place = folder / SOURCES[origin].folder
    for remote in SOURCES[origin].remotes if _missing(origin, place) else ():
        try:
            _bring(origin, remote, place)
        except DownloadError as error:
            file = place / remote.path
            raise DownloadError(
                f"{origin}: {error}; try again where there is a network, or put {file.name} into "
                f"{file.parent} yourself"
            ) from None
    if missing := _missing(origin, place):
        raise GraphError(
            f"{origin}: {place} lacks {', '.join(missing)}; delete the folder to have it fetched again"
        )
    return place


def _bring(name: str, remote: Remote, place: Path) -> None:
    brought_along = (place / remote.path).is_file()
    with download_bar(f"{name}: {Path(remote.path).name}") as progress:
        path = fetch(remote, place, progress=progress)
    if remote.unpack is not None:
        unpack(path, remote.unpack, path.parent)
        if not brought_along:
            path.unlink()


def _missing(name: str, place: Path) -> list[str]:
    return [file for file in _ENTRIES[name].files if not (place / file).is_file()]


def _npz(name: str, folder: Path) -> Path | None:
    """The file that takes the place of the official ones, under any of the names it goes by."""
    stems = (name, name.replace("-", "_"), f"planetoid_{name}")
    found = (folder / f"{stem}.npz" for stem in stems)
    return next((path for path in found if path.is_file()), None)


def _from_file(name: str, folder: Path) -> Graph | None:
    path = _npz(name, folder)
    if path is None:
        return None
    from hushgraph.datasets.loading import load_npz

    known = STATISTICS[name]
    split = None if known.split else _SPLIT
    return load_npz(path, symmetrize=True, num_classes=known.classes, split=split)


def _from_official(name: str, folder: Path) -> Graph:
    place = fetch_files(name, folder)
    read = _ENTRIES[name].read
    if place is None or read is None:  # pragma: no cover
        raise GraphError(f"{name} has no files")
    arrays = read(place)
    if "train_idx" not in arrays:
        from hushgraph.datasets.splits import parse_fractions, random_split

        parts = random_split(arrays["x"].shape[0], parse_fractions(_SPLIT), labels=arrays["y"])
        arrays |= dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True))
    return Graph.from_arrays(**arrays, symmetrize=True, num_classes=STATISTICS[name].classes)


def _generated(num_nodes: int) -> Entry:
    if num_nodes < _FEWEST:
        raise GraphError(f"generated-{num_nodes}: too few nodes for ten classes; expected at least {_FEWEST}")
    return Entry(
        description=f"generated: {num_nodes:,} nodes, 10 planted classes of unequal size, power-law degrees",
        generate=lambda: synthetic(num_nodes=num_nodes, num_classes=10, class_skew=1.0, average_degree=14.0),
    )


def _entry(name: str) -> Entry:
    if name in _ENTRIES:
        return _ENTRIES[name]
    # Text also where a Path was given, which is no name but has a message of its own.
    name = str(name)
    if match := _GENERATED.fullmatch(name):
        return _generated(int(match[1]))
    if is_there(Path(name)):
        raise GraphError(
            f"{shown(Path(name))}: this is a path, and load takes the name of a dataset; use "
            "hg.datasets.load_graph(path), or give the path to train"
        )
    near = difflib.get_close_matches(name.lower(), [*_ENTRIES, "generated-20000"], n=1, cutoff=0.4)
    advice = f"did you mean {near[0]!r}?" if near else f"known names: {', '.join(names())}, generated-N"
    raise GraphError(f"dataset {name[:80]!r} is neither a file nor a known name; {advice}")
