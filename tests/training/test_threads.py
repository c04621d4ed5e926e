"""Training is a good neighbour: it takes the threads it is given, leaves settings and starts soon."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CODE = """
import gc, sys, threading
# Imports make no garbage.
gc.disable()
import torch
import hushgraph as hg
from hushgraph.gradients import rows
from hushgraph._threads import count_threads

seen = []
take = rows.RowPass.clipped_sum

class Watched(rows.RowPass):
    def clipped_sum(self, *arguments):
        seen.append((self._threads, torch.get_num_threads()))
        return super().clipped_sum(*arguments)

rows.RowPass = Watched
before = torch.get_num_threads()
data = hg.datasets.synthetic(num_nodes=4000, num_classes=3, seed=1)
hg.train(data, epsilon=4.0, steps=3, device="cpu", seed=1)
names = [t.name for t in threading.enumerate() if t.name.startswith("rows")]
after = torch.get_num_threads()

# Trees share their work between torch and numba.
import numba
from hushgraph.gradients import ghost

of_numba = []
clipped_sum = ghost.clipped_sum

def watched(*arguments, **settings):
    of_numba.append(numba.get_num_threads())
    return clipped_sum(*arguments, **settings)

ghost.clipped_sum = watched
hg.train(data, epsilon=4.0, steps=2, device="cpu", seed=1, max_readers=2, max_reads=4, method="trees")
print("torch._dynamo" in sys.modules)
print(max(of_numba), torch.get_num_threads())
print(before, after, max(n for n, _ in seen), max(n for _, n in seen), len(names))
"""


def train_with(threads: str) -> list[int]:
    """Threads of numba on trees and of torch after them; of torch before and after rows, of rows and of torch
    during training on rows, and threads of rows left.

    Neither training may import the compiler of torch, which takes two seconds.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CODE],
        env=os.environ | {"OMP_NUM_THREADS": threads},
        check=True,
        capture_output=True,
        text=True,
    )
    imports_compiler, *numbers = done.stdout.split()[-8:]
    assert imports_compiler == "False"
    return [int(number) for number in numbers]


def test_one_thread_is_respected_and_left() -> None:
    assert train_with("1") == [1, 1, 1, 1, 1, 1, 0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process may use one processor only")
def test_torch_waits_while_rows_are_summed() -> None:
    assert train_with("2")[:-1] == [2, 2, 2, 2, 2, 1]
