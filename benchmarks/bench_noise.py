"""What noise costs, and what float32 loses of a sum: secure noise against torch's, interleaved in one run.

    python benchmarks/bench_noise.py [--repeats N] [--device auto|cpu|cuda]

First the noise of one step alone. Then a step (clipped sum and noise) of one GCN layer on an arxiv-shaped
graph, of 10,000 roots and of all. Last, by how much the sum of clipped gradients, in float32 by pieces,
differs from the same sum in float64, in units of C, against what secure noise allows for.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch

from bench_step import CLASSES, FEATURES, arxiv_shaped
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import Features, TreeBatch, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.models.gnn import GNN
from hushgraph.noise import exact_normal
from hushgraph.noise.gaussian import NoiseSource, noise_generator, noisy
from hushgraph.noise.secure_noise import SecureNoise
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow
from hushgraph.training.trainer import SECURE_ROOTS

BYTES = 1 << 24


def seconds(work: Callable[[], object], device: torch.device) -> float:
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def interleaved(
    works: dict[str, Callable[[], object]], repeats: int, device: torch.device
) -> dict[str, float]:
    """Median seconds each, taking turns so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work, device))
    return {name: statistics.median(found) for name, found in times.items()}


def report(title: str, medians: dict[str, float]) -> None:
    print(title)
    first = next(iter(medians.values()))
    for name, median in medians.items():
        print(f"  {name:<30} {1e3 * median:10.3f} ms   x {median / first:.3f}", flush=True)


def sources(device: torch.device, roots: int) -> dict[str, NoiseSource]:
    found: dict[str, NoiseSource] = {
        "torch": noise_generator(device),
        "secure": SecureNoise(batch_size=roots, sigma_over_clip=16.0),
    }
    if device.type == "cuda":
        found["secure, drawn ahead"] = SecureNoise(batch_size=roots, sigma_over_clip=16.0, draw_ahead=True)
    return found


def lost(model: GNN, pieces: Iterable[TreeBatch]) -> tuple[float, float]:
    """Norms, in units of C, of what float32 changes the sum by, with the same factors, and of the sum.

    Pieces are added up in float64, as training with secure noise does.
    """
    found = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    exact = copy.deepcopy(found)
    for piece in pieces:
        single = ghost._Pass.of(model, piece)
        factors = Clipping().factors(*single.squared_norms())
        double = ghost._Pass.of(copy.deepcopy(model).double(), dataclasses.replace(piece, x=piece.x.double()))
        for sums, part in (
            (found, single.weighted_sums(factors)),
            (exact, double.weighted_sums(factors.double())),
        ):
            for name, value in part.items():
                sums[name] += value
    error = sum(float((found[name] - exact[name]).square().sum()) for name in found)
    return math.sqrt(error), math.sqrt(sum(float(value.square().sum()) for value in exact.values()))


def pieces_of(
    lists: BoundedLists, roots: np.ndarray, features: Features, labels: np.ndarray
) -> Iterator[TreeBatch]:
    """A batch as training with secure noise cuts it."""
    for begin in range(0, len(roots), SECURE_ROOTS):
        yield tree_batch(grow(lists, roots[begin : begin + SECURE_ROOTS], 1), features, labels)


def summed(model: GNN, pieces: Iterable[TreeBatch], source: NoiseSource) -> dict[str, torch.Tensor]:
    """The clipped sum as training computes it: in float64 over the pieces where noise is secure."""
    dtype = torch.float64 if isinstance(source, SecureNoise) else torch.float32
    sums = {name: torch.zeros_like(p, dtype=dtype) for name, p in model.named_parameters()}
    for piece in pieces:
        for name, value in ghost.clipped_sum(model, piece, Clipping()).items():
            sums[name] += value
    return sums


def lists_of(graph: Graph, max_readers: int) -> BoundedLists:
    return stable_lists(
        graph,
        num_nodes=graph.num_nodes,
        train_mask=graph.train_mask,
        max_readers=max_readers,
        max_reads=16 if max_readers else 0,
        edge_owner="sender",
        seed=1,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    arguments = parser.parse_args()
    name = arguments.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    torch.backends.cuda.matmul.allow_tf32 = False
    repeats = arguments.repeats
    print(f"{device.type}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    rate = BYTES / statistics.median(seconds(lambda: os.urandom(BYTES), device) for _ in range(5)) / 1e6
    draws = statistics.median(seconds(lambda: exact_normal.draw(100_000), device) for _ in range(6))
    print(f"operating system's generator: {rate:.0f} MB/s; exact draws: {1e4 * draws:.0f} ns each")

    graph = arxiv_shaped(np.random.default_rng(0), FEATURES)
    lists = lists_of(graph, 3)
    features = Features(graph, device)
    torch.manual_seed(0)
    model = GNN(FEATURES, CLASSES, hidden=128, feature_norm=1.0).to(device)
    size = sum(p.numel() for p in model.parameters())
    zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    sigmas = dict.fromkeys(zeros, 16.0)
    alone = sources(device, 10_000)
    works = {name: lambda source=source: noisy(zeros, sigmas, source) for name, source in alone.items()}
    interleaved(works, 2, device)
    report(f"noise of one step, {size:,} parameters", interleaved(works, repeats, device))

    for roots in (10_000, len(graph.train_idx)):
        trees = grow(lists, graph.train_idx[:roots], 1)
        whole = [tree_batch(trees, features, graph.y)]
        cut = list(pieces_of(lists, graph.train_idx[:roots], features, graph.y))
        steps = {
            name: lambda pieces=whole if name == "torch" else cut, source=source: noisy(
                summed(model, pieces, source), sigmas, source
            )
            for name, source in sources(device, roots).items()
        }
        interleaved(steps, 1, device)
        report(f"clipped sum and noise, {roots:,} roots", interleaved(steps, repeats, device))

    lists_by = {3: lists, 0: lists_of(graph, 0)}
    print(f"what float32 loses of a sum in pieces of {SECURE_ROOTS:,} roots, in units of C")
    cases = ((graph.y, "labels of the graph"), (np.zeros_like(graph.y), "all labels the same"))
    for K, kind, roots, (labels, what) in itertools.product(
        (3, 0), ("gcn", "gin", "gat"), (SECURE_ROOTS, 40_000, 200_000), cases
    ):
        # More roots than the graph has: the same trees again, whose gradients point the same way.
        chosen = np.resize(graph.train_idx, roots)
        torch.manual_seed(0)
        model = GNN(FEATURES, CLASSES, model=kind, hidden=128, feature_norm=1.0).to(device)
        error, length = lost(model, pieces_of(lists_by[K], chosen, features, labels))
        print(
            f"  K = {K}, {kind}, {roots:7,} roots, {what:<20} lost {error:.1e} of {length:8,.0f}, "
            f"{error / roots:.1e} a root, allowed {2.0**-22:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
