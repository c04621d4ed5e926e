"""Which two files hold the nodes and the edges: a folder, a pair, or a small TOML file that names them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgraph.datasets.paths import check_is_file, is_there, shown
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns, hint, merged

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAPPING = "graph.toml"
_ENDINGS = (".parquet", ".csv", ".tsv")
_KEYS = ("nodes", "edges", "columns")


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """Where nodes and edges are, and what a TOML file says about their columns.

    Attributes:
        nodes, edges: the two files.
        columns: what the TOML file says, by the names of `Columns`; empty without one.
        mapping: that file.
    """

    nodes: Path
    edges: Path
    columns: Mapping[str, Any]
    mapping: Path | None = None

    def columns_with(self, given: Columns | Mapping[str, Any] | None) -> Columns:
        """The columns as given; a mapping of some of them is put over what the file says."""
        if isinstance(given, Columns):
            return given
        where = "columns" if self.mapping is None else shown(self.mapping)
        # The file by itself first, so that a mistake in it is not blamed on a flag.
        own = Columns.of(self.columns, where=where)
        return Columns.of(merged(self.columns, given)) if given else own


def is_tables(data: Any) -> bool:
    """Whether this is a folder, a table, a pair of tables or a TOML file; files need not be there."""
    if isinstance(data, (tuple, list)):
        return len(data) == 2 and all(isinstance(each, (str, os.PathLike)) for each in data)
    if not isinstance(data, (str, os.PathLike)):
        return False
    path = Path(data)
    return path.suffix in (*_ENDINGS, ".toml") or (is_there(path) and path.is_dir())


def find_tables(data: Any) -> TableFiles:
    """The tables that `data` names: a folder, a TOML file, a pair, or nodes with edges beside them."""
    if isinstance(data, (tuple, list)):
        return _pair(Path(data[0]), Path(data[1]))
    path = Path(data)
    if path.is_dir():
        mapping = path / MAPPING
        return _from_toml(mapping) if mapping.exists() else _in_folder(path, {}, None)
    if path.suffix == ".toml":
        return _from_toml(path)
    if not is_there(path):
        raise GraphError(f"{shown(path)}: no such file")
    raise GraphError(
        f"{shown(path)}: one table; expected nodes and edges; give the edges with --edges, or the folder of "
        "both"
    )


def _pair(nodes: Path, edges: Path) -> TableFiles:
    """Two files; DATA may also be what names the nodes, and the edges then replace its own."""
    if nodes.suffix == ".toml" or (is_there(nodes) and nodes.is_dir()):
        mapping = nodes if nodes.suffix == ".toml" else nodes / MAPPING
        if mapping.exists():
            return _from_toml(mapping, edges)
        return TableFiles(nodes=_only(nodes, "nodes"), edges=edges, columns={})
    return TableFiles(nodes=nodes, edges=edges, columns={})


def _from_toml(path: Path, edges: Path | None = None) -> TableFiles:
    try:
        check_is_file(path)
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except GraphError as error:
        raise GraphError(f"{shown(path)}: {error}") from None
    except OSError as error:
        raise GraphError(f"{shown(path)}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        raise GraphError(f"{shown(path)}: not TOML ({reason}); expected keys {', '.join(_KEYS)}") from None
    for key in found:
        if key not in _KEYS:
            advice = hint(key, _KEYS) or f"; expected {', '.join(_KEYS)}"
            raise GraphError(f"{shown(path)}: unknown key {key!r}{advice}")
    columns = found.get("columns", {})
    if not isinstance(columns, dict):
        raise GraphError(f"{shown(path)}: columns={columns!r}; expected a table, [columns]")
    named = {key: found[key] for key in ("nodes", "edges") if key in found}
    for key, value in named.items():
        if not isinstance(value, str) or not value:
            raise GraphError(f"{shown(path)}: {key}={value!r}; expected the name of a file")
    files: dict[str, Path] = {key: path.parent / Path(value).expanduser() for key, value in named.items()}
    if edges is not None:
        files["edges"] = edges
    inside = _in_folder(path.parent, files, path)
    return TableFiles(nodes=inside.nodes, edges=inside.edges, columns=columns, mapping=path)


def _in_folder(folder: Path, named: Mapping[str, Path], mapping: Path | None) -> TableFiles:
    """Files that have no name of their own are nodes.* and edges.* in the folder."""
    return TableFiles(
        nodes=named["nodes"] if "nodes" in named else _only(folder, "nodes"),
        edges=named["edges"] if "edges" in named else _only(folder, "edges"),
        columns={},
        mapping=mapping,
    )


def _only(folder: Path, stem: str) -> Path:
    found = [folder / f"{stem}{ending}" for ending in _ENDINGS if (folder / f"{stem}{ending}").exists()]
    if len(found) == 1:
        return found[0]
    if found:
        raise GraphError(
            f"{shown(folder)}: both {found[0].name} and {found[1].name} in it; keep one, or name it in "
            f"{MAPPING}"
        )
    raise GraphError(
        f"{shown(folder)}: no {', '.join(stem + ending for ending in _ENDINGS)} in it; expected one of them, "
        f"or a {MAPPING} that names the file"
    )
