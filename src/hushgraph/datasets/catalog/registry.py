"""The catalog of named datasets: list, describe, download and load them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from hushgraph.datasets.catalog.data_root import data_root
from hushgraph.datasets.catalog.download import Remote, download_bar, fetch, unpack
from hushgraph.datasets.catalog.formats import (
    OGB_FILES,
    PLANETOID_FILES,
    REDDIT_FILES,
    REDDIT_FULL_FILES,
    read_ogb,
    read_planetoid,
    read_reddit,
    read_reddit_full,
    read_shchur,
)
from hushgraph.datasets.catalog.official import SOURCES, STATISTICS, Source, Statistics
from hushgraph.datasets.paths import format_path, path_exists
from hushgraph.datasets.splits import DEFAULT_SPLIT, parse_fractions, random_split, read_split
from hushgraph.datasets.synthetic import synthetic
from hushgraph.errors import DownloadError, GraphError
from hushgraph.graph.graph import Graph

_GENERATED = re.compile(r"generated-([1-9][0-9]{0,9})")
_FEWEST_NODES = 50


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named dataset: generated, read from official files, or derived from another dataset.

    Attributes:
        description: one line.
        generate: generates the graph.
        files: the files that `read` needs, relative to the folder of the dataset.
        read: returns the arguments of `Graph.from_arrays` from the folder, possibly without a split.
        base: the dataset that this one is derived from.
        derive: derives the graph from that of `base` and its folder.
    """

    description: str
    generate: Callable[[], Graph] | None = None
    files: tuple[str, ...] = ()
    read: Callable[[Path], dict[str, Any]] | None = None
    base: str | None = None
    derive: Callable[[Graph, Path], Graph] | None = None


def _read_planetoid(name: str, folder: Path) -> dict[str, Any]:
    return read_planetoid(folder / "raw", name)


def _read_shchur(file: str, folder: Path) -> dict[str, Any]:
    return read_shchur(folder / file)


def _drop_edges_between_splits(graph: Graph, folder: Path) -> Graph:
    return graph.disjoint()


def _clustered(graph: Graph, folder: Path) -> Graph:
    """Split by the file of the authors if it is there, else by our interpretation of their description."""
    parts = read_split(folder / "split" / "clustered", graph.num_nodes)
    if parts is None:
        from hushgraph.datasets.catalog.clustering import clustered_split

        parts = clustered_split(graph)
    return replace(graph, train_idx=parts[0], val_idx=parts[1], test_idx=parts[2]).disjoint()


_OGB = {
    "ogbn-arxiv": "computer science papers and citations, by subject; split by time",
    "ogbn-mag": "papers and citations, by venue; split by time",
    "ogbn-products": "goods bought together, by category; split by sales",
}
_PLANETOID = dict.fromkeys(PLANETOID_FILES, "papers and citations, by subject; public split")
_SHCHUR = {
    "amazon-computers": "goods bought together, by category; random split",
    "amazon-photo": "goods bought together, by category; random split",
    "coauthor-cs": "authors who wrote together, by field; random split",
    "coauthor-physics": "authors who wrote together, by field; random split",
}
_ENTRIES = {
    "demo": Entry(
        description="generated: 20,000 nodes, 8 planted classes, power-law degrees, weak features",
        generate=synthetic,
    ),
    **{
        name: Entry(description=description, files=OGB_FILES[SOURCES[name].folder], read=read_ogb)
        for name, description in _OGB.items()
    },
    **{
        name: Entry(
            description=description,
            files=tuple(f"raw/{file}" for file in PLANETOID_FILES[name]),
            read=partial(_read_planetoid, name),
        )
        for name, description in _PLANETOID.items()
    },
    **{
        name: Entry(
            description=description,
            files=(SOURCES[name].remotes[0].path,),
            read=partial(_read_shchur, SOURCES[name].remotes[0].path),
        )
        for name, description in _SHCHUR.items()
    },
    "reddit": Entry(
        description="posts with common commenters, by community; split by time; the edges of GraphSAGE",
        files=tuple(f"raw/{file}" for file in REDDIT_FILES),
        read=lambda folder: read_reddit(folder / "raw"),
    ),
    "reddit-full": Entry(
        description="reddit with five times as many edges, the version of DGL and PyG",
        files=tuple(f"raw/{file}" for file in REDDIT_FULL_FILES),
        read=lambda folder: read_reddit_full(folder / "raw"),
    ),
    "ogbn-arxiv-clustered": Entry(
        description="ogbn-arxiv split along communities, without edges between splits",
        base="ogbn-arxiv",
        derive=_clustered,
    ),
    **{
        f"{base}-disjoint": Entry(
            description=f"{base} without edges between splits", base=base, derive=_drop_edges_between_splits
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
            user's cache. A file NAME.npz there, in the format of `load_npz`, replaces the official files.
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
    place = folder / SOURCES[origin].folder
    if _npz(origin, folder) is not None or not _missing(origin, place):
        return "yes"
    downloads = [f"{remote.path}{end}" for remote in SOURCES[origin].remotes for end in ("", ".part")]
    has_some = any((place / file).is_file() for file in (*_ENTRIES[origin].files, *downloads))
    return "in part" if has_some else "no"


def fetch_files(name: str, root: str | PathLike[str] | None = None) -> Path | None:
    """Download the missing files of `name` and return their folder; None if the graph is generated."""
    entry, folder = _entry(name), data_root(root)
    if entry.generate is not None:
        return None
    origin = entry.base or name
    place = folder / SOURCES[origin].folder
    for remote in SOURCES[origin].remotes if _missing(origin, place) else ():
        try:
            _download(origin, remote, place)
        except DownloadError as error:
            file = place / remote.path
            raise DownloadError(
                f"{origin}: {error}; try again where there is a network, or put {file.name} into "
                f"{file.parent} yourself"
            ) from None
    if missing := _missing(origin, place):
        raise GraphError(
            f"{origin}: {place} lacks {', '.join(missing)}; delete the folder to download it again"
        )
    return place


def _download(name: str, remote: Remote, place: Path) -> None:
    """Download and unpack a file; an archive that was there before is kept."""
    was_there = (place / remote.path).is_file()
    with download_bar(f"{name}: {Path(remote.path).name}") as progress:
        path = fetch(remote, place, progress=progress)
    if remote.unpack is not None:
        unpack(path, remote.unpack, path.parent)
        if not was_there:
            path.unlink()


def _missing(name: str, place: Path) -> list[str]:
    return [file for file in _ENTRIES[name].files if not (place / file).is_file()]


def _npz(name: str, folder: Path) -> Path | None:
    """Return the `.npz` file that replaces the official files, under any of its names."""
    stems = (name, name.replace("-", "_"), f"planetoid_{name}")
    return next((path for stem in stems if (path := folder / f"{stem}.npz").is_file()), None)


def _load_npz_file(name: str, folder: Path) -> Graph | None:
    path = _npz(name, folder)
    if path is None:
        return None
    from hushgraph.datasets.loading import load_npz

    sizes = STATISTICS[name]
    split = None if sizes.split else DEFAULT_SPLIT
    return load_npz(path, symmetrize=True, num_classes=sizes.classes, split=split)


def _load_official(name: str, folder: Path) -> Graph:
    place = fetch_files(name, folder)
    read = _ENTRIES[name].read
    if place is None or read is None:  # pragma: no cover
        raise GraphError(f"{name} has no files")
    arrays = read(place)
    if "train_idx" not in arrays:
        parts = random_split(arrays["x"].shape[0], parse_fractions(DEFAULT_SPLIT))
        arrays |= dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True))
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
    beside = difflib.get_close_matches(Path(name).name, _list_beside(Path(name)), n=1, cutoff=0.75)
    if beside:
        meant = str(Path(name).with_name(beside[0]))
        raise GraphError(f"{name[:80]}: no such file or dataset; did you mean {meant!r}?")
    near = difflib.get_close_matches(name.lower(), [*_ENTRIES, "generated-20000"], n=1, cutoff=0.4)
    advice = f"did you mean {near[0]!r}?" if near else f"known names: {', '.join(names())}, generated-N"
    raise GraphError(f"dataset {name[:80]!r} is neither a file nor a known name; {advice}")


def _list_beside(path: Path) -> list[str]:
    """List what is in the folder of a path that does not exist."""
    try:
        return [each.name for each in path.parent.iterdir()]
    except (OSError, ValueError):
        return []
