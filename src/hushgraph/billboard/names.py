"""The places of a board by their names: sorted once, looked up by any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


class NameIndex:
    """Finds places by name. Nothing in it changes after it was made.

    Args:
        names: what the places are called, integers or text [N]; None where they are numbered from 0.
        num_places: N.
    """

    def __init__(self, names: npt.NDArray[Any] | None, num_places: int) -> None:
        self._num_places = num_places
        self._sorted: npt.NDArray[Any] | None = None
        if names is not None:
            kept = as_integers_or_text(names)
            self._order = np.argsort(kept, kind="stable")
            self._sorted = kept[self._order]

    def find(self, identifiers: npt.ArrayLike) -> Int64Array:
        """The place of every identifier, -1 where there is none of that name.

        Args:
            identifiers: names, of the kind that the places have, or numbers from 0 where they have none. The
                text of an integer is as good as the integer.
        """
        wanted = np.asarray(identifiers)
        if self._sorted is None:
            if wanted.size and wanted.dtype.kind not in "iu":
                return np.full(wanted.shape, -1, np.int64)
            is_place = (wanted >= 0) & (wanted < self._num_places)
            return np.where(is_place, wanted, -1).astype(np.int64)
        if not wanted.size or not self._num_places:
            return np.full(wanted.shape, -1, np.int64)
        if wanted.dtype.kind not in "iuU":
            wanted = wanted.astype(np.str_)
        # Ascending, since neighbours in memory are found sooner; of one type with the names, since NumPy
        # would convert all of them otherwise.
        different, back = np.unique(wanted.reshape(-1), return_inverse=True)
        asked, is_possible = _convert(different, self._sorted.dtype)
        at = np.minimum(np.searchsorted(self._sorted, asked), self._num_places - 1)
        places = np.where(is_possible & (self._sorted[at] == asked), self._order[at], -1)
        return places[back.reshape(-1)].reshape(wanted.shape).astype(np.int64)


def as_integers_or_text(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers as they are, everything else as strings."""
    return names if names.dtype.kind in "iu" else names.astype(np.str_)


def _convert(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Values as the type of the names, and which of them could be names at all."""
    if dtype.kind == "U":
        texts = values.astype(np.str_)
        # Longer ones are cut.
        return texts.astype(dtype), np.char.str_len(texts) <= dtype.itemsize // 4
    limits = np.iinfo(dtype)
    if values.dtype.kind not in "iu":
        # One below the least: no name.
        other = int(limits.min) - 1
        values = np.array([_read_integer(text, other) for text in values.tolist()], object)
    is_possible = np.asarray((values >= limits.min) & (values <= limits.max), np.bool_)
    return np.where(is_possible, values, 0).astype(dtype), is_possible


def _read_integer(text: str, other: int) -> int:
    """The integer that `str` writes so; `other` for any other text."""
    try:
        number = int(text)
    except ValueError:
        return other
    return number if str(number) == text else other
