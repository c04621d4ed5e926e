"""Every accepted form of edges, and every refusal."""

from __future__ import annotations

import numpy as np
import pytest

from hushgraph.errors import GraphError
from hushgraph.graph import chunks
from hushgraph.graph.chunks import iter_pieces

SOURCE = np.array([0, 1, 2, 3])
TARGET = np.array([1, 2, 3, 0])


class Stream:
    def edge_chunks(self):
        yield SOURCE[:1], TARGET[:1]
        yield SOURCE[1:], TARGET[1:]


@pytest.mark.parametrize(
    "edges",
    [
        (SOURCE, TARGET),
        (SOURCE.astype(np.int32), TARGET.astype(np.uint8)),
        np.stack([SOURCE, TARGET]),
        [(SOURCE[:3], TARGET[:3]), (SOURCE[3:], TARGET[3:])],
        ((SOURCE[:2], TARGET[:2]), (SOURCE[2:], TARGET[2:])),
        [np.stack([SOURCE, TARGET])],
        (pair for pair in [(SOURCE.tolist(), TARGET.tolist()), ([], [])]),
        Stream(),
    ],
)
def test_every_form_gives_the_same_records(edges: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "PIECE", 2)
    pieces = [(source.copy(), target.copy()) for source, target in iter_pieces(edges, 4)]
    assert all(len(source) <= 2 and source.dtype == np.int32 for source, _ in pieces)
    np.testing.assert_array_equal(np.concatenate([source for source, _ in pieces]), SOURCE)
    np.testing.assert_array_equal(np.concatenate([target for _, target in pieces]), TARGET)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(SOURCE, TARGET), (SOURCE, np.array([0, 1, 4, 5]))], "target in chunk 1, position 2 is 4"),
        ((np.array([0, -7]), np.array([0, 1])), "source in chunk 0, position 1 is -7"),
        ((SOURCE, np.array([1, 2, 3, 2**40])), "target in chunk 0, position 3 is 1099511627776"),
        ((SOURCE, TARGET[:3]), "equal length"),
        ((SOURCE * 1.0, TARGET), "source in chunk 0 has dtype=float64"),
        ([(SOURCE, TARGET), 5], "chunk 1 is not a pair"),
        ([(SOURCE, TARGET, TARGET)], "chunk 0 is not a pair"),
    ],
)
def test_refusals_name_the_chunk(edges: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        list(iter_pieces(edges, 4))


def test_positions_count_from_the_start_of_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "PIECE", 2)
    with pytest.raises(GraphError, match="source in chunk 0, position 3 is 3"):
        list(iter_pieces((SOURCE, TARGET % 3), 3))


def test_too_many_nodes() -> None:
    with pytest.raises(GraphError, match="32-bit"):
        next(iter_pieces((SOURCE, TARGET), 2**31))
