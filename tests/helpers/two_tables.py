"""Two small tables of people and who they know, as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import duckdb

NODES = """\
id,age,label,split,city
a,1.5,0,train,Oslo
b,2,1,val,Bergen
c,-3e2,,train,
d,0,1,,Oslo
"""
EDGES = "source,target\na,b\nb,c\nc,b\nd,d\na,b\n"
CITY = {"categorical": {"city": ["Bergen", "Oslo"]}}


def folder_of(path: Path, nodes: str = NODES, edges: str = EDGES) -> Path:
    path.mkdir(exist_ok=True)
    (path / "nodes.csv").write_text(nodes)
    (path / "edges.csv").write_text(edges)
    return path


def to_parquet(path: Path, select: str = "*") -> Path:
    """The CSV file as Parquet, beside it and in its place."""
    target = path.with_suffix(".parquet")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {select} FROM read_csv('{path}')) TO '{target}' (FORMAT parquet)")
    path.unlink()
    return target
