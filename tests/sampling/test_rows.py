from __future__ import annotations

import numpy as np

from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.rows import capped, grouped, loose, transposed


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_grouped_sorts_and_drops_repeats() -> None:
    indptr, cols = grouped(int32(2, 0, 2, 2, 0), int32(1, 3, 0, 1, 2), 4)
    assert indptr.tolist() == [0, 2, 2, 4, 4]
    assert cols.tolist() == [2, 3, 0, 1]


def test_transposed_by_eye_and_twice() -> None:
    rows = np.array([0, 2, 2, 4, 4]), int32(3, 2, 0, 1)
    turned, cols = transposed(rows)
    assert turned.tolist() == [0, 1, 2, 3, 4]
    assert cols.tolist() == [2, 2, 0, 0]
    back, sorted_cols = transposed((turned, cols))
    assert back.tolist() == [0, 2, 2, 4, 4]
    assert sorted_cols.tolist() == [2, 3, 0, 1]


def test_capped_keeps_the_smallest_keys_in_place() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 30, 40)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    cols = np.concatenate([np.sort(rng.choice(1000, n, replace=False)) for n in lengths]).astype(np.int32)
    word = seed_word(9)
    for cap in (0, 1, 7, 29, 30):
        for rows_read in (False, True):
            out_indptr, out = capped((indptr, cols), cap, rows_read=rows_read, word=word)
            for row in range(40):
                whole = cols[indptr[row] : indptr[row + 1]].tolist()
                keys = {
                    c: int(pair_key(c, row, word) if rows_read else pair_key(row, c, word)) for c in whole
                }
                expected = sorted(sorted(whole, key=keys.__getitem__)[:cap])
                assert out[out_indptr[row] : out_indptr[row + 1]].tolist() == expected


def test_loose_cuts_rows_where_it_must() -> None:
    rows = np.array([0, 0, 3, 3, 4, 6, 6]), int32(10, 11, 12, 20, 30, 31)
    whole = [(1, 10), (1, 11), (1, 12), (3, 20), (4, 30), (4, 31)]
    for size in range(1, 8):
        found = [list(zip(ids.tolist(), cols.tolist(), strict=True)) for ids, cols in loose(rows, size)]
        assert [len(piece) for piece in found[:-1]] == [size] * (len(found) - 1)
        assert [record for piece in found for record in piece] == whole
