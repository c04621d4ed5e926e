"""Graphs from a node table and an edge table, CSV or Parquet, read with DuckDB."""
