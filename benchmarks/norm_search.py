"""A search for a root whose clipped gradient is longer than C: all layers, hostile shapes and values.

    python benchmarks/norm_search.py [--cases N] [--seed S] [--device cpu|cuda]

Every case is one root with random rows through one layer: squared norms, factors, the weighted sum of this
root alone. What is printed is by how much the norm of that sum exceeds C, as a part of C, at most.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from hushgraph.gradients import layer_rules as layers
from hushgraph.gradients.clip import GROUPS, Clipping
from hushgraph.gradients.layer_rules import Rows
from hushgraph.gradients.rows import RowSums
from hushgraph.gradients.rows_torch import RecordedRowSums
from hushgraph.gradients.shared import SharedEncoder
from hushgraph.inputs.rows import Rows as RootRows
from hushgraph.inputs.rows import SparseRows
from hushgraph.inputs.sparse_inputs import SparseInputs
from hushgraph.models.blocks import Reads, RowGradient
from hushgraph.models.gnn import GNN, ReadingMLP, Scale, mlp
from hushgraph.privacy.choices import Activation

Values = Callable[[np.random.Generator, int, int], np.ndarray]
KINDS = (
    "linear, one row",
    "linear",
    "linear, many rows",
    "linear, wide",
    "layer norm",
    "embedding",
    "scale",
    "shared encoder",
    "sparse encoder",
    "rows",
)


def _half_ulps(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """Leading numbers, then many whose squares are just under half a unit of the last digit of theirs."""
    size, lanes = 2.0 ** rng.integers(-20, 21), int(2 ** rng.integers(0, 7))
    values = np.full((rows, width), math.sqrt(0.499 * 2.0**-23) * size)
    values[:, :lanes] = size
    return values


def _cancelling(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """Two halves that are nearly each other's opposite."""
    row, apart = rng.standard_normal(width), 10.0 ** rng.uniform(-8, -1)
    signs = np.where(np.arange(rows) % 2, 1.0, -1.0)[:, None]
    return signs * (row + apart * rng.standard_normal((rows, width)))


VALUES: dict[str, Values] = {
    "normal": lambda rng, rows, width: rng.standard_normal((rows, width)),
    "alike": lambda rng, rows, width: np.tile(rng.standard_normal(width), (rows, 1)),
    "ones": lambda rng, rows, width: np.full((rows, width), 1 + 2.0**-23 * rng.integers(0, 100)),
    "half ulps": _half_ulps,
    "cancelling": _cancelling,
    "huge": lambda rng, rows, width: 10.0 ** rng.uniform(8, 19) * rng.standard_normal((rows, width)),
    "beyond": lambda rng, rows, width: np.where(rng.random((rows, width)) < 0.1, 3e38, 1.0),
    "tiny": lambda rng, rows, width: 10.0 ** rng.uniform(-37, -15) * rng.standard_normal((rows, width)),
    "denormal": lambda rng, rows, width: 10.0 ** rng.uniform(-45, -38) * rng.standard_normal((rows, width)),
    "every scale": lambda rng, rows, width: (
        rng.standard_normal((rows, width)) * 10.0 ** rng.uniform(-40, 18, (rows, width))
    ),
    "one large": lambda rng, rows, width: (
        np.where(rng.random((rows, width)) < 0.01, 1e15, 1e-3) * rng.standard_normal((rows, width))
    ),
    "zeros": lambda rng, rows, width: np.where(rng.random((rows, width)) < 0.9, 0.0, 1.0),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One root: its norm as a part of what it may be, less one, and what it was."""

    excess: float
    description: str


def rows_of(inputs: Tensor, gradients: Tensor) -> Rows:
    count = inputs.shape[0]
    device = inputs.device
    return Rows(
        inputs,
        gradients,
        torch.tensor([0, count], device=device),
        torch.zeros(count, dtype=torch.int64, device=device),
        count,
    )


def hostile(rng: np.random.Generator, rows: int, width: int, device: torch.device) -> tuple[Tensor, str]:
    name = str(rng.choice(list(VALUES)))
    with np.errstate(over="ignore"):
        values = VALUES[name](rng, rows, width).astype(np.float32)
    return torch.from_numpy(values).to(device), name


def shape_of(kind: str, rng: np.random.Generator) -> tuple[int, int, int]:
    """Rows, inputs and outputs."""

    def size(most: int) -> int:
        return int(2 ** rng.uniform(0, math.log2(most)))

    if kind == "linear, one row":
        return 1, size(1 << 14), size(512)
    if kind == "linear, wide":
        return size(3), size(1 << 20), size(4)
    if kind == "linear, many rows":
        return size(1 << 14), size(64), size(16)
    return size(300), size(512), size(128)


def clipping_of(rng: np.random.Generator) -> Clipping:
    clip = float(10.0 ** rng.uniform(-6, 3))
    kind = str(rng.choice(["flat", "normalised", "groups"]))
    return Clipping(kind=kind, clip=clip, stability=float(rng.choice([0.0, 0.1])))  # type: ignore[arg-type]


def excess_of(
    squares: Tensor, sizes: Tensor, clipping: Clipping, sums: Callable[[Tensor], dict[str, Tensor]]
) -> float:
    """By how much the root's weighted sum exceeds what its group may have."""
    of_groups = torch.zeros(2, len(GROUPS), 1, dtype=torch.float64, device=squares.device)
    of_groups[0, 0], of_groups[1, 0] = squares, sizes
    factors = clipping.factors(*of_groups)[0]
    limit = clipping.clip if clipping.thresholds is None else clipping.thresholds[0]
    total = torch.cat([value.reshape(-1) for value in sums(factors).values()])
    norm = float(torch.linalg.vector_norm(total))
    return norm / limit - 1 if math.isfinite(norm) else math.inf


def layer_case(kind: str, rng: np.random.Generator, device: torch.device) -> Case:
    """One root through one layer whose rows are given."""
    count, size_in, size_out = shape_of(kind, rng)
    layer: nn.Module
    if kind == "layer norm":
        layer, size_out = nn.LayerNorm(size_in, bias=bool(rng.integers(2))), size_in
    elif kind == "scale":
        layer, size_out = Scale(), size_in
    elif kind == "embedding":
        layer = nn.Embedding(int(rng.integers(1, 50)), size_out)
    else:
        layer = nn.Linear(size_in, size_out, bias=bool(rng.integers(2)), device="meta")
    inputs, of_inputs = hostile(rng, count, size_in, device)
    if isinstance(layer, nn.Embedding):
        inputs = torch.from_numpy(rng.integers(0, layer.num_embeddings, count)).to(device)
    gradients, of_gradients = hostile(rng, count, size_out, device)
    rows, clipping = rows_of(inputs, gradients), clipping_of(rng)

    def sums(factors: Tensor) -> dict[str, Tensor]:
        found = layers.weighted_sums(layer.to(device) if kind == "embedding" else layer, rows, factors)
        if all(bool(value.isfinite().all()) for value in found.values()):
            return found
        return layers.weighted_sums(layer, rows, factors, clean=True)

    excess = excess_of(*layers.squared_norms(layer, rows), clipping, sums)
    about = f"{kind}: {count} rows, {size_in} x {size_out}, {of_inputs} by {of_gradients}, {clipping}"
    return Case(excess=excess, description=about)


def shared_case(kind: str, rng: np.random.Generator, device: torch.device) -> Case:
    """One root through an encoder whose rows are shared by its entries."""
    entries, size_in, size_out = shape_of(kind, rng)
    nodes = int(rng.integers(1, entries + 1))
    given, of_inputs = hostile(rng, nodes, size_in, device)
    x: Tensor | SparseInputs = given
    if kind == "sparse encoder":
        # Some entries are not kept, whatever the values. A GPU has dense rows.
        given = given * torch.from_numpy(rng.random(given.shape) < rng.random()).to(device)
        x = SparseInputs.of(sparse.csr_array(given.numpy())) if device.type == "cpu" else given
    relu = bool(rng.integers(2))
    encoder = mlp(
        [size_in, *[size_out] * int(rng.integers(1, 3))], "relu" if relu else "tanh", activate_last=True
    )
    scale = float(10.0 ** rng.uniform(-6, 3))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.from_numpy(scale * rng.standard_normal(parameter.shape)))
    shared = SharedEncoder.run(encoder.to(device), x)
    index = torch.from_numpy(rng.integers(0, nodes, entries)).to(device)
    reads = Reads(indptr=torch.tensor([0, entries], device=device), index=index, num_lower=nodes)
    upper, of_gradients = hostile(rng, 1, size_out, device)
    signs = torch.from_numpy(rng.choice([1.0, -1.0], entries).astype(np.float32)).to(device)
    gradient = RowGradient(upper, torch.zeros(entries, dtype=torch.int64, device=device), signs)
    owners = torch.zeros(entries, dtype=torch.int64, device=device)
    squares, sizes = shared.squared_norms(gradient, index, reads.indptr, owners, entries)

    def sums(factors: Tensor) -> dict[str, Tensor]:
        found = shared.weighted_sums(gradient, reads, factors[owners])
        if all(bool(value.isfinite().all()) for value in found.values()):
            return found
        return shared.weighted_sums(gradient, reads, factors[owners], clean=True)

    clipping = clipping_of(rng)
    about = f"{kind}: {entries} entries of {nodes} rows, {size_in} x {size_out}, {of_inputs} by"
    excess = excess_of(squares, sizes, clipping, sums)
    return Case(excess=excess, description=f"{about} {of_gradients}, weights {scale:.1e}, {clipping}")


def rows_case(rng: np.random.Generator, device: torch.device) -> Case:
    """One root that is one row, through all layers of a model: by the kernels for rows."""
    _, size_in, hidden = shape_of("rows", rng)
    classes = int(rng.integers(2, 20))
    features, of_features = hostile(rng, 1, size_in, device)
    readings, of_readings = hostile(rng, 1, classes, device)
    activation: Activation = "relu" if rng.integers(2) else "tanh"
    model: nn.Module = ReadingMLP(size_in, classes, hidden=hidden, activation=activation)
    if rng.integers(2):
        model = GNN(size_in + classes, classes, model="mlp", hidden=hidden, activation=activation)
    scale = float(10.0 ** rng.uniform(-6, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(scale * rng.standard_normal(parameter.shape)))
    label, clipping = int(rng.integers(classes)), clipping_of(rng)
    columns, last = features.cpu().numpy(), readings.cpu().numpy()
    # Of sparse columns only what is not zero is kept.
    given = (
        {"features": SparseRows.of(sparse.csr_array(columns)), "dense": last}
        if rng.integers(2)
        else {"dense": np.concatenate([columns, last], axis=1)}
    )
    row_sums = RowSums() if device.type == "cpu" else RecordedRowSums(device)
    sums = row_sums(model.to(device), RootRows(**given, labels=np.array([label])), clipping)
    norm = float(torch.linalg.vector_norm(torch.cat([value.reshape(-1) for value in sums.values()])))
    about = f"rows: {type(model).__name__}, {size_in} + {classes} x {hidden}, {of_features} and {of_readings}"
    excess = norm / clipping.clip - 1 if math.isfinite(norm) else math.inf
    return Case(excess=excess, description=f"{about}, weights {scale:.1e}, {clipping}")


CASES: dict[str, Callable[[np.random.Generator, torch.device], Case]] = {
    "shared encoder": partial(shared_case, "shared encoder"),
    "sparse encoder": partial(shared_case, "sparse encoder"),
    "rows": rows_case,
}


def search(cases: int, seed: int, device: torch.device | str = "cpu") -> dict[str, Case]:
    """The worst case of every kind."""
    rng, worst = np.random.default_rng(seed), {}
    for number in range(cases):
        kind = KINDS[number % len(KINDS)]
        make = CASES.get(kind, partial(layer_case, kind))
        case = make(rng, torch.device(device))
        if kind not in worst or case.excess > worst[kind].excess:
            worst[kind] = case
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    begin = time.monotonic()
    worst = search(arguments.cases, arguments.seed, arguments.device)
    for case in worst.values():
        print(f"{case.excess:+.2e}  {case.description}")
    most = max(case.excess for case in worst.values())
    print(
        f"{arguments.cases:,} cases on {arguments.device}, seed {arguments.seed}: at most {most:+.2e} over C"
    )
    print(f"{time.monotonic() - begin:.0f} s")
    raise SystemExit(most > 1e-6)


if __name__ == "__main__":
    main()
