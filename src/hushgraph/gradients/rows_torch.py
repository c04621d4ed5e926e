"""Clipped sums of rows with torch: for GPUs, where a step on the same rows is recorded once and replayed.

What `RowPass` computes in the cache of a core is a sequence of operations on all rows here. A CUDA graph
starts them all at once: on a GPU the time of a step is the time to start its operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.gradients.chain import Chain, find_chain
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.rows import Rows

# Steps before the recording, which let libraries choose their kernels and memory.
_WARM_UP = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceRows:
    """Rows on a device.

    Attributes:
        x: float32 [rows, columns], sparse columns written out.
        exact: float64 [rows, columns + 1], the same with a column of ones.
        targets: float32 [rows, classes], 1 at the label.
        has_label: float32 [rows, 1].
        input_squares: float64 [rows], of all columns.
        last_squares: float64 [rows], of the columns that the skip connection reads.
    """

    x: Tensor
    exact: Tensor
    targets: Tensor
    has_label: Tensor
    input_squares: Tensor
    last_squares: Tensor

    @classmethod
    def of(cls, rows: Rows, chain: Chain, device: torch.device) -> DeviceRows:
        """Copy rows to a device."""
        count = rows.num_rows
        features, num_dense = rows.features, rows.dense.shape[1]
        width, num_classes = chain.layers[0][1].in_features, chain.layers[-1][1].out_features
        x = torch.zeros(count, width, device=device)
        if features.num_columns:
            indptr, columns = (torch.from_numpy(a).to(device) for a in (features.indptr, features.indices))
            owners = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=device), indptr.diff())
            values = torch.from_numpy(features.values).to(device)
            # Entries that are given twice are added up, as everywhere.
            x.index_put_((owners, columns.long()), values, accumulate=True)
        x[:, width - num_dense :] = torch.from_numpy(rows.dense).to(device)
        labels = torch.from_numpy(rows.labels).to(device)
        has_label = (labels >= 0).float()[:, None]
        targets = torch.zeros(count, num_classes, device=device)
        targets.scatter_(1, labels.clamp(min=0)[:, None], has_label)
        skipped = x[:, width - (0 if chain.skip is None else chain.skip[1].in_features) :]
        return cls(
            x=x,
            exact=_with_ones(x),
            targets=targets,
            has_label=has_label,
            input_squares=_squares(x),
            last_squares=_squares(skipped),
        )


class RecordedRowSums:
    """Clipped sums of rows on a device, for `Trainer`.

    Guarantees:
        Gives the clipped sum that `RowSums` gives, up to rounding. Norms and sums are float64.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._source: Rows | None = None
        self._rows: DeviceRows | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0
        self._sums: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, model: nn.Module, rows: Rows, clipping: Clipping | None = None) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over `rows` of their clipped gradients; unclipped without a rule."""
        chain = find_chain(model)
        if chain is None:
            raise TypeError(f"{type(model).__name__}: expected a chain of Linear layers")
        if self._source is not rows or self._rows is None:
            self._source, self._rows = rows, DeviceRows.of(rows, chain, self._device)
            self._calls, self._graph = 0, None
        self._calls += 1
        if self._graph is not None:
            self._graph.replay()
            return self._sums
        # Thresholds of groups may be changed between steps, which a recording would not notice.
        is_fixed = clipping is not None and clipping.thresholds is None
        if self._device.type == "cuda" and self._calls > _WARM_UP and is_fixed:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._sums = clipped_row_sums(chain, self._rows, clipping)
            self._graph.replay()
            return self._sums
        return clipped_row_sums(chain, self._rows, clipping)


def clipped_row_sums(chain: Chain, rows: DeviceRows, clipping: Clipping | None) -> dict[str, Tensor]:
    """The clipped sum as a fixed sequence of operations: nothing depends on what the rows hold."""
    outputs, gradients = _run_passes(chain, rows)
    # float64 from here on: sums over all rows are then exact enough without chunks.
    inputs = [rows.exact, *(_with_ones(output) for output in outputs)]
    exact = [gradient.double() for gradient in gradients]
    squares = torch.zeros(len(GROUPS), len(rows.x), dtype=torch.float64, device=rows.x.device)
    for number, (name, _) in enumerate(chain.layers):
        # The column of ones is that of the bias.
        input_squares = rows.input_squares + 1 if number == 0 else inputs[number].square().sum(1)
        squares[group_of(name)] += input_squares * exact[number].square().sum(1)
    if chain.skip is not None:
        squares[group_of(chain.skip[0])] += rows.last_squares * exact[-1].square().sum(1)
    # As in the kernels of the CPU: squared norms beyond float32 count as not finite.
    squares = torch.where(squares <= torch.finfo(torch.float32).max, squares, torch.inf)
    if clipping is None:
        factors = torch.where(squares.isfinite(), 1.0, 0.0)
    else:
        factors = clipping.factors(squares, torch.zeros_like(squares))
    sums = {}
    for number, (name, layer) in enumerate(chain.layers):
        c = factors[group_of(name)][:, None]
        # Zero times infinity is not zero. Features are finite.
        finite = inputs[number] if number == 0 else torch.where(c == 0, 0.0, inputs[number])
        total = torch.where(c == 0, 0.0, exact[number] * c).T @ finite
        sums[f"{name}.weight"], sums[f"{name}.bias"] = total[:, : layer.in_features], total[:, -1]
    if chain.skip is not None:
        name, layer = chain.skip
        c = factors[group_of(name)][:, None]
        last = rows.exact[:, -1 - layer.in_features : -1]
        sums[f"{name}.weight"] = torch.where(c == 0, 0.0, exact[-1] * c).T @ last
    return sums


def _with_ones(rows: Tensor) -> Tensor:
    """float64 [rows, columns + 1]: with a column of ones."""
    wide = torch.ones(len(rows), rows.shape[1] + 1, dtype=torch.float64, device=rows.device)
    wide[:, :-1] = rows
    return wide


def _run_passes(chain: Chain, rows: DeviceRows) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs of all layers but the last, and gradients by the outputs of all, before their activations."""
    outputs: list[Tensor] = []
    h = rows.x
    for _, layer in chain.layers[:-1]:
        h = torch.addmm(layer.bias, h, layer.weight.T)
        h = h.relu_() if chain.relu else h.tanh_()
        outputs.append(h)
    last = chain.layers[-1][1]
    scores = torch.addmm(last.bias, h, last.weight.T)
    if chain.skip is not None:
        layer = chain.skip[1]
        scores.addmm_(rows.x[:, rows.x.shape[1] - layer.in_features :], layer.weight.T)
    gradients = [(scores.softmax(1) - rows.targets).mul_(rows.has_label)]
    for (_, layer), output in zip(reversed(chain.layers[1:]), reversed(outputs), strict=True):
        slopes = (output > 0).float() if chain.relu else (1 - output) * (1 + output)
        gradients.insert(0, (gradients[0] @ layer.weight).mul_(slopes))
    return outputs, gradients


def _squares(rows: Tensor) -> Tensor:
    """float64 [rows]: squared norms; infinite beyond float32, as in `row_kernels`."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    squares = norms.square()
    return torch.where(squares <= torch.finfo(torch.float32).max, squares, torch.inf)
