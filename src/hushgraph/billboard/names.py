"""The places of a board by their names: sorted once, looked up by any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array


class NameIndex:
    """Finds places by name. Nothing in it changes after it was made.

    Args:
        names: what the places are called, integers or text [N]; None where they are numbered from 0.
        num_places: N.
    """

    def __init__(self, names: npt.NDArray[Any] | None, num_places: int) -> None:
        self._num_places = num_places
        self._names = None if names is None else as_integers_or_text(names)
        if self._names is not None:
            keys = _make_keys(self._names)
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]

    def find(self, identifiers: npt.ArrayLike) -> Int64Array:
        """The place of every identifier, -1 where there is none of that name; the first of several.

        Args:
            identifiers: names, of the kind that the places have, or numbers from 0 where they have none. The
                text of an integer is as good as the integer.
        """
        wanted = np.asarray(identifiers)
        if self._names is None:
            if wanted.size and wanted.dtype.kind not in "iu":
                return np.full(wanted.shape, -1, np.int64)
            is_place = (wanted >= 0) & (wanted < self._num_places)
            return np.where(is_place, wanted, -1).astype(np.int64)
        places = np.full(wanted.size, -1, np.int64)
        if not wanted.size:
            return places.reshape(wanted.shape)
        asked, is_possible = _convert(wanted.reshape(-1), self._names.dtype)
        keys = _make_keys(asked)
        at = np.empty(len(keys), np.int64)
        # In ascending order: what is near in memory is found sooner.
        ascending = np.argsort(keys)
        at[ascending] = np.searchsorted(self._keys, keys[ascending])
        open_ones = np.flatnonzero(is_possible)
        while len(open_ones):
            # What has the same key is not always the same text: then it is one of those that follow.
            here = at[open_ones]
            is_key = here < self._num_places
            is_key[is_key] = self._keys[here[is_key]] == keys[open_ones[is_key]]
            open_ones, here = open_ones[is_key], self._order[here[is_key]]
            is_same = self._names[here] == asked[open_ones]
            places[open_ones[is_same]] = here[is_same]
            open_ones = open_ones[~is_same]
            at[open_ones] += 1
        return places.reshape(wanted.shape)


def as_integers_or_text(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers as they are, everything else as strings."""
    return names if names.dtype.kind in "iu" else names.astype(np.str_)


def unpack_texts(content: npt.NDArray[np.uint8], ends: Int64Array) -> npt.NDArray[np.str_]:
    """Texts that stand one after another in UTF-8, each up to its end."""
    lengths = np.diff(ends, prepend=0)
    if len(content) and content.max() < 128 and lengths.min() >= 0 and ends[-1] == len(content):
        # One byte is one character.
        width = int(lengths.max())
        characters = np.zeros((len(ends), width), np.uint32)
        characters[np.arange(width) < lengths[:, None]] = content
        return characters.view(f"U{width}").reshape(-1)
    text, stops = content.tobytes(), ends.tolist()
    parts = [text[begin:end] for begin, end in zip([0, *stops], stops, strict=False)]
    return np.array([part.decode("utf-8", "surrogatepass") for part in parts], np.str_)


def _make_keys(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers as they are; of texts 64 bits, by FNV-1a over their characters."""
    if names.dtype.kind != "U":
        return names
    characters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1).astype(np.uint64)
    keys = np.full(len(names), 0xCBF29CE484222325, np.uint64)
    for column in characters.T:
        # Shorter texts are padded with 0.
        keys = np.where(column, (keys ^ column) * np.uint64(0x100000001B3), keys)
    return keys


def _convert(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Values as text or as the integer type of the names, and which of them could be names at all."""
    if values.dtype.kind not in "iuU" or dtype.kind == "U":
        values = values.astype(np.str_)
    if dtype.kind == "U":
        return values, np.ones(len(values), np.bool_)
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
