"""Work in threads: results in order, and few that wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from hushgraph._threads import count_threads, map_in_order


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield count_threads()
    torch.set_num_threads(before)


def test_results_come_in_order_and_are_not_hoarded(threads: int) -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        # The first of each pair is the slower one.
        time.sleep(0.002 * (1 - item % 2))
        return 10 * item

    for number, result in enumerate(map_in_order(work, iter(range(20)))):
        assert result == 10 * number
        assert len(begun) <= number + 1 + threads
    assert sorted(begun) == list(range(20))


def test_an_error_ends_it(threads: int) -> None:
    def work(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    with pytest.raises(ValueError, match="three"):
        list(map_in_order(work, range(10)))
    assert not [each for each in threading.enumerate() if each.name.startswith("map")]
