"""Clipped sums of rows with torch: for GPUs, where a step is recorded once and replayed.

What `RowPass` computes in the cache of a core is a sequence of operations on all rows here. A CUDA graph
starts them all at once: on a GPU much of the time of a step is the time to start its operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.gradients import row_kernels_gpu as kernels
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.rows import Chain, find_chain, require_chain
from hushgraph.gradients.sums import CHUNK
from hushgraph.inputs.rows import NO_SPARSE_ROWS, Loss, Rows, SparseRows
from hushgraph.models.blocks import transpose
from hushgraph.models.recording import Recording
from hushgraph.models.row_sums_gpu import AVAILABLE
from hushgraph.tasks.classes import cross_entropy
from hushgraph.tasks.task import no_label

# Numbers of chunks' sums that are held at once.
_HELD = 1 << 26


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnRows:
    """Rows of a table that were drawn for a step.

    Attributes:
        table: all rows that may be drawn, the same object at every step.
        places: int64 [rows], which of them were drawn.
        room: how many rows are computed at once, by the plan.
    """

    table: Rows
    places: npt.NDArray[np.int64]
    room: int

    @property
    def num_rows(self) -> int:
        return len(self.places)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceColumns:
    """The sparse columns of rows on a GPU, by row and by column.

    Attributes:
        num_columns: columns of the rows.
        indptr, indices, values: by row, as those of a SciPy CSR matrix.
        owners, column_values: row and value of every entry, by column.
        segments, columns: as in `row_kernels_gpu.sum_columns`.
    """

    num_columns: int
    indptr: Tensor
    indices: Tensor
    values: Tensor
    owners: Tensor
    column_values: Tensor
    segments: Tensor
    columns: Tensor

    @classmethod
    def of(cls, rows: SparseRows, num_rows: int, device: torch.device) -> DeviceColumns:
        """Copy sparse rows to a device; rows behind them, up to `num_rows`, are empty."""
        indptr = torch.full((num_rows + 1,), len(rows.values), device=device)
        indptr[: len(rows.indptr)] = torch.from_numpy(rows.indptr).to(device)
        indices = torch.from_numpy(rows.indices).to(device).long()
        values = torch.from_numpy(rows.values).to(device)
        owners = torch.repeat_interleave(torch.arange(num_rows, device=device), indptr.diff())
        pointers, order = transpose(indices, rows.num_columns)
        columns, segments = cls.cut_segments(pointers)
        return cls(
            num_columns=rows.num_columns,
            indptr=indptr,
            indices=indices,
            values=values,
            owners=owners[order],
            column_values=values[order],
            segments=segments,
            columns=columns,
        )

    @staticmethod
    def cut_segments(pointers: Tensor) -> tuple[Tensor, Tensor]:
        """Cut the entries of every column into segments; return `columns` and `segments`."""
        counts = pointers.diff()
        parts = (counts + kernels.SEGMENT - 1) // kernels.SEGMENT
        columns = torch.cat([parts.new_zeros(1), parts.cumsum(0)])
        of_part = torch.repeat_interleave(torch.arange(len(parts), device=parts.device), parts)
        numbers = torch.arange(len(of_part), device=parts.device) - columns[of_part]
        return columns, torch.cat([pointers[of_part] + numbers * kernels.SEGMENT, pointers[-1:]])


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceRows:
    """Rows on a device, padded with zeros without a label to whole chunks.

    Attributes:
        sparse: the sparse columns, which come first; None where they are written out.
        dense: float32 [rows, columns].
        labels: [rows], of the task; -1 or NaN where a row has none.
        loss: of the task.
        input_squares: float64 [rows], of all columns.
        last_squares: float64 [rows], of the columns that the skip connection reads.
    """

    sparse: DeviceColumns | None
    dense: Tensor
    labels: Tensor
    input_squares: Tensor
    last_squares: Tensor
    loss: Loss = cross_entropy

    @classmethod
    def of(cls, rows: Rows, chain: Chain, device: torch.device, *, written_out: bool) -> DeviceRows:
        """Copy rows to a device; with `written_out`, zeros of sparse columns are written out."""
        rows = rows.gathered()
        count, num_sparse = rows.num_rows, rows.features.num_columns
        # At least one padding row, which padding places point at.
        size = _fill_chunk(count + 1)
        sparse: DeviceColumns | None = None
        if num_sparse and not written_out and device.type == "cuda" and AVAILABLE:
            sparse = DeviceColumns.of(rows.features, size, device)
        num_written = 0 if sparse is not None else num_sparse
        dense = torch.zeros(size, num_written + rows.dense.shape[1], device=device)
        if num_written:
            indptr, columns, values = (
                torch.from_numpy(a).to(device)
                for a in (rows.features.indptr, rows.features.indices, rows.features.values)
            )
            owners = torch.repeat_interleave(torch.arange(count, device=device), indptr.diff())
            # Entries that are given twice are added up, as everywhere.
            dense.index_put_((owners, columns.long()), values, accumulate=True)
        dense[:count, num_written:] = torch.from_numpy(rows.dense).to(device)
        own_labels = torch.from_numpy(rows.labels).to(device)
        labels = own_labels.new_full((size, *own_labels.shape[1:]), no_label(own_labels.dtype))
        labels[:count] = own_labels
        squares = torch.zeros(2, size, dtype=torch.float64, device=device)
        num_last = 0 if chain.skip is None else chain.skip[1].in_features
        for row, given in zip(squares, rows.input_squares(num_last), strict=True):
            row[:count] = _limit(torch.from_numpy(given).to(device))
        return cls(
            sparse=sparse,
            dense=dense,
            labels=labels,
            input_squares=squares[0],
            last_squares=squares[1],
            loss=rows.loss,
        )

    def take(self, places: Tensor) -> DeviceRows:
        """Some of the rows, whose sparse columns are written out."""
        return DeviceRows(
            sparse=None,
            dense=self.dense.index_select(0, places),
            labels=self.labels.index_select(0, places),
            input_squares=self.input_squares.index_select(0, places),
            last_squares=self.last_squares.index_select(0, places),
            loss=self.loss,
        )


class RecordedRowSums:
    """Clipped sums of rows on a device, for `Trainer`.

    Rows are copied to the device once. Of rows that are drawn, only their places are sent at every step.

    Guarantees:
        Gives the clipped sum that `RowSums` gives, up to rounding. Norms are float64 sums of squares.
        Products are added up in float32 over chunks of `CHUNK` rows, and in float64 between chunks: what
        `sum_error` assumes. A row has no effect on how others are computed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._key: tuple[object, ...] = ()
        self._table: DeviceRows | None = None
        self._table_source: Rows | None = None
        self._places = torch.zeros(0, dtype=torch.int64, device=device)
        self._sums: Recording[dict[str, Tensor]] | None = None

    @torch.no_grad()
    def __call__(
        self, model: nn.Module, rows: Rows | DrawnRows, clipping: Clipping | None = None
    ) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over `rows` of their clipped gradients; unclipped without a rule.

        On a GPU the next call writes to the same tensors.
        """
        if isinstance(rows, Rows):
            return self._recording(model, rows, 0, clipping)()
        recording = self._recording(model, rows.table, rows.room, clipping)
        sums: dict[str, Tensor] = {}
        # Once for an empty batch too: a sum of nothing. More than once hardly ever.
        for begin in range(0, max(1, rows.num_rows), rows.room):
            self._send_places(rows.places[begin : begin + rows.room], padding=rows.table.num_rows)
            part = recording()
            sums = {name: value + sums[name] if sums else value.clone() for name, value in part.items()}
        return sums

    def _recording(
        self, model: nn.Module, table: Rows, room: int, clipping: Clipping | None
    ) -> Recording[dict[str, Tensor]]:
        """The work of a step on this table; prepared anew where something else is given than last time."""
        key = (id(model), id(table), room, clipping)
        if self._sums is not None and key == self._key:
            return self._sums
        chain = require_chain(model)
        if self._table is None or self._table_source is not table:
            self._table, self._table_source = (
                DeviceRows.of(table, chain, self._device, written_out=room > 0),
                table,
            )
        all_rows = self._table
        self._places = torch.zeros(_fill_chunk(room), dtype=torch.int64, device=self._device)
        places = self._places

        def compute() -> dict[str, Tensor]:
            sums = clipped_row_sums(chain, all_rows.take(places) if room else all_rows, clipping)
            # As parts of one tensor, which noise and update take at once.
            joined = torch.cat([value.reshape(-1) for value in sums.values()])
            parts = torch.split(joined, [value.numel() for value in sums.values()])
            return {name: part.view(sums[name].shape) for name, part in zip(sums, parts, strict=True)}

        self._key, self._sums = key, Recording(compute, self._device)
        return self._sums

    def _send_places(self, places: npt.NDArray[np.int64], padding: int) -> None:
        sent = np.full(len(self._places), padding)
        sent[: len(places)] = places
        self._places.copy_(torch.from_numpy(sent))


@torch.no_grad()
def load_kernels(model: nn.Module, device: torch.device, *, num_sparse: int) -> None:
    """Load libraries and kernels by computing the clipped sum of one artificial row.

    Args:
        model: whose kernels are loaded; its weights are read.
        device: the GPU.
        num_sparse: how many of its inputs are sparse columns.
    """
    chain = find_chain(model)
    if chain is None:
        return
    features = NO_SPARSE_ROWS
    if num_sparse:
        one = np.ones(1, np.float32)
        ends, first = np.array([0, 1]), np.zeros(1, np.int32)
        features = SparseRows(indptr=ends, indices=first, values=one, num_columns=num_sparse)
    width = chain.layers[0][1].in_features - num_sparse
    rows = Rows(features=features, dense=np.zeros((1, width), np.float32), labels=np.zeros(1, np.int64))
    clipped_row_sums(chain, DeviceRows.of(rows, chain, device, written_out=False), Clipping())


def clipped_row_sums(chain: Chain, rows: DeviceRows, clipping: Clipping | None) -> dict[str, Tensor]:
    """The clipped sum as a fixed sequence of operations: nothing depends on what the rows hold."""
    step = _RowStep(chain, rows)
    factors = step.choose_factors(clipping)
    return step.sum_gradients(factors)


class _RowStep:
    """Forward and backward pass over rows.

    Attributes:
        outputs: of all layers but the last, after the activation.
        gradients: of the loss, with respect to the outputs of all layers before their activations.
        output_squares, gradient_squares: squared norms of both, float64 [rows] each.
    """

    def __init__(self, chain: Chain, rows: DeviceRows) -> None:
        self._chain, self._rows = chain, rows
        self._has_kernels = rows.dense.is_cuda and AVAILABLE
        *self.outputs, scores = self._run_forward()
        if self._has_kernels and rows.loss is cross_entropy:
            squares = kernels.score_gradients(scores, rows.labels)
            self.gradients, self.gradient_squares = [scores], [squares]
        else:
            self.gradients = [differentiate(rows.loss, scores, rows.labels)]
            self.gradient_squares = [_squares(self.gradients[0])]
        self.output_squares: list[Tensor] = []
        for (_, layer), output in zip(reversed(chain.layers[1:]), reversed(self.outputs), strict=True):
            gradient = self.gradients[0] @ layer.weight
            pass_activation = kernels.pass_activation if self._has_kernels else _pass_activation
            of_gradients, of_outputs = pass_activation(gradient, output, relu=chain.relu)
            self.gradients.insert(0, gradient)
            self.gradient_squares.insert(0, of_gradients)
            self.output_squares.insert(0, of_outputs)

    def _run_forward(self) -> list[Tensor]:
        """Outputs of all layers, the scores last."""
        chain, h = self._chain, self._rows.dense
        outputs: list[Tensor] = []
        for number, (_, layer) in enumerate(chain.layers, start=1):
            activation = kernels.RELU if chain.relu else kernels.TANH
            activation = activation if number < len(chain.layers) else kernels.LINEAR
            h = self._run(layer, h, self._rows.sparse if number == 1 else None, activation)
            outputs.append(h)
        if chain.skip is not None:
            h.addmm_(self._last_columns(chain.skip[1]), chain.skip[1].weight.T)
        return outputs

    def _run(self, layer: nn.Linear, h: Tensor, sparse: DeviceColumns | None, activation: int) -> Tensor:
        """The outputs of a layer of these inputs, behind the sparse ones of the first."""
        if sparse is None:
            out = torch.addmm(layer.bias, h, layer.weight.T)
            if activation == kernels.LINEAR:
                return out
            return out.relu_() if activation == kernels.RELU else out.tanh_()
        out = torch.addmm(layer.bias, h, layer.weight[:, sparse.num_columns :].T)
        weights = layer.weight[:, : sparse.num_columns].T.contiguous()
        entries = sparse.indices, sparse.values, sparse.indptr
        kernels.add_sparse_products(out, weights, *entries, activation)
        return out

    def _last_columns(self, skip: nn.Linear) -> Tensor:
        dense = self._rows.dense
        return dense[:, dense.shape[1] - skip.in_features :]

    def choose_factors(self, clipping: Clipping | None) -> dict[str, Tensor]:
        """float32 [rows] per layer: what the gradient of every row is multiplied with."""
        chain, rows = self._chain, self._rows
        squares: dict[str, Tensor] = {}
        of_inputs = [rows.input_squares, *self.output_squares]
        for (name, _), inputs, gradients in zip(chain.layers, of_inputs, self.gradient_squares, strict=True):
            # The bias has an input of 1.
            squares[name] = torch.addcmul(gradients, inputs, gradients)
        if chain.skip is not None:
            squares[chain.skip[0]] = rows.last_squares * self.gradient_squares[-1]
        if clipping is not None and clipping.thresholds is not None:
            groups = [
                _limit(_add_group(squares, group, like=rows.input_squares)) for group in range(len(GROUPS))
            ]
            factors = clipping.weigh(clipping.factors(torch.stack(groups)), rows.labels).float()
            return {name: factors[group_of(name)] for name in squares}
        total = _limit(sum(squares.values(), torch.zeros_like(rows.input_squares)))
        if clipping is None:
            common = torch.where(total.isfinite(), 1.0, 0.0).float()
        else:
            common = clipping.weigh(clipping.factors(total[None]), rows.labels).float()[0]
        return dict.fromkeys(squares, common)

    def sum_gradients(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over rows of factor times gradient; gradients are overwritten."""
        chain = self._chain
        sums: dict[str, Tensor] = {}
        skip_weighted: Tensor | None = None
        last = chain.layers[-1][0]
        if chain.skip is not None and factors[chain.skip[0]] is not factors[last]:
            skip_weighted, _ = self._weigh(self.gradients[-1].clone(), factors[chain.skip[0]])
        for number, (name, _) in enumerate(chain.layers):
            c = factors[name]
            weighted, bias = self._weigh(self.gradients[number], c)
            if number == 0:
                # Features are finite.
                sums[f"{name}.weight"] = self._sum_first(weighted)
            elif self._has_kernels:
                # They leave no output that is not finite.
                sums[f"{name}.weight"] = _sum_products(weighted, self.outputs[number - 1])
            else:
                finite = torch.where(c[:, None] == 0, 0.0, self.outputs[number - 1])
                sums[f"{name}.weight"] = _sum_products(weighted, finite)
            sums[f"{name}.bias"] = bias
        if chain.skip is not None:
            name, layer = chain.skip
            inputs = self._last_columns(layer)
            sums[f"{name}.weight"] = _sum_products(
                weighted if skip_weighted is None else skip_weighted, inputs
            )
        return sums

    def _weigh(self, gradients: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients times factors, and their float64 sum."""
        if self._has_kernels:
            total = kernels.weigh_rows(gradients, factors.contiguous(), CHUNK)
            return gradients, total
        # Zero times infinity is not zero.
        c = factors[:, None]
        weighted = torch.where(c == 0, 0.0, gradients * c)
        return weighted, weighted.sum(0, dtype=torch.float64)

    def _sum_first(self, weighted: Tensor) -> Tensor:
        """float64 [out, in] of the first layer."""
        sparse, dense = self._rows.sparse, self._rows.dense
        products = _sum_products(weighted, dense)
        if sparse is None:
            return products
        columns = kernels.sum_columns(
            weighted, sparse.owners, sparse.column_values, sparse.segments, sparse.columns
        )
        return torch.cat([columns.T, products], dim=1)


def differentiate(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """[rows, outputs]: the gradient of the loss of every row by its scores."""
    with torch.enable_grad():
        scores = scores.detach().requires_grad_()
        (gradients,) = torch.autograd.grad(loss(scores, labels).sum(), scores)
    return gradients


def _pass_activation(gradients: Tensor, outputs: Tensor, *, relu: bool) -> tuple[Tensor, Tensor]:
    """Multiply gradients with the slope of the activation; return squared norms of both."""
    gradients *= (outputs > 0).float() if relu else (1 - outputs) * (1 + outputs)
    return _squares(gradients), _squares(outputs)


def _sum_products(weighted: Tensor, inputs: Tensor) -> Tensor:
    """float64 [out, in]: the sum over rows of the products of their numbers."""
    out, width = weighted.shape[1], inputs.shape[1]
    if not width:
        return torch.zeros(out, 0, dtype=torch.float64, device=inputs.device)
    left, right = weighted.view(-1, CHUNK, out).mT, inputs.reshape(-1, CHUNK, width)
    held = max(1, _HELD // (out * width))
    totals = []
    for begin in range(0, len(left), held):
        products = torch.bmm(left[begin : begin + held], right[begin : begin + held])
        if products.is_cuda and AVAILABLE:
            totals.append(kernels.sum_parts(products.view(len(products), -1)).view(out, width))
        else:
            totals.append(products.sum(0, dtype=torch.float64))
    return sum(totals[1:], totals[0])


def _squares(rows: Tensor) -> Tensor:
    """float64 [rows]: squared norms."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return _limit(norms.square())


def _add_group(squares: dict[str, Tensor], group: int, like: Tensor) -> Tensor:
    """The squares of the layers of a group."""
    return sum((value for name, value in squares.items() if group_of(name) == group), torch.zeros_like(like))


def _limit(squares: Tensor) -> Tensor:
    """Squared norms, infinite beyond float32: such a row counts as not finite, as on the CPU."""
    return torch.where(squares <= kernels.LARGEST_SQUARE, squares, torch.inf)


def _fill_chunk(count: int) -> int:
    return -(-count // CHUNK) * CHUNK
