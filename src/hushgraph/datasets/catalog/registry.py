"""The catalog of named datasets: list, describe, download and load them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from hushgraph._text import find_nearest
from hushgraph.datasets.catalog.data_root import data_root
from hushgraph.datasets.catalog.download import check_digest, fetch, unpack
from hushgraph.datasets.catalog.formats import read_ogb, read_table, read_with_pyg
from hushgraph.datasets.catalog.official import SOURCES, STATISTICS, Source, Statistics
from hushgraph.datasets.paths import format_path, path_exists
from hushgraph.datasets.splits import DEFAULT_SPLIT, parse_fractions, random_split
from hushgraph.datasets.synthetic import synthetic
from hushgraph.errors import DownloadError, GraphError
from hushgraph.graph.graph import SPLITS, Graph

_GENERATED = re.compile(r"generated-([1-9][0-9]{0,9})")
_FEWEST_NODES = 50


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named dataset: generated, read from official files, or derived from another dataset.

    Attributes:
        description: one line.
        generate: generates the graph.
        base: the dataset that this one is derived from.
        derive: derives the graph from that of `base` and its folder.
    """

    description: str
    generate: Callable[[], Graph] | None = None
    base: str | None = None
    derive: Callable[[Graph, Path], Graph] | None = None


def _clustered(graph: Graph, folder: Path) -> Graph:
    """Split by the file of the authors if it is there, else by our interpretation of their description."""
    path = folder / "split" / "clustered.csv"
    if path.is_file():
        part = read_table(path, np.int64).ravel()
        if len(part) != graph.num_nodes or part.min() < 0 or part.max() > 2:
            raise GraphError(
                f"{path} holds {len(part):,} values; expected {graph.num_nodes:,}, each 0, 1 or 2"
            )
        train, val, test = (np.flatnonzero(part == number) for number in range(3))
    else:
        from hushgraph.datasets.catalog.clustering import clustered_split

        train, val, test = clustered_split(graph)
    return replace(graph, train_idx=train, val_idx=val, test_idx=test).disjoint()


_CITATIONS = "papers and citations, by subject; public split"
_GOODS = "goods bought together, by category; random split"
_AUTHORS = "authors who wrote together, by field; random split"
_ENTRIES = {
    "demo": Entry(
        description="generated: 20,000 nodes, 8 planted classes, power-law degrees, weak features",
        generate=synthetic,
    ),
    "ogbn-arxiv": Entry(description="computer science papers and citations, by subject; split by time"),
    "ogbn-mag": Entry(description="papers and citations, by venue; split by time"),
    "ogbn-products": Entry(description="goods bought together, by category; split by sales"),
    "cora": Entry(description=_CITATIONS),
    "citeseer": Entry(description=_CITATIONS),
    "pubmed": Entry(description=_CITATIONS),
    "amazon-computers": Entry(description=_GOODS),
    "amazon-photo": Entry(description=_GOODS),
    "coauthor-cs": Entry(description=_AUTHORS),
    "coauthor-physics": Entry(description=_AUTHORS),
    "reddit": Entry(
        description="posts with common commenters, by community; split by time; the edges of GraphSAGE"
    ),
    "reddit-full": Entry(description="reddit with five times as many edges, the version of DGL and PyG"),
    "ogbn-arxiv-clustered": Entry(
        description="ogbn-arxiv split along communities, without edges between splits",
        base="ogbn-arxiv",
        derive=_clustered,
    ),
    **{
        f"{base}-disjoint": Entry(
            description=f"{base} without edges between splits",
            base=base,
            derive=lambda graph, folder: graph.disjoint(),
        )
        for base in ("ogbn-arxiv", "reddit")
    },
}


def names() -> tuple[str, ...]:
    """Return the names of the catalog, sorted; `generated-N` is also a name, for every number of nodes N."""
    return tuple(sorted(_ENTRIES))


def describe(name: str) -> str:
    """Describe the dataset `name` in one line."""
    return _entry(name).description


def statistics(name: str) -> Statistics | None:
    """Return the published sizes of the dataset `name`; None for `generated-N`."""
    _entry(name)
    return STATISTICS.get(name)


def source(name: str) -> Source | None:
    """Return the source of the files of a dataset; None if it is generated."""
    return SOURCES.get(_entry(name).base or name)


def base(name: str) -> str | None:
    """Return the dataset that `name` is derived from, if any."""
    return _ENTRIES[name].base if name in _ENTRIES else None


def derive(name: str, graph: Graph, folder: Path) -> Graph:
    """Apply to a graph what turns the base of `name` into `name`; `folder` may hold a file of splits."""
    entry = _entry(name)
    return graph if entry.derive is None else entry.derive(graph, folder)


def load(name: str, root: str | PathLike[str] | None = None, *, check_statistics: bool = True) -> Graph:
    """Load the dataset `name`, an undirected graph. Missing files are downloaded first.

    Args:
        name: one of `names()`, or `generated-N` for any number of nodes N.
        root: the folder of the files; by default that of the variable HUSHGRAPH_DATA, or hushgraph in the
            user's cache. A file NAME.npz there, in the format of `load_graph`, replaces the official files.
        check_statistics: refuse files that do not have the published sizes.

    Returns:
        The checked graph.

    Examples:
        >>> import hushgraph as hg
        >>> hg.datasets.load("generated-100").num_nodes
        100
    """
    entry = _entry(name)
    if entry.generate is not None:
        return entry.generate()
    origin, folder = entry.base or name, data_root(root)
    graph = _load_npz_file(origin, folder) or _load_official(origin, folder)
    if check_statistics:
        STATISTICS[origin].check(origin, graph)
    if entry.derive is None:
        return graph
    graph = derive(name, graph, folder / SOURCES[origin].folder)
    if check_statistics:
        STATISTICS[name].check(name, graph)
    return graph


def on_disk(name: str, root: str | PathLike[str] | None = None) -> str:
    """Return whether the files of `name` are there: "yes", "in part", "no", or "not needed" if generated."""
    entry = _entry(name)
    if entry.generate is not None:
        return "not needed"
    origin, folder = entry.base or name, data_root(root)
    source = SOURCES[origin]
    place = folder / source.folder
    if _npz(origin, folder) is not None or not _missing(source, place):
        return "yes"
    has_some = any((place / file).is_file() for file in (*source.files, *source.downloads))
    return "in part" if has_some else "no"


def fetch_files(name: str, root: str | PathLike[str] | None = None) -> Path | None:
    """Download the missing files of `name` and return their folder; None if the graph is generated."""
    entry = _entry(name)
    if entry.generate is not None:
        return None
    origin = entry.base or name
    source = SOURCES[origin]
    place = data_root(root) / source.folder
    if source.contents and not _missing(source, place):
        return place
    for relative, url in source.downloads.items():
        path = place / relative
        was_there = path.is_file()
        try:
            if not was_there:
                fetch(url, path)
            check_digest(path)
            if source.contents:
                unpack(path, source.archive_root)
        except DownloadError as error:
            raise DownloadError(
                f"{origin}: {error}; try again where there is a network, or put {path.name} into "
                f"{path.parent} yourself"
            ) from None
        if source.contents and not was_there:
            path.unlink()
    if missing := _missing(source, place):
        raise GraphError(
            f"{origin}: {place} lacks {', '.join(missing)}; delete the folder to download it again"
        )
    return place


def _missing(source: Source, place: Path) -> list[str]:
    return [file for file in source.files if not (place / file).is_file()]


def _npz(name: str, folder: Path) -> Path | None:
    """Return the `.npz` file that replaces the official files, under any of its names."""
    stems = (name, name.replace("-", "_"), f"planetoid_{name}")
    return next((path for stem in stems if (path := folder / f"{stem}.npz").is_file()), None)


def _load_npz_file(name: str, folder: Path) -> Graph | None:
    path = _npz(name, folder)
    if path is None:
        return None
    from hushgraph.datasets.loading import load_graph

    sizes = STATISTICS[name]
    split = None if sizes.split else DEFAULT_SPLIT
    return load_graph(path, symmetrize=True, num_classes=sizes.classes, split=split)


def _load_official(name: str, folder: Path) -> Graph:
    fetch_files(name, folder)
    source = SOURCES[name]
    arrays = read_ogb(source, folder) if source.reader == "ogb" else read_with_pyg(source, folder)
    if "train_idx" not in arrays:
        parts = random_split(arrays["x"].shape[0], parse_fractions(DEFAULT_SPLIT))
        arrays |= dict(zip(SPLITS, parts, strict=True))
    return Graph.from_arrays(**arrays, symmetrize=True, num_classes=STATISTICS[name].classes)


def _generated(num_nodes: int) -> Entry:
    if num_nodes < _FEWEST_NODES:
        raise GraphError(
            f"generated-{num_nodes}: too few nodes for ten classes; expected at least {_FEWEST_NODES}"
        )
    return Entry(
        description=f"generated: {num_nodes:,} nodes, 10 planted classes of unequal size, power-law degrees",
        generate=lambda: synthetic(num_nodes=num_nodes, num_classes=10, class_skew=1.0, average_degree=14.0),
    )


def _entry(name: str) -> Entry:
    if name in _ENTRIES:
        return _ENTRIES[name]
    # A Path is not a name either; it gets the message below.
    name = str(name)
    if match := _GENERATED.fullmatch(name):
        return _generated(int(match[1]))
    if path_exists(Path(name)):
        raise GraphError(
            f"{format_path(Path(name))}: this is a path, but load takes the name of a dataset; use "
            "hg.datasets.load_graph(path), or give the path to train"
        )
    if beside := find_nearest(Path(name).name, _list_beside(Path(name)), cutoff=0.75):
        meant = str(Path(name).with_name(beside))
        raise GraphError(f"{name[:80]}: no such file or dataset; did you mean {meant!r}?")
    near = find_nearest(name, [*_ENTRIES, "generated-20000"], cutoff=0.4)
    advice = f"did you mean {near!r}?" if near else f"known names: {', '.join(names())}, generated-N"
    raise GraphError(f"dataset {name[:80]!r} is neither a file nor a known name; {advice}")


def _list_beside(path: Path) -> list[str]:
    """List what is in the folder of a path that does not exist."""
    try:
        return [each.name for each in path.parent.iterdir()]
    except (OSError, ValueError):
        return []
