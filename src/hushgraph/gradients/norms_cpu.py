"""Squared norms of per-root gradients of a Linear layer on the CPU, without forming the gradients.

The gradient of root v is the sum over its rows i of d_i (a_i, 1)^T, so its squared norm is the sum over pairs
of its rows of (a_i . a_j + 1)(d_i . d_j).

Every kernel also gives the size that rounding is measured against: a share of it (`clip.ROUNDING_MARGIN`)
covers what float32 loses where rows cancel. Rows that repeat lose the same digits in every pair, so that size
grows with the number of rows as soon as there are more than ten, and with the length of the sums.
"""

from __future__ import annotations

import numba
import numpy as np

from hushgraph.models.blocks import FASTMATH

# Products below the smallest normal float32 may vanish, although large inputs would make them count.
SMALLEST = float(np.finfo(np.float32).tiny)

# The work is cut into so many parts: enough for many threads and to even out roots of different size.
PARTS = 128


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _dot(u, v):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for k in range(len(u)):
        total += u[k] * v[k]
    return total


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _pair_sum(a, rows, d, count, bias):  # type: ignore[no-untyped-def]
    """Sum over ordered pairs of `count` rows, inputs a[rows[i]] and gradients d[i], and its rounding size."""
    diagonal = 0.0
    cross = 0.0
    underflow = 0.0
    for i in range(count):
        ai, di = a[rows[i]], d[i]
        square_a, square_d = np.float64(_dot(ai, ai) + bias), np.float64(_dot(di, di))
        diagonal += square_a * square_d
        underflow += len(di) * square_a + len(ai) * square_d
        j = 0
        # Four rows at a time, so that one load of row i serves four products.
        while j + 4 <= i:
            a0, a1, a2, a3 = a[rows[j]], a[rows[j + 1]], a[rows[j + 2]], a[rows[j + 3]]
            s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for k in range(len(ai)):
                s0 += ai[k] * a0[k]
                s1 += ai[k] * a1[k]
                s2 += ai[k] * a2[k]
                s3 += ai[k] * a3[k]
            d0, d1, d2, d3 = d[j], d[j + 1], d[j + 2], d[j + 3]
            t0, t1, t2, t3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for k in range(len(di)):
                t0 += di[k] * d0[k]
                t1 += di[k] * d1[k]
                t2 += di[k] * d2[k]
                t3 += di[k] * d3[k]
            cross += np.float64(s0 + bias) * t0
            cross += np.float64(s1 + bias) * t1
            cross += np.float64(s2 + bias) * t2
            cross += np.float64(s3 + bias) * t3
            j += 4
        while j < i:
            cross += np.float64(_dot(ai, a[rows[j]]) + bias) * np.float64(_dot(di, d[j]))
            j += 1
    size = diagonal * max(1.0, count / 10.0) * (1.0 + (a.shape[1] + d.shape[1]) / 2048.0)
    return diagonal + 2.0 * cross + SMALLEST * count * underflow, size


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _formed_sum(a, rows, d, count, bias):  # type: ignore[no-untyped-def]
    """The same by forming the gradient: cheaper once a root has many rows."""
    size_in, size_out = a.shape[1], d.shape[1]
    diagonal = 0.0
    for i in range(count):
        row = a[rows[i]]
        diagonal += np.float64(_dot(row, row) + bias) * np.float64(_dot(d[i], d[i]))
    total = 0.0
    gradient = np.empty(size_in, dtype=np.float64)
    part = np.empty(size_in, dtype=np.float32)
    for o in range(size_out):
        gradient[:] = 0
        bias_gradient = 0.0
        # A long sum of float32 loses more digits than the margin covers; a short one does not.
        for begin in range(0, count, 64):
            part[:] = 0
            for i in range(begin, min(begin + 64, count)):
                c = d[i, o]
                bias_gradient += c
                row = a[rows[i]]
                for k in range(size_in):
                    part[k] += c * row[k]
            for k in range(size_in):
                gradient[k] += part[k]
        for k in range(size_in):
            total += gradient[k] * gradient[k]
        total += np.float64(bias) * bias_gradient * bias_gradient
    return total, diagonal * (1.0 + (size_in + size_out) / 2048.0)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _root_sum(a, rows, d, count, bias):  # type: ignore[no-untyped-def]
    size_in, size_out = a.shape[1], d.shape[1]
    if count * (size_in + size_out) > 2 * size_in * size_out:
        return _formed_sum(a, rows, d, count, bias)
    return _pair_sum(a, rows, d, count, bias)


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def linear_norms(a, d, pointers, bias, norms, diagonals):  # type: ignore[no-untyped-def]
    """Adds every root's squared norm to `norms`, what rounding is measured against to `diagonals`.

    Rows are a [R, in] and d [R, out].
    """
    roots = len(pointers) - 1
    for part in numba.prange(PARTS):
        rows = np.empty(0, dtype=np.int64)
        for root in range(roots * part // PARTS, roots * (part + 1) // PARTS):
            begin, end = pointers[root], pointers[root + 1]
            if end - begin > len(rows):
                rows = np.arange(2 * (end - begin))
            total, diagonal = _root_sum(a[begin:end], rows, d[begin:end], end - begin, bias)
            norms[root] += total
            diagonals[root] += diagonal


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def shared_linear_norms(  # type: ignore[no-untyped-def]
    a, outputs, relu, index, upper, parents, coefficients, pointers, bias, norms, diagonals
):
    """As `linear_norms` for a layer that ran once per shared row and is followed by an activation.

    Row i of a root has input a[index[i]] and output gradient
    coefficients[i] * upper[parents[i]] * activation'(outputs[index[i]]); nothing of that is stored beyond
    its root. Rows of a root that share `index` are one row with their gradients added up.
    """
    size_out = outputs.shape[1]
    roots = len(pointers) - 1
    for part in numba.prange(PARTS):
        # One room for all roots of a part: making it anew for each took as long as the products.
        nodes = np.empty(0, dtype=np.int64)
        gradients = np.empty((0, size_out), dtype=np.float32)
        for root in range(roots * part // PARTS, roots * (part + 1) // PARTS):
            begin, end = pointers[root], pointers[root + 1]
            if end - begin > len(nodes):
                nodes = np.empty(2 * (end - begin), dtype=np.int64)
                gradients = np.empty((2 * (end - begin), size_out), dtype=np.float32)
            count = 0
            for i in range(begin, end):
                node = index[i]
                at = 0
                while at < count and nodes[at] != node:
                    at += 1
                source, output, target = upper[parents[i]], outputs[node], gradients[at]
                c = coefficients[i]
                if at == count:
                    nodes[at] = node
                    count += 1
                    # Written, not added to zeros: one pass over the row instead of two.
                    if relu:
                        for k in range(size_out):
                            target[k] = c * source[k] if output[k] > 0 else np.float32(0)
                    else:
                        for k in range(size_out):
                            target[k] = c * source[k] * (1 - output[k] * output[k])
                elif relu:
                    for k in range(size_out):
                        if output[k] > 0:
                            target[k] += c * source[k]
                else:
                    for k in range(size_out):
                        target[k] += c * source[k] * (1 - output[k] * output[k])
            total, diagonal = _root_sum(a, nodes, gradients, count, bias)
            norms[root] += total
            diagonals[root] += diagonal
