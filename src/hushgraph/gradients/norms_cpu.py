"""Squared norms of per-root gradients of a Linear layer on the CPU, without forming the gradients.

The gradient of root v is the sum over its rows i of d_i (a_i, 1)^T, so its squared norm is the sum over pairs
of its rows of (a_i . a_j + 1)(d_i . d_j).

Every kernel also gives the size that rounding is measured against: the square of the sum of the norms of the
single rows' gradients. Products of rows are float32 sums of at most `BLOCK` terms, added up in float64. What
rounding changes of a squared norm is therefore at most `clip.ROUNDING_MARGIN` of that size, whatever the
order of the sums, the width and the number of rows (docs/secure-noise.md).

Rows are given as pointers to their first number: slices of arrays count references, for longer than a product
takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from hushgraph.gradients.vectors import pointer
from hushgraph.models.blocks import FASTMATH

# Products below the smallest normal float32 may vanish, although large inputs would make them count.
SMALLEST = float(np.finfo(np.float32).tiny)

# Terms that are added up in float32.
BLOCK = 256
# Rows whose products are added up in float32 where a gradient is formed.
FORMED_ROWS = 64
# Adding a repeated row rounds once; the margin covers so many roundings.
ROUNDINGS = 128

# Products of the input rows of a root with at most so many distinct ones are kept as long as its batch.
KEPT_ROWS = 64

# The work is cut into so many parts: enough for many threads and to even out roots of different size.
PARTS = 128


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _short_dot(u, v, begin, end):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for k in range(begin, end):
        total += u[k] * v[k]
    return np.float64(total)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _long_dot(u, v, width):  # type: ignore[no-untyped-def]
    total = 0.0
    for begin in range(0, width, BLOCK):
        total += _short_dot(u, v, begin, min(begin + BLOCK, width))
    return total


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _dot(u, v, width):  # type: ignore[no-untyped-def]
    return _short_dot(u, v, 0, width) if width <= BLOCK else _long_dot(u, v, width)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _dots(u, v0, v1, v2, v3, width):  # type: ignore[no-untyped-def]
    """Four products at once, so that one load of u serves all."""
    if width > BLOCK:
        return (
            _long_dot(u, v0, width),
            _long_dot(u, v1, width),
            _long_dot(u, v2, width),
            _long_dot(u, v3, width),
        )
    s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for k in range(width):
        s0 += u[k] * v0[k]
        s1 += u[k] * v1[k]
        s2 += u[k] * v2[k]
        s3 += u[k] * v3[k]
    return np.float64(s0), np.float64(s1), np.float64(s2), np.float64(s3)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _dots_of(u, v, rows, j, width):  # type: ignore[no-untyped-def]
    """The products with the rows rows[j] to rows[j + 3] of v."""
    return _dots(
        u,
        pointer(v, rows[j] * width),
        pointer(v, rows[j + 1] * width),
        pointer(v, rows[j + 2] * width),
        pointer(v, rows[j + 3] * width),
        width,
    )


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _next_dots(u, v, j, width):  # type: ignore[no-untyped-def]
    """The products with the rows j to j + 3 of v."""
    first = pointer(v, j * width)
    return _dots(u, first, pointer(first, width), pointer(first, 2 * width), pointer(first, 3 * width), width)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _pair_sum(a, size_in, squares, d, size_out, count, bias):  # type: ignore[no-untyped-def]
    """Sum over ordered pairs of `count` rows, inputs a and gradients d, and the sum of norms."""
    diagonal = 0.0
    cross = 0.0
    underflow = 0.0
    norms = 0.0
    for i in range(count):
        ai, di = pointer(a, i * size_in), pointer(d, i * size_out)
        square_a, square_d = squares[i] + bias, _dot(di, di, size_out)
        diagonal += square_a * square_d
        norms += np.sqrt(square_a * square_d)
        underflow += size_out * (square_a + size_in * SMALLEST) + size_in * square_d
        j = 0
        while j + 4 <= i:
            s0, s1, s2, s3 = _next_dots(ai, a, j, size_in)
            t0, t1, t2, t3 = _next_dots(di, d, j, size_out)
            cross += (s0 + bias) * t0
            cross += (s1 + bias) * t1
            cross += (s2 + bias) * t2
            cross += (s3 + bias) * t3
            j += 4
        while j < i:
            product = _dot(di, pointer(d, j * size_out), size_out)
            cross += (_dot(ai, pointer(a, j * size_in), size_in) + bias) * product
            j += 1
    return diagonal + 2.0 * cross + SMALLEST * count * underflow, norms


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _formed_sum(a, size_in, squares, d, size_out, count, bias):  # type: ignore[no-untyped-def]
    """The same by forming the gradient: cheaper once a root has many rows."""
    norms = 0.0
    underflow = 0.0
    for i in range(count):
        di = pointer(d, i * size_out)
        square_a, square_d = squares[i] + bias, _dot(di, di, size_out)
        norms += np.sqrt(square_a * square_d)
        underflow += size_out * (square_a + size_in * SMALLEST) + size_in * square_d
    total = 0.0
    gradient = np.empty(size_in, dtype=np.float64)
    part = np.empty(size_in, dtype=np.float32)
    for o in range(size_out):
        gradient[:] = 0
        bias_gradient = 0.0
        for begin in range(0, count, FORMED_ROWS):
            part[:] = 0
            for i in range(begin, min(begin + FORMED_ROWS, count)):
                c, row = d[i * size_out + o], pointer(a, i * size_in)
                bias_gradient += np.float64(c)
                for k in range(size_in):
                    part[k] += c * row[k]
            for k in range(size_in):
                gradient[k] += np.float64(part[k])
        for k in range(size_in):
            total += gradient[k] * gradient[k]
        total += np.float64(bias) * bias_gradient * bias_gradient
    return total + SMALLEST * count * underflow, norms


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _root_sum(inputs, size_in, squares, gradients, size_out, begin, count, bias):  # type: ignore[no-untyped-def]
    """Of the `count` rows from `begin` on. Arrays are given, and not pointers, so that they are not freed."""
    a, d = pointer(inputs, begin * size_in), pointer(gradients, begin * size_out)
    if count * (size_in + size_out) > 2 * size_in * size_out:
        return _formed_sum(a, size_in, pointer(squares, begin), d, size_out, count, bias)
    return _pair_sum(a, size_in, pointer(squares, begin), d, size_out, count, bias)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH, inline="always")
def _gathered_dot(u, indices, values, begin, end):  # type: ignore[no-untyped-def]
    """The product of a row that is written out with one of which only the entries are kept."""
    total = 0.0
    for first in range(begin, end, BLOCK):
        part = np.float32(0)
        for p in range(first, min(first + BLOCK, end)):
            part += values[p] * u[indices[p]]
        total += np.float64(part)
    return total


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def row_squares(rows, out):  # type: ignore[no-untyped-def]
    """The squared norm of every row, in float64."""
    for part in numba.prange(PARTS):
        for i in range(len(rows) * part // PARTS, len(rows) * (part + 1) // PARTS):
            total = 0.0
            for k in range(rows.shape[1]):
                total += np.float64(rows[i, k]) * np.float64(rows[i, k])
            out[i] = total


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def linear_norms(a, squares, d, pointers, bias, norms, sizes):  # type: ignore[no-untyped-def]
    """Adds every root's squared norm to `norms`, what rounding is measured against to `sizes`.

    Rows are a [R, in] and d [R, out]; squares [R] are the squared norms of a.
    """
    roots, size_in, size_out = len(pointers) - 1, a.shape[1], d.shape[1]
    inputs, gradients = a.reshape(-1), d.reshape(-1)
    for part in numba.prange(PARTS):
        for root in range(roots * part // PARTS, roots * (part + 1) // PARTS):
            begin, count = pointers[root], pointers[root + 1] - pointers[root]
            total, size = _root_sum(inputs, size_in, squares, gradients, size_out, begin, count, bias)
            norms[root] += total
            sizes[root] += size * size


@numba.njit(cache=True, nogil=True, parallel=True)
def find_places(index, pointers, places, counts):  # type: ignore[no-untyped-def]
    """For every entry its place among the distinct rows of its root, and how many these are."""
    roots = len(pointers) - 1
    for part in numba.prange(PARTS):
        nodes = np.empty(0, dtype=np.int64)
        for root in range(roots * part // PARTS, roots * (part + 1) // PARTS):
            begin, end = pointers[root], pointers[root + 1]
            if end - begin > len(nodes):
                nodes = np.empty(2 * (end - begin), dtype=np.int64)
            count = 0
            for i in range(begin, end):
                node = index[i]
                at = 0
                while at < count and nodes[at] != node:
                    at += 1
                places[i] = at
                if at == count:
                    nodes[at] = node
                    count += 1
            counts[root] = count


@numba.njit(cache=True, nogil=True, inline="always")
def _list_nodes(index, places, begin, end, nodes):  # type: ignore[no-untyped-def]
    """The distinct rows of a root."""
    count = 0
    for i in range(begin, end):
        if places[i] == count:
            nodes[count] = index[i]
            count += 1


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def multiply_pairs(a, index, pointers, places, counts, starts, products):  # type: ignore[no-untyped-def]
    """Products of the distinct rows of every root: of i with all j < i from products[starts[root]] on."""
    inputs, size_in = a.reshape(-1), a.shape[1]
    for part in numba.prange(PARTS):
        nodes = np.empty(KEPT_ROWS, dtype=np.int64)
        roots = len(counts)
        for root in range(roots * part // PARTS, roots * (part + 1) // PARTS):
            at = starts[root]
            if starts[root + 1] == at:
                continue
            _list_nodes(index, places, pointers[root], pointers[root + 1], nodes)
            for i in range(counts[root]):
                ai = pointer(inputs, nodes[i] * size_in)
                j = 0
                while j + 4 <= i:
                    s0, s1, s2, s3 = _dots_of(ai, inputs, nodes, j, size_in)
                    products[at], products[at + 1], products[at + 2], products[at + 3] = s0, s1, s2, s3
                    j, at = j + 4, at + 4
                while j < i:
                    products[at] = _dot(ai, pointer(inputs, nodes[j] * size_in), size_in)
                    j, at = j + 1, at + 1


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def multiply_sparse_pairs(  # type: ignore[no-untyped-def]
    indptr, indices, values, size_in, index, pointers, places, counts, starts, products
):
    """As `multiply_pairs` for sparse rows of `size_in` columns."""
    for part in numba.prange(PARTS):
        nodes = np.empty(KEPT_ROWS, dtype=np.int64)
        written = np.zeros(size_in, dtype=np.float32)
        roots = len(counts)
        for root in range(roots * part // PARTS, roots * (part + 1) // PARTS):
            at = starts[root]
            if starts[root + 1] == at:
                continue
            _list_nodes(index, places, pointers[root], pointers[root + 1], nodes)
            for i in range(1, counts[root]):
                begin, end = indptr[nodes[i]], indptr[nodes[i] + 1]
                for p in range(begin, end):
                    written[indices[p]] = values[p]
                for j in range(i):
                    products[at] = _gathered_dot(
                        written, indices, values, indptr[nodes[j]], indptr[nodes[j] + 1]
                    )
                    at += 1
                for p in range(begin, end):
                    written[indices[p]] = 0


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _kept_pair_sum(products, size_in, squares, rows, d, size_out, count, bias):  # type: ignore[no-untyped-def]
    """As `_pair_sum` with the products of the input rows given."""
    diagonal, cross, underflow, norms = 0.0, 0.0, 0.0, 0.0
    at = 0
    for i in range(count):
        di = pointer(d, i * size_out)
        square_a, square_d = squares[rows[i]] + bias, _dot(di, di, size_out)
        diagonal += square_a * square_d
        norms += np.sqrt(square_a * square_d)
        underflow += size_out * (square_a + size_in * SMALLEST) + size_in * square_d
        j = 0
        while j + 4 <= i:
            t0, t1, t2, t3 = _next_dots(di, d, j, size_out)
            cross += (np.float64(products[at]) + bias) * t0
            cross += (np.float64(products[at + 1]) + bias) * t1
            cross += (np.float64(products[at + 2]) + bias) * t2
            cross += (np.float64(products[at + 3]) + bias) * t3
            j, at = j + 4, at + 4
        while j < i:
            cross += (np.float64(products[at]) + bias) * _dot(di, pointer(d, j * size_out), size_out)
            j, at = j + 1, at + 1
    return diagonal + 2.0 * cross + SMALLEST * count * underflow, norms


class Shared(NamedTuple):
    """A layer that ran once per shared row and is followed by an activation, and the entries of every root.

    Attributes:
        outputs, relu: after the activation, [shared rows, out]; whether it is relu.
        index: of every entry, its shared row.
        upper, parents, coefficients: of which `_merge_entries` makes gradients.
        pointers: the entries of every root.
        squares: float64 [shared rows], squared norms of the inputs.
        places, counts: as `find_places` has them.
        bias: 1 if the layer has one.
    """

    outputs: Any
    relu: bool
    index: Any
    upper: Any
    parents: Any
    coefficients: Any
    pointers: Any
    squares: Any
    places: Any
    counts: Any
    bias: Any


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def _merge_entries(shared, root, nodes, gradients, single):  # type: ignore[no-untyped-def]
    """Write the distinct rows of a root and their output gradients; return what cancelled.

    Entry i has the output gradient coefficients[i] * upper[parents[i]] * activation'(outputs[index[i]]).
    Entries at the same place are one row with their gradients added up.
    """
    index, parents, coefficients, pointers, squares, places = (
        shared.index,
        shared.parents,
        shared.coefficients,
        shared.pointers,
        shared.squares,
        shared.places,
    )
    outputs, upper = shared.outputs.reshape(-1), shared.upper.reshape(-1)
    size_out = shared.outputs.shape[1]
    count = 0
    repeated = 0.0
    for i in range(pointers[root], pointers[root + 1]):
        node, at, c = index[i], np.int64(places[i]), coefficients[i]
        source, output = pointer(upper, parents[i] * size_out), pointer(outputs, node * size_out)
        is_first = at == count
        target = pointer(gradients, at * size_out) if is_first else pointer(single, 0)
        if shared.relu:
            for k in range(size_out):
                target[k] = c * source[k] if output[k] > 0 else np.float32(0)
        else:
            # As a product it keeps its digits where the activation is near 1.
            for k in range(size_out):
                target[k] = c * source[k] * ((1 - output[k]) * (1 + output[k]))
        if is_first:
            nodes[at] = node
            count += 1
        else:
            # What is added up may cancel. The norms of all parts are at most that of the sum plus
            # twice those of the parts after the first.
            kept, length = pointer(gradients, at * size_out), np.sqrt(squares[node] + shared.bias)
            norms = 2 * np.sqrt(_dot(target, target, size_out))
            repeated += length * (norms + np.sqrt(_dot(kept, kept, size_out)) / ROUNDINGS)
            for k in range(size_out):
                kept[k] += target[k]
    return repeated


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def shared_linear_norms(starts, products, size_in, shared, norms, sizes):  # type: ignore[no-untyped-def]
    """As `linear_norms` for a layer that ran once per shared row and is followed by an activation.

    Roots with more than `KEPT_ROWS` rows are left to `large_norms`. No gradient of a
    root is stored beyond it.

    Args:
        starts, products: as `multiply_pairs` has them.
        size_in: columns of the shared rows.
        shared: what `Shared` lists.
        norms, sizes: float64 [roots], added to.
    """
    squares, counts, bias = shared.squares, shared.counts, shared.bias
    roots, size_out = len(counts), shared.outputs.shape[1]
    for part in numba.prange(PARTS):
        # One scratch buffer per part: making it anew for each root took as long as the products.
        nodes = np.empty(KEPT_ROWS, dtype=np.int64)
        gradients = np.empty(KEPT_ROWS * size_out, dtype=np.float32)
        single = np.empty(size_out, dtype=np.float32)
        for root in range(roots * part // PARTS, roots * (part + 1) // PARTS):
            count = counts[root]
            if count > KEPT_ROWS:
                continue
            repeated = _merge_entries(shared, root, nodes, gradients, single)
            kept, d = pointer(products, starts[root]), pointer(gradients, 0)
            total, size = _kept_pair_sum(kept, size_in, squares, nodes, d, size_out, count, bias)
            size += repeated
            norms[root] += total
            sizes[root] += size * size


@numba.njit(cache=True, nogil=True)
def _write_rows(indptr, indices, values, nodes, out):  # type: ignore[no-untyped-def]
    """Write these rows side by side; values are [rows, columns] where `indptr` is None."""
    for i in range(len(nodes)):
        if indptr is None:
            out[i] = values[nodes[i]]
        else:
            out[i] = 0
            for p in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
                out[i, indices[p]] = values[p]


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def large_norms(large, indptr, indices, values, size_in, shared, norms, sizes):  # type: ignore[no-untyped-def]
    """As `shared_linear_norms` for the roots `large`; their inputs are written out, as `_write_rows` does."""
    squares, counts, bias = shared.squares, shared.counts, shared.bias
    size_out = shared.outputs.shape[1]
    for number in numba.prange(len(large)):
        root = large[number]
        count = counts[root]
        nodes = np.empty(count, dtype=np.int64)
        gradients = np.empty(count * size_out, dtype=np.float32)
        single = np.empty(size_out, dtype=np.float32)
        repeated = _merge_entries(shared, root, nodes, gradients, single)
        a = np.empty((count, size_in), dtype=np.float32)
        _write_rows(indptr, indices, values, nodes, a)
        total, size = _root_sum(a.reshape(-1), size_in, squares[nodes], gradients, size_out, 0, count, bias)
        size += repeated
        norms[root] += total
        sizes[root] += size * size
