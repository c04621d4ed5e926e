"""Work that several threads share: kernels that release the interpreter's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numba

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_order(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield what `work` gives for every item, in their order, from as many threads as kernels use.

    Few items are worked on before their turn, so that few results are held.
    """
    threads = numba.get_num_threads()
    if threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads, "map") as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
