"""Clipped sums where a root is one row: no trees, no gathering, one pass.

A root that reads nothing has one row in every Linear layer, so its squared gradient norm there is
(|a|^2 + 1) |d|^2 from its input row a and its output-gradient row d. Forward pass, norms, clipping and sums
of a chunk of rows are computed while the chunk is in the cache of a core.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor, nn

from hushgraph.gradients import row_kernels as kernels
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.sums import CHUNK
from hushgraph.models.device import count_threads
from hushgraph.models.gnn import GNN, GCNLayer, ReadingMLP

# Sums that are added up apart from each other, whatever the number of threads: results do not depend on it.
_PARTS = 8
_RULES = {"normalised": kernels.NORMALISED, "flat": kernels.FLAT, "groups": kernels.GROUPS}


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRows:
    """Rows of which only what is not zero is kept.

    Attributes:
        indptr, indices, values: as those of a SciPy CSR matrix; int64, int32 and float32.
        num_columns: columns of the rows.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    num_columns: int

    @classmethod
    def of(cls, rows: Any, *, norm: float = 0.0) -> SparseRows:
        """Of a SciPy CSR matrix; with `norm`, every row is scaled to this norm."""
        indptr = rows.indptr.astype(np.int64)
        values = rows.data.astype(np.float32, copy=False)
        if norm:
            # The lower limit keeps a row of zeros at zero.
            lengths = np.maximum(np.sqrt(_row_squares(indptr, values)), 1e-12)
            values = values * np.repeat((norm / lengths).astype(np.float32), np.diff(indptr))
        return cls(
            indptr=indptr,
            indices=rows.indices.astype(np.int32, copy=False),
            values=values,
            num_columns=int(rows.shape[1]),
        )

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def squares(self) -> npt.NDArray[np.float64]:
        """Squared norms of the rows."""
        return _row_squares(self.indptr, self.values)

    @cached_property
    def by_columns(self) -> tuple[npt.NDArray[Any], ...]:
        """The entries of every chunk of `CHUNK` rows by column, as `sort_by_columns` describes them."""
        count, chunks = len(self.values), -(-self.num_rows // CHUNK)
        chunk_starts, starts = np.zeros(chunks + 1, np.int64), np.zeros(count + 1, np.int64)
        columns, places = np.zeros(count, np.int32), np.zeros(count, np.uint8)
        entries = np.zeros(count, np.float32)
        number = kernels.sort_by_columns(
            self.indptr,
            self.indices,
            self.values,
            self.num_columns,
            chunk_starts,
            starts,
            columns,
            places,
            entries,
        )
        return starts[: number + 1].copy(), columns[:number].copy(), places, entries, chunk_starts

    def take(self, places: npt.NDArray[np.int64]) -> SparseRows:
        """Some of the rows."""
        shape = (self.num_rows, self.num_columns)
        rows = sparse.csr_array((self.values, self.indices, self.indptr), shape=shape)[places]
        return SparseRows.of(rows)


_NO_ROWS = SparseRows(
    indptr=np.zeros(1, np.int64),
    indices=np.zeros(0, np.int32),
    values=np.zeros(0, np.float32),
    num_columns=0,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Inputs and labels of roots: sparse columns, which come first, and dense ones.

    Attributes:
        features: the sparse columns; none where all columns are dense.
        dense: float32 [rows, columns].
        labels: int64 [rows], -1 where a root has none.
    """

    dense: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    features: SparseRows = _NO_ROWS
    _squares: dict[int, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def input_squares(self, num_last: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """float64 [rows]: squared norms of all columns, and of the last `num_last`; computed once."""
        if num_last not in self._squares:
            inputs, last = np.zeros(self.num_rows), np.zeros(self.num_rows)
            kernels.square_dense_rows(self.dense, num_last, inputs, last)
            if self.features.num_columns:
                inputs += self.features.squares
            self._squares[num_last] = inputs, last
        return self._squares[num_last]

    def take(self, places: npt.NDArray[np.int64]) -> Rows:
        """Some of the rows, in this order."""
        features = self.features.take(places) if self.features.num_columns else _NO_ROWS
        return replace(self, dense=self.dense[places], labels=self.labels[places], features=features)


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
    """Places of weights, sums and the numbers of a chunk in flat arrays.

    Attributes:
        layers: int64 [layers, 9], the table that the kernels read.
        skip: int64 [9], the same for the skip connection; zero inputs where there is none.
        num_sums: numbers of the weights and biases, padded.
        num_weights: the same with the weights that the backward pass reads.
        num_work: numbers of a chunk.
    """

    def __init__(self, chain: Chain) -> None:
        sizes = [(layer.in_features, layer.out_features) for _, layer in chain.layers]
        self.layers = np.zeros((len(sizes), 9), np.int64)
        self.skip = np.zeros(9, np.int64)
        self.num_sums = self.num_work = 0
        for row, (size_in, size_out) in zip(self.layers, sizes, strict=True):
            width = _pad(size_out)
            row[kernels.SIZE_IN], row[kernels.SIZE_OUT], row[kernels.WIDTH] = size_in, size_out, width
            row[kernels.FORWARD], row[kernels.BIAS] = self.num_sums, self.num_sums + size_in * width
            self.num_sums += (size_in + 1) * width
            row[kernels.OUTPUT], row[kernels.GRADIENT] = self.num_work, self.num_work + CHUNK * width
            self.num_work += 2 * CHUNK * width
        last = self.layers[-1]
        # Scores become their gradients in place.
        last[kernels.GRADIENT] = last[kernels.OUTPUT]
        for row, (name, _) in zip(self.layers, chain.layers, strict=True):
            row[kernels.GROUP] = group_of(name)
        if chain.skip is not None:
            self.skip[kernels.SIZE_IN] = chain.skip[1].in_features
            self.skip[kernels.FORWARD] = self.num_sums
            self.skip[kernels.GRADIENT] = self.num_work
            self.skip[kernels.GROUP] = group_of(chain.skip[0])
            self.num_sums += chain.skip[1].in_features * int(last[kernels.WIDTH])
            self.num_work += CHUNK * int(last[kernels.WIDTH])
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
    return -(-size // kernels.LANES) * kernels.LANES


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
        self._totals = np.zeros((_PARTS, self._layout.num_sums))

    @cached_property
    def _threads(self) -> int:
        return min(count_threads() if self._given_threads is None else self._given_threads, _PARTS)

    @cached_property
    def _workers(self) -> ThreadPoolExecutor | None:
        """The threads beside the calling one."""
        return ThreadPoolExecutor(self._threads - 1, "rows") if self._threads > 1 else None

    @cached_property
    def _work(self) -> npt.NDArray[np.float32]:
        """A buffer for every thread."""
        return np.zeros((self._threads, self._layout.num_work), np.float32)

    def clipped_sum(self, rows: Rows, clipping: Clipping | None) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over rows of their clipped gradients; unclipped without a rule."""
        self._layout.pack(self._weights)
        starts, columns, places, entries, chunk_starts = rows.features.by_columns
        skip = self._chain.skip
        input_squares, skip_squares = rows.input_squares(0 if skip is None else skip[1].in_features)
        limits = (0.0,) * len(GROUPS) if clipping is None else clipping.thresholds or (0.0,) * len(GROUPS)
        rule = kernels.UNCLIPPED if clipping is None else _RULES[clipping.kind]
        clip, stability = (0.0, 0.0) if clipping is None else (clipping.clip, clipping.stability)

        def add(part: int, first: int, last: int, work: npt.NDArray[np.float32]) -> None:
            self._totals[part] = 0
            kernels.add_clipped_sums(
                *self._arguments(rows, work),
                starts,
                columns,
                places,
                entries,
                chunk_starts,
                rows.dense,
                rows.labels,
                input_squares,
                skip_squares,
                rule,
                float(clip),
                float(stability),
                np.array(limits),
                first,
                last,
                self._totals[part],
            )

        self._share(rows.num_rows, add)
        return self._layout.unpack(torch.from_numpy(self._totals.sum(0)))

    def scores(self, rows: Rows) -> Tensor:
        """float32 [rows, classes]."""
        self._layout.pack(self._weights)
        scores = np.empty((rows.num_rows, self._chain.layers[-1][1].out_features), np.float32)

        def write(part: int, first: int, last: int, work: npt.NDArray[np.float32]) -> None:
            kernels.write_scores(*self._arguments(rows, work), rows.dense, first, last, scores)

        self._share(rows.num_rows, write)
        return torch.from_numpy(scores)

    def _arguments(self, rows: Rows, work: npt.NDArray[np.float32]) -> tuple[Any, ...]:
        layout, features = self._layout, rows.features
        weights = self._weights.numpy()
        return (
            layout.layers,
            layout.skip,
            self._chain.relu,
            weights,
            work,
            features.indptr,
            features.indices,
            features.values,
        )

    def _share(
        self, num_rows: int, work_on: Callable[[int, int, int, npt.NDArray[np.float32]], None]
    ) -> None:
        """Call `work_on` with every part, its first and last chunk and a buffer, in all threads."""
        chunks = -(-num_rows // CHUNK)
        parts = itertools.count()

        def take_parts(work: npt.NDArray[np.float32]) -> None:
            # Whoever is done takes the next part: a thread that is slowed down does not hold up the others.
            while (part := next(parts)) < _PARTS:
                work_on(part, chunks * part // _PARTS, chunks * (part + 1) // _PARTS, work)

        others = [self._workers.submit(take_parts, work) for work in self._work[1:]] if self._workers else []
        take_parts(self._work[0])
        for other in others:
            other.result()


class RowSums:
    """Clipped sums of batches of rows, for `Trainer`; buffers are kept as long as the model is the same.

    Args:
        model: the model, if it is known already.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self._model = model
        self._pass = None if model is None else RowPass(_require_chain(model))

    def __call__(self, model: nn.Module, rows: Rows, clipping: Clipping | None = None) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over `rows` of their clipped gradients; unclipped without a rule."""
        if self._pass is None or self._model is not model:
            self._model, self._pass = model, RowPass(_require_chain(model))
        return self._pass.clipped_sum(rows, clipping)


def _require_chain(model: nn.Module) -> Chain:
    chain = find_chain(model)
    if chain is None:
        raise TypeError(f"{type(model).__name__}: expected a chain of Linear layers")
    return chain


def _row_squares(indptr: npt.NDArray[np.int64], values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    squares = np.zeros(len(indptr) - 1)
    kernels.square_sparse_rows(indptr, values, squares)
    return squares
