"""The clipped gradient sum of a batch of trees, at about the cost of a plain gradient.

One forward and one backward pass give every layer's input rows and output-gradient rows. Norms per root
follow from products of rows, and the clipped sum is linear in the clipping factors: one weighted product a
layer, no second backward pass, and no gradient per root is ever formed.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.gradients import layer_rules as layers
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.norms import PairProducts
from hushgraph.gradients.shared import SharedEncoder, is_shareable, total_gradient
from hushgraph.gradients.tape import Tape, taped
from hushgraph.inputs.sparse_inputs import SparseInputs
from hushgraph.models.blocks import Frontier, Reads, RowGradient
from hushgraph.models.gnn import GNN


def clipped_sum(
    model: nn.Module, batch: TreeBatch, clipping: Clipping, *, waits: bool = True
) -> dict[str, Tensor]:
    """Per parameter, the float64 sum over the roots of `batch` of their clipped gradients.

    Args:
        model: called as model(x, blocks); all its parameters in supported layers (`models.check`).
        batch: the trees.
        clipping: how norms become factors.
        waits: look whether the sum is finite, which waits for a GPU. Without it, the sum is computed so that
            roots that are not finite spoil nothing, always.

    Guarantees:
        Every root's contribution has norm at most `clipping.clip` and depends on its own tree and label
        alone. A root without a label, or whose gradient is not finite, contributes zero. A root that is a
        person with several nodes contributes the sum of their gradients, clipped; with class weights, each of
        them is clipped and weighted before.
    """
    if batch.num_roots == 0:
        return {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    sums = _sum_clipped(model, batch, clipping, clean=not waits)
    # Zero times infinity is not zero: roots that are not finite have factor 0, and spoil sums all the same.
    # Leaving them out changes no other number, only how long it takes.
    return sums if not waits or _all_finite(sums) else _sum_clipped(model, batch, clipping, clean=True)


def _sum_clipped(model: nn.Module, batch: TreeBatch, clipping: Clipping, *, clean: bool) -> dict[str, Tensor]:
    """The encoder runs once for the whole batch; everything after it a part of the roots at a time."""
    encoder = _run_encoder(model, batch)
    sums: dict[str, Tensor] = {}
    gradients: list[RowGradient] = []
    factors: list[Tensor] = []
    for part in batch.parts:
        passed, part_factors = _clip(model, part, encoder, clipping)
        for name, value in passed.layer_sums(part_factors, clean=clean).items():
            sums[name] = sums[name] + value if name in sums else value
        if passed.encoder_gradient is not None:
            gradients.append(passed.encoder_gradient)
            factors.append(part_factors[group_of("encoder")])
    if encoder is not None and gradients:
        gradient = batch.join_gradients(gradients)
        entry_factors = torch.cat(factors)[batch.owners[-1]]
        of_encoder = encoder.weighted_sums(gradient, batch.blocks[-1], entry_factors, clean=clean)
        sums |= {f"encoder.{name}": value for name, value in of_encoder.items()}
    return {
        name: sums[name].detach() if name in sums else torch.zeros_like(p, dtype=torch.float64)
        for name, p in model.named_parameters()
    }


def _clip(
    model: nn.Module, batch: TreeBatch, encoder: SharedEncoder | None, clipping: Clipping
) -> tuple[_Pass, Tensor]:
    """A pass over the roots of a batch, and the factor of every root for each group of layers."""
    if batch.members is None or batch.by_node is None or clipping.class_weights is None:
        passed = _Pass.of(model, batch, encoder)
        return passed, clipping.weigh(clipping.factors(*passed.squared_norms()), batch.labels)
    by_node = _Pass.of(model, batch.by_node, encoder)
    of_nodes = clipping.weigh(clipping.factors(*by_node.squared_norms()), batch.labels)
    passed = by_node.weigh_persons(of_nodes, batch, batch.members)
    return passed, clipping.of_persons.factors(*passed.squared_norms())


def group_norms(model: nn.Module, batch: TreeBatch) -> Tensor:
    """[groups, roots]: gradient norms per group of layers. Private: reproduction and tests only."""
    encoder = _run_encoder(model, batch)
    squares = [_Pass.of(model, part, encoder).squared_norms()[0] for part in batch.parts]
    return torch.cat(squares, 1).clamp(min=0).sqrt()


@dataclass(frozen=True, eq=False)
class _Pass:
    """What one forward and backward pass left behind."""

    model: nn.Module
    batch: TreeBatch
    rows: dict[str, layers.Rows]
    encoder: SharedEncoder | None
    encoder_gradient: RowGradient | None

    @classmethod
    def of(cls, model: nn.Module, batch: TreeBatch, encoder: SharedEncoder | None) -> _Pass:
        tape = Tape()
        frontier = Frontier()
        with torch.enable_grad():
            if encoder is not None and isinstance(model, GNN):
                reads = batch.blocks[-1]
                deepest = dataclasses.replace(reads, frontier=frontier)
                _share_derived(reads, deepest)
                with taped(model, tape, leave_out=model.encoder):
                    h = encoder.output.detach().requires_grad_()
                    scores = model.propagate(h, (*batch.blocks[:-1], deepest))
                    batch.loss(scores, batch.labels).sum().backward()  # type: ignore[no-untyped-call]
                _share_derived(deepest, reads)
            else:
                x, blocks = batch.dense_x, batch.blocks
                if batch.is_shared:
                    x = x[batch.blocks[-1].index]
                    tree = dataclasses.replace(batch.blocks[-1], index=None, num_lower=x.shape[0])
                    blocks = (*batch.blocks[:-1], tree)
                with taped(model, tape):
                    batch.loss(model(x, blocks), batch.labels).sum().backward()  # type: ignore[no-untyped-call]
        # A subclass may call its layers on other rows.
        of_roots = model.root_layers if type(model) is GNN else frozenset()
        rows = {
            name: layer_rows
            for name, r in tape.records.items()
            if (layer_rows := layers.rows_of(name, r, batch, sees_roots=name in of_roots))
        }
        gradient = total_gradient(frontier.gradients) if frontier.gradients else None
        return cls(model, batch, rows, encoder, gradient)

    def weigh_persons(self, factors: Tensor, batch: TreeBatch, members: Tensor) -> _Pass:
        """The same pass with every root's gradients times its factor, and roots that are persons.

        Args:
            factors: float64 [groups, roots].
            batch: the same trees by person.
            members: int64 [persons + 1], the roots of every person.
        """
        persons = torch.arange(len(members) - 1, device=members.device)
        person_of = torch.repeat_interleave(persons, members.diff())
        rows = {
            name: each._replace(
                gradients=_weigh_rows(each.gradients, factors[group_of(name)][each.owners]),
                pointers=each.pointers[members],
                owners=person_of[each.owners],
                most=int(each.pointers[members].diff().max()),
                one_row=False,
            )
            for name, each in self.rows.items()
        }
        return _Pass(self.model, batch, rows, None, None)

    def squared_norms(self) -> tuple[Tensor, Tensor]:
        """float64 [groups, roots] each: squared norms, and what their rounding is measured against."""
        shape = (len(GROUPS), self.batch.num_roots)
        squares = torch.zeros(shape, dtype=torch.float64, device=self.batch.x.device)
        sizes = torch.zeros_like(squares)
        for name, rows in self.rows.items():
            norms, size = layers.squared_norms(self.model.get_submodule(name), rows)
            squares[group_of(name)] += norms
            sizes[group_of(name)] += size
        if self.encoder is not None and self.encoder_gradient is not None:
            index = self.batch.blocks[-1].index
            if index is None:
                raise RuntimeError("a shared encoder needs shared rows")
            norms, size = self.encoder.squared_norms(
                self.encoder_gradient,
                index,
                self.batch.pointers[-1],
                self.batch.owners[-1],
                self.batch.most_rows[-1],
                self._keep_products(self.encoder.passes[0][1], index),
            )
            squares[group_of("encoder")] += norms
            sizes[group_of("encoder")] += size
        return squares, sizes

    def _keep_products(self, inputs: Tensor | SparseInputs, index: Tensor) -> PairProducts | None:
        """Products of the features: the trees of a batch may serve many steps, and they do not change."""
        if inputs.device.type != "cpu" or inputs.dtype != torch.float32:
            return None
        kept, norm = self.batch.products, float(getattr(self.model, "feature_norm", 0.0))
        if norm not in kept:
            kept[norm] = PairProducts.of(inputs, index, self.batch.pointers[-1])
        return kept[norm]

    def layer_sums(self, factors: Tensor, *, clean: bool = False) -> dict[str, Tensor]:
        """Per parameter after the encoder, the float64 sum of factor [groups, roots] times gradient."""
        sums: dict[str, Tensor] = {}
        for name, rows in self.rows.items():
            layer_sums = layers.weighted_sums(
                self.model.get_submodule(name), rows, factors[group_of(name)], clean=clean
            )
            sums |= {f"{name}.{parameter}": value for parameter, value in layer_sums.items()}
        return sums


def _run_encoder(model: nn.Module, batch: TreeBatch) -> SharedEncoder | None:
    """One pass of the encoder over the rows that roots share; None where a model or its trees share none."""
    # A subclass may do anything in its forward.
    if not (batch.is_shared and type(model) is GNN and is_shareable(model.encoder)):
        return None
    return SharedEncoder.run(model.encoder, _first_inputs(model, batch), batch.room)


def _share_derived(source: Reads, target: Reads) -> None:
    """What was derived from the reads once serves every step on the same trees."""
    target.__dict__.update({k: v for k, v in source.__dict__.items() if k not in target.__dict__})


def _first_inputs(model: GNN, batch: TreeBatch) -> Tensor | SparseInputs:
    """What the encoder sees: features scaled as the model expects them."""
    first = model.encoder[0]
    if isinstance(batch.x, SparseInputs) and first.weight.dtype == torch.float32:
        return batch.x.scale(model.feature_norm)
    return model.scaled(batch.dense_x)


def _weigh_rows(gradients: Tensor, factors: Tensor) -> Tensor:
    """Rows times their factor; what has factor 0 is 0, finite or not."""
    c = factors[:, None]
    return torch.where(c == 0, 0.0, gradients.double() * c).to(gradients.dtype)


def _all_finite(sums: dict[str, Tensor]) -> bool:
    # One number that is finite only if every entry is; only where it is not are all entries looked at.
    total = torch.cat([s.reshape(-1) for s in sums.values()]).sum().item()
    return math.isfinite(total) or all(bool(torch.isfinite(s).all()) for s in sums.values())
