"""Edges as a stream: every accepted form of edges, checked and cut into pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]

# Edges handled at a time: enough to find many edges of one row together, few compared to a large graph.
PIECE = 1 << 23

Chunk: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class EdgeStream(Protocol):
    """Anything that yields its edges in chunks, such as a `Graph`."""

    def edge_chunks(self) -> Iterable[Chunk]: ...


Edges: TypeAlias = Chunk | Iterable[Chunk] | EdgeStream


def iter_pieces(edges: Edges, num_nodes: int) -> Iterator[tuple[Int32Array, Int32Array]]:
    """Yield checked pairs (source, target) of at most `PIECE` edges each.

    The two arrays are buffers that the next piece overwrites, so no chunk is copied in full.
    """
    if num_nodes > np.iinfo(np.int32).max:
        raise GraphError(f"num_nodes={num_nodes}; node ids are 32-bit; expected fewer than 2^31")
    source_buffer = np.empty(PIECE, dtype=np.int32)
    target_buffer = np.empty(PIECE, dtype=np.int32)
    for position, chunk in enumerate(_chunks(edges)):
        source, target = _check_chunk(chunk, position)
        for start in range(0, len(source), PIECE):
            stop = min(start + PIECE, len(source))
            piece = source_buffer[: stop - start], target_buffer[: stop - start]
            for name, ends, buffer in zip(("source", "target"), (source, target), piece, strict=True):
                _copy_in_range(ends[start:stop], buffer, num_nodes, f"{name} in chunk {position}", start)
            yield piece


def _chunks(edges: Edges) -> Iterable[Any]:
    """Return the chunks of any accepted form of edges."""
    stream = getattr(edges, "edge_chunks", None)
    if stream is not None:
        return cast(Iterable[Any], stream())
    is_pair = isinstance(edges, tuple) and [getattr(ends, "ndim", None) for ends in edges] == [1, 1]
    return (edges,) if is_pair or isinstance(edges, np.ndarray) else cast(Iterable[Any], edges)


def _check_chunk(chunk: Any, position: int) -> Chunk:
    """Return the two arrays of a chunk; raise GraphError unless they are integers of equal length."""
    try:
        source, target = (np.asarray(ends) for ends in chunk)
    except (TypeError, ValueError):
        raise GraphError(f"chunk {position} is not a pair; expected arrays (source, target)") from None
    if source.ndim != 1 or source.shape != target.shape:
        raise GraphError(
            f"chunk {position} has source.shape={source.shape}, target.shape={target.shape}; "
            "expected two rows of equal length"
        )
    for name, ends in (("source", source), ("target", target)):
        if ends.size and ends.dtype.kind not in "iu":
            raise GraphError(f"{name} in chunk {position} has dtype={ends.dtype}; expected integer node ids")
    return source, target


def _copy_in_range(
    ends: npt.NDArray[Any], buffer: Int32Array, num_nodes: int, where: str, start: int
) -> None:
    """Copy node ids to the buffer; raise GraphError naming the first that is out of range."""
    if ends.min() < 0 or ends.max() >= num_nodes:
        offset = int(np.flatnonzero((ends < 0) | (ends >= num_nodes))[0])
        raise GraphError(
            f"{where}, position {start + offset} is {ends[offset]}; expected a node from 0 to {num_nodes - 1}"
        )
    np.copyto(buffer, ends, casting="unsafe")


def digest_edges(edges: Edges, num_nodes: int) -> str:
    """A digest of the edges that does not depend on their order."""
    total = 0
    for source, target in iter_pieces(edges, num_nodes):
        words = (source.astype(np.uint64) << np.uint64(32)) | target.astype(np.uint64)
        words *= np.uint64(0x9E3779B97F4A7C15)
        words ^= words >> np.uint64(29)
        words *= np.uint64(0xBF58476D1CE4E5B9)
        words ^= words >> np.uint64(32)
        total += int(words.sum(dtype=np.uint64))
    return f"{total % 2**64:016x}"
