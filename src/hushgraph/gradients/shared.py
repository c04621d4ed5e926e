"""The encoder, run once per distinct node although many roots read it.

Going forwards, what a node's features become does not depend on who reads it. Going backwards, every root
has a gradient of its own; the norms are taken per entry, and the weighted sum goes back through shared rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.gradients import norms as pairs
from hushgraph.gradients.batch import Room, take_room
from hushgraph.gradients.sums import exact_rows, weighted_shared_rows
from hushgraph.inputs.sparse_inputs import SparseInputs
from hushgraph.models.blocks import Reads, RowGradient


def is_shareable(encoder: nn.Module) -> bool:
    """Whether `encoder` is Linear layers with biases, each followed by tanh or relu."""
    modules = list(encoder) if isinstance(encoder, nn.Sequential) else []
    if not modules or len(modules) % 2:
        return False
    linears, activations = modules[::2], modules[1::2]
    return all(type(m) is nn.Linear and m.bias is not None for m in linears) and all(
        type(m) in (nn.Tanh, nn.ReLU) for m in activations
    )


@dataclass(frozen=True, eq=False)
class SharedEncoder:
    """One pass of an encoder over shared rows: per layer (layer, inputs, activated outputs, whether relu).

    The inputs of the first layer may be sparse.
    """

    passes: list[tuple[nn.Linear, Tensor | SparseInputs, Tensor, bool]]

    @classmethod
    def run(cls, encoder: nn.Sequential, x: Tensor | SparseInputs, room: Room | None = None) -> SharedEncoder:
        """Outputs are written to `room`, where it is given."""
        room = {} if room is None else room
        passes: list[tuple[nn.Linear, Tensor | SparseInputs, Tensor, bool]] = []
        modules = list(encoder)
        with torch.no_grad():
            for number, (layer, activation) in enumerate(zip(modules[::2], modules[1::2], strict=True)):
                if not isinstance(layer, nn.Linear):
                    raise TypeError(f"{type(layer).__name__} in an encoder that is not shareable")
                relu = isinstance(activation, nn.ReLU)
                z = take_room(room, f"encoder {number}", x.shape[0], layer.weight.T)
                if isinstance(x, SparseInputs):
                    x.multiply(layer.weight, layer.bias, out=z)
                else:
                    torch.addmm(layer.bias, x, layer.weight.T, out=z)
                out = z.relu_() if relu else z.tanh_()
                passes.append((layer, x, out, relu))
                x = out
        return cls(passes)

    @property
    def output(self) -> Tensor:
        return self.passes[-1][2]

    def squared_norms(
        self,
        gradient: RowGradient,
        index: Tensor,
        pointers: Tensor,
        owners: Tensor,
        most_rows: int,
        kept: pairs.PairProducts | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Per root, over all layers of the encoder.

        `gradient` is that of the output, per entry; `kept` are the products of the features, where known.
        """
        squares: list[Tensor] = []
        sizes: list[Tensor] = []
        # Gradients of a layer's outputs in float64, as the weighted sums have them.
        exact: Tensor | None = None
        for number in reversed(range(len(self.passes))):
            layer, inputs, outputs, relu = self.passes[number]
            norms, size = pairs.shared_linear_norms(
                inputs,
                outputs,
                relu,
                index,
                gradient,
                pointers,
                most_rows=most_rows,
                kept=None if number else kept,
            )
            squares.append(norms)
            sizes.append(size)
            if number:
                if exact is None:
                    exact = pairs.entry_gradients(gradient).double()
                exact = pairs.through_activation(exact, outputs[index].double(), relu)
                weight = layer.weight.detach().double()
                lengths = torch.linalg.vector_norm(exact, dim=1)
                exact = exact @ weight
                gradient = RowGradient(exact.to(outputs.dtype), None, None)
                sizes.append(_cancelled(lengths, weight, self.passes[number - 1][1], index, owners, norms))
        return sum(squares[1:], squares[0]), sum(sizes[1:], sizes[0])

    def weighted_sums(
        self, gradient: RowGradient, reads: Reads, entry_factors: Tensor, *, clean: bool = False
    ) -> dict[str, Tensor]:
        """Per parameter of the encoder, in float64: the sum over entries of factor times gradient."""
        weights = [layer.weight.detach().double() for layer, *_ in self.passes]
        # Transposed, because products of tall matrices are faster that way; the last row is the bias.
        totals = [weight.new_zeros(weight.shape[1] + 1, weight.shape[0]) for weight in weights]
        first = self.passes[0][1]
        cursor = first.new_cursor() if isinstance(first, SparseInputs) else None
        for part, rows in self._blocks(gradient, reads, entry_factors):
            for number in reversed(range(len(self.passes))):
                _, inputs, outputs, relu = self.passes[number]
                if number < len(self.passes) - 1:
                    rows = pairs.through_activation(rows, exact_rows(outputs[part], clean=clean), relu)
                if isinstance(inputs, SparseInputs) and cursor is not None:
                    # Features are finite, so there is nothing to clean.
                    inputs.add_products(part.start, rows, cursor, totals[number][:-1])
                    totals[number][-1] += rows.sum(0)
                elif isinstance(inputs, Tensor):
                    totals[number].addmm_(exact_rows(inputs[part], clean=clean, ones=True).T, rows)
                if number:
                    rows = rows @ weights[number]
        sums = {f"{2 * number}.weight": total[:-1].T.contiguous() for number, total in enumerate(totals)}
        return sums | {f"{2 * number}.bias": total[-1] for number, total in enumerate(totals)}

    def _blocks(
        self, gradient: RowGradient, reads: Reads, entry_factors: Tensor
    ) -> Iterator[tuple[slice, Tensor]]:
        """Per block of shared rows, float64: weighted gradients of the last layer, before its activation."""
        _, _, outputs, relu = self.passes[-1]
        parents, coefficients = gradient.parents, gradient.coefficients
        if parents is None:
            parents = torch.arange(reads.num_entries, device=outputs.device)
        weights = entry_factors if coefficients is None else entry_factors * coefficients
        yield from weighted_shared_rows(
            gradient.upper, parents, weights, *reads.by_lower, outputs=outputs, relu=relu
        )


def _cancelled(
    lengths: Tensor,
    weight: Tensor,
    inputs: Tensor | SparseInputs,
    index: Tensor,
    owners: Tensor,
    like: Tensor,
) -> Tensor:
    """Per root, a size that covers what float64 loses where the products of gradients and weights cancel."""
    if isinstance(inputs, SparseInputs):
        squares = inputs.squares
    else:
        squares = torch.linalg.vector_norm(inputs, dim=1, dtype=torch.float64).square()
    inputs_lengths = squares.add(1).sqrt()
    lost = lengths * inputs_lengths[index] * (weight.shape[0] * 2.0**-33 * weight.norm())
    return torch.zeros_like(like).index_add_(0, owners, lost).square()


def total_gradient(gradients: list[RowGradient]) -> RowGradient:
    """One gradient per entry where the output was used several times."""
    if len(gradients) == 1:
        return gradients[0]
    # One by one: with many relations, all of them at once would not fit memory.
    total = pairs.entry_gradients(gradients[0])
    for gradient in gradients[1:]:
        total = total + pairs.entry_gradients(gradient)
    return RowGradient(total, None, None)
