"""What every row of a graph lists over all of its relations, row by row, as a run keeps it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph.billboard.lists import Block, RowRecords, find_records
from hushgraph.graph.graph import EdgeOwner, Graph


class RowLists(NamedTuple):
    """Row v lists `places[indptr[v]:indptr[v + 1]]`, by the numbers of the whole board."""

    blocks: tuple[Block, ...]
    starts: list[int]
    num_places: int
    indptr: npt.NDArray[np.int64]
    places: npt.NDArray[Any]
    coefficients: npt.NDArray[np.int32]


def list_rows(graph: Graph, edge_owner: EdgeOwner) -> RowLists:
    """Those of a graph."""
    return list_records(find_records(graph, edge_owner))


def list_records(records: RowRecords) -> RowLists:
    """Those of records that are divided."""
    lists = records.list_rows(np.arange(len(records.sizes)))
    return RowLists(records.blocks, records.starts, records.num_places, *lists.arrays)
