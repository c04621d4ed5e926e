"""Some rows of the graph that a board was made on: a small graph of them and what they list, and its board.

A reading is a function of a row, or of a person's rows, and of the places that are listed. So the code that
reads a whole graph gives the same for a graph of some rows and the places that they list, in the order that
these have on the board, with a board of these places alone. Rows of one person have to come together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.billboard.board import Board
from hushgraph.billboard.lists import find_starts
from hushgraph.billboard.ready import ReadyBoards
from hushgraph.datasets.building import build_graph
from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.errors import RunError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.persons import name_persons
from hushgraph.graph.records import Relation
from hushgraph.inference.new_nodes import NewNodes

Int64Array = npt.NDArray[np.int64]


class RowsOfGraph(NamedTuple):
    """Some rows of a graph.

    Attributes:
        graph: of these rows, and of nodes that they list, which have no features, label or records.
        names: of the rows.
        nodes: int64, ascending: the numbers of its nodes in the whole graph.
        rows: int64, the numbers of the rows in the small graph.
    """

    graph: Graph
    names: npt.NDArray[Any]
    nodes: Int64Array
    rows: Int64Array


def find_rows(
    given: NewNodes,
    cells: Mapping[str, Any],
    boards: ReadyBoards,
    *,
    edge_owner: EdgeOwner,
    split: str | None,
    split_seed: int,
    **options: Any,
) -> RowsOfGraph:
    """The small graph of rows that have a place on the board.

    Args:
        given: the rows and the places that they list.
        cells: as in `NewRows`.
        boards: of the run.
        edge_owner: whose row holds an edge record.
        split, split_seed: as in `load_graph`; drawn by the numbers of nodes in the whole graph.
        options: the task and how many classes it has, as `build_graph` takes them.

    Raises:
        RunError: where a row has no place.
    """
    board = boards.boards[0]
    people = next((block for block in board.blocks if block.kind == "nodes"), None)
    names = np.asarray(given.names)
    own = boards.places_of(names) if people is None else people.find(names)
    if own.min(initial=0) < 0:
        raise RunError(
            f"{str(names[own.argmin()])[:40]!r} was not there at training; give new nodes by --new, or the "
            "data that the run began with"
        )
    starts = find_starts(board.blocks) if board.blocks else np.array([0, board.num_places])
    kinds = [block.kind for block in board.blocks] or ["nodes"]
    owners = np.repeat(np.arange(len(own)), np.diff(given.indptr))
    relation = np.searchsorted(starts[1:], given.places, side="right")
    is_known = given.places >= 0
    named = given.places - starts[np.where(is_known, relation, 0)]
    is_node = is_known & np.isin(relation, np.flatnonzero(np.array(kinds) == "nodes"))
    nodes = np.unique(np.concatenate([own, named[is_node]]))
    rows = np.searchsorted(nodes, own)

    def spread(values: Any, empty: Any) -> Any:
        """Values of the rows as those of all nodes."""
        order = np.full(len(nodes), len(own))
        order[rows] = np.arange(len(own))
        if sparse.issparse(values):
            return sparse.csr_array(sparse.vstack([values, sparse.csr_array((1, values.shape[1]))]))[order]
        return np.concatenate([values, np.full((1, *values.shape[1:]), empty, values.dtype)])[order]

    def pair(at: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Records between nodes, as edges [2, E]."""
        ends = rows[owners[at]], np.searchsorted(nodes, named[at])
        return np.stack(ends if edge_owner == "sender" else ends[::-1])

    y = np.asarray(cells["y"])
    arrays: dict[str, Any] = {"x": spread(given.x, 0), "y": spread(y, np.nan if y.dtype.kind == "f" else -1)}
    if given.filled is not None:
        arrays["filled"] = spread(given.filled, False)
    persons = None
    if "persons" in cells:
        arrays["persons"] = spread(np.asarray(cells["persons"], object), None)
        persons = name_persons(arrays["persons"], len(nodes))
    if split is None:
        arrays["train_idx"] = rows[cells["train_idx"]]
    else:
        first = nodes if persons is None else nodes[persons]
        drawn = random_split(len(nodes), parse_fractions(split), seed=split_seed, persons=first)[0]
        arrays["train_idx"] = np.intersect1d(drawn, rows)
    if not board.blocks:
        arrays["edge_index"] = pair(is_known)
    else:
        relations = []
        for number, block in enumerate(board.blocks):
            at = is_known & (relation == number)
            weights = None
            if block.is_weighted:
                weights = np.ones(at.sum()) if given.weights is None else given.weights[at]
            shape: dict[str, Any] = {"num_nodes": len(nodes), "weights": weights}
            if block.kind == "nodes":
                relations.append(Relation.between_people(block.name, pair(at), **shape))
            else:
                shape |= {"num_places": block.size, "is_hashed": block.kind == "hashed"}
                relations.append(Relation.to_places(block.name, rows[owners[at]], named[at], **shape))
        arrays |= {"edge_index": None, "relations": relations}
    graph = build_graph(arrays, split=None, split_seed=split_seed, labels=True, is_part=True, **options)
    return RowsOfGraph(graph, names, nodes, rows)


def cut_board(board: Board, nodes: Int64Array) -> Board:
    """The board of a small graph: its nodes, and all places that are none."""
    if not board.blocks:
        return replace(board, values=board.values[nodes], names=None)
    parts, blocks = [], []
    for start, block in zip(find_starts(board.blocks).tolist(), board.blocks, strict=False):
        is_people = block.kind == "nodes"
        parts.append(start + (nodes if is_people else np.arange(block.size)))
        blocks.append(replace(block, size=len(nodes), names=None) if is_people else block)
    return replace(board, values=board.values[np.concatenate(parts)], blocks=tuple(blocks))
