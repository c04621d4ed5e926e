"""The device to compute on, and its precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hushgraph.errors import InputError


def choose_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is a GPU if there is one. Raise InputError if it is missing."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={name!r}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda': no GPU is visible to torch; use cpu or auto")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


@contextmanager
def multiply_exactly() -> Iterator[None]:
    """Multiply float32 matrices on a GPU without TF32 inside the context.

    Norms and sums must be as exact as the bound on their rounding assumes.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
