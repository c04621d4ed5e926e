"""Nodes that were not there at training: their own rows, and the places that they list on the board."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor, nn

from hushgraph._arrays import find_ends
from hushgraph.billboard.board import Board
from hushgraph.billboard.lists import find_starts
from hushgraph.billboard.names import NameIndex
from hushgraph.billboard.ready import ReadyBoards
from hushgraph.datasets.npz import read_lists_npz
from hushgraph.datasets.paths import format_path, name_in_errors
from hushgraph.datasets.tables.files import is_tables, name_tables
from hushgraph.datasets.tables.new_rows import ListedBy, NewRows, new_rows_from_tables
from hushgraph.errors import GraphError, InputError
from hushgraph.gradients.rows import RowPass, require_chain
from hushgraph.graph.checks import check_features, check_integers
from hushgraph.graph.columns import Columns
from hushgraph.graph.records import EdgeWeight
from hushgraph.inference.in_memory import check_width
from hushgraph.inputs.rows import Rows, SparseRows
from hushgraph.models.gnn import scale_rows

# Identifiers that a message or a summary names.
_NAMED = 5
# Names that are compared at a time.
_NAMES = 1 << 18
# Floats of dense rows at a time: 64 MiB.
_BLOCK_FLOATS = 1 << 24


@dataclass(frozen=True, kw_only=True, eq=False)
class NewNodes:
    """Rows that read the board and are not on it.

    Attributes:
        x: finite features, float32 [R, d], dense or CSR.
        indptr: int64 [R + 1]; row i lists `places[indptr[i]:indptr[i + 1]]`.
        places: int64, numbers of places; -1 for an identifier that the board does not have.
        names: the ids of the rows; None where they have none.
        weights: float64, of every place listed, after the declared function; None where there are none.
        unknown_names: the first few different identifiers that the board does not have.
        edges_skipped: how many records say whom other nodes list.
        undeclared: how many records of undeclared relations were dropped.
        filled: bool [R, numbers], which numbers were empty; None where none may be.
        is_part: whether these are some of the rows of a table. How many they are is then private: edges of
            all rows decide how the table is cut.
    """

    x: Any
    indptr: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    names: npt.NDArray[Any] | None = None
    weights: npt.NDArray[np.float64] | None = None
    unknown_names: tuple[str, ...] = ()
    edges_skipped: int = 0
    undeclared: int = 0
    filled: npt.NDArray[np.bool_] | None = None
    is_part: bool = False

    def __post_init__(self) -> None:
        if len(self.indptr) != self.x.shape[0] + 1:
            raise GraphError(
                f"the ends of lists have {len(self.indptr)} values; expected {self.x.shape[0] + 1}, one more "
                "than rows"
            )

    def cut(self, begin: int, end: int) -> NewNodes:
        """Some of the rows, by number."""
        ends = self.indptr[begin : end + 1]
        listed, rows = slice(ends[0], ends[-1]), slice(begin, end)
        return replace(
            self,
            x=self.x[rows],
            indptr=ends - ends[0],
            places=self.places[listed],
            weights=None if self.weights is None else self.weights[listed],
            filled=None if self.filled is None else self.filled[rows],
        )

    @property
    def num_unknown(self) -> int:
        """How many listed places are not on the board; they are skipped."""
        return int((self.places < 0).sum())


@contextmanager
def open_new_nodes(
    data: Any,
    boards: ReadyBoards,
    *,
    columns: Columns | None,
    num_features: int,
    listed_by: ListedBy,
    declared: EdgeWeight | None = None,
) -> Iterator[NewNodes]:
    """Yield new nodes from files; the arrays are valid within the context.

    Args:
        data: tables, as `load_graph` takes them, or the path of an `.npz` file with `x`, `places_indptr` and
            `places`; of a run with weights also `weights`, and of one with several relations `relations`,
            their names, one for each entry of `places`.
        boards: what they read.
        columns: the roles of the columns of tables; None if the run was not trained on tables.
        num_features: of the training data.
        listed_by: which end of an edge lists the other one.
        declared: what the run does to weights, where it was not trained on tables.

    Raises:
        GraphError: if a file is damaged, if a row has the id of a place of the board, or if the board has
            none of the places listed.
    """
    if isinstance(data, (str, os.PathLike)) and Path(data).suffix == ".npz":
        with name_in_errors(format_path(Path(data)), InputError):
            nodes = locate(_read_npz(Path(data), declared), boards, num_features)
        yield nodes
        return
    if not is_tables(data):
        given = str(data) if isinstance(data, (str, os.PathLike)) else type(data).__name__
        raise GraphError(f"{given[:80]}: expected tables or an .npz file of new nodes")
    name = name_tables(data)
    if columns is None:
        raise GraphError(
            f"{name}: the run was not trained on tables, so the roles of columns are unknown; "
            "give new nodes as an .npz file with x, places_indptr and places"
        )
    with new_rows_from_tables(data, columns=columns, listed_by=listed_by) as rows:
        with name_in_errors(name, InputError):
            nodes = locate(rows, boards, num_features)
        yield nodes


def locate(rows: NewRows, boards: ReadyBoards, num_features: int, *, are_new: bool = True) -> NewNodes:
    """Find the places that rows list on the board; rows that have a place of their own are not new."""
    x = check_features(rows.x)
    check_width(x.shape[1], num_features)
    if are_new and rows.names is not None:
        _check_are_new(rows.names, boards)
    indptr = check_integers("places_indptr", rows.indptr, ndim=1).astype(np.int64)
    rows = rows._replace(indptr=indptr)
    board = boards.boards[0]
    if board.blocks:
        rows, places = _locate_relations(rows, board)
    else:
        places = boards.places_of(rows.places)
    unknown_names = _first_names(rows.places[places < 0])
    if rows.also_new is None:
        check_listed(board, len(places), int((places < 0).sum()), unknown_names)
    return NewNodes(
        x=x,
        indptr=rows.indptr,
        places=places,
        names=rows.names,
        weights=rows.weights,
        unknown_names=unknown_names,
        edges_skipped=rows.edges_skipped,
        undeclared=rows.undeclared,
        filled=rows.filled,
        is_part=rows.also_new is not None,
    )


def check_listed(board: Board, listed: int, unknown: int, unknown_names: Sequence[str]) -> None:
    """Refuse rows that list places, none of which is on the board."""
    if listed and unknown == listed:
        names = board.node_names
        own = "numbers from 0" if names is None else f"names such as {str(names[0])[:40]!r}"
        raise GraphError(
            f"none of the {listed:,} listed places is on the board: {', '.join(map(repr, unknown_names))}; "
            f"expected identifiers of the training data, {own}"
        )


def _locate_relations(rows: NewRows, board: Board) -> tuple[NewRows, npt.NDArray[np.int64]]:
    """The numbers on the whole board of what rows name, and the rows without records that others own.

    A name of a node is a place of the relation that the record is of; any other is looked for among places
    that are not people. Another new row is no place.
    """
    starts, names = find_starts(board.blocks), rows.places
    places = np.full(len(names), -1, np.int64)
    is_node = np.zeros(len(names), np.bool_)
    people = [number for number, block in enumerate(board.blocks) if block.kind == "nodes"]
    if people:
        numbers_of = board.blocks[people[0]].find(names)
        is_node = numbers_of >= 0
        for number in people:
            block = board.blocks[number]
            is_of = is_node if rows.relations is None else is_node & (rows.relations == block.name)
            if rows.relations is None and len(people) > 1:
                raise GraphError(
                    f"the run has the relations {', '.join(board.blocks[each].name for each in people)}; say "
                    "of which each record is"
                )
            places = np.where(is_of, starts[number] + numbers_of, places)
    is_new = np.zeros(len(names), np.bool_)
    if rows.names is not None:
        for new in (rows.names, rows.also_new):
            if new is not None and len(new):
                is_new |= NameIndex(new, len(new)).find(names) >= 0
    for number, block in enumerate(board.blocks):
        if block.kind != "nodes":
            is_of = ~is_node & ~is_new
            if rows.relations is not None and rows.is_reverse is None:
                is_of &= rows.relations == block.name
            numbers_of = block.find(names)
            places = np.where(is_of & (numbers_of >= 0), starts[number] + numbers_of, places)
    kept = np.ones(len(names), np.bool_)
    if rows.relations is not None:
        # As in training: of a relation that is not declared.
        kept = ~is_node | (rows.relations != "")
    undeclared = int((~kept).sum())
    if rows.is_reverse is not None:
        # A record between two nodes belongs to the end that lists; one of a place to the person.
        kept &= ~rows.is_reverse | (~is_node & ~is_new)
    owners = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))[kept]
    counts = np.bincount(owners, minlength=len(rows.indptr) - 1)
    cut = rows._replace(
        indptr=find_ends(counts),
        places=names[kept],
        weights=None if rows.weights is None else rows.weights[kept],
        relations=None if rows.relations is None else rows.relations[kept],
        is_reverse=None,
        undeclared=undeclared,
    )
    return cut, places[kept]


def find_lists(
    boards: ReadyBoards,
    places: Any,
    weights: Any,
    *,
    num_rows: int,
    declared: EdgeWeight | None,
) -> NewRows:
    """What rows list that are given as lists of identifiers, by relation where there are several.

    Args:
        boards: what they read.
        places: for every row its identifiers; or such lists by the name of the relation.
        weights: in the same form; None for 1 each.
        num_rows: R.
        declared: the function that is applied to weights.

    Returns:
        Rows whose places are numbers on the whole board, -1 for those it does not have.
    """
    board = boards.boards[0]
    names = [block.name for block in board.blocks]
    by_relation = dict(places) if isinstance(places, Mapping) else {names[0] if names else "": places}
    if len(names) > 1 and not isinstance(places, Mapping):
        raise InputError(
            f"places: the run has the relations {', '.join(names)}; give a list for each, by name"
        )
    if isinstance(places, Mapping) and not names:
        raise InputError("places: lists by relation, and the run has none; give one list for each row")
    wrong = next((name for name in by_relation if names and name not in names), None)
    if wrong is not None:
        raise InputError(f"places: no relation {wrong!r}; the run has {', '.join(names)}")
    if weights is not None and not any(block.is_weighted for block in board.blocks):
        raise InputError("weights: the run was trained without weights; leave them out")
    weights_of = dict(weights) if isinstance(weights, Mapping) else {next(iter(by_relation), ""): weights}
    starts = find_starts(board.blocks)
    owners, numbers, shares = [], [], []
    for name, lists in by_relation.items():
        if not _are_lists(lists):
            raise InputError("places: expected for every row a list of what it lists, as [['p1', 'p2'], []]")
        if len(lists) != num_rows:
            raise InputError(f"places has {len(lists)} lists; expected one for each of {num_rows} rows")
        listed = np.asarray([place for row in lists for place in row])
        given = weights_of.get(name)
        if given is not None and not _are_lists(given):
            raise InputError("weights: expected for every row a list of numbers, as [[1.0, 2.0], []]")
        if given is not None and [len(row) for row in given] != [len(row) for row in lists]:
            raise InputError("weights: expected one number for each place of every list")
        if board.blocks:
            numbers_of = board.blocks[names.index(name)].find(listed)
            numbers_of = np.where(numbers_of >= 0, numbers_of + starts[names.index(name)], -1)
        else:
            numbers_of = boards.places_of(listed)
        owners.append(np.repeat(np.arange(num_rows), [len(row) for row in lists]))
        numbers.append(numbers_of)
        flat = np.ones(len(listed)) if given is None else np.asarray([each for row in given for each in row])
        shares.append(flat if declared is None or given is None else declared.apply(flat))
    rows = np.concatenate(owners) if owners else np.empty(0, np.int64)
    order = np.argsort(rows, kind="stable")
    indptr = find_ends(np.bincount(rows, minlength=num_rows))
    joined = np.concatenate(numbers)[order] if numbers else np.empty(0, np.int64)
    is_weighted = any(block.is_weighted for block in board.blocks)
    own_shares = np.concatenate(shares)[order] if is_weighted and shares else None
    return NewRows(None, None, indptr, joined, weights=own_shares)


def _are_lists(given: Any) -> bool:
    """Whether this holds lists: a text is none, although it can be read letter by letter."""
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)) or not hasattr(given, "__len__"):
        return False
    return all(isinstance(row, Iterable) and not isinstance(row, (str, bytes)) for row in given)


def fill_empty(features: Any, columns: Columns | None) -> tuple[Any, npt.NDArray[np.bool_] | None]:
    """Features in which NaN is an empty cell, as tables give them, and which numbers were empty.

    Args:
        features: [R, d], dense or sparse, in the order of the training data.
        columns: of a run on tables. Columns of numbers that they fill may have NaN; another NaN stays.
    """
    constants = {} if columns is None else columns.constants
    if columns is None or not constants:
        return features, None
    x: Any = sparse.lil_array(features) if sparse.issparse(features) else np.array(features)
    names = list(columns.features or ())
    if x.shape[1] < len(names) or x.dtype.kind != "f":
        return features, None
    numbers = x[:, : len(names)]
    empty = np.isnan(numbers.toarray() if sparse.issparse(numbers) else numbers)
    empty &= [name in constants for name in names]
    if empty.any():
        values = np.array([constants.get(name, 0.0) for name in names])
        rows, places = np.nonzero(empty)
        x[rows, places] = values[places]
        first = columns.num_features - columns.num_cycles - len(columns.indicators)
        for number, name in enumerate(columns.indicators, start=first):
            x[np.flatnonzero(empty[:, names.index(name)]), number] = 1.0
    return x, empty


def check_names(board: Board, names: npt.NDArray[Any] | None) -> None:
    """Refuse a graph whose nodes are not called as the places of the board, in the same order."""
    known = board.node_names
    if known is None or names is None:
        return
    given = np.asarray(names)
    for begin in range(0, len(known), _NAMES):
        here, there = (each[begin : begin + _NAMES] for each in (given, known))
        if not (here.dtype.kind in "iu" and there.dtype.kind in "iu"):
            here, there = here.astype(np.str_), there.astype(np.str_)
        wrong = np.flatnonzero(here != there)
        if wrong.size:
            row = begin + int(wrong[0])
            raise InputError(
                f"row {row + 1} is {str(given[row])[:40]!r}, but {str(known[row])[:40]!r} on the board; "
                "give the training data with its rows in the same order"
            )


@torch.no_grad()
def score_rows(
    model: nn.Module,
    x: Any,
    readings: npt.NDArray[np.float32],
    *,
    feature_norm: float,
    is_part: bool = False,
) -> Tensor:
    """float32 [R, classes]: the scores of rows of (features, reading), in blocks that fit memory.

    Args:
        model: takes features scaled to `feature_norm`, with the reading behind them.
        x: float32 [R, d], dense or CSR.
        readings: float32 [R, classes].
        feature_norm: as in training.
        is_part: whether how many rows there are is private. What torch makes of a row depends, in the last
            bit, on how many others there are, so that kernels then score every row by itself.
    """
    if is_part:
        return _score_alone(model, x, readings, feature_norm)
    device = next(model.parameters()).device
    step = max(1, _BLOCK_FLOATS // (x.shape[1] + readings.shape[1]))
    was_training = model.training
    if was_training:
        # Not otherwise: other threads may be scoring with it.
        model.eval()
    try:
        parts = []
        for begin in range(0, len(readings), step):
            block = x[begin : begin + step]
            dense = torch.from_numpy(
                block.toarray() if sparse.issparse(block) else np.ascontiguousarray(block)
            )
            features = scale_rows(dense.to(device), feature_norm)
            seen = torch.from_numpy(readings[begin : begin + step]).to(device)
            parts.append(model(torch.cat([features, seen], dim=1), ()))
        return torch.cat(parts)
    finally:
        if was_training:
            model.train()


def _score_alone(model: nn.Module, x: Any, readings: npt.NDArray[np.float32], feature_norm: float) -> Tensor:
    """The same by kernels, on the CPU."""
    seen: dict[str, Any] = {"dense": readings}
    if sparse.issparse(x):
        features = SparseRows.of(x)
        seen |= {"features": features, "scales": features.scales(feature_norm)}
    else:
        scaled = scale_rows(torch.from_numpy(np.ascontiguousarray(x)), feature_norm).numpy()
        seen["dense"] = np.concatenate([scaled, readings], axis=1)
    return RowPass(require_chain(model)).scores(Rows(labels=np.full(len(readings), -1), **seen))


def _read_npz(path: Path, declared: EdgeWeight | None) -> NewRows:
    arrays = read_lists_npz(path)
    places = arrays["places"]
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iuU"):
        raise GraphError(
            f"places has dtype {str(places.dtype)[:40]} and shape {list(places.shape)}; expected a list of "
            "identifiers, integers or text"
        )
    more: dict[str, Any] = {}
    for name, kinds in (("weights", "biuf"), ("relations", "U")):
        values = arrays.get(name)
        if values is None:
            continue
        if values.shape != places.shape or values.dtype.kind not in kinds:
            raise GraphError(
                f"{name} has dtype {str(values.dtype)[:40]} and shape {list(values.shape)}; expected one for "
                f"each of {len(places)} places"
            )
        more[name] = declared.apply(values) if name == "weights" and declared is not None else values
    return NewRows(names=None, x=arrays["x"], indptr=arrays["places_indptr"], places=places, **more)


def _check_are_new(names: npt.NDArray[Any], boards: ReadyBoards) -> None:
    """Refuse rows that have a place: what they cast themselves would stay in their readings."""
    blocks = boards.boards[0].blocks
    nodes = next((block for block in blocks if block.kind == "nodes"), None)
    if blocks and nodes is None:
        return
    numbers_of = boards.places_of(names) if nodes is None else nodes.find(names)
    old = names[numbers_of >= 0]
    if len(old):
        raise GraphError(
            f"{len(old):,} of {len(names):,} ids are on the board already, such as {str(old[0])[:40]!r}; "
            "expected nodes that were not there at training; give those with the "
            "training data, and leave out --new"
        )


def _first_names(identifiers: npt.NDArray[Any]) -> tuple[str, ...]:
    """The first few different identifiers, in order."""
    _, first = np.unique(identifiers.astype(np.str_), return_index=True)
    return tuple(str(identifiers[place])[:40] for place in np.sort(first)[:_NAMED])
