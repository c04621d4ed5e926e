"""The one release of a board by an engine: a file that has no name until the ledger has its digest.

Whatever else shows these numbers, Parquet files or a file for predictions, is a rendition of that file, which
may be written again as often as a kill prevents it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from hushgraph._files import draft_path, name_file, open_unnamed
from hushgraph.billboard.board import digest_board, release
from hushgraph.errors import WriteError
from hushgraph.privacy.charges import name_board
from hushgraph.privacy.ledger import Ledger
from hushgraph.training.source import incomplete_error

Float32Array = npt.NDArray[np.float32]

# Runs on engines have one board.
BOARD = name_board(0)
# Behind the numbers: their digest, which tells a complete file from one that a kill cut short.
_TRAILER = 64


def release_values(path: Path, parts: Iterable[Float32Array], *, noise_std: float, ledger: Ledger) -> None:
    """Write the numbers of a board, once.

    Args:
        path: of the file, which is not there yet.
        parts: float32 [places, c] each, the places in order; read once.
        noise_std: of the board.
        ledger: of the run, which has the charge.

    Guarantees:
        No name on disk leads to a number before the ledger says that the board leaves the process. Where the
        file system has no unnamed files, the ledger says so before the first number is written.
    """
    try:
        with open_unnamed(path.parent) as unnamed:
            if unnamed is not None:
                digest = _write(unnamed, parts, noise_std)
                ledger.record_release(BOARD, digest)
                name_file(unnamed, path)
                return
        ledger.record_release(BOARD, None)
        with draft_path(path).open("xb") as draft:
            digest = _write(draft, parts, noise_std)
        ledger.record_release(BOARD, digest)
        os.replace(draft_path(path), path)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written ({error.strerror or error}); free space") from None


def _write(file: BinaryIO, parts: Iterable[Float32Array], noise_std: float) -> str:
    """Write all parts and what tells that they are complete; return their digest."""

    def written() -> Iterator[Float32Array]:
        for part in parts:
            file.write(np.ascontiguousarray(part, "<f4").data)
            yield part

    digest = digest_board(written(), noise_std)
    file.write(digest.encode())
    file.flush()
    os.fsync(file.fileno())
    return digest


def read_digest(file: Path, *, shape: tuple[int, int], noise_std: float) -> str:
    """The digest of the numbers that `release_values` wrote; RunError where a kill cut them short.

    Only a file system without unnamed files leaves such a file: it shows numbers, and nobody can tell how
    many were seen.
    """
    if file.stat().st_size == 4 * shape[0] * shape[1] + _TRAILER:
        digest = digest_board([map_values(file, shape)], noise_std)
        with file.open("rb") as opened:
            opened.seek(-_TRAILER, os.SEEK_END)
            if opened.read() == digest.encode():
                return digest
    raise incomplete_error(file, BOARD)


def map_values(file: Path, shape: tuple[int, int]) -> Float32Array:
    """The numbers in a complete file, mapped into memory."""
    return np.memmap(file, "<f4", "r", shape=shape)


def released_std(noise_std: float) -> float:
    """The standard deviation of the noise that `release` adds where `noise_std` is asked for."""
    return release(np.zeros((0, 2), np.int64), noise_std=noise_std).noise_std
