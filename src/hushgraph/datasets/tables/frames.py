"""DataFrames of pandas and Polars as tables; neither library is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushgraph.datasets.tables.cells import quote
from hushgraph.errors import GraphError

_LIBRARIES = ("pandas", "polars", "pyarrow")
_KINDS = ("DataFrame", "LazyFrame", "Table")


def is_frame(value: Any) -> bool:
    """Return whether this is a DataFrame of pandas or Polars, or an Arrow table."""
    return _library(value) is not None


def is_spark_frame(value: Any) -> bool:
    """Return whether this is a DataFrame of a session of Spark."""
    kind = type(value)
    return kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.")


def write_frame(connection: Any, frame: Any, path: Path, title: str) -> None:
    """Write a DataFrame to a Parquet file, which is then read as any other.

    Args:
        connection: a DuckDB connection.
        frame: the DataFrame. A named index of pandas becomes columns; another one is left out.
        path: the file.
        title: what messages call the DataFrame.
    """
    try:
        if _library(frame) == "polars":
            (frame.collect() if hasattr(frame, "collect") else frame).write_parquet(path)
            return
        if _library(frame) == "pandas":
            frame = _with_index(frame, title)
        connection.register("frame", frame)
        try:
            connection.execute(f"COPY (SELECT * FROM frame) TO {quote(path)}")
        finally:
            connection.unregister("frame")
    except GraphError:
        raise
    except Exception as error:
        # Errors of three libraries, for values that no table can hold.
        reason = " ".join(str(error).split())[:120]
        raise GraphError(f"{title}: cannot be read as a table ({reason}); store text or numbers") from None


def _library(value: Any) -> str | None:
    """Return the library whose DataFrame this is, or None."""
    for kind in type(value).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in _LIBRARIES and kind.__name__ in _KINDS:
            return library
    return None


def _with_index(frame: Any, title: str) -> Any:
    """Return a pandas DataFrame with its named index as columns, and with text as column names."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise GraphError(f"{title}: two columns are called {twice!r}; rename one")
    return frame.set_axis(names, axis=1)
