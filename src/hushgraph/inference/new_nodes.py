"""Nodes that were not there at training: their own rows, and the places that they list on the board."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor, nn

from hushgraph.billboard.board import Board
from hushgraph.billboard.ready import ReadyBoards
from hushgraph.datasets.npz import read_lists_npz
from hushgraph.datasets.paths import format_path
from hushgraph.datasets.tables.files import is_tables, name_tables
from hushgraph.datasets.tables.new_rows import ListedBy, NewRows, new_rows_from_tables
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import check_features, check_integers
from hushgraph.inference.in_memory import check_width
from hushgraph.models.gnn import scale_rows

# Identifiers that a message or a summary names.
_NAMED = 5
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
        unknown_names: the first few different identifiers that the board does not have.
        edges_skipped: how many records say whom other nodes list.
        filled: bool [R, numbers], which numbers were empty; None where none may be.
    """

    x: Any
    indptr: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    names: npt.NDArray[Any] | None = None
    unknown_names: tuple[str, ...] = ()
    edges_skipped: int = 0
    filled: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if len(self.indptr) != self.x.shape[0] + 1:
            raise GraphError(
                f"the ends of lists have {len(self.indptr)} values; expected {self.x.shape[0] + 1}, one more "
                "than rows"
            )

    @property
    def num_unknown(self) -> int:
        """How many listed places are not on the board; they are skipped."""
        return int((self.places < 0).sum())


@contextmanager
def open_new_nodes(
    data: Any, boards: ReadyBoards, *, columns: Columns | None, num_features: int, listed_by: ListedBy
) -> Iterator[NewNodes]:
    """Yield new nodes from files; the arrays are valid within the context.

    Args:
        data: tables, as `load_graph` takes them, or the path of an `.npz` file with `x`, `places_indptr` and
            `places`.
        boards: what they read.
        columns: the roles of the columns of tables; None if the run was not trained on tables.
        num_features: of the training data.
        listed_by: which end of an edge lists the other one.

    Raises:
        GraphError: if a file is damaged, if a row has the id of a place of the board, or if the board has
            none of the places listed.
    """
    if isinstance(data, (str, os.PathLike)) and Path(data).suffix == ".npz":
        with _name_file(format_path(Path(data))):
            nodes = locate(_read_npz(Path(data)), boards, num_features)
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
        with _name_file(name):
            nodes = locate(rows, boards, num_features)
        yield nodes


def locate(rows: NewRows, boards: ReadyBoards, num_features: int) -> NewNodes:
    """Find the places that rows list on the board."""
    x = check_features(rows.x)
    check_width(x.shape[1], num_features)
    if rows.names is not None:
        _check_are_new(rows.names, boards)
    places = boards.places_of(rows.places)
    unknown = rows.places[places < 0]
    if len(unknown) and len(unknown) == len(places):
        own = "numbers from 0" if boards.names is None else f"names such as {str(boards.names[0])[:40]!r}"
        raise GraphError(
            f"none of the {len(places):,} listed places is on the board: "
            f"{', '.join(map(repr, _first_names(unknown)))}; expected identifiers of the training "
            f"data, {own}"
        )
    return NewNodes(
        x=x,
        indptr=check_integers("places_indptr", rows.indptr, ndim=1).astype(np.int64),
        places=places,
        names=rows.names,
        unknown_names=_first_names(unknown),
        edges_skipped=rows.edges_skipped,
        filled=rows.filled,
    )


def check_names(board: Board, names: npt.NDArray[Any] | None) -> None:
    """Refuse a graph whose nodes are not called as the places of the board, in the same order."""
    if board.names is None or names is None:
        return
    wrong = np.flatnonzero(board.names.astype(np.str_) != np.asarray(names).astype(np.str_))
    if wrong.size:
        row = int(wrong[0])
        raise InputError(
            f"row {row + 1} is {str(names[row])[:40]!r}, but {str(board.names[row])[:40]!r} on the board; "
            "give the training data with its rows in the same order"
        )


@torch.no_grad()
def score_rows(model: nn.Module, x: Any, readings: npt.NDArray[np.float32], *, feature_norm: float) -> Tensor:
    """float32 [R, classes]: the scores of rows of (features, reading), in blocks that fit memory.

    Args:
        model: takes features scaled to `feature_norm`, with the reading behind them.
        x: float32 [R, d], dense or CSR.
        readings: float32 [R, classes].
        feature_norm: as in training.
    """
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


def _read_npz(path: Path) -> NewRows:
    arrays = read_lists_npz(path)
    places = arrays["places"]
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iuU"):
        raise GraphError(
            f"places has dtype {str(places.dtype)[:40]} and shape {list(places.shape)}; expected a list of "
            "identifiers, integers or text"
        )
    return NewRows(names=None, x=arrays["x"], indptr=arrays["places_indptr"], places=places)


def _check_are_new(names: npt.NDArray[Any], boards: ReadyBoards) -> None:
    """Refuse rows that have a place: what they cast themselves would stay in their readings."""
    old = names[boards.places_of(names) >= 0]
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


@contextmanager
def _name_file(name: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise GraphError(f"{name}: cannot be read (permission denied); allow reading it") from None
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None
