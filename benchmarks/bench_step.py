"""One training step, private against plain: interleaved in one run, reported as ratios.

Workload A: arxiv-shaped, one GCN layer, K = 7, 10,000 roots. Workload B: two layers, K = 3, 20,000 roots.
Both steps include growing the trees and gathering the features. "full": all training nodes, K = 3, D = 16,
hidden 128, 160 features, trees kept from step to step as in training. `--vmap` adds vmap(grad) over padded
trees, which is what one would write without this library.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from hushgraph.gradients import unclipped as plain
from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.sampling.batches import PoissonBatches
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import Trees, grow

NODES, TRAINING, READS, FEATURES, CLASSES = 169_343, 90_941, 2_400_000, 128, 40
_WARM_UP = 3
WORKLOADS = {
    "A": {"layers": 1, "max_readers": 7, "max_reads": 16, "roots": 10_000},
    "B": {"layers": 2, "max_readers": 3, "max_reads": 8, "roots": 20_000},
    # All training nodes at once: the trees do not change from step to step and are built once.
    "full": {"layers": 1, "max_readers": 3, "max_reads": 16, "roots": TRAINING},
}


def arxiv_shaped(rng: np.random.Generator, num_features: int) -> Graph:
    """A graph with the counts of ogbn-arxiv and a power law of degrees."""
    weights = (np.arange(NODES) + 10.0) ** -0.5
    ends = rng.permutation(NODES)[rng.choice(NODES, size=(2, READS // 2), p=weights / weights.sum())]
    train = rng.permutation(NODES)[:TRAINING]
    return Graph.from_arrays(
        edge_index=ends,
        x=rng.standard_normal((NODES, num_features), dtype=np.float32),
        y=rng.integers(0, CLASSES, NODES),
        train_idx=train,
        num_classes=CLASSES,
        symmetrize=True,
    )


@dataclass(frozen=True, eq=False)
class Work:
    """A workload on a device: its graph, the lists that bound it, its model and its batches."""

    graph: Graph
    features: Features
    lists: BoundedLists
    model: GNN
    layers: int
    draws: PoissonBatches | None

    @classmethod
    def of(cls, name: str, device: torch.device, rng: np.random.Generator) -> Work:
        w = WORKLOADS[name]
        hidden, num_features = (128, 160) if name == "full" else (256, FEATURES)
        graph = arxiv_shaped(rng, num_features)
        lists = stable_lists(
            (graph.indptr, graph.indices),
            train_mask=graph.train_mask,
            max_readers=w["max_readers"],
            max_reads=w["max_reads"],
            edge_owner="sender",
            seed=1,
        )
        model = GNN(num_features, CLASSES, num_layers=w["layers"], hidden=hidden, decoder_layers=2)
        rate = w["roots"] / TRAINING
        draws = PoissonBatches(num_slots=TRAINING, rate=rate, rng=rng) if rate < 1 else None
        return cls(graph, Features(graph, device), lists, model.to(device), w["layers"], draws)

    def roots(self) -> np.ndarray:
        return self.graph.train_idx if self.draws is None else self.graph.train_idx[self.draws.draw()]

    def trees(self, roots: np.ndarray) -> Trees:
        return grow(self.lists, roots, self.layers)

    def tensors(self, trees: Trees) -> TreeBatch:
        return tree_batch(trees, self.features, self.graph.y)

    def batch(self) -> TreeBatch:
        return self.tensors(self.trees(self.roots()))


def vmap_step(
    model: GNN,
    graph: Graph,
    lists: BoundedLists,
    roots: np.ndarray,
    device: torch.device,
    x_all: torch.Tensor,
) -> Callable[[], None]:
    """vmap(grad) over one-layer trees padded to the longest list, in chunks that fit memory."""
    sizes = np.diff(lists.indptr)[roots]
    width = int(sizes.max())
    table = np.full((len(roots), width + 1), -1)
    table[:, 0] = roots
    for column in range(width):
        has = sizes > column
        table[has, column + 1] = lists.indices[lists.indptr[roots[has]] + column]
    tables = torch.from_numpy(table).to(device)
    labels = torch.from_numpy(graph.y[roots]).to(device)
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def loss(
        p: dict[str, torch.Tensor], x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        h = functional_call(model.encoder, {k[8:]: v for k, v in p.items() if k.startswith("encoder")}, (x,))
        mean = (h * mask[:, None]).sum(0) / mask.sum()
        z = torch.tanh(functional.linear(mean, p["layers.0.linear.weight"], p["layers.0.linear.bias"]))
        d = {k[8:]: v for k, v in p.items() if k.startswith("decoder")}
        return functional.cross_entropy(functional_call(model.decoder, d, (z[None],)), y[None])

    per_root = vmap(grad(loss), in_dims=(None, 0, 0, 0))

    def step() -> None:
        total = {k: torch.zeros_like(v) for k, v in parameters.items()}
        for begin in range(0, len(roots), 1000):
            t = tables[begin : begin + 1000]
            mask = (t >= 0).float()
            gradients = per_root(parameters, x_all[t.clamp(min=0)], mask, labels[begin : begin + 1000])
            norms = sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()
            for k, g in gradients.items():
                total[k] += torch.einsum("b,b...->...", 1 / (norms + 0.1), g)

    return step


def choose_sums(name: str, device: torch.device) -> Callable[..., dict[str, torch.Tensor]]:
    """The clipped sums that training has on this device."""
    # Other benchmarks read this file with versions that do not have it.
    from hushgraph.privacy.plans import TreePlan
    from hushgraph.training.steps import choose_tree_sums

    w = WORKLOADS[name]
    plan = TreePlan(
        num_train_nodes=TRAINING,
        num_layers=w["layers"],
        max_readers=w["max_readers"],
        max_reads=w["max_reads"],
        batch_size=w["roots"],
        steps=1,
    ).with_paper_noise(1.0)
    return choose_tree_sums(plan, NODES, device)


def prepared_ahead(make: Callable[[], TreeBatch]) -> Callable[[], TreeBatch]:
    """As the training loop does on a GPU: the next batch is made while the last one is used."""
    worker = ThreadPoolExecutor(1)
    following = [worker.submit(make)]

    def batch() -> TreeBatch:
        made = following[0].result()
        following[0] = worker.submit(make)
        return made

    return batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    parser.add_argument("--vmap", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--only", choices=["floor", "private"], help="one of the two, for its peak memory")
    args = parser.parse_args()
    device = torch.device(args.device)
    rng = np.random.default_rng(0)
    for name, w in WORKLOADS.items():
        if args.workload not in (name, "all"):
            continue
        work = Work.of(name, device, rng)
        model, clipping = work.model, Clipping()
        kept = work.batch()
        batch = (lambda kept=kept: kept) if name == "full" else work.batch

        if device.type == "cuda" and name != "full":
            batch = prepared_ahead(batch)

        def floor(model=model, batch=batch) -> None:
            plain.gradient_sum(model, batch())

        clipped_sum = choose_sums(name, device)

        def private(model=model, batch=batch, clipping=clipping, clipped_sum=clipped_sum) -> None:
            clipped_sum(model, batch(), clipping)

        steps: dict[str, Callable[[], None]] = {"floor": floor, "private": private}
        if args.only:
            for _ in range(args.repeats):
                steps[args.only]()
            continue
        if args.vmap and name == "A":
            roots = rng.choice(work.graph.train_idx, size=w["roots"], replace=False)
            x = work.features.all()
            steps["vmap"] = vmap_step(model, work.graph, work.lists, roots, device, x)
        times: dict[str, list[float]] = {k: [] for k in steps}
        for repeat in range(args.repeats + _WARM_UP):
            for key, step in steps.items():
                if device.type == "cuda":
                    torch.cuda.synchronize()
                begin = time.perf_counter()
                step()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                if repeat >= _WARM_UP:
                    times[key].append(time.perf_counter() - begin)
        rows = batch().pointers[-1][-1].item() / w["roots"]
        medians = {k: statistics.median(v) for k, v in times.items()}
        ratios = {
            k: statistics.median(b / a for a, b in zip(times["floor"], v, strict=True))
            for k, v in times.items()
        }
        print(f"workload {name}: {rows:.1f} rows a root on {device}")
        for key in steps:
            print(f"  {key:8} {1e3 * medians[key]:8.1f} ms   x {ratios[key]:.2f}")
        print(json.dumps({"workload": name, "seconds": medians, "ratio": ratios}))
        if args.profile:
            with torch.profiler.profile() as profiled:
                private()
            print(profiled.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    # As training does.
    main()
