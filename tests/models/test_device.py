"""The precision of products, which training sets for itself alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from hushgraph.models.device import multiply_exactly


@pytest.fixture(params=[True, False])
def allowed(request: pytest.FixtureRequest) -> Iterator[bool]:
    """What the host process has chosen."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = request.param
    yield request.param
    torch.backends.cuda.matmul.allow_tf32 = before


def test_products_are_exact_inside_and_as_the_host_wants_them_after(allowed: bool) -> None:
    with multiply_exactly():
        assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32 == allowed


def test_an_error_leaves_the_precision_of_the_host(allowed: bool) -> None:
    with contextlib.suppress(RuntimeError), multiply_exactly():
        raise RuntimeError
    assert torch.backends.cuda.matmul.allow_tf32 == allowed
