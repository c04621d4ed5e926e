"""How long the samplers and the trees take.

    python benchmarks/bench_sampling.py [--small] [--repeats N]

First an arxiv-shaped graph (2.4 M reads), interleaved with a sampler that sorts in numpy; then, unless
--small, 124 M reads of 2.4 M training nodes. Processor seconds tell how much of a time on a busy machine was
waiting.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hushgraph.graph.graph import Graph
from hushgraph.sampling.keys import seed_word
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.paper import paper_lists
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow

SMALL = {"num_nodes": 169_343, "num_train": 90_941, "num_reads": 2_400_000, "max_readers": 7, "max_reads": 25}
BIG = {"num_nodes": 2_400_000, "num_reads": 124_000_000, "max_readers": 10, "max_reads": 25}
CHUNK = 8_000_000


def power_law(rng: np.random.Generator, size: int, num_nodes: int) -> np.ndarray:
    """Identifiers of which a few come often, scattered over the range."""
    ranks = (num_nodes * rng.random(size) ** 2).astype(np.int64)
    return (ranks * 1_000_003 % num_nodes).astype(np.int32)


def random_graph(num_nodes: int, num_reads: int, train: np.ndarray) -> Graph:
    """Edges are drawn as the graph is built."""

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(2)
        for start in range(0, num_reads, CHUNK):
            size = min(CHUNK, num_reads - start)
            yield power_law(rng, size, num_nodes), power_law(rng, size, num_nodes)

    return Graph.from_arrays(
        edge_index=lambda _: chunks,
        x=np.zeros((num_nodes, 1), np.float32),
        y=np.zeros(num_nodes, np.int64),
        train_idx=np.flatnonzero(train),
        directed=True,
    )


def mixed(word: np.ndarray) -> np.ndarray:
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def smallest_by_sorting(rows: np.ndarray, keys: np.ndarray, cap: int) -> np.ndarray:
    """Positions of the `cap` smallest keys of each row."""
    order = np.lexsort((keys, rows))
    ordered = rows[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(new)
    rank = np.arange(len(order)) - starts[np.cumsum(new) - 1]
    return order[rank < cap]


def sorted_lists(
    source: np.ndarray, target: np.ndarray, train: np.ndarray, max_readers: int, max_reads: int, seed: int
) -> BoundedLists:
    """The stable sampler, sender-owned, by sorting."""
    wanted = train[target] & (source != target)
    packed = np.unique(source[wanted].astype(np.uint64) << np.uint64(32) | target[wanted].astype(np.uint64))
    word = seed_word(seed)
    keys = mixed(mixed(packed ^ word) + word)
    senders = (packed >> np.uint64(32)).astype(np.int32)
    readers = (packed & np.uint64(0xFFFFFFFF)).astype(np.int32)
    offered = smallest_by_sorting(senders, keys, max_readers)
    kept = offered[smallest_by_sorting(readers[offered], keys[offered], max_reads)]
    kept = kept[np.lexsort((senders[kept], readers[kept]))]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(readers[kept], minlength=len(train)))])
    return BoundedLists(indptr=indptr, indices=senders[kept])


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(name: str, times: list[float], target: str = "") -> None:
    print(
        f"{name:<58} median {statistics.median(times):8.4f} s   best {min(times):8.4f} s   {target}",
        flush=True,
    )


def bench_small(repeats: int) -> None:
    rng = np.random.default_rng(0)
    train = np.zeros(SMALL["num_nodes"], dtype=bool)
    train[rng.choice(SMALL["num_nodes"], SMALL["num_train"], replace=False)] = True
    graph = random_graph(SMALL["num_nodes"], SMALL["num_reads"], train)
    source, target = (np.concatenate(ends) for ends in zip(*graph.edge_chunks(), strict=True))
    common = {"train_mask": train, "max_readers": SMALL["max_readers"], "seed": 1}
    reads = graph.indptr, graph.indices

    def stable(owner: str) -> BoundedLists:
        return stable_lists(reads, max_reads=SMALL["max_reads"], edge_owner=owner, **common)

    def by_sorting() -> BoundedLists:
        return sorted_lists(source, target, train, SMALL["max_readers"], SMALL["max_reads"], 1)

    own, sorted_ones = stable("sender"), by_sorting()
    if not all(np.array_equal(getattr(own, n), getattr(sorted_ones, n)) for n in ("indptr", "indices")):
        raise SystemExit("the two samplers disagree")
    stable("reader")
    paper_lists(reads, **common)
    times: dict[str, list[float]] = {"sender": [], "sorting": [], "reader": [], "paper": []}
    for _ in range(repeats):
        times["sender"].append(seconds(lambda: stable("sender")))
        times["sorting"].append(seconds(by_sorting))
        times["reader"].append(seconds(lambda: stable("reader")))
        times["paper"].append(seconds(lambda: paper_lists(reads, **common)))
    report("stable, sender-owned, 2.4 M reads", times["sender"], "(target 0.15 s)")
    report("stable, reader-owned, 2.4 M reads", times["reader"], "(target 0.15 s)")
    report("paper, 2.4 M reads", times["paper"])
    report("stable, sender-owned, by sorting in numpy", times["sorting"])
    ratios = [slow / fast for slow, fast in zip(times["sorting"], times["sender"], strict=True)]
    print(f"sorting / stable, interleaved: median {statistics.median(ratios):.1f}", flush=True)
    bench_trees(graph, repeats)


def bench_trees(graph: Graph, repeats: int) -> None:
    rng = np.random.default_rng(1)
    split = graph.train_idx
    for num_roots, depth, K, goal in ((10_000, 1, 7, 0.005), (20_000, 2, 3, 0.03), (len(split), 1, 7, 0.05)):
        lists = stable_lists(
            (graph.indptr, graph.indices),
            train_mask=graph.train_mask,
            max_readers=K,
            max_reads=25,
            edge_owner="sender",
            seed=1,
        )
        roots = split[np.sort(rng.choice(len(split), num_roots, replace=False))]
        grow(lists, roots, depth)
        rows = len(grow(lists, roots, depth).nodes)
        times = [seconds(lambda: grow(lists, roots, depth)) for _ in range(repeats)]  # noqa: B023
        report(f"trees of {num_roots:,} roots, r={depth}, K={K}: {rows:,} rows", times, f"(target {goal} s)")


def anonymous_memory() -> int:
    """Bytes of memory that belong to no file; the pages of a mapped file are the input's own."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    raise SystemExit("RssAnon is missing from /proc/self/status")


def measured(work: Callable[[], object]) -> tuple[float, float, float]:
    """Seconds, processor seconds, and GiB of memory above what was in use before, at the peak."""
    before = peak = anonymous_memory()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, anonymous_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    processor = time.process_time()
    taken = seconds(work)
    processor = time.process_time() - processor
    done.set()
    watcher.join()
    return taken, processor, (peak - before) / 2**30


def bench_big(repeats: int) -> None:
    graph = random_graph(BIG["num_nodes"], BIG["num_reads"], np.ones(BIG["num_nodes"], bool))
    caps = {"max_readers": BIG["max_readers"], "max_reads": BIG["max_reads"]}

    def sample(owner: str) -> BoundedLists:
        reads = graph.indptr, graph.indices
        return stable_lists(reads, train_mask=graph.train_mask, edge_owner=owner, seed=1, **caps)

    for owner in ("sender", "reader"):
        runs = [measured(lambda: sample(owner)) for _ in range(repeats)]  # noqa: B023
        extra = max(memory for _, _, memory in runs)
        processor = min(processor for _, processor, _ in runs)
        goal = f"processor {processor:.1f} s   extra {extra:.2f} GiB (target 3)"
        report(f"stable, {owner}-owned, {graph.num_edges / 1e6:.0f} M reads", [t for t, _, _ in runs], goal)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="only the arxiv-shaped graph")
    parser.add_argument(
        "--repeats", type=int, default=9, help="runs of the small graph; the big one takes two"
    )
    options = parser.parse_args()
    bench_small(options.repeats)
    if not options.small:
        bench_big(2)


if __name__ == "__main__":
    main()
