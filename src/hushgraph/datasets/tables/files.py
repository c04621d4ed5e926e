"""Find the files of nodes and edges: in a folder, as a pair, or named by a TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hushgraph.datasets.paths import check_is_file, format_path, path_exists
from hushgraph.datasets.tables.frames import is_frame, write_frame
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns, merge_columns, suggest

MAPPING = "graph.toml"
_ENDINGS = (".parquet", ".csv", ".tsv")
_KEYS = ("nodes", "edges", "columns")
_TITLES = {"nodes": "the DataFrame of nodes", "edges": "the DataFrame of edges"}


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """The files of nodes and edges, and the columns given in a TOML file.

    Attributes:
        nodes, edges: the two files.
        columns: the fields of `Columns` given in the TOML file; empty without one.
        mapping: the TOML file, if there is one.
        titles: what messages call a file that stands for a DataFrame, by role.
    """

    nodes: Path
    edges: Path
    columns: Mapping[str, Any]
    mapping: Path | None = None
    titles: Mapping[str, str] = field(default_factory=dict)

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
        return len(data) == 2 and all(isinstance(each, (str, os.PathLike)) or is_frame(each) for each in data)
    if not isinstance(data, (str, os.PathLike)):
        return False
    path = Path(data)
    return path.suffix in (*_ENDINGS, ".toml") or (path_exists(path) and path.is_dir())


def name_tables(data: Any) -> str:
    """Return what messages call these tables: the path of the nodes, or their DataFrame."""
    nodes = data[0] if isinstance(data, (tuple, list)) else data
    return _TITLES["nodes"] if is_frame(nodes) else format_path(Path(nodes))


def find_tables(data: Any, connection: Any, folder: Path) -> TableFiles:
    """Find the tables that `data` names: a folder, a TOML file, or a pair of files or DataFrames.

    Args:
        data: what `is_tables` accepts.
        connection: a DuckDB connection.
        folder: the temporary folder for DataFrames.
    """
    if isinstance(data, (tuple, list)):
        paths, titles = [], {}
        for role, given in zip(_TITLES, data, strict=True):
            path = folder / f"{role}.parquet" if is_frame(given) else Path(given)
            if is_frame(given):
                write_frame(connection, given, path, _TITLES[role])
                titles[role] = _TITLES[role]
            paths.append(path)
        return replace(_pair(*paths), titles=titles)
    path = Path(data)
    if path.is_dir():
        mapping = path / MAPPING
        return _from_toml(mapping) if mapping.exists() else _in_folder(path, {}, None)
    if path.suffix == ".toml":
        return _from_toml(path)
    if not path_exists(path):
        raise GraphError(f"{format_path(path)}: no such file")
    raise GraphError(
        f"{format_path(path)}: one table; expected nodes and edges; give the edges with --edges, or the "
        "folder of both"
    )


def sniff_delimiter(path: Path) -> str | None:
    """Return the delimiter of a CSV file whose first line has no comma; None if it is the usual one."""
    if path.suffix != ".csv" or not path_exists(path) or not path.is_file():
        return None
    with path.open("rb") as file:
        first = file.readline(1 << 16).decode("utf-8", errors="replace")
    return next((each for each in (";", "\t", "|") if each in first and "," not in first), None)


def _pair(nodes: Path, edges: Path) -> TableFiles:
    """Return a pair of files. `nodes` may be a folder or TOML file, whose edges are then replaced."""
    if nodes.suffix == ".toml" or (path_exists(nodes) and nodes.is_dir()):
        mapping = nodes if nodes.suffix == ".toml" else nodes / MAPPING
        if mapping.exists():
            return _from_toml(mapping, edges)
        return TableFiles(nodes=_find_file(nodes, "nodes"), edges=edges, columns={})
    return TableFiles(nodes=nodes, edges=edges, columns={})


def _from_toml(path: Path, edges: Path | None = None) -> TableFiles:
    try:
        check_is_file(path)
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except GraphError as error:
        raise GraphError(f"{format_path(path)}: {error}") from None
    except OSError as error:
        raise GraphError(f"{format_path(path)}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        raise GraphError(
            f"{format_path(path)}: not TOML ({reason}); expected keys {', '.join(_KEYS)}"
        ) from None
    for key in content:
        if key not in _KEYS:
            advice = suggest(key, _KEYS) or f"; expected {', '.join(_KEYS)}"
            raise GraphError(f"{format_path(path)}: unknown key {key!r}{advice}")
    columns = content.get("columns", {})
    if not isinstance(columns, dict):
        raise GraphError(f"{format_path(path)}: columns={columns!r}; expected a table, [columns]")
    named = {key: content[key] for key in ("nodes", "edges") if key in content}
    for key, value in named.items():
        if not isinstance(value, str) or not value:
            raise GraphError(f"{format_path(path)}: {key}={value!r}; expected the name of a file")
    files: dict[str, Path] = {key: path.parent / Path(value).expanduser() for key, value in named.items()}
    if edges is not None:
        files["edges"] = edges
    inside = _in_folder(path.parent, files, path)
    return TableFiles(nodes=inside.nodes, edges=inside.edges, columns=columns, mapping=path)


def _in_folder(folder: Path, named: Mapping[str, Path], mapping: Path | None) -> TableFiles:
    """Return the named files; a file without a name is nodes.* or edges.* in the folder."""
    return TableFiles(
        nodes=named["nodes"] if "nodes" in named else _find_file(folder, "nodes"),
        edges=named["edges"] if "edges" in named else _find_file(folder, "edges"),
        columns={},
        mapping=mapping,
    )


def _find_file(folder: Path, stem: str) -> Path:
    """Return the only table with this stem in the folder."""
    paths = [path for ending in _ENDINGS if (path := folder / f"{stem}{ending}").exists()]
    if len(paths) == 1:
        return paths[0]
    if paths:
        raise GraphError(
            f"{format_path(folder)}: both {paths[0].name} and {paths[1].name} in it; keep one, or name it in "
            f"{MAPPING}"
        )
    raise GraphError(
        f"{format_path(folder)}: no {', '.join(stem + ending for ending in _ENDINGS)} in it; expected one "
        f"of them, or a {MAPPING} that names the file"
    )
