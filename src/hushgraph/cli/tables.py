"""The flags for tables of your own, and the `Columns` they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from hushgraph.cli.help_sections import options
from hushgraph.errors import InputError

_tables = options("Tables (CSV or Parquet)")

Edges = Annotated[Path | None, _tables("The edges, where DATA is the nodes. [edges.* in the folder DATA]")]
Id = Annotated[str | None, _tables("Column of node ids, text or numbers. [id]", "--id")]
Label = Annotated[str | None, _tables("Column of classes. [label]")]
Features = Annotated[str | None, _tables("Columns of numbers. [all left over]", metavar="A,B,...")]
Ignore = Annotated[str | None, _tables("Columns not to read. [none]", metavar="A,B,...")]
Categorical = Annotated[
    list[str] | None,
    _tables("A column and its values, one-hot; repeat it. [none: values are public]", metavar="COL=A|B"),
]
Hash = Annotated[
    list[str] | None,
    _tables("A column and its number of buckets, one-hot; repeat it. [none]", "--hash", metavar="COL=N"),
]
Classes = Annotated[
    str | None, _tables("Names of the classes in order. [labels are numbers]", metavar="A,B,...")
]
SplitColumn = Annotated[str | None, _tables("Column with train, val, test. [split]")]
Source = Annotated[str | None, _tables("Column of an edge: who is read. [source]")]
Target = Annotated[str | None, _tables("Column of an edge: who reads. [target]")]
Delimiter = Annotated[str | None, _tables("Of CSV; or tab. [a comma]", metavar="CHAR")]

PlainEdges = Annotated[Path | None, options("Data")("The edges, where DATA is the table of nodes.")]

FLAGS = {
    "id_column": "id",
    "label": "label",
    "features": "features",
    "ignore": "ignore",
    "categorical": "categorical",
    "hash_column": "hashed",
    "classes": "classes",
    "split_column": "split",
    "source": "source",
    "target": "target",
    "delimiter": "delimiter",
}
"""Parameters of a command, and the names that `Columns` has for them."""


def columns_in(parameters: dict[str, Any]) -> dict[str, Any] | None:
    """What the flags say about columns, by the names of `Columns`; None where they say nothing."""
    found: dict[str, Any] = {}
    for name, key in FLAGS.items():
        value = parameters.get(name)
        if value is None or value == [] or value == ():
            continue
        if key in ("features", "ignore", "classes"):
            found[key] = value.split(",")
        elif key == "categorical":
            found[key] = {column: values.split("|") for column, values in _pairs("categorical", value)}
        elif key == "hashed":
            found[key] = {column: _buckets(column, number) for column, number in _pairs("hash", value)}
        else:
            found[key] = value
    return found or None


def with_edges(data: str, edges: Path | None) -> Any:
    """DATA as `load_graph` takes it."""
    return data if edges is None else (data, edges)


def _pairs(flag: str, values: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for value in values:
        column, equals, rest = value.partition("=")
        if not (column and equals and rest):
            form = "COL=A|B" if flag == "categorical" else "COL=16"
            raise InputError(f"{flag}={value!r}: expected a column and what it holds, as {form}")
        if column in dict(found):
            raise InputError(f"{flag}={value!r}: column {column!r} was given before; give it once")
        found.append((column, rest))
    return found


def _buckets(column: str, number: str) -> int:
    if not number.isdecimal():
        raise InputError(f"hash={column}={number}: expected a number of buckets, as {column}=16")
    return int(number)
