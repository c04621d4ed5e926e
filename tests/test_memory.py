"""Keeping freed memory while training, and giving it back."""

from __future__ import annotations

import ctypes
import resource

import pytest
import torch

from hushgraph import memory


def faults_of_large_tensors() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_pages_are_reused_inside_and_given_back_after() -> None:
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("the C library of this system is not glibc")
    with memory.freed_memory_kept():
        torch.ones(4_000_000)
        inside = faults_of_large_tensors()
    outside = faults_of_large_tensors()
    assert inside < outside / 5


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with memory.freed_memory_kept():
        assert torch.ones(3).sum() == 3


def test_settings_are_put_back_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="stop"), memory.freed_memory_kept():
        raise RuntimeError("stop")
