"""Kernels for rows that are roots: forward pass, norms, clipping and sums of a chunk that stays in the cache.

Every kernel runs in one thread and lets go of the interpreter's lock, so that threads of the caller share the
work. Sums over a chunk are float32 and added up in float64, as `hushgraph.gradients.sums` proves the bound.
Matrices are flat arrays with rows padded to a multiple of `LANES`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from hushgraph.gradients.clip import SMALLEST_SQUARE
from hushgraph.gradients.sums import CHUNK
from hushgraph.inputs.rows import INNER, node_of, scale_of
from hushgraph.models.blocks import FASTMATH

# Numbers of a vector register; every row is padded to a multiple of it.
LANES = 16
# Rows that are multiplied at once, so that a loaded weight serves several of them.
_ROWS = 8
# Registers for one sparse row.
_WIDE = 4

# Squared norms beyond this count as not finite.
_LARGEST = float(np.finfo(np.float32).max)
# Columns of the table that describes the layers of a chain.
SIZE_IN, SIZE_OUT, WIDTH, FORWARD, BACKWARD, BIAS, OUTPUT, GRADIENT, GROUP = range(9)


def _vector(builder: Any, pointer: Any, at: Any = None, size: int = LANES) -> Any:
    """A pointer to `size` numbers, from element `at * size` of a pointer on."""
    if at is not None:
        pointer = builder.gep(pointer, [builder.mul(at, ir.Constant(at.type, size))])
    return builder.bitcast(pointer, ir.VectorType(pointer.type.pointee, size).as_pointer())


def _load_vector(builder: Any, place: Any) -> Any:
    instruction = builder.load(place)
    instruction.align = 4
    return instruction


def _store_vector(builder: Any, value: Any, place: Any) -> None:
    builder.store(value, place).align = 4


def _repeat(builder: Any, number: Any) -> Any:
    """A vector of `LANES` times the same number."""
    kind, lanes = ir.VectorType(number.type, LANES), ir.VectorType(ir.IntType(32), LANES)
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(lanes, None))


@intrinsic
def _registers(typing_context):  # type: ignore[no-untyped-def]
    """`_ROWS` vectors that nothing else points to: the compiler keeps them in registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.ArrayType(ir.FloatType(), _ROWS * LANES))
        return builder.bitcast(place, ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(), generate


@intrinsic
def _pointer(typing_context, array, at):  # type: ignore[no-untyped-def]
    """Where element `at` of a flat array is. NumPy's negative indices would cost time."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flat = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(flat.data, [arguments[1]])

    return types.CPointer(array.dtype)(array, types.int64), generate


@intrinsic
def _load(typing_context, registers, number, source):  # type: ignore[no-untyped-def]
    """Register `number` = `LANES` numbers from `source` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        registers, number, source = arguments
        _store_vector(
            builder, _load_vector(builder, _vector(builder, source)), _vector(builder, registers, number)
        )
        return context.get_dummy_value()

    return types.void(registers, types.int64, source), generate


@intrinsic
def _clear(typing_context, registers, number):  # type: ignore[no-untyped-def]
    """Register `number` = 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _vector(builder, *arguments)
        _store_vector(builder, ir.Constant(place.type.pointee, None), place)
        return context.get_dummy_value()

    return types.void(registers, types.int64), generate


@intrinsic
def _add_multiple(typing_context, registers, number, factor, source):  # type: ignore[no-untyped-def]
    """Register `number` += factor times the `LANES` numbers from `source` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        registers, number, factor, source = arguments
        place = _vector(builder, registers, number)
        factors = _repeat(builder, factor)
        product = builder.fmul(factors, _load_vector(builder, _vector(builder, source)), flags=("contract",))
        total = builder.fadd(_load_vector(builder, place), product, flags=("contract",))
        _store_vector(builder, total, place)
        return context.get_dummy_value()

    return types.void(registers, types.int64, types.float32, source), generate


@intrinsic
def _store(typing_context, registers, number, target):  # type: ignore[no-untyped-def]
    """The `LANES` numbers from `target` on = register `number`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        registers, number, target = arguments
        _store_vector(
            builder, _load_vector(builder, _vector(builder, registers, number)), _vector(builder, target)
        )
        return context.get_dummy_value()

    return types.void(registers, types.int64, target), generate


@intrinsic
def _add_to_double(typing_context, registers, number, target):  # type: ignore[no-untyped-def]
    """The `LANES` float64 numbers from `target` on += register `number`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        registers, number, target = arguments
        place = _vector(builder, target)
        wide = builder.fpext(_load_vector(builder, _vector(builder, registers, number)), place.type.pointee)
        _store_vector(builder, builder.fadd(_load_vector(builder, place), wide), place)
        return context.get_dummy_value()

    return types.void(registers, types.int64, target), generate


@intrinsic
def _copy_lanes(typing_context, target, source):  # type: ignore[no-untyped-def]
    """The `LANES` numbers from `target` on = those from `source` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_vector(builder, pointer) for pointer in arguments)
        _store_vector(builder, _load_vector(builder, source), target)
        return context.get_dummy_value()

    return types.void(target, source), generate


@intrinsic
def _scale_lanes(typing_context, target, factor, source):  # type: ignore[no-untyped-def]
    """The `LANES` numbers from `target` on = factor times those from `source` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, factor, source = arguments
        product = builder.fmul(_repeat(builder, factor), _load_vector(builder, _vector(builder, source)))
        _store_vector(builder, product, _vector(builder, target))
        return context.get_dummy_value()

    return types.void(target, types.float32, source), generate


@intrinsic
def _float_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """The float32 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@numba.njit(**INNER)
def multiply(a, a_at, a_step, rows, depth, w, w_at, width, out, out_at):  # type: ignore[no-untyped-def]
    """out[rows, width] += a[rows, depth] @ w[depth, width]."""
    acc = _registers()
    for b in range(0, width, LANES):
        i = 0
        while i + _ROWS <= rows:
            for r in range(_ROWS):
                _load(acc, r, _pointer(out, out_at + (i + r) * width + b))
            for j in range(depth):
                weights = _pointer(w, w_at + j * width + b)
                for r in range(_ROWS):
                    _add_multiple(acc, r, _pointer(a, a_at + (i + r) * a_step + j)[0], weights)
            for r in range(_ROWS):
                _store(acc, r, _pointer(out, out_at + (i + r) * width + b))
            i += _ROWS
        while i < rows:
            _load(acc, 0, _pointer(out, out_at + i * width + b))
            for j in range(depth):
                weights = _pointer(w, w_at + j * width + b)
                _add_multiple(acc, 0, _pointer(a, a_at + i * a_step + j)[0], weights)
            _store(acc, 0, _pointer(out, out_at + i * width + b))
            i += 1


@numba.njit(**INNER)
def add_products(a, a_at, a_step, size, d, d_at, width, rows, total, total_at):  # type: ignore[no-untyped-def]
    """total[size, width], float64, += a[rows, size].T @ d[rows, width], formed in float32; rows <= CHUNK."""
    acc = _registers()
    for b in range(0, width, LANES):
        j = 0
        while j + _ROWS <= size:
            for r in range(_ROWS):
                _clear(acc, r)
            for i in range(rows):
                row, values = _pointer(d, d_at + i * width + b), _pointer(a, a_at + i * a_step + j)
                for r in range(_ROWS):
                    _add_multiple(acc, r, values[r], row)
            for r in range(_ROWS):
                _add_to_double(acc, r, _pointer(total, total_at + (j + r) * width + b))
            j += _ROWS
        while j < size:
            _clear(acc, 0)
            for i in range(rows):
                value = _pointer(a, a_at + i * a_step + j)[0]
                _add_multiple(acc, 0, value, _pointer(d, d_at + i * width + b))
            _add_to_double(acc, 0, _pointer(total, total_at + j * width + b))
            j += 1


@numba.njit(**INNER)
def multiply_sparse(  # type: ignore[no-untyped-def]
    nodes, scales, indptr, indices, values, begin, rows, w, w_at, width, out, out_at
):
    """out[rows, width] += the sparse rows of the nodes from `begin` on, scaled, times w."""
    acc = _registers()
    for i in range(rows):
        node = node_of(nodes, begin + i)
        first, last, scale = indptr[node], indptr[node + 1], scale_of(scales, node)
        b = 0
        while b + _WIDE * LANES <= width:
            target = out_at + i * width + b
            for r in range(_WIDE):
                _load(acc, r, _pointer(out, target + r * LANES))
            for p in range(first, last):
                at = w_at + np.int64(_pointer(indices, p)[0]) * width + b
                value = scale * _pointer(values, p)[0]
                for r in range(_WIDE):
                    _add_multiple(acc, r, value, _pointer(w, at + r * LANES))
            for r in range(_WIDE):
                _store(acc, r, _pointer(out, target + r * LANES))
            b += _WIDE * LANES
        while b < width:
            _load(acc, 0, _pointer(out, out_at + i * width + b))
            for p in range(first, last):
                at = w_at + np.int64(_pointer(indices, p)[0]) * width + b
                _add_multiple(acc, 0, scale * _pointer(values, p)[0], _pointer(w, at))
            _store(acc, 0, _pointer(out, out_at + i * width + b))
            b += LANES


@numba.njit(**INNER)
def add_sparse_products(  # type: ignore[no-untyped-def]
    counts, columns, places, values, first_column, last_column, first, d, d_at, width, total, total_at
):
    """total[:, width], float64, += the sparse rows of one chunk, given by columns, transposed times d."""
    acc = _registers()
    for column in range(first_column, last_column):
        last = first + np.int64(counts[column])
        out = total_at + np.int64(columns[column]) * width
        b = 0
        while b + _WIDE * LANES <= width:
            for r in range(_WIDE):
                _clear(acc, r)
            for p in range(first, last):
                at = d_at + np.int64(_pointer(places, p)[0]) * width + b
                value = _pointer(values, p)[0]
                for r in range(_WIDE):
                    _add_multiple(acc, r, value, _pointer(d, at + r * LANES))
            for r in range(_WIDE):
                _add_to_double(acc, r, _pointer(total, out + b + r * LANES))
            b += _WIDE * LANES
        while b < width:
            _clear(acc, 0)
            for p in range(first, last):
                at = d_at + np.int64(_pointer(places, p)[0]) * width + b
                _add_multiple(acc, 0, _pointer(values, p)[0], _pointer(d, at))
            _add_to_double(acc, 0, _pointer(total, out + b))
            b += LANES
        first = last


@numba.njit(**INNER, fastmath=FASTMATH)
def _tanh(values, count):  # type: ignore[no-untyped-def]
    """Tanh in place, right up to a few units of the last digit: a quotient of polynomials."""
    for i in range(count):
        x = values[i]
        # Written so that NaN stays NaN.
        x = np.float32(9) if x > np.float32(9) else x
        x = np.float32(-9) if x < np.float32(-9) else x
        s = x * x
        p = s * np.float32(-2.76076847742355e-16) + np.float32(2.00018790482477e-13)
        p = s * p + np.float32(-8.60467152213735e-11)
        p = s * p + np.float32(5.12229709037114e-08)
        p = s * p + np.float32(1.48572235717979e-05)
        p = s * p + np.float32(6.37261928875436e-04)
        p = s * p + np.float32(4.89352455891786e-03)
        q = s * np.float32(1.19825839466702e-06) + np.float32(1.18534705686654e-04)
        q = s * q + np.float32(2.26843463243900e-03)
        q = s * q + np.float32(4.89352518554385e-03)
        y = x * p / q
        y = np.float32(1) if y > np.float32(1) else y
        values[i] = np.float32(-1) if y < np.float32(-1) else y


@numba.njit(**INNER, fastmath=FASTMATH)
def _exp(values, count, shift):  # type: ignore[no-untyped-def]
    """exp(value - shift) in place, for values that are at most `shift`."""
    for i in range(count):
        x = values[i] - shift
        x = np.float32(-87) if x < np.float32(-87) else x
        n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
        r = x - n * np.float32(0.693359375)
        r = r - n * np.float32(-2.12194440e-4)
        p = r * np.float32(1.9875691500e-4) + np.float32(1.3981999507e-3)
        p = r * p + np.float32(8.3334519073e-3)
        p = r * p + np.float32(4.1665795894e-2)
        p = r * p + np.float32(1.6666665459e-1)
        p = r * p + np.float32(5.0000001201e-1)
        p = r * r * p + r + np.float32(1)
        values[i] = p * _float_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))


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
    _exp(scores, count, largest)
    total = np.float32(0)
    for k in range(count):
        total += scores[k]
    inverse = np.float32(1) / total
    for k in range(count):
        scores[k] *= inverse
    scores[label] -= np.float32(1)


@numba.njit(**INNER, fastmath=FASTMATH)
def forward(  # type: ignore[no-untyped-def]
    layers,
    skip,
    relu,
    params,
    work,
    nodes,
    scales,
    indptr,
    indices,
    values,
    begin,
    inputs,
    inputs_at,
    dense_width,
    rows,
):
    """Outputs of all layers for the rows from `begin` on, the scores last.

    Their dense columns are those of `inputs` from `inputs_at` on.
    """
    for number in range(len(layers)):
        layer = layers[number]
        width, out = layer[WIDTH], layer[OUTPUT]
        output, bias = _pointer(work, out), _pointer(params, layer[BIAS])
        for i in range(rows):
            for k in range(width):
                output[i * width + k] = bias[k]
        if number:
            before = layers[number - 1]
            multiply(
                work,
                before[OUTPUT],
                before[WIDTH],
                rows,
                layer[SIZE_IN],
                params,
                layer[FORWARD],
                width,
                work,
                out,
            )
        else:
            # None where no column is sparse: the branch is then not compiled.
            if indptr is not None:
                at = layer[FORWARD]
                multiply_sparse(
                    nodes, scales, indptr, indices, values, begin, rows, params, at, width, work, out
                )
            at = layer[FORWARD] + (layer[SIZE_IN] - dense_width) * width
            multiply(inputs, inputs_at, dense_width, rows, dense_width, params, at, width, work, out)
        if number < len(layers) - 1:
            if relu:
                for i in range(rows * width):
                    # Written so that NaN stays NaN.
                    output[i] = np.float32(0) if output[i] < np.float32(0) else output[i]
            else:
                _tanh(output, rows * width)
        elif skip[SIZE_IN]:
            first = inputs_at + dense_width - skip[SIZE_IN]
            multiply(inputs, first, dense_width, rows, skip[SIZE_IN], params, skip[FORWARD], width, work, out)


@numba.njit(**INNER, fastmath=FASTMATH)
def _backward(layers, relu, params, work, labels, begin, rows):  # type: ignore[no-untyped-def]
    """Gradients by the outputs of all layers, before their activations."""
    last = layers[len(layers) - 1]
    width, scores = last[WIDTH], last[OUTPUT]
    for i in range(rows):
        _differentiate(_pointer(work, scores + i * width), last[SIZE_OUT], labels, begin + i)  # type: ignore[no-untyped-call]
    for number in range(len(layers) - 1, 0, -1):
        layer, before = layers[number], layers[number - 1]
        gradient = before[GRADIENT]
        width = before[WIDTH]
        slopes, outputs = _pointer(work, gradient), _pointer(work, before[OUTPUT])
        for i in range(rows * width):
            slopes[i] = 0
        multiply(
            work,
            layer[GRADIENT],
            layer[WIDTH],
            rows,
            layer[SIZE_OUT],
            params,
            layer[BACKWARD],
            width,
            work,
            gradient,
        )
        for i in range(rows * width):
            y = outputs[i]
            if relu:
                slopes[i] = slopes[i] if y > np.float32(0) else np.float32(0)
            else:
                # As a product it keeps its digits where the activation is near 1.
                slopes[i] *= (np.float32(1) - y) * (np.float32(1) + y)


@numba.njit(**INNER)
def _factors(squares, clips, limit, stability, is_grouped, factors):  # type: ignore[no-untyped-def]
    """`Clipping.factors` for one root whose squared norms are exact; zero where they are not finite."""
    total, is_finite = 0.0, True
    for group in range(len(squares)):
        is_finite = is_finite and squares[group] <= _LARGEST
        total += squares[group] + SMALLEST_SQUARE
    for group in range(len(squares)):
        norm = np.sqrt(squares[group] + SMALLEST_SQUARE if is_grouped else total)
        factors[group] = min(limit, clips[group] / (norm + stability)) if is_finite else 0.0


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
def _weigh(  # type: ignore[no-untyped-def]
    layers,
    skip,
    work,
    input_squares,
    skip_squares,
    clips,
    limit,
    stability,
    is_grouped,
    labels,
    class_weights,
    begin,
    rows,
):
    """Multiply the gradients of every row by the factors of its clipping and the weight of its class."""
    squares, factors = np.zeros(3), np.zeros(3)
    last = layers[len(layers) - 1]
    for i in range(rows):
        squares[:] = 0
        for number in range(len(layers)):
            layer = layers[number]
            if number:
                before = layers[number - 1]
                inputs = _square(_pointer(work, before[OUTPUT] + i * before[WIDTH]), before[SIZE_OUT])
            else:
                inputs = input_squares[begin + i]
            gradient = _square(_pointer(work, layer[GRADIENT] + i * layer[WIDTH]), layer[SIZE_OUT])
            squares[layer[GROUP]] += _multiply(inputs + 1, gradient)
        if skip[SIZE_IN]:
            squares[skip[GROUP]] += _multiply(skip_squares[begin + i], gradient)
        _factors(squares, clips, limit, stability, is_grouped, factors)
        if len(class_weights):
            for group in range(len(factors)):
                factors[group] *= class_weights[int(labels[begin + i])] if labels.ndim == 1 else 1.0
        if skip[SIZE_IN]:
            gradients = _pointer(work, last[GRADIENT] + i * last[WIDTH])
            scaled = _pointer(work, skip[GRADIENT] + i * last[WIDTH])
            for k in range(last[WIDTH]):
                scaled[k] = gradients[k]
            _scale(scaled, factors[skip[GROUP]], last[WIDTH])
        for number in range(len(layers)):
            layer = layers[number]
            gradients = _pointer(work, layer[GRADIENT] + i * layer[WIDTH])
            _scale(gradients, factors[layer[GROUP]], layer[WIDTH])
            if factors[layer[GROUP]] == 0:
                # Zero times infinity is not zero.
                for k in range(layer[WIDTH]):
                    work[layer[OUTPUT] + i * layer[WIDTH] + k] = 0


@numba.njit(**INNER)
def _add_sums(  # type: ignore[no-untyped-def]
    layers,
    skip,
    work,
    counts,
    columns,
    places,
    entries,
    chunk_starts,
    chunk,
    inputs,
    inputs_at,
    dense_width,
    rows,
    total,
):
    """Add the weighted gradients of a chunk to the totals."""
    for number in range(len(layers)):
        layer = layers[number]
        width, gradient = layer[WIDTH], layer[GRADIENT]
        bias, gradients = _pointer(total, layer[BIAS]), _pointer(work, gradient)
        for i in range(rows):
            for k in range(width):
                bias[k] += np.float64(gradients[i * width + k])
        if number:
            before = layers[number - 1]
            add_products(
                work,
                before[OUTPUT],
                before[WIDTH],
                layer[SIZE_IN],
                work,
                gradient,
                width,
                rows,
                total,
                layer[FORWARD],
            )
            continue
        if counts is not None:
            add_sparse_products(
                counts,
                columns,
                places,
                entries,
                chunk_starts[chunk, 0],
                chunk_starts[chunk + 1, 0],
                chunk_starts[chunk, 1],
                work,
                gradient,
                width,
                total,
                layer[FORWARD],
            )
        at = layer[FORWARD] + (layer[SIZE_IN] - dense_width) * width
        add_products(inputs, inputs_at, dense_width, dense_width, work, gradient, width, rows, total, at)
    if skip[SIZE_IN]:
        first, width = inputs_at + dense_width - skip[SIZE_IN], layers[len(layers) - 1][WIDTH]
        add_products(
            inputs, first, dense_width, skip[SIZE_IN], work, skip[GRADIENT], width, rows, total, skip[FORWARD]
        )


@numba.njit(**INNER)
def gather(nodes, scales, table, dense, begin, rows, inputs):  # type: ignore[no-untyped-def]
    """Write the scaled dense features of a chunk of rows, and the dense columns behind them, side by side."""
    first, last = table.shape[1], dense.shape[1]
    flat_table, flat_dense = table.reshape(-1), dense.reshape(-1)
    for i in range(rows):
        node, at = node_of(nodes, begin + i), i * (first + last)
        _copy_scaled(inputs, at, flat_table, node * first, first, scale_of(scales, node))
        _copy(inputs, at + first, flat_dense, (begin + i) * last, last)


# Copies write whole vectors: what they write behind a row belongs to the next one, which is written later.
@numba.njit(**INNER)
def _copy(target, target_at, source, at, count):  # type: ignore[no-untyped-def]
    """Copy numbers; `target` has room for `LANES` more."""
    k = 0
    while k < count and at + k + LANES <= len(source):
        _copy_lanes(_pointer(target, target_at + k), _pointer(source, at + k))
        k += LANES
    while k < count:
        target[target_at + k] = source[at + k]
        k += 1


@numba.njit(**INNER)
def _copy_scaled(target, target_at, source, at, count, scale):  # type: ignore[no-untyped-def]
    """Copy numbers, each multiplied by `scale`; `target` has room for `LANES` more."""
    k = 0
    while k < count and at + k + LANES <= len(source):
        _scale_lanes(_pointer(target, target_at + k), scale, _pointer(source, at + k))
        k += LANES
    while k < count:
        target[target_at + k] = scale * source[at + k]
        k += 1


# Inlined, so that both kernels are compiled as if it were written in them.
@numba.njit(**INNER, inline="always")
def _forward_chunk(chain, work, gathered, tables, begin, rows):  # type: ignore[no-untyped-def]
    """`forward` for a chunk of rows; return the array with its dense columns, and where they begin in it."""
    layers, skip, relu, params = chain
    nodes, scales, table, dense, indptr, indices, values = tables
    dense_width = table.shape[1] + dense.shape[1]
    inputs, at = dense.reshape(-1), begin * dense_width
    if table.shape[1]:
        gather(nodes, scales, table, dense, begin, rows, gathered)
        inputs, at = gathered, 0
    forward(
        layers,
        skip,
        relu,
        params,
        work,
        nodes,
        scales,
        indptr,
        indices,
        values,
        begin,
        inputs,
        at,
        dense_width,
        rows,
    )
    return inputs, at


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_clipped_sums(  # type: ignore[no-untyped-def]
    chain,
    work,
    gathered,
    tables,
    counts,
    columns,
    places,
    entries,
    chunk_starts,
    labels,
    input_squares,
    skip_squares,
    clips,
    limit,
    stability,
    is_grouped,
    class_weights,
    first_chunk,
    last_chunk,
    total,
):
    """Add the clipped gradients of the rows of some chunks to `total`: one pass, nothing allocated."""
    layers, skip, relu, params = chain
    dense_width = tables[2].shape[1] + tables[3].shape[1]
    for chunk in range(first_chunk, last_chunk):
        begin = chunk * CHUNK
        rows = min(CHUNK, len(labels) - begin)
        inputs, at = _forward_chunk(chain, work, gathered, tables, begin, rows)
        _backward(layers, relu, params, work, labels, begin, rows)
        _weigh(
            layers,
            skip,
            work,
            input_squares,
            skip_squares,
            clips,
            limit,
            stability,
            is_grouped,
            labels,
            class_weights,
            begin,
            rows,
        )
        _add_sums(
            layers,
            skip,
            work,
            counts,
            columns,
            places,
            entries,
            chunk_starts,
            chunk,
            inputs,
            at,
            dense_width,
            rows,
            total,
        )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def write_scores(chain, work, gathered, tables, first_chunk, last_chunk, scores):  # type: ignore[no-untyped-def]
    """Write the scores of the rows of some chunks."""
    layers = chain[0]
    last = layers[len(layers) - 1]
    for chunk in range(first_chunk, last_chunk):
        begin = chunk * CHUNK
        rows = min(CHUNK, len(scores) - begin)
        _forward_chunk(chain, work, gathered, tables, begin, rows)
        for i in range(rows):
            for k in range(last[SIZE_OUT]):
                scores[begin + i, k] = work[last[OUTPUT] + i * last[WIDTH] + k]
