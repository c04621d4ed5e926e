"""Kernels for rows that are roots: forward pass, norms, clipping and sums of a block that stays in the cache.

Every kernel runs in one thread and lets go of the interpreter's lock, so that threads of the caller share the
work. Sums over a chunk are float32 and added up in float64, as `hushgraph.gradients.sums` proves the bound.
What only kernels call is given pointers, which is compiled sooner.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from hushgraph.gradients.clip import GROUPS, SMALLEST_SQUARE, factor_of
from hushgraph.gradients.sums import CHUNK
from hushgraph.gradients.vectors import (
    add_products,
    add_sparse_products,
    copy_scaled,
    exp,
    multiply,
    multiply_sparse,
    pointer,
    tanh,
)
from hushgraph.inputs.rows import INNER, node_of, scale_of
from hushgraph.models.blocks import FASTMATH

# Squared norms beyond this count as not finite.
_LARGEST = float(np.finfo(np.float32).max)
_GROUPS = len(GROUPS)
# Rows that are computed together: so few that what is computed stays in the cache of a core.
BLOCK = 4 * CHUNK
# Columns of the table that describes the layers of a chain.
COLUMNS = 9
SIZE_IN, SIZE_OUT, WIDTH, FORWARD, BACKWARD, BIAS, OUTPUT, GRADIENT, GROUP = range(COLUMNS)

_factor_of = numba.njit(factor_of, **INNER)


class Layers(NamedTuple):
    """A chain of layers, as the kernels read it.

    Attributes:
        table: int64 [(num_layers + 1) * COLUMNS], where everything of a layer is. The last row is the skip
            connection, whose outputs are added to the scores; it has no inputs where there is none.
        num_layers: how many there are.
        relu: the activation is relu; tanh otherwise.
        params: float32, weights and biases.
    """

    table: npt.NDArray[np.int64]
    num_layers: int
    relu: bool
    params: npt.NDArray[np.float32]


class Buffers(NamedTuple):
    """What a thread computes a block of rows with.

    Attributes:
        work: float32, outputs and gradients of all layers.
        inputs: float32, features and dense columns side by side, where features are dense.
        squares, factors: float64 [groups], of a row.
    """

    work: npt.NDArray[np.float32]
    inputs: npt.NDArray[np.float32]
    squares: npt.NDArray[np.float64]
    factors: npt.NDArray[np.float64]


@numba.njit(**INNER, fastmath=FASTMATH)
def _square(values, count):  # type: ignore[no-untyped-def]
    """Squared norm in float64."""
    total = 0.0
    for i in range(count):
        value = np.float64(values[i])
        total += value * value
    return total


@numba.njit(**INNER, fastmath=FASTMATH)
def _error_gradient(scores, count, label):  # type: ignore[no-untyped-def]
    """The score in place becomes the gradient of the squared error; zero without a label."""
    scores[0] = np.float32(0) if np.isnan(label) else np.float32(2) * (scores[0] - label)


@numba.njit(**INNER, fastmath=FASTMATH)
def _label_gradient(scores, count, labels):  # type: ignore[no-untyped-def]
    """Scores in place become the gradient of the binary cross-entropies; zero without labels."""
    if labels[0] < 0:
        for k in range(count):
            scores[k] = 0
        return
    for k in range(count):
        scores[k] = np.float32(1 / (1 + np.exp(-np.float64(scores[k])))) - np.float32(labels[k])


def _differentiate(scores, count, labels, row):  # type: ignore[no-untyped-def]
    """Scores of a row in place become the gradient of its loss; which loss follows from the labels."""


@overload(_differentiate, jit_options=INNER)
def _choose_gradient(scores, count, labels, row):  # type: ignore[no-untyped-def]
    """Several labels a row have binary cross-entropies, numbers squared errors, classes cross-entropy."""
    if labels.ndim == 2:
        return lambda scores, count, labels, row: _label_gradient(scores, count, labels[row])
    if isinstance(labels.dtype, types.Float):
        return lambda scores, count, labels, row: _error_gradient(scores, count, labels[row])
    return lambda scores, count, labels, row: _score_gradient(scores, count, labels[row])


@numba.njit(**INNER, fastmath=FASTMATH)
def _score_gradient(scores, count, label):  # type: ignore[no-untyped-def]
    """Scores in place become the gradient of the cross-entropy; zero without a label."""
    if label < 0:
        for k in range(count):
            scores[k] = 0
        return
    largest = scores[0]
    for k in range(1, count):
        largest = max(largest, scores[k])
    exp(scores, count, largest)
    total = np.float32(0)
    for k in range(count):
        total += scores[k]
    inverse = np.float32(1) / total
    for k in range(count):
        scores[k] *= inverse
    scores[label] -= np.float32(1)


_KERNEL: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


@numba.njit(**INNER)
def _find_inputs(buffers, tables, begin):  # type: ignore[no-untyped-def]
    """Where the dense columns of a block of rows are: gathered, or in the table of all rows."""
    if tables.table_width:
        return pointer(buffers.inputs, 0)
    return pointer(tables.dense, begin * tables.dense_width)


@numba.njit(**INNER)
def _gather(tables, begin, rows, inputs):  # type: ignore[no-untyped-def]
    """Write the scaled dense features of some rows, and the dense columns behind them, side by side."""
    first, last, nodes, scales = tables.table_width, tables.dense_width, tables.nodes, tables.scales
    table, dense = pointer(tables.table, 0), pointer(tables.dense, begin * last)
    for i in range(rows):
        node = node_of(nodes, begin + i)
        row = pointer(inputs, i * (first + last))
        copy_scaled(row, scale_of(scales, node), pointer(table, node * first), first)
        copy_scaled(pointer(row, first), np.float32(1), pointer(dense, i * last), last)


@numba.njit(**INNER)
def _multiply_features(nodes, scales, features, begin, rows, weights, width, output):  # type: ignore[no-untyped-def]
    """Add the sparse features of the rows from `begin` on, scaled, times the weights to the output."""
    # None where no column is sparse: what follows is then not compiled.
    if features is not None:
        indptr, indices, values = features
        columns, numbers = pointer(indices, 0), pointer(values, 0)
        for i in range(rows):
            node = node_of(nodes, begin + i)
            multiply_sparse(
                indptr[node],
                indptr[node + 1],
                columns,
                numbers,
                scale_of(scales, node),
                weights,
                width,
                pointer(output, i * width),
            )


@numba.njit(**_KERNEL, fastmath=FASTMATH)
def run_forward(layers, buffers, tables, begin, rows):  # type: ignore[no-untyped-def]
    """Outputs of all layers for the rows from `begin` on, the scores last."""
    work, params, last = pointer(buffers.work, 0), pointer(layers.params, 0), layers.num_layers - 1
    inputs, input_width = _find_inputs(buffers, tables, begin), tables.table_width + tables.dense_width
    if tables.table_width:
        _gather(tables, begin, rows, inputs)
    for number in range(last + 2):
        layer = pointer(layers.table, number * COLUMNS)
        before = pointer(layer, -COLUMNS if number else 0)
        width, output, weights = layer[WIDTH], pointer(work, layer[OUTPUT]), pointer(params, layer[FORWARD])
        if number <= last:
            for i in range(rows):
                copy_scaled(pointer(output, i * width), np.float32(1), pointer(params, layer[BIAS]), width)
        given, step, depth = pointer(work, before[OUTPUT]), before[WIDTH], layer[SIZE_IN]
        if number == 0:
            features = tables.nodes, tables.scales, tables.features
            _multiply_features(*features, begin, rows, weights, width, output)
        if number == 0 or number > last:
            # Dense columns are the last.
            depth = min(depth, input_width)
            given, step = pointer(inputs, input_width - depth), input_width
            weights = pointer(weights, (layer[SIZE_IN] - depth) * width)
        multiply(given, step, rows, depth, weights, width, output)
        if number >= last:
            continue
        if layers.relu:
            for i in range(rows * width):
                # Written so that NaN stays NaN.
                output[i] = np.float32(0) if output[i] < np.float32(0) else output[i]
        else:
            tanh(output, rows * width)


@numba.njit(**INNER, fastmath=FASTMATH)
def run_backward(layers, buffers, labels, begin, rows):  # type: ignore[no-untyped-def]
    """Gradients by the outputs of all layers, before their activations."""
    work, params = pointer(buffers.work, 0), pointer(layers.params, 0)
    last = layers.num_layers - 1
    layer = pointer(layers.table, last * COLUMNS)
    for i in range(rows):
        scores = pointer(work, layer[OUTPUT] + i * layer[WIDTH])
        _differentiate(scores, layer[SIZE_OUT], labels, begin + i)  # type: ignore[no-untyped-call]
    for number in range(last, 0, -1):
        layer = pointer(layers.table, number * COLUMNS)
        before = pointer(layer, -COLUMNS)
        width = before[WIDTH]
        slopes, outputs = pointer(work, before[GRADIENT]), pointer(work, before[OUTPUT])
        for i in range(rows * width):
            slopes[i] = 0
        gradients, weights = pointer(work, layer[GRADIENT]), pointer(params, layer[BACKWARD])
        multiply(gradients, layer[WIDTH], rows, layer[SIZE_OUT], weights, width, slopes)
        for i in range(rows * width):
            y = outputs[i]
            if layers.relu:
                slopes[i] = slopes[i] if y > np.float32(0) else np.float32(0)
            else:
                # As a product it keeps its digits where the activation is near 1.
                slopes[i] *= (np.float32(1) - y) * (np.float32(1) + y)


@numba.njit(**INNER)
def _choose_factors(squares, rule, weight, factors):  # type: ignore[no-untyped-def]
    """`Clipping.factors` for one root whose squared norms are exact; zero where they are not finite."""
    total, is_finite = 0.0, True
    for group in range(_GROUPS):
        is_finite = is_finite and squares[group] <= _LARGEST
        total += squares[group] + SMALLEST_SQUARE
    for group in range(_GROUPS):
        norm = np.sqrt(squares[group] + SMALLEST_SQUARE if rule.is_grouped else total)
        factor = _factor_of(norm, rule.clips[group], rule.limit, rule.stability, min)
        factors[group] = weight * factor if is_finite else 0.0


@numba.njit(**INNER, fastmath=FASTMATH)
def _scale(values, factor, count):  # type: ignore[no-untyped-def]
    """Values times a float64 factor in place, each rounded once; zero for the factor 0, whatever they are."""
    if factor == 0:
        for k in range(count):
            values[k] = 0
        return
    for k in range(count):
        values[k] = np.float32(factor * np.float64(values[k]))


@numba.njit(**INNER, inline="always")
def _multiply(inputs, gradient):  # type: ignore[no-untyped-def]
    """The product of two squared norms; infinite where one is beyond float32.

    Its factor would be so small that gradients lose their digits before large inputs multiply what is left.
    """
    return inputs * gradient if inputs <= _LARGEST and gradient <= _LARGEST else np.inf


@numba.njit(**INNER)
def clip(layers, buffers, input_squares, skip_squares, rule, weights, begin, rows):  # type: ignore[no-untyped-def]
    """Multiply the gradients of every row by its factors, and by its weight if there are any."""
    work, squares, factors = (
        pointer(buffers.work, 0),
        pointer(buffers.squares, 0),
        pointer(buffers.factors, 0),
    )
    table, count = pointer(layers.table, 0), layers.num_layers
    for i in range(rows):
        for group in range(_GROUPS):
            squares[group] = 0.0
        inputs, gradient = input_squares[begin + i], 0.0
        for number in range(count):
            layer = pointer(table, number * COLUMNS)
            gradient = _square(pointer(work, layer[GRADIENT] + i * layer[WIDTH]), layer[SIZE_OUT])
            squares[layer[GROUP]] += _multiply(inputs + 1, gradient)
            if number < count - 1:
                inputs = _square(pointer(work, layer[OUTPUT] + i * layer[WIDTH]), layer[SIZE_OUT])
        skip = pointer(table, count * COLUMNS)
        squares[skip[GROUP]] += _multiply(skip_squares[begin + i], gradient)
        _choose_factors(squares, rule, weights[begin + i] if len(weights) else 1.0, factors)
        # The skip connection first: its gradients are those of the scores.
        for number in range(count, -1, -1):
            layer = pointer(table, number * COLUMNS)
            width, factor = layer[WIDTH], factors[layer[GROUP]]
            gradients = pointer(work, layer[GRADIENT] + i * width)
            if number == count:
                scores = pointer(layer, -COLUMNS)
                copy_scaled(gradients, np.float32(1), pointer(work, scores[GRADIENT] + i * width), width)
            # In place: compilers make vectors of this loop alone.
            _scale(gradients, factor, width)
            if factor == 0 and number < count:
                # Zero times infinity is not zero.
                outputs = pointer(work, layer[OUTPUT] + i * width)
                for k in range(width):
                    outputs[k] = 0


@numba.njit(**INNER)
def _add_features(by_columns, chunk, gradients, width, total):  # type: ignore[no-untyped-def]
    """Add the weighted gradients of the sparse columns of a chunk to the totals."""
    if by_columns is not None:
        starts, counts, columns = by_columns.chunk_starts, by_columns.counts, by_columns.columns
        first = starts[chunk, 1]
        places, values = pointer(by_columns.places, first), pointer(by_columns.values, first)
        for at in range(starts[chunk, 0], starts[chunk + 1, 0]):
            count, column = np.int64(counts[at]), np.int64(columns[at])
            add_sparse_products(count, places, values, gradients, width, pointer(total, column * width))
            places, values = pointer(places, count), pointer(values, count)


@numba.njit(**INNER)
def add_sums(layers, buffers, tables, by_columns, begin, rows, total):  # type: ignore[no-untyped-def]
    """Add the weighted gradients of the rows from `begin` on to `total`, chunk by chunk."""
    work, input_width = pointer(buffers.work, 0), tables.table_width + tables.dense_width
    for first in range(0, rows, CHUNK):
        size, inputs = min(CHUNK, rows - first), _find_inputs(buffers, tables, begin)
        for number in range(layers.num_layers + 1):
            layer = pointer(layers.table, number * COLUMNS)
            before = pointer(layer, -COLUMNS if number else 0)
            width, sums = layer[WIDTH], pointer(total, layer[FORWARD])
            gradients = pointer(work, layer[GRADIENT] + first * width)
            given, step, depth = pointer(work, before[OUTPUT]), before[WIDTH], layer[SIZE_IN]
            if number == 0:
                _add_features(by_columns, (begin + first) // CHUNK, gradients, width, sums)
            if number == 0 or number == layers.num_layers:
                depth = min(depth, input_width)
                given, step = pointer(inputs, input_width - depth), input_width
                sums = pointer(sums, (layer[SIZE_IN] - depth) * width)
            add_products(pointer(given, first * step), step, depth, gradients, width, size, sums)
            if number < layers.num_layers:
                bias = pointer(total, layer[BIAS])
                for i in range(size):
                    for k in range(width):
                        bias[k] += np.float64(gradients[i * width + k])


@numba.njit(**_KERNEL)
def add_clipped_sums(  # type: ignore[no-untyped-def]
    layers, buffers, tables, labels, input_squares, skip_squares, rule, weights, by_columns, begin, end, total
):
    """Add the clipped gradients of the rows from `begin` to `end` to `total`, block by block."""
    for first in range(begin, end, BLOCK):
        count = min(BLOCK, end - first)
        run_forward(layers, buffers, tables, first, count)
        run_backward(layers, buffers, labels, first, count)
        clip(layers, buffers, input_squares, skip_squares, rule, weights, first, count)
        add_sums(layers, buffers, tables, by_columns, first, count, total)
