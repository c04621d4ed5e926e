"""The board: tallies of ballots with noise, released once, and the file that keeps it."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._arrays import Int32Array, Int64Array
from hushgraph._threads import map_in_order
from hushgraph.billboard.ballots import (
    GRID,
    GRID_BITS,
    Ballots,
    add_ballots,
    add_lists,
)
from hushgraph.billboard.lists import Block, RowRecords, list_blocks
from hushgraph.billboard.names import NameIndex, as_integers_or_text, unpack_texts
from hushgraph.billboard.owned import Records
from hushgraph.errors import GraphError, PlanError, RunError
from hushgraph.graph.graph import Graph
from hushgraph.noise import normal
from hushgraph.noise.rounded import Draws, find_divisor, find_std, round_draws
from hushgraph.privacy.charges.gaussian import LARGEST_NOISE, LEAST_NOISE

# Draws taken at a time: little beside a large board.
_BLOCK = 4 * normal.PIECE
# Entries of a tally that are cast at a time: 8 MiB.
_HELD_TALLY = 1 << 20
# Rows that are put side by side at a time.
_PACKED_ROWS = 1 << 18
# A tally with its noise is int64, in units.
_LARGEST = 2.0 ** (63 - GRID_BITS)
_KIND = "hushgraph board 1"
_INTEGERS, _TEXTS, _ENDS = "names", "name_bytes", "name_ends"


@dataclass(frozen=True, kw_only=True, eq=False)
class Board:
    """What is released: one vector of c numbers for every place.

    Attributes:
        values: float32 [N, c], in units of one ballot's norm.
        noise_std: s, the standard deviation of the noise in them; 0 for a board without noise.
        names: what the places are called: integers or strings [N]; None where they are numbered from 0.
        plan: the fingerprint of the plan that paid for it; "" where there is none.
        blocks: the places of every relation, one behind another; empty where places are the nodes, once.
            Then blocks have names, and `names` is None.
    """

    values: npt.NDArray[np.float32]
    noise_std: float
    names: npt.NDArray[Any] | None = None
    plan: str = ""
    blocks: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.float32:
            raise RunError(
                f"values have dtype {self.values.dtype} and shape {list(self.values.shape)}; expected "
                "float32 [places, width]"
            )
        if not 0.0 <= self.noise_std < math.inf:
            raise RunError(f"noise_std={self.noise_std}: expected a finite number, 0 or more")
        places = self.num_places
        if self.names is not None and np.shape(self.names) != (places,):
            raise RunError(
                f"names have shape {list(np.shape(self.names))}; expected one for each of {places} places"
            )
        sizes = sum(block.size for block in self.blocks)
        if self.blocks and sizes != places:
            raise RunError(f"blocks have {sizes} places; expected {places}, as the board has")

    @property
    def num_places(self) -> int:
        """N, the number of places."""
        return len(self.values)

    @property
    def width(self) -> int:
        """How many numbers a place has; c for classes."""
        return int(self.values.shape[1])

    def places_of(self, identifiers: npt.ArrayLike) -> Int64Array:
        """The place of every identifier, -1 where the board has none of that name.

        Args:
            identifiers: names, of the kind that `names` has, or numbers from 0 where there are no names.
        """
        return NameIndex(self.names, self.num_places).find(identifiers)

    @property
    def node_names(self) -> npt.NDArray[Any] | None:
        """What the nodes are called, if they are places and have names."""
        named = (block.names for block in self.blocks if block.kind == "nodes")
        return next(named, None) if self.blocks else self.names

    @property
    def num_relations(self) -> int:
        """How many readings a row has of it."""
        return max(1, len(self.blocks))


def cast(graph: Graph, ballots: Ballots, *, places: tuple[int, int] | None = None) -> Int64Array:
    """Sum the ballots cast onto every place, exactly: int64 [N, c], in units of 1 / GRID. The sum is private.

    Args:
        graph: the one that the ballots were made for.
        ballots: what every row casts.
        places: a half-open range (start, stop); all places by default.

    Guarantees:
        Emptying one row moves the tally by at most GRID in Frobenius norm, in integers; by nothing if the row
        casts no ballot.

    Examples:
        >>> from hushgraph.billboard.ballots import label_ballots
        >>> edges = np.array([[0, 0], [1, 2]])  # 0 lists 1 and 2
        >>> graph = Graph.from_arrays(edge_index=edges, x=np.eye(3), y=[1, 0, 0], train_idx=[0])
        >>> tally = cast(graph, label_ballots(graph, "sender", task=graph.task))
        >>> print(tally / GRID)
        [[ 0.   0. ]
         [-0.5  0.5]
         [-0.5  0.5]]
    """
    records = _find_casters(graph, ballots)
    return _collect(records, ballots)(places or (0, records.num_places))


def _find_casters(graph: Graph, ballots: Ballots) -> RowRecords:
    """Who casts onto which places: the records of the rows."""
    if ballots.records is not None:
        return ballots.records
    expected = len(ballots.labels), int(ballots.list_sizes.sum())
    if (graph.num_nodes, graph.num_edges) != expected:
        raise GraphError(
            f"num_nodes={graph.num_nodes}, num_edges={graph.num_edges}: the ballots belong to a graph with "
            f"{expected[0]} and {expected[1]}; make them for this one"
        )
    # Who lists every place: one's readers list it where readers own records.
    ends, casters = graph.lists_of("sender" if ballots.edge_owner == "reader" else "reader")
    by_place = Records(indptr=ends, indices=casters, is_by_owner=False)
    return RowRecords(blocks=(), relations=(by_place,), sizes=ballots.list_sizes)


def _collect(records: RowRecords, ballots: Ballots) -> Callable[[tuple[int, int]], Int64Array]:
    """What gives the tally of some places, from the first one to the one before the last.

    Where records are stored by their owners, calls are for one range of places after another.
    """
    cursors = [each.indptr[:-1].astype(np.int64) if each.is_by_owner else None for each in records.relations]
    blocks = list(itertools.pairwise(records.starts))

    # Places come in order, so that few relations are asked for at a time.
    @lru_cache(maxsize=2)
    def pack(number: int | None) -> Int32Array:
        return _pack_rows(ballots, None if number is None else records.relations[number].shares)

    def cast_places(places: tuple[int, int]) -> Int64Array:
        first, last = places
        tally = np.zeros((last - first, ballots.width), np.int64)
        for number, (each, (start, end), cursor) in enumerate(
            zip(records.relations, blocks, cursors, strict=True)
        ):
            begin, behind = max(first, start), min(last, end)
            if begin < behind:
                rows = pack(None if each.shares is None else number)
                among = (rows, ballots.soft, begin - start, tally[begin - first : behind - first])
                if cursor is None:
                    add_ballots(*each.arrays, *among)
                else:
                    add_lists(*each.arrays, cursor, *among)
        return tally

    return cast_places


def _pack_rows(ballots: Ballots, shares: Int32Array | None) -> Int32Array:
    """int32 [N, 4]: class, gain, loss and soft ballot of every row, as kernels take them.

    Args:
        ballots: of the rows.
        shares: what every row's are multiplied by, in units.
    """
    # A label ballot is -rest everywhere and rest + own on its class: two additions, however many classes.
    # Side by side, since rows are looked up in any order.
    rows = _arrays.looked_up((ballots.num_nodes, 4), np.int32)
    for begin in range(0, len(rows), _PACKED_ROWS):
        part = slice(begin, begin + _PACKED_ROWS)
        rows[part, 0], rows[part, 3] = ballots.labels[part], ballots.soft_rows[part]
        for column, entries in enumerate((ballots.own[part], ballots.rest[part]), start=1):
            rows[part, column] = entries if shares is None else entries * shares[part] >> GRID_BITS
    return rows


def release(tally: Int64Array, *, noise_std: float, draws: Draws = normal.draw, plan: str = "") -> Board:
    """Add noise to a tally, once. Charge it before; a second call is a second charge.

    Args:
        tally: int64 [N, c] from `cast`, in units of 1 / GRID.
        noise_std: s, in units of one ballot's norm; 0 for a board without noise, which is not private.
        draws: the randomness. Every release needs draws of its own.
        plan: the fingerprint of the plan that pays for it.

    Returns:
        The board. Its `noise_std` is the standard deviation used: s or a little more.

    Raises:
        PlanError: if the noise is too small or too large for the grid.

    Guarantees:
        The board is a function of tally + N(0, s'^2 GRID^2), s' >= s, and of nothing else about the rows:
        the Gaussian mechanism, rounded (`round_draws` has the proof). With s' = 2^40 / (m GRID) for an
        integer m, s' GRID z is 2^40 z / m, and the largest m with s' >= s is floor(2^40 / (s GRID)), computed
        with fractions, so nothing is left to floating point. What follows, division by GRID and rounding to
        float32, looks at the sum alone.
    """
    values = np.empty(tally.shape, np.float32)
    divisor = noise_divisor(noise_std) if noise_std else 0
    units, out = tally.reshape(-1), values.reshape(-1)
    for begin in range(0, len(out), _BLOCK):
        part = units[begin : begin + _BLOCK]
        if divisor:
            part = part + round_draws(draws(len(part)), divisor)
        out[begin : begin + _BLOCK] = part / float(GRID)
    std = find_std(divisor, grid=GRID) if divisor else 0.0
    return Board(values=values, noise_std=std, plan=plan)


def cast_and_release(
    graph: Graph,
    ballots: Ballots,
    *,
    noise_std: float,
    draws: Draws = normal.draw,
    plan: str = "",
) -> Board:
    """`release` of what `cast` gives, for some of the places at a time: the whole tally is never held.

    Args:
        graph, ballots: as in `cast`.
        noise_std, draws, plan: as in `release`. The places are called as the nodes are.

    Guarantees:
        The board is that of `release(cast(graph, ballots), ...)`, number for number.
    """
    records = _find_casters(graph, ballots)
    num_places = records.num_places
    values = _arrays.empty((num_places, ballots.width), np.float32)
    std, first = 0.0, 0
    # Noise is drawn in the order of the places, while the next ones are cast.
    work = map if any(each.is_by_owner for each in records.relations) else map_in_order
    for tally in work(_collect(records, ballots), _cut_places(num_places, ballots.width)):
        part = release(tally, noise_std=noise_std, draws=draws)
        values[first : first + len(tally)], std = part.values, part.noise_std
        first += len(tally)
    blocks = list_blocks(graph)
    names = None if blocks else graph.node_names
    return Board(values=values, noise_std=std, names=names, plan=plan, blocks=blocks)


def _cut_places(num_places: int, width: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of places whose tallies are held one after another."""
    # Whole pieces of the draws, so that every place gets the draws it would get in one part.
    unit = normal.PIECE // math.gcd(normal.PIECE, width)
    size = -(-max(1, _HELD_TALLY // width) // unit) * unit
    for first in range(0, num_places, size):
        yield first, min(first + size, num_places)


def noise_divisor(noise_std: float) -> int:
    """m: draws are divided by it, which makes noise of standard deviation 2^16 / m, at least `noise_std`."""
    if not LEAST_NOISE <= noise_std <= LARGEST_NOISE:
        raise PlanError(
            f"noise_std={noise_std}: boards take noise from {LEAST_NOISE:g} to {LARGEST_NOISE}; use another "
            "epsilon or another share for the board"
        )
    return find_divisor(noise_std, grid=GRID)


def save_board(board: Board, path: Path, announce: Callable[[], None] = lambda: None) -> None:
    """Write this board into a new file. Everything in it is released or public.

    Args:
        board: what is written.
        path: of the file, which is not there yet.
        announce: called when the board is about to be visible on disk, and not before.
    """
    from hushgraph._files import pack_arrays, write_once

    arrays: dict[str, npt.NDArray[Any]] = {"values": board.values}
    if board.names is not None:
        arrays |= _pack_names(board.names)
    about = {"kind": _KIND, "noise_std": board.noise_std.hex(), "plan": board.plan}
    if board.blocks:
        packed, about["blocks"] = _pack_blocks(board.blocks)
        arrays |= packed
    write_once(path, pack_arrays(arrays, about), announce)


def digest_board(values: Iterable[npt.NDArray[np.float32]], noise_std: float) -> str:
    """Tell boards apart: a digest of the released numbers, wherever and in whatever format they are kept.

    Args:
        values: float32 [places, c] each: the places in order, in as many parts as is convenient.
        noise_std: of the board.
    """
    digest = hashlib.sha256(noise_std.hex().encode())
    for part in values:
        digest.update(np.ascontiguousarray(part, "<f4").data)
    return digest.hexdigest()


def load_board(path: Path, *, plan: str | None = None) -> Board:
    """The board that `save_board` wrote; its numbers are mapped from the file, to be read.

    Args:
        path: of the file.
        plan: when given, the fingerprint of the plan that it must belong to.

    Raises:
        RunError: if the file is missing, damaged, no board, or the board of another run.
    """
    from hushgraph._files import read_arrays

    arrays, about = read_arrays(path)
    if about.get("kind") != _KIND:
        raise RunError(f"run={path.parent}: {path.name} is not a board of this version; train again")
    if plan is not None and about["plan"] != plan:
        raise RunError(
            f"run={path.parent}: {path.name} belongs to another run; restore the board of this one, or train "
            "again"
        )
    try:
        names = _read_names(arrays)
        board = Board(
            values=arrays["values"],
            noise_std=float.fromhex(about["noise_std"]),
            names=names,
            plan=about["plan"],
            blocks=_read_blocks(arrays, about["blocks"]) if "blocks" in about else (),
        )
    except (KeyError, TypeError, ValueError):
        raise RunError(f"run={path.parent}: {path.name} lacks parts of a board; train again") from None
    # A release has no ledger with the digest, and larger numbers overflow when they are read. NaN fails too.
    largest = max(board.values.max(initial=0), -board.values.min(initial=0))
    if not largest <= _LARGEST:
        raise RunError(f"run={path.parent}: {path.name} holds numbers that no board has; restore it")
    return board


def _read_names(arrays: Mapping[str, npt.NDArray[Any]], prefix: str = "") -> npt.NDArray[Any] | None:
    """The names that `_pack_names` packed; None where there are none."""
    if prefix + _INTEGERS in arrays:
        return arrays[prefix + _INTEGERS]
    if prefix + _TEXTS not in arrays:
        return None
    return unpack_texts(arrays[prefix + _TEXTS], arrays[prefix + _ENDS])


def _pack_names(names: npt.NDArray[Any], prefix: str = "") -> dict[str, npt.NDArray[Any]]:
    kept = as_integers_or_text(np.asarray(names))
    if kept.dtype.kind in "iu":
        return {prefix + _INTEGERS: kept.astype(np.int64, copy=False)}
    encoded = [name.encode("utf-8", "surrogatepass") for name in kept.tolist()]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return {prefix + _TEXTS: np.frombuffer(b"".join(encoded), np.uint8), prefix + _ENDS: ends}


def _pack_blocks(blocks: tuple[Block, ...]) -> tuple[dict[str, npt.NDArray[Any]], str]:
    """Names of the places of every block, those of the nodes once, and the rest as JSON."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    facts = []
    for number, block in enumerate(blocks):
        prefix = "nodes_" if block.kind == "nodes" else f"places_{number}_"
        if block.names is not None:
            arrays |= _pack_names(block.names, prefix)
        about = {"name": block.name, "size": block.size, "kind": block.kind, "prefix": prefix}
        facts.append({**about, "is_weighted": block.is_weighted})
    return arrays, json.dumps(facts)


def _read_blocks(arrays: Mapping[str, npt.NDArray[Any]], text: str) -> tuple[Block, ...]:
    """The blocks that `_pack_blocks` packed."""
    blocks = []
    for facts in json.loads(text):
        names = _read_names(arrays, facts.pop("prefix"))
        blocks.append(Block(**facts, names=names))
    return tuple(blocks)
