"""Keeping freed memory while training, and giving it back."""

from __future__ import annotations

import ctypes
import json
import resource
import subprocess
import sys

import pytest
import torch

from hushgraph.models import device as memory

# Processes of their own: what other tests left in the heap decides where a tensor goes. Tensors are larger
# than any block that glibc would keep of itself.
COUNT = """
import contextlib, json, resource, sys
import torch
from hushgraph.models import device as memory

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(16_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_pages():
    return int(open("/proc/self/statm").read().split()[1])

torch.set_num_threads(1)
with memory.keep_freed_memory() if sys.argv[1] == "kept" else contextlib.nullcontext():
    page_faults()
    faults, inside = page_faults(), resident_pages()
print(json.dumps({"faults": faults, "given_back": inside - resident_pages()}))
"""


def counted(how: str) -> dict[str, int]:
    ended = subprocess.run(
        [sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True, timeout=120
    )
    counts: dict[str, int] = json.loads(ended.stdout)
    return counts


def test_pages_are_reused_inside_and_given_back_after() -> None:
    if not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("the C library of this system is not glibc")
    kept, plain = counted("kept"), counted("plain")
    # Each of 20 tensors is faulted in anew, page by page; how large a page is depends on the system.
    assert plain["faults"] >= 20
    assert kept["faults"] < plain["faults"] / 10
    assert kept["given_back"] > 16_000_000 * 4 // resource.getpagesize() / 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with memory.keep_freed_memory():
        assert torch.ones(3).sum() == 3


def test_settings_are_put_back_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="stop"), memory.keep_freed_memory():
        raise RuntimeError("stop")
