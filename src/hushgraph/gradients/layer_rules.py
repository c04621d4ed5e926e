"""Per-root squared norms and weighted sums of the gradients of each supported layer, from its records."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hushgraph.errors import ModelError
from hushgraph.gradients import norms as pairs
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
    """

    inputs: Tensor
    gradients: Tensor
    pointers: Tensor
    owners: Tensor
    most: int


def rows_of(name: str, records: list[Record], batch: TreeBatch) -> Rows | None:
    """The rows of a layer's records; None where no gradient reached it."""
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
        parts.append(Rows(record.inputs, record.gradients, pointers, owners, most))
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
    )


def squared_norms(layer: nn.Module, rows: Rows) -> tuple[Tensor, Tensor]:
    """Per root: squared norm of the layer's gradient, and the size that rounding is measured against."""
    if isinstance(layer, nn.Linear):
        return pairs.linear_norms(
            rows.inputs, rows.gradients, rows.pointers, bias=layer.bias is not None, most_rows=rows.most
        )
    roots = rows.pointers.numel() - 1
    if isinstance(layer, nn.Embedding):
        # Rows of one root that look up the same entry add up before the norm is taken.
        keys, group = torch.unique(rows.owners * layer.num_embeddings + rows.inputs, return_inverse=True)
        sums = rows.gradients.new_zeros((keys.numel(), rows.gradients.shape[1])).index_add_(
            0, group, rows.gradients
        )
        squares = rows.gradients.new_zeros(roots)
        squares.index_add_(0, keys // layer.num_embeddings, sums.square().sum(1))
        return squares, _row_squares(rows.gradients, rows)
    products = rows.inputs * rows.gradients
    if isinstance(layer, Scale):
        # One long sum would lose too many digits in float32; this one loses those of its terms alone.
        sums = _per_root(products.sum(1, keepdim=True, dtype=torch.float64), rows)
        squares = sums[:, 0].square().to(products.dtype)
        return squares, squares + 0.01 * _row_squares(products, rows)
    if isinstance(layer, nn.LayerNorm):
        squares, sizes = _per_root(products, rows).square().sum(1), _row_squares(products, rows)
        if layer.bias is not None:
            squares = squares + _per_root(rows.gradients, rows).square().sum(1)
            sizes = sizes + _row_squares(rows.gradients, rows)
        return squares, sizes
    raise ModelError(f"{type(layer).__name__} cannot be trained privately")


def weighted_sums(layer: nn.Module, rows: Rows, factors: Tensor) -> dict[str, Tensor]:
    """Per parameter of the layer: the sum over roots of factor times gradient."""
    weighted = rows.gradients * factors[rows.owners][:, None]
    if isinstance(layer, nn.Linear):
        sums = {"weight": weighted.T @ rows.inputs}
    elif isinstance(layer, nn.Embedding):
        return {"weight": torch.zeros_like(layer.weight).index_add_(0, rows.inputs, weighted)}
    elif isinstance(layer, Scale):
        return {"epsilon": (rows.inputs * weighted).sum(dtype=torch.float64).to(weighted.dtype).reshape(1)}
    else:
        sums = {"weight": (rows.inputs * weighted).sum(0)}
    if getattr(layer, "bias", None) is not None:
        sums["bias"] = weighted.sum(0)
    return sums


def _row_squares(values: Tensor, rows: Rows) -> Tensor:
    return _per_root(values.square().sum(1, keepdim=True), rows)[:, 0]


def _per_root(values: Tensor, rows: Rows) -> Tensor:
    return values.new_zeros((rows.pointers.numel() - 1, values.shape[1])).index_add_(0, rows.owners, values)
