"""Per-root squared norms and weighted sums of the gradients of each supported layer, from its records."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hushgraph.errors import ModelError
from hushgraph.gradients import norms as pairs
from hushgraph.gradients import sums
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.tape import Record
from hushgraph.models.gnn import Scale


class Rows(NamedTuple):
    """All rows a layer saw in one backward pass, those of one root together.

    Attributes:
        inputs: [rows, in], or [rows] of an Embedding.
        gradients: [rows, out], of the outputs.
        pointers: int64 [roots + 1].
        owners: int64 [rows].
        most: no root has more rows.
        one_row: whether every root has one row by the plan or by the model, whatever the data.
    """

    inputs: Tensor
    gradients: Tensor
    pointers: Tensor
    owners: Tensor
    most: int
    one_row: bool = True


def rows_of(name: str, records: list[Record], batch: TreeBatch, *, sees_roots: bool = False) -> Rows | None:
    """The rows of a layer's records; None where no gradient reached it.

    Args:
        name: of the layer.
        records: its calls.
        batch: the trees.
        sees_roots: whether the layer works on the rows of roots, whatever the trees.
    """
    parts = []
    for record in records:
        if record.gradients is None:
            continue
        if record.tree_rows not in batch.level_rows:
            raise ModelError(
                f"layer {name} saw {record.tree_rows} rows, which is no level of the trees: a layer must "
                "work on one row per node; use the blocks to move between levels"
            )
        # Levels of equal size have equal rows, so the first will do.
        level = batch.level_rows.index(record.tree_rows)
        pointers, owners = batch.pointers[level], batch.owners[level]
        most = batch.most_rows[level]
        times = record.inputs.shape[0] // max(1, record.tree_rows)
        if times > 1:
            pointers, owners, most = pointers * times, owners.repeat_interleave(times), most * times
        one_row = (sees_roots or not batch.may_read) and times == 1 and batch.members is None
        parts.append(Rows(record.inputs, record.gradients, pointers, owners, most, one_row))
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    # A layer called more than once: its gradient is one sum, so the rows of a root belong together.
    owners = torch.cat([part.owners for part in parts])
    order = torch.argsort(owners, stable=True)
    return Rows(
        torch.cat([part.inputs for part in parts])[order],
        torch.cat([part.gradients for part in parts])[order],
        torch.stack([part.pointers for part in parts]).sum(0),
        owners[order],
        sum(part.most for part in parts),
        False,
    )


def squared_norms(layer: nn.Module, rows: Rows) -> tuple[Tensor, Tensor]:
    """Per root: squared norm of the layer's gradient, and the size that rounding is measured against."""
    if isinstance(layer, nn.Linear):
        return pairs.linear_norms(
            rows.inputs,
            rows.gradients,
            rows.pointers,
            bias=layer.bias is not None,
            most_rows=rows.most,
            one_row=rows.one_row,
        )
    gradients = rows.gradients.double()
    if isinstance(layer, nn.Embedding):
        # Rows of one root that look up the same entry add up before the norm is taken.
        keys, group = torch.unique(rows.owners * layer.num_embeddings + rows.inputs, return_inverse=True)
        per_key = gradients.new_zeros((keys.numel(), gradients.shape[1])).index_add_(0, group, gradients)
        squares = gradients.new_zeros(rows.pointers.numel() - 1)
        squares.index_add_(0, keys // layer.num_embeddings, per_key.square().sum(1))
        return squares, _size(gradients, rows)
    products = rows.inputs.double() * gradients
    if isinstance(layer, Scale):
        squares = _per_root(products.sum(1, keepdim=True), rows)[:, 0].square()
        return squares, _per_root(products.abs().sum(1, keepdim=True), rows)[:, 0].square()
    squares, size = _per_root(products, rows).square().sum(1), _size(products, rows)
    if layer.bias is not None:
        squares = squares + _per_root(gradients, rows).square().sum(1)
        size = size + _size(gradients, rows)
    return squares, size


def weighted_sums(layer: nn.Module, rows: Rows, factors: Tensor, *, clean: bool = False) -> dict[str, Tensor]:
    """Per parameter of the layer, in float64: the sum over roots of factor times gradient.

    Args:
        layer: of a supported kind.
        rows: its rows.
        factors: float64 [roots].
        clean: leave out what is not finite in roots of factor 0.
    """
    parts: dict[str, Tensor] = {}
    row_factors = factors[rows.owners]
    if isinstance(layer, nn.Linear) and rows.one_row and rows.inputs.shape[0] == factors.numel():
        weight, bias = sums.sums_of_roots(rows.gradients, rows.inputs, row_factors, clean=clean)
        parts = {"weight": weight, "bias": bias}
    else:
        for block, weighted in sums.weighted_blocks(rows.gradients, row_factors, clean=clean):
            for name, value in _block_sums(layer, rows.inputs[block], weighted, clean=clean).items():
                parts[name] = parts[name] + value if name in parts else value
    return {name: value for name, value in parts.items() if getattr(layer, name, None) is not None}


def _block_sums(layer: nn.Module, inputs: Tensor, weighted: Tensor, *, clean: bool) -> dict[str, Tensor]:
    if isinstance(layer, nn.Embedding):
        zeros = torch.zeros_like(layer.weight, dtype=torch.float64)
        return {"weight": zeros.index_add_(0, inputs, weighted)}
    rows = sums.exact_rows(inputs, clean=clean)
    if isinstance(layer, Scale):
        return {"epsilon": (rows * weighted).sum().reshape(1)}
    weight = weighted.T @ rows if isinstance(layer, nn.Linear) else (rows * weighted).sum(0)
    return {"weight": weight, "bias": weighted.sum(0)}


def _size(values: Tensor, rows: Rows) -> Tensor:
    """What rounding is measured against: the square of the sum of the norms of a root's rows."""
    return _per_root(torch.linalg.vector_norm(values, dim=1, keepdim=True), rows)[:, 0].square()


def _per_root(values: Tensor, rows: Rows) -> Tensor:
    return values.new_zeros((rows.pointers.numel() - 1, values.shape[1])).index_add_(0, rows.owners, values)
