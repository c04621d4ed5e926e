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

# A process of its own: what other tests left in the heap decides where a tensor goes. Tensors are larger than
# any block that glibc would keep of itself.
COUNT = """
import contextlib, json, resource
import torch
from hushgraph.models import device as memory

def page_faults(size, first):
    # In the heap the place of a tensor settles after about eight of them.
    for _ in range(first):
        torch.ones(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_pages():
    return int(open("/proc/self/statm").read().split()[1])

# The heap keeps the addresses of what was freed, and reuses them; larger tensors show what malloc does now.
SMALL, LARGE = 10_000_000, 25_000_000
torch.set_num_threads(1)
counts = {"before": page_faults(SMALL, 16), "large before": page_faults(LARGE, 2)}
for end in ("normal", "error"):
    with contextlib.suppress(RuntimeError), memory.keep_freed_memory():
        counts[end + ", inside"], resident = page_faults(SMALL, 16), resident_pages()
        if end == "error":
            raise RuntimeError
    counts[end + ", given back"] = resident - resident_pages()
    counts[end + ", large after"] = page_faults(LARGE, 2)
print(json.dumps(counts))
"""


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    """Page faults before, inside and after a context that ends normally or by an error; pages given back."""
    if not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("the C library of this system is not glibc")
    child = subprocess.run(
        [sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=300
    )
    counts: dict[str, int] = json.loads(child.stdout)
    return counts


@pytest.mark.parametrize("end", ["normal", "error"])
def test_pages_are_reused_inside_and_given_back_after(counts: dict[str, int], end: str) -> None:
    # Each of 4 tensors is faulted in anew, page by page; how large a page is depends on the system.
    assert counts["before"] >= 4
    assert counts[f"{end}, inside"] < counts["before"] / 10
    assert counts[f"{end}, given back"] > 10_000_000 * 4 // resource.getpagesize() / 2


@pytest.mark.parametrize("end", ["normal", "error"])
def test_settings_are_put_back(counts: dict[str, int], end: str) -> None:
    """After the context a tensor is faulted in anew again, as before it."""
    assert counts[f"{end}, large after"] > counts["large before"] / 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with memory.keep_freed_memory():
        assert torch.ones(3).sum() == 3
