"""Clipped sums where a root is one row: no trees, no gathering, one pass.

A root that reads nothing has one row in every Linear layer, so its squared gradient norm there is
(|a|^2 + 1) |d|^2 from its input row a and its output-gradient row d. Forward pass, norms, clipping and sums
of a chunk of rows are computed while the chunk is in the cache of a core.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph._threads import count_threads
from hushgraph.gradients import row_kernels as kernels
from hushgraph.gradients.clip import GROUPS, UNCLIPPED, Clipping, group_of
from hushgraph.gradients.sums import CHUNK
from hushgraph.gradients.vectors import LANES
from hushgraph.inputs.rows import Rows
from hushgraph.models.gnn import GNN, GCNLayer, ReadingMLP
from hushgraph.tasks.classes import cross_entropy
from hushgraph.tasks.labels import binary_cross_entropies
from hushgraph.tasks.number import squared_error

# Sums that are added up apart from each other, whatever the number of threads: results do not depend on it.
_PARTS = 8
# Numbers of a batch up to which torch is as fast, within a fraction of a millisecond a step.
_SMALL = 1 << 15

# The kernels tell which of them it is by the labels.
_KERNEL_LOSSES = (cross_entropy, squared_error, binary_cross_entropies)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Linear layers with one activation between them, and a Linear layer from the last inputs to the scores.

    Attributes:
        layers: names and layers, first to last.
        skip: name and layer of the connection from inputs to scores; None where there is none.
        relu: the activation is relu; tanh otherwise.
        feature_norm: the norm that features are scaled to first; 0 leaves them unscaled.
    """

    layers: tuple[tuple[str, nn.Linear], ...]
    skip: tuple[str, nn.Linear] | None
    relu: bool
    feature_norm: float

    @property
    def is_float32(self) -> bool:
        """Whether the weights have the precision that the kernels compute in."""
        return all(layer.weight.dtype == torch.float32 for _, layer in self.layers)

    @cached_property
    def layout(self) -> Layout:
        """Where everything of the chain stands in flat arrays."""
        return Layout(self)


class Layout:
    """Places of weights, sums and the numbers of a block of rows in flat arrays.

    Attributes:
        table: int64 [layers + 1, COLUMNS], which the kernels read.
        layers: its rows for the layers.
        skip: its last row, for the skip connection; zero inputs where there is none.
        num_sums: numbers of the weights and biases, padded.
        num_weights: the same with the weights that the backward pass reads.
        num_work: numbers of a block of rows.
    """

    def __init__(self, chain: Chain) -> None:
        sizes = [(layer.in_features, layer.out_features) for _, layer in chain.layers]
        self.table = np.zeros((len(sizes) + 1, kernels.COLUMNS), np.int64)
        self.layers, self.skip = self.table[:-1], self.table[-1]
        self.num_sums = self.num_work = 0
        for row, (size_in, size_out) in zip(self.layers, sizes, strict=True):
            width = _pad(size_out)
            row[kernels.SIZE_IN], row[kernels.SIZE_OUT], row[kernels.WIDTH] = size_in, size_out, width
            row[kernels.FORWARD], row[kernels.BIAS] = self.num_sums, self.num_sums + size_in * width
            self.num_sums += (size_in + 1) * width
            row[kernels.OUTPUT], row[kernels.GRADIENT] = self.num_work, self.num_work + kernels.BLOCK * width
            self.num_work += 2 * kernels.BLOCK * width
        last = self.layers[-1]
        # Scores become their gradients in place.
        last[kernels.GRADIENT] = last[kernels.OUTPUT]
        for row, (name, _) in zip(self.layers, chain.layers, strict=True):
            row[kernels.GROUP] = group_of(name)
        width = int(last[kernels.WIDTH])
        self.skip[kernels.WIDTH], self.skip[kernels.OUTPUT] = width, last[kernels.OUTPUT]
        self.skip[kernels.FORWARD], self.skip[kernels.GRADIENT] = self.num_sums, self.num_work
        self.num_work += kernels.BLOCK * width
        if chain.skip is not None:
            self.skip[kernels.SIZE_IN] = chain.skip[1].in_features
            self.skip[kernels.GROUP] = group_of(chain.skip[0])
            self.num_sums += chain.skip[1].in_features * width
        self.num_weights = self.num_sums
        for row, before in zip(self.layers[1:], self.layers[:-1], strict=True):
            row[kernels.BACKWARD] = self.num_weights
            self.num_weights += int(row[kernels.SIZE_OUT] * before[kernels.WIDTH])
        self._chain = chain

    def _forward_blocks(self) -> Iterator[tuple[str, nn.Linear, int, int, int | None]]:
        """Names, layers, places of weights, padded widths and places of biases."""
        for row, (name, layer) in zip(self.layers, self._chain.layers, strict=True):
            yield name, layer, int(row[kernels.FORWARD]), int(row[kernels.WIDTH]), int(row[kernels.BIAS])
        if self._chain.skip is not None:
            name, layer = self._chain.skip
            yield name, layer, int(self.skip[kernels.FORWARD]), int(self.layers[-1][kernels.WIDTH]), None

    @torch.no_grad()
    def pack(self, weights: Tensor) -> None:
        """Copy the weights of the chain into a flat tensor; what is padding stays as it is, zero."""
        for _, layer, place, width, bias in self._forward_blocks():
            size_in, size_out = layer.in_features, layer.out_features
            weights[place : place + size_in * width].view(size_in, width)[:, :size_out] = layer.weight.T
            if bias is not None:
                weights[bias : bias + size_out] = layer.bias
        for row, before, (_, layer) in zip(
            self.layers[1:], self.layers[:-1], self._chain.layers[1:], strict=True
        ):
            place, width = int(row[kernels.BACKWARD]), int(before[kernels.WIDTH])
            block = weights[place : place + layer.out_features * width].view(layer.out_features, width)
            block[:, : layer.in_features] = layer.weight

    def unpack(self, sums: Tensor) -> dict[str, Tensor]:
        """The sums of a flat tensor by the names of the parameters: parts of one tensor, in their order."""
        blocks = list(self._forward_blocks())
        sizes = [p.numel() for _, layer, *_ in blocks for p in layer.parameters()]
        parts = iter(torch.split(sums.new_empty(sum(sizes)), sizes))
        named = {}
        for name, layer, place, width, bias in blocks:
            size_in, size_out = layer.in_features, layer.out_features
            block = sums[place : place + size_in * width].view(size_in, width)
            named[f"{name}.weight"] = next(parts).view(size_out, size_in).copy_(block[:, :size_out].T)
            if bias is not None:
                named[f"{name}.bias"] = next(parts).copy_(sums[bias : bias + size_out])
        return named


def _pad(size: int) -> int:
    return -(-size // LANES) * LANES


def find_chain(model: nn.Module) -> Chain | None:
    """The chain that a model is for a root that reads nothing; None for models that are none."""
    # A subclass may do anything in its forward.
    if type(model) is ReadingMLP:
        encoder, activation = model.encoder
        layers = (("encoder.0", cast(nn.Linear, encoder)), ("decoder", model.decoder))
        return Chain(
            layers=layers, skip=("skip", model.skip), relu=isinstance(activation, nn.ReLU), feature_norm=0.0
        )
    if type(model) is not GNN or not all(type(layer) is GCNLayer for layer in model.layers):
        return None
    linears = tuple((name, part) for name, part in model.named_modules() if type(part) is nn.Linear)
    relu = isinstance(model.encoder[-1], nn.ReLU)
    return Chain(layers=linears, skip=None, relu=relu, feature_norm=model.feature_norm)


class RowPass:
    """Clipped sums and scores of rows by one model; buffers are reused from step to step.

    Args:
        chain: the model, whose weights are read anew by every call.
        threads: how many threads work; as many as torch uses by default.

    Guarantees:
        Gives the clipped sum that `ghost.clipped_sum` gives for trees of one row, up to rounding. Norms are
        float64 sums of squares. Products are added up in float32 over chunks of `CHUNK` roots at most, and in
        float64 between chunks: what `sum_error` assumes. A row has no effect on how others are computed.
        The result does not depend on the number of threads.
    """

    def __init__(self, chain: Chain, *, threads: int | None = None) -> None:
        self._chain, self._layout, self._given_threads = chain, chain.layout, threads
        self._weights = torch.zeros(self._layout.num_weights)
        self._buffers: list[kernels.Buffers] = []

    @cached_property
    def _totals(self) -> _Totals:
        return _Totals(self._layout.num_sums)

    @property
    def num_outputs(self) -> int:
        """The number of scores of a row."""
        return self._chain.layers[-1][1].out_features

    @cached_property
    def _threads(self) -> int:
        return min(count_threads() if self._given_threads is None else self._given_threads, _PARTS)

    @cached_property
    def _workers(self) -> ThreadPoolExecutor | None:
        """The threads beside the calling one."""
        return ThreadPoolExecutor(self._threads - 1, "rows") if self._threads > 1 else None

    def _prepare_buffers(self, rows: Rows) -> list[kernels.Buffers]:
        """A set of buffers for every thread, with room for a block of rows."""
        num_inputs = kernels.BLOCK * rows.dense_width if rows.table.shape[1] else 0
        if not self._buffers or len(self._buffers[0].inputs) < num_inputs:
            self._buffers = [
                kernels.Buffers(
                    work=torch.zeros(self._layout.num_work).numpy(),
                    inputs=torch.zeros(num_inputs).numpy(),
                    squares=np.zeros(len(GROUPS)),
                    factors=np.zeros(len(GROUPS)),
                )
                for _ in range(self._threads)
            ]
        return self._buffers

    def clipped_sum(self, rows: Rows, clipping: Clipping | None) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over rows of their clipped gradients; unclipped without a rule."""
        self._layout.pack(self._weights)
        by_columns = rows.by_columns(CHUNK)
        skip = self._chain.skip
        input_squares, skip_squares = rows.input_squares(0 if skip is None else skip[1].in_features)
        rule = UNCLIPPED if clipping is None else clipping.rule
        class_weights = None if clipping is None else clipping.class_weights
        # Behind the classes, what an example without a label, -1, counts.
        weights = np.array((*class_weights, 0.0))[rows.labels] if class_weights else np.zeros(0)

        layers, tables = self._layers, rows.tables

        def add(part: int, begin: int, end: int, buffers: kernels.Buffers) -> None:
            total = self._totals.take()
            kernels.add_clipped_sums(
                layers,
                buffers,
                tables,
                rows.labels,
                input_squares,
                skip_squares,
                rule,
                weights,
                by_columns,
                begin,
                end,
                total,
            )
            self._totals.add(part, total)

        self._totals.begin()
        self._share(rows, add)
        return self._layout.unpack(torch.from_numpy(self._totals.finish()))

    def scores(self, rows: Rows) -> Tensor:
        """float32 [rows, outputs]."""
        self._layout.pack(self._weights)
        scores = np.empty((rows.num_rows, self.num_outputs), np.float32)

        layers, tables, last = self._layers, rows.tables, self._layout.layers[-1]
        place, width = int(last[kernels.OUTPUT]), int(last[kernels.WIDTH])

        def write(part: int, begin: int, end: int, buffers: kernels.Buffers) -> None:
            for first in range(begin, end, kernels.BLOCK):
                count = min(kernels.BLOCK, end - first)
                kernels.run_forward(layers, buffers, tables, first, count)
                block = buffers.work[place : place + count * width].reshape(count, width)
                scores[first : first + count] = block[:, : self.num_outputs]

        self._share(rows, write)
        return torch.from_numpy(scores)

    @property
    def _layers(self) -> kernels.Layers:
        layout = self._layout
        return kernels.Layers(
            layout.table.reshape(-1), len(layout.layers), self._chain.relu, self._weights.numpy()
        )

    def _share(self, rows: Rows, work_on: Callable[[int, int, int, kernels.Buffers], None]) -> None:
        """Call `work_on` with every part, where its rows begin and end and buffers, in all threads."""
        chunks = -(-rows.num_rows // CHUNK)
        parts = itertools.count()

        def take_parts(buffers: kernels.Buffers) -> None:
            # Whoever is done takes the next part: a thread that is slowed down does not hold up the others.
            while (part := next(parts)) < _PARTS:
                begin, end = (CHUNK * (chunks * each // _PARTS) for each in (part, part + 1))
                work_on(part, begin, min(end, rows.num_rows), buffers)

        own, *others = self._prepare_buffers(rows)
        working = [self._workers.submit(take_parts, each) for each in others] if self._workers else []
        take_parts(own)
        for each in working:
            each.result()


class _Totals:
    """Adds up the sums of all parts in the order of the parts, whichever is done first.

    Few arrays are held at once: one for every thread that works, the sum of the parts that are done, and
    those that wait for a part before them.
    """

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, Lock()
        self._free: list[npt.NDArray[np.float64]] = []
        self._waiting: dict[int, npt.NDArray[np.float64]] = {}
        self._next = 0

    def begin(self) -> None:
        """Begin a new sum."""
        self._waiting, self._next, self._sum = {}, 0, self.take()

    def take(self) -> npt.NDArray[np.float64]:
        """An array of zeros."""
        with self._lock:
            total = self._free.pop() if self._free else None
        if total is None:
            # A tensor begins where a line of the cache begins, so that no vector is in two of them.
            return torch.zeros(self._size, dtype=torch.float64).numpy()
        total[:] = 0
        return total

    def add(self, part: int, total: npt.NDArray[np.float64]) -> None:
        """Add the sums of a part, or keep them until the parts before it are done."""
        with self._lock:
            self._waiting[part] = total
            while (following := self._waiting.pop(self._next, None)) is not None:
                self._next += 1
                self._sum += following
                self._free.append(following)

    def finish(self) -> npt.NDArray[np.float64]:
        """The sum of all parts, which is good until the next sum begins."""
        self._free.append(self._sum)
        return self._sum


class RowSums:
    """Clipped sums of batches of rows, for `Trainer`; buffers are kept as long as the model is the same.

    Small batches, and losses and clipping rules without a kernel, are computed with torch: a small run has
    ended before the kernels would be compiled. Which it is follows from the number of rows, never from what
    they hold.

    Args:
        model: the model, if it is known already.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self._model = model
        self._pass = None if model is None else RowPass(require_chain(model))

    def __call__(self, model: nn.Module, rows: Rows, clipping: Clipping | None = None) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over `rows` of their clipped gradients; unclipped without a rule."""
        num_inputs = rows.num_rows * (rows.features.num_columns + rows.dense_width)
        has_kernel = rows.loss in _KERNEL_LOSSES and (clipping is None or clipping.own_rule is None)
        if not has_kernel or num_inputs <= _SMALL:
            return self._by_torch(model, rows, clipping)
        if self._pass is None or self._model is not model:
            self._model, self._pass = model, RowPass(require_chain(model))
        return self._pass.clipped_sum(rows, clipping)

    @cached_property
    def _by_torch(self) -> Callable[[nn.Module, Rows, Clipping | None], dict[str, Tensor]]:
        from hushgraph.gradients.rows_torch import RecordedRowSums

        return RecordedRowSums(torch.device("cpu"))


def require_chain(model: nn.Module) -> Chain:
    """`find_chain`, or a TypeError."""
    chain = find_chain(model)
    if chain is None:
        raise TypeError(f"{type(model).__name__}: expected a chain of Linear layers")
    return chain
