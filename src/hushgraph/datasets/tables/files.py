"""Find the files of nodes and edges: in a folder, as a pair, by a pattern, or named by a TOML file."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from hushgraph._files import read_toml
from hushgraph._stores import fetch_files, find_address
from hushgraph._text import is_elsewhere, suggest
from hushgraph.datasets.paths import check_is_file, format_path, name_in_errors, path_exists
from hushgraph.datasets.spark import fetch_tables, is_reading
from hushgraph.datasets.tables.frames import is_frame, is_spark_frame, write_frame
from hushgraph.datasets.tables.table import Origin
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.columns import Columns, merge_columns
from hushgraph.graph.records import read_places

MAPPING = "graph.toml"
_ENDINGS = (".parquet", ".csv", ".tsv", ".txt")
_KEYS = ("nodes", "edges", "columns")
_TITLES = {"nodes": "the DataFrame of nodes", "edges": "the DataFrame of edges"}
# Names of files that a message lists.
_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """The files of nodes and edges, and the columns given in a TOML file.

    Attributes:
        nodes, edges: the files of the two tables; a table may be in several.
        columns: the fields of `Columns` given in the TOML file; empty without one.
        mapping: the TOML file, if there is one.
        titles: what messages call a file that stands for a DataFrame, by role.
        given: the names, folders and patterns that the files were found by, by role.
        relations: the files of edges by relation, where a TOML file names relations; `edges` then lists all
            of them.
        origins: what the folders that Spark wrote were read from.
        also_new: of a part of new rows: identifiers of new rows that are in other parts; None where these are
            whole tables.
    """

    nodes: tuple[Path, ...]
    edges: tuple[Path, ...]
    columns: Mapping[str, Any]
    mapping: Path | None = None
    titles: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    relations: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    origins: Mapping[Path, Origin] = field(default_factory=dict)
    also_new: npt.NDArray[Any] | None = None

    def columns_with(self, given: Columns | Mapping[str, Any] | None) -> Columns:
        """Return the given columns; a mapping of some of them takes precedence over the TOML file."""
        if isinstance(given, Columns):
            return given
        where = "columns" if self.mapping is None else format_path(self.mapping)
        # Check the file alone first, so that a mistake in it is not attributed to a flag.
        from_file = Columns.of(self.columns, where=where)
        return Columns.of(merge_columns(self.columns, given)) if given else from_file


def is_tables(data: Any) -> bool:
    """Return whether this is a folder, a table, a pair of tables or a TOML file; files need not exist."""
    if isinstance(data, (tuple, list)):
        return len(data) == 2 and all(_is_table(each) for each in data)
    if not isinstance(data, (str, os.PathLike)):
        return isinstance(data, TableFiles)
    path = Path(data)
    if is_elsewhere(str(data)):
        return True
    ending = path.suffix.casefold()
    is_pattern = glob.has_magic(str(path)) and ending not in (".npz", ".pt")
    return ending in (*_ENDINGS, ".toml") or is_pattern or (path_exists(path) and path.is_dir())


def _is_table(given: Any) -> bool:
    """Return whether this can be one of a pair: a path, a list of paths, or a DataFrame."""
    if isinstance(given, (tuple, list)):
        return bool(given) and all(isinstance(each, (str, os.PathLike)) for each in given)
    return isinstance(given, (str, os.PathLike)) or is_frame(given) or is_spark_frame(given)


def name_tables(data: Any) -> str:
    """Return what messages call these tables: the path of the nodes, or their DataFrame."""
    if isinstance(data, TableFiles):
        return data.origins[data.nodes[0]].name
    nodes = data[0] if isinstance(data, (tuple, list)) else data
    is_data = is_frame(nodes) or is_spark_frame(nodes)
    return _TITLES["nodes"] if is_data else format_path(_as_paths(nodes)[0])


def find_tables(
    data: Any,
    connection: Any,
    folder: Path,
    *,
    columns: Columns | Mapping[str, Any] | None = None,
    needs_split: bool = False,
) -> TableFiles:
    """Find the tables that `data` names: a folder, a TOML file, or a pair of files or DataFrames.

    Args:
        data: what `is_tables` accepts; files that are found already stay as they are.
        connection: a DuckDB connection.
        folder: the temporary folder for DataFrames, for what Spark writes, and for copies of tables in object
            stores; those are not copied without a connection.
        columns, needs_split: as `fetch_tables` takes them, where Spark reads tables.
    """
    if isinstance(data, TableFiles):
        return data
    files = find_sources(data, connection, folder)
    if is_reading():
        return fetch_tables(files, columns, folder, needs_split=needs_split)
    others: list[Any] = [each for each in (*files.nodes, *files.edges) if not isinstance(each, Path)]
    for each in others:
        if not isinstance(each, str) or find_address(each) is None:
            name = format_path(each) if isinstance(each, str) else "a DataFrame of Spark"
            raise GraphError(f"{name}: Spark alone reads it; add --engine spark")
        if connection is None:
            raise GraphError(f"{format_path(each)}: its size is not known; give --engine memory or duckdb")
    return _copy_from_stores(files, folder) if others else files


def _copy_from_stores(files: TableFiles, folder: Path) -> TableFiles:
    """The same tables with copies of those in object stores, each made once."""
    copied: dict[str, list[Path]] = {}

    def find_copies(sources: tuple[Any, ...]) -> tuple[Path, ...]:
        for each in sources:
            if isinstance(each, str) and each not in copied:
                copied[each] = fetch_files(each, Path(tempfile.mkdtemp(dir=folder)), _ENDINGS)
        return tuple(path for each in sources for path in (copied[each] if isinstance(each, str) else [each]))

    relations = {name: find_copies(sources) for name, sources in files.relations.items()}
    return replace(files, nodes=find_copies(files.nodes), edges=find_copies(files.edges), relations=relations)


def find_sources(data: Any, connection: Any, folder: Path) -> TableFiles:
    """As `find_tables`, before anything is copied: paths, addresses and what Spark alone reads.

    Of a pair, the first may be a folder or a TOML file too.
    """
    is_pair = isinstance(data, (tuple, list))
    named: dict[str, tuple[Any, ...]] = {}
    titles = {}
    for role, given in zip(_TITLES, data if is_pair else (data,), strict=False):
        if not is_frame(given):
            named[role] = _as_paths(given)
            continue
        titles[role] = _TITLES[role]
        named[role] = (folder / f"{role}.parquet",)
        write_frame(connection, given, named[role][0], titles[role])
    base = named["nodes"][0]
    if isinstance(base, Path) and len(named["nodes"]) == 1:
        is_folder = path_exists(base) and base.is_dir()
        mapping = base / MAPPING if is_folder else base
        if mapping.suffix == ".toml" and (not is_folder or mapping.exists()):
            return replace(_from_toml(mapping, named.get("edges")), titles=titles)
        if is_folder and (not is_pair or _find_stem(base, "nodes")):
            del named["nodes"]
            return replace(_in_folder(base, named), titles=titles)
    if not is_pair:
        _find_files(base, "nodes")
        raise GraphError(
            f"{format_path(base)}: one table; expected nodes and edges; give the edges with --edges, or the "
            "folder of both"
        )
    return replace(_in_folder(Path(), named), titles=titles)


def _as_paths(given: Any) -> tuple[Any, ...]:
    """Paths; what Spark alone reads stays as it is."""
    listed = given if isinstance(given, (tuple, list)) else (given,)
    return tuple(each if is_spark_frame(each) or is_elsewhere(str(each)) else Path(each) for each in listed)


def _find_all(paths: tuple[Path, ...], role: str) -> tuple[Path, ...]:
    """Return the files that names, folders and patterns stand for, each once."""
    files = [file for path in paths for file in _find_files(path, role)]
    twice = next((file for number, file in enumerate(files) if file in files[:number]), None)
    if twice is not None:
        raise GraphError(f"{format_path(twice)}: given twice for {role}; give each file once")
    return tuple(files)


def _find_files(path: Any, role: str) -> list[Any]:
    """Return the file of this name, the tables in the folder, or what the pattern matches, sorted."""
    if not isinstance(path, Path):
        return [path]
    if path_exists(path):
        if not path.is_dir():
            return [path]
        inside = _list_tables(path)
        if not inside:
            raise GraphError(
                f"{format_path(path)}: no table in this folder, given for {role}; expected files that end in "
                f"{', '.join(_ENDINGS)}"
            )
        return inside
    if glob.has_magic(str(path)):
        matches = sorted(Path(each) for each in glob.glob(str(path)) if Path(each).is_file())
        if not matches:
            raise GraphError(
                f"{format_path(path)}: no file matches this pattern, given for {role}{_near(path)}"
            )
        return matches
    raise GraphError(f"{format_path(path)}: no such file{_near(path)}")


def _list_tables(folder: Path) -> list[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise GraphError(f"{format_path(folder)}: cannot be read ({error.strerror})") from None
    return [path for path in paths if path.suffix.casefold() in _ENDINGS and path.is_file()]


def _near(path: Path) -> str:
    """Return the table in the same folder that was probably meant, or those that are there."""
    try:
        tables = [each.name for each in _list_tables(path.parent)]
    except (GraphError, ValueError):
        return ""
    near = suggest(path.name, tables, cutoff=0.6)
    return near if near or not tables else f"; the folder has {_name_some(tables)}"


def _name_some(tables: list[str]) -> str:
    return ", ".join(map(repr, tables[:_NAMED])) + (", ..." if len(tables) > _NAMED else "")


def _from_toml(path: Path, edges: tuple[Path, ...] | None = None) -> TableFiles:
    with name_in_errors(format_path(path)):
        check_is_file(path)
    content = read_toml(path, format_path(path), keys=_KEYS, kind=GraphError)
    for key in content:
        if key not in _KEYS:
            advice = suggest(key, _KEYS) or f"; expected {', '.join(_KEYS)}"
            raise GraphError(f"{format_path(path)}: unknown key {key!r}{advice}")
    columns = content.get("columns", {})
    if not isinstance(columns, dict):
        raise GraphError(f"{format_path(path)}: columns={columns!r}: expected a table, [columns]")
    columns = _read_place_file(path, columns)
    named: dict[str, tuple[Path, ...]] = {}
    relations: dict[str, tuple[Path, ...]] = {}
    for key in ("nodes", "edges"):
        value = content.get(key)
        if key == "edges" and isinstance(value, dict) and value and edges is None:
            relations = {name: _name_files(path, f"{key}.{name}", each) for name, each in value.items()}
            named[key] = tuple(file for files in relations.values() for file in files)
        elif key in content:
            named[key] = _name_files(path, key, value)
    if edges is not None:
        named["edges"] = edges
    return replace(
        _in_folder(path.parent, named),
        columns=columns,
        mapping=path,
        relations={name: _find_all(files, "edges") for name, files in relations.items()},
    )


def _name_files(path: Path, key: str, value: Any) -> tuple[Any, ...]:
    """The files that a key of a TOML file names, relative to it."""
    texts = value if isinstance(value, list) and value else [value]
    if not all(isinstance(text, str) and text for text in texts):
        raise GraphError(
            f"{format_path(path)}: {key}={value!r}: expected the name of a file, or a list of them"
        )
    return tuple(
        named if isinstance(named, str) else path.parent / named.expanduser() for named in _as_paths(texts)
    )


def _read_place_file(path: Path, columns: dict[str, Any]) -> dict[str, Any]:
    """Columns whose list of places is read, if a TOML file names a file of them."""
    if "places" not in columns:
        return columns
    try:
        return {**columns, "places": read_places(columns["places"], path.parent)}
    except InputError as error:
        raise GraphError(f"{format_path(path)}: {error}") from None


def _in_folder(folder: Path, named: Mapping[str, tuple[Path, ...]]) -> TableFiles:
    """Return the named files; a table without a name is nodes.* or edges.* in the folder."""
    given = {
        role: named[role] if role in named else (_find_stem(folder, role, is_needed=True),)
        for role in ("nodes", "edges")
    }
    files = {role: _find_all(paths, role) for role, paths in given.items()}
    return TableFiles(nodes=files["nodes"], edges=files["edges"], columns={}, given=given)


def _find_stem(folder: Path, stem: str, *, is_needed: bool = False) -> Any:
    """Return the only table with this stem in the folder; None where there is none and none is needed."""
    paths = [path for ending in _ENDINGS if (path := folder / f"{stem}{ending}").exists()]
    if len(paths) == 1:
        return paths[0]
    if paths:
        raise GraphError(
            f"{format_path(folder)}: both {paths[0].name} and {paths[1].name} in it; keep one, or name it in "
            f"{MAPPING}"
        )
    if not is_needed:
        return None
    tables = [path.name for path in _list_tables(folder)]
    holds = ""
    if tables:
        holds = f"; it has {_name_some(tables)}: give the table of nodes as DATA, and the edges with --edges"
    raise GraphError(
        f"{format_path(folder)}: no {', '.join(stem + ending for ending in _ENDINGS[:3])} in it; expected "
        f"one of them, or a {MAPPING} that names the file{holds}"
    )
