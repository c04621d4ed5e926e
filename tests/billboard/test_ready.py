"""Boards that stay open give the readings of whole boards, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushgraph.billboard import ready as ready_room
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import combine_boards
from hushgraph.billboard.lists import Block
from hushgraph.billboard.names import NameIndex
from hushgraph.billboard.new_rows import read_rows
from hushgraph.billboard.ready import ReadyBoards
from hushgraph.errors import GraphError

PLACES = 3000


def make_boards(width: int, count: int, noise_std: float) -> list[Board]:
    rng = np.random.default_rng(width)
    return [
        Board(
            values=(rng.normal(size=(PLACES, width)) * rng.gamma(0.5, 4, (PLACES, 1))).astype(np.float32),
            noise_std=noise_std * (k + 1),
        )
        for k in range(count)
    ]


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("noise_std", [0.0, 1.7])
@pytest.mark.parametrize(("width", "count"), [(1, 1), (2, 2), (3, 1), (9, 2), (40, 2), (131, 1)])
def test_readings_are_those_of_whole_boards(width: int, count: int, noise_std: float, centred: bool) -> None:
    """Guarantees: a reading is that of `read_rows` from the combined boards, number for number."""
    boards = make_boards(width, count, noise_std)
    ready, (whole_board, _) = ReadyBoards(boards, centred=centred), combine_boards(boards, centred=centred)
    rng = np.random.default_rng(1)
    lists = [[7], [], [PLACES, -1], [-1, 5, 5, 4], *(rng.integers(-9, PLACES + 9, n) for n in (3, 60, 900))]
    for rows in ([*lists], *([each] for each in lists)):
        indptr, places = np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(np.int64)
        for damped in (True, False):
            small, seen = ready.read_rows(indptr, places, damped=damped)
            expected = read_rows(whole_board, indptr, places, damped=damped)
            assert seen.values.tobytes() == expected.values.tobytes()
            assert seen.known.tolist() == expected.known.tolist()
            assert seen.unknown.tolist() == expected.unknown.tolist()
            assert small.noise_std == whole_board.noise_std


@pytest.mark.parametrize("noise_std", [0.0, 1.7])
def test_readings_of_relations_are_those_of_whole_boards(
    noise_std: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantees: a reading is that of `read_rows` from the combined boards, number for number."""
    blocks = (
        Block(name="calls", size=1000),
        Block(name="pays", size=1000, is_weighted=True),
        Block(name="devices", size=1000, kind="hashed", is_weighted=True),
    )
    boards = [replace(board, blocks=blocks) for board in make_boards(3, 2, noise_std)]
    ready, (whole_board, _) = ReadyBoards(boards, centred=True), combine_boards(boards, centred=True)
    rng = np.random.default_rng(1)
    rows = [
        [7],
        [],
        [PLACES, -1],
        [2999, 5, 1005, 5, 1004],
        [2500],
        *(rng.integers(-9, PLACES + 9, n) for n in (60, 900)),
    ]
    indptr, places = np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(np.int64)
    shares = rng.gamma(1, size=len(places))
    for damped in (True, False):
        expected = read_rows(whole_board, indptr, places, place_shares=shares, damped=damped)
        with monkeypatch.context() as patch:
            # No call may look at more of the boards than rows list.
            patch.setattr(ready_room, "combine_boards", refuse_whole_boards)
            small, seen = ready.read_rows(indptr, places, shares=shares, damped=damped)
        assert small.num_relations == 3
        assert seen.values.tobytes() == expected.values.tobytes()
        assert seen.known.tolist() == expected.known.tolist()
        assert seen.unknown.tolist() == expected.unknown.tolist()


def refuse_whole_boards(boards: list[Board], **how: Any) -> tuple[Board, tuple[float, ...]]:
    assert boards[0].num_places < PLACES
    return combine_boards(boards, **how)


def test_names_of_blocks_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block(name="shops", size=2, kind="places", names=np.array(["b", "a"]))
    assert block.find(["a", "c"]).tolist() == [1, -1]
    monkeypatch.setattr(NameIndex, "__init__", None)
    assert block.find(["b"]).tolist() == [0]


def test_places_that_are_no_integers_are_refused() -> None:
    ready = ReadyBoards(make_boards(2, 1, 1.0), centred=True)
    with pytest.raises(GraphError, match="places has dtype float64; expected integers"):
        ready.read_rows([0, 1], [0.5], damped=True)
