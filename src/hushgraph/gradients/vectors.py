"""Loops of kernels that are written for the registers of a core: products of rows, tanh, exp and copies.

Compilers find no good order for products of small matrices, so that here vectors of LLVM are written by hand.
Everything is given as a pointer to its first number. Rows of matrices are padded to a multiple of `LANES`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hushgraph.inputs.rows import INNER
from hushgraph.models.blocks import FASTMATH

# Numbers of a vector register; every row is padded to a multiple of it.
LANES = 16
# Rows that are multiplied at once, so that a loaded weight serves several of them.
_ROWS = 8
# Registers for one sparse row.
_WIDE = 4


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
def pointer(typing_context, numbers, at):  # type: ignore[no-untyped-def]
    """Where element `at` of a flat array, or of what a pointer points to, is: it counts no references."""
    is_array = isinstance(numbers, types.Array)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, at = arguments
        if is_array:
            first = context.make_array(signature.args[0])(context, builder, first).data
        return builder.gep(first, [at])

    return types.CPointer(numbers.dtype)(numbers, types.int64), generate


@intrinsic
def _registers(typing_context):  # type: ignore[no-untyped-def]
    """`_ROWS` vectors that nothing else points to: the compiler keeps them in registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.ArrayType(ir.FloatType(), _ROWS * LANES))
        return builder.bitcast(place, ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(), generate


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
def _float_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """The float32 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@numba.njit(**INNER)
def multiply(a, a_step, rows, depth, w, width, out):  # type: ignore[no-untyped-def]
    """out[rows, width] += a[rows, depth] @ w[depth, width]; rows of `a` are `a_step` numbers apart."""
    acc = _registers()
    for b in range(0, width, LANES):
        i = 0
        while i + _ROWS <= rows:
            for r in range(_ROWS):
                _load(acc, r, pointer(out, (i + r) * width + b))
            for j in range(depth):
                weights = pointer(w, j * width + b)
                for r in range(_ROWS):
                    _add_multiple(acc, r, a[(i + r) * a_step + j], weights)
            for r in range(_ROWS):
                _store(acc, r, pointer(out, (i + r) * width + b))
            i += _ROWS
        while i < rows:
            _load(acc, 0, pointer(out, i * width + b))
            for j in range(depth):
                _add_multiple(acc, 0, a[i * a_step + j], pointer(w, j * width + b))
            _store(acc, 0, pointer(out, i * width + b))
            i += 1


@numba.njit(**INNER)
def add_products(a, a_step, size, d, width, rows, total):  # type: ignore[no-untyped-def]
    """total[size, width], float64, += a[rows, size].T @ d[rows, width], formed in float32; rows <= CHUNK."""
    acc = _registers()
    for b in range(0, width, LANES):
        j = 0
        while j + _ROWS <= size:
            for r in range(_ROWS):
                _clear(acc, r)
            for i in range(rows):
                row = pointer(d, i * width + b)
                for r in range(_ROWS):
                    _add_multiple(acc, r, a[i * a_step + j + r], row)
            for r in range(_ROWS):
                _add_to_double(acc, r, pointer(total, (j + r) * width + b))
            j += _ROWS
        while j < size:
            _clear(acc, 0)
            for i in range(rows):
                _add_multiple(acc, 0, a[i * a_step + j], pointer(d, i * width + b))
            _add_to_double(acc, 0, pointer(total, j * width + b))
            j += 1


@numba.njit(**INNER)
def multiply_sparse(first, last, indices, values, scale, w, width, out):  # type: ignore[no-untyped-def]
    """out[width] += the entries of a sparse row from `first` to `last`, scaled, times w[:, width]."""
    acc = _registers()
    b = 0
    while b + _WIDE * LANES <= width:
        for r in range(_WIDE):
            _load(acc, r, pointer(out, b + r * LANES))
        for p in range(first, last):
            at, value = np.int64(indices[p]) * width + b, scale * values[p]
            for r in range(_WIDE):
                _add_multiple(acc, r, value, pointer(w, at + r * LANES))
        for r in range(_WIDE):
            _store(acc, r, pointer(out, b + r * LANES))
        b += _WIDE * LANES
    while b < width:
        _load(acc, 0, pointer(out, b))
        for p in range(first, last):
            _add_multiple(acc, 0, scale * values[p], pointer(w, np.int64(indices[p]) * width + b))
        _store(acc, 0, pointer(out, b))
        b += LANES


@numba.njit(**INNER)
def add_sparse_products(count, places, values, d, width, total):  # type: ignore[no-untyped-def]
    """total[width], float64, += a column of sparse rows, `count` values in the rows `places`, times d."""
    acc = _registers()
    b = 0
    while b + _WIDE * LANES <= width:
        for r in range(_WIDE):
            _clear(acc, r)
        for p in range(count):
            at, value = np.int64(places[p]) * width + b, values[p]
            for r in range(_WIDE):
                _add_multiple(acc, r, value, pointer(d, at + r * LANES))
        for r in range(_WIDE):
            _add_to_double(acc, r, pointer(total, b + r * LANES))
        b += _WIDE * LANES
    while b < width:
        _clear(acc, 0)
        for p in range(count):
            _add_multiple(acc, 0, values[p], pointer(d, np.int64(places[p]) * width + b))
        _add_to_double(acc, 0, pointer(total, b))
        b += LANES


@numba.njit(**INNER, fastmath=FASTMATH)
def tanh(values, count):  # type: ignore[no-untyped-def]
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
def exp(values, count, shift):  # type: ignore[no-untyped-def]
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
def copy_scaled(target, scale, source, count):  # type: ignore[no-untyped-def]
    """Copy numbers, each multiplied by `scale`."""
    for k in range(count):
        target[k] = scale * source[k]
