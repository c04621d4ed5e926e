from __future__ import annotations

import numpy as np

from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import cap_rows, transpose_rows


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_transposing_by_eye_and_twice() -> None:
    rows = np.array([0, 2, 2, 4, 4]), int32(3, 2, 0, 1)
    starts, cols = transpose_rows(rows)
    assert starts.tolist() == [0, 1, 2, 3, 4]
    assert cols.tolist() == [2, 2, 0, 0]
    back, sorted_cols = transpose_rows((starts, cols))
    assert back.tolist() == [0, 2, 2, 4, 4]
    assert sorted_cols.tolist() == [2, 3, 0, 1]
    assert (starts.dtype, cols.dtype) == (np.int64, np.int32)


def test_capping_keeps_the_smallest_keys_in_place() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 30, 40)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    cols = np.concatenate([np.sort(rng.choice(1000, n, replace=False)) for n in lengths]).astype(np.int32)
    word = seed_word(9)
    for cap in (0, 1, 7, 29, 30):
        for rows_read in (False, True):
            out_indptr, out = cap_rows((indptr, cols), cap, rows_read=rows_read, word=word)
            for row in range(40):
                whole = cols[indptr[row] : indptr[row + 1]].tolist()
                keys = {
                    c: int(pair_key(c, row, word) if rows_read else pair_key(row, c, word)) for c in whole
                }
                expected = sorted(sorted(whole, key=keys.__getitem__)[:cap])
                assert out[out_indptr[row] : out_indptr[row + 1]].tolist() == expected
