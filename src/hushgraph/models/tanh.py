"""tanh of many float32 numbers on the CPU, several times as fast as torch's."""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

# A quotient of two polynomials, as in Eigen, for numbers up to _LARGEST; beyond it tanh is 1 up to 3e-7.
_LARGEST = np.float32(7.90531110763549805)
_ABOVE = tuple(
    np.float32(c)
    for c in (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    )
)
_BELOW = tuple(
    np.float32(c)
    for c in (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
)
# Numbers that one thread takes at a time.
_PART = 1 << 15


def tanh_(values: Tensor) -> Tensor:
    """tanh in place, right up to 3e-7; NaN stays NaN."""
    if values.is_cuda or values.dtype != torch.float32 or not values.is_contiguous():
        return values.tanh_()
    _tanh(values.view(-1).numpy())
    return values


@numba.njit(cache=True, nogil=True, parallel=True, fastmath={"contract"})
def _tanh(values):  # type: ignore[no-untyped-def]
    a6, a5, a4, a3, a2, a1, a0 = _ABOVE
    b3, b2, b1, b0 = _BELOW
    for part in numba.prange(-(-len(values) // _PART)):
        block = values[part * _PART : (part + 1) * _PART]
        for i in range(len(block)):
            # Comparisons with NaN are false, so it passes.
            x = block[i]
            x = _LARGEST if x > _LARGEST else x
            x = -_LARGEST if x < -_LARGEST else x
            y = x * x
            above = x * ((((((a6 * y + a5) * y + a4) * y + a3) * y + a2) * y + a1) * y + a0)
            below = ((b3 * y + b2) * y + b1) * y + b0
            block[i] = above / below
