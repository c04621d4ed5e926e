"""The models of the paper: encoder -> r rounds of message passing -> decoder.

GCN, GIN and GAT differ in the layer of a round; the MLP passes no messages.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from hushgraph.errors import ModelError
from hushgraph.models.blocks import Reads
from hushgraph.privacy.choices import Activation, Model
from hushgraph.privacy.fields import MOST_LAYERS

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}

# Bytes per weight: training holds the weights, their average, the gradient sum, the noise and two moments of
# the optimizer.
_BYTES_PER_WEIGHT = 6 * 4


class GCNLayer(nn.Module):
    """Graph convolution: activation(Linear(mean of the row and the rows it reads)).

    The mean is the inverse-degree normalisation (d + I)^-1 (A + I).
    """

    def __init__(self, size: int, activation: Activation) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, h: Tensor, reads: Reads) -> Tensor:
        out: Tensor = self.activation(self.linear(reads.mean(h)))
        return out


class RelationalGCNLayer(nn.Module):
    """R-GCN: activation(Linear(row) + sum over relations of its map of the mean of what the row reads of it).

    A relation's map has no bias; a row that reads nothing of a relation adds nothing.
    """

    def __init__(self, size: int, activation: Activation, num_relations: int) -> None:
        super().__init__()
        self.own = nn.Linear(size, size)
        self.maps = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(num_relations))
        self.activation = ACTIVATIONS[activation]()

    def forward(self, h: Tensor, reads: Reads) -> Tensor:
        total = self.own(reads.own(h))
        for number, of_relation in enumerate(self.maps):
            total = total + of_relation(reads.mean_of_relation(h, number))
        out: Tensor = self.activation(total)
        return out


class GINLayer(nn.Module):
    """Graph isomorphism layer: activation(MLP((1 + epsilon) * row + sum of the rows it reads)).

    The MLP has two Linear layers.
    """

    def __init__(self, size: int, activation: Activation) -> None:
        super().__init__()
        self.scale = Scale()
        self.mlp = mlp([size, size, size], activation, activate_last=False)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, h: Tensor, reads: Reads) -> Tensor:
        out: Tensor = self.activation(self.mlp(self.scale(reads.own(h)) + reads.sum_of_reads(h)))
        return out


class GATLayer(nn.Module):
    """Dot-product attention: a row attends to itself and the rows it reads.

    The weights are softmax(query . key / sqrt(head size)), for each head. A head has `ceil(size / heads)`
    columns, and an output layer maps all heads back to `size` columns. With `attends=False` the layer has no
    queries and keys and averages instead.
    """

    def __init__(self, size: int, activation: Activation, heads: int = 10, *, attends: bool = True) -> None:
        super().__init__()
        self.heads, self.head_size = heads, math.ceil(size / heads)
        inner = self.heads * self.head_size
        self.attends = attends
        if attends:
            self.query = nn.Linear(size, inner)
            self.key = nn.Linear(size, inner)
        self.value = nn.Linear(size, inner)
        self.output = nn.Linear(inner, size)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, h: Tensor, reads: Reads) -> Tensor:
        # Values are linear, so the mean of the values is the value of the mean.
        combined = self._attend(h, reads) if self.attends else self.value(reads.mean(h))
        out: Tensor = self.activation(self.output(combined))
        return out

    def _attend(self, h: Tensor, reads: Reads) -> Tensor:
        query = self.query(reads.own(h))
        key = reads.entries(h, self.key)
        value = reads.entries(h, self.value)
        by_head = (-1, self.heads, self.head_size)
        products = (query[reads.parents].view(by_head) * key.view(by_head)).sum(-1)
        weights = reads.softmax(products / math.sqrt(self.head_size))
        return reads.sum_of_entries((value.view(by_head) * weights[:, :, None]).flatten(1))


class Scale(nn.Module):
    """Multiply by 1 + epsilon with one learned epsilon: the scalar of GIN."""

    def __init__(self) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * (1.0 + self.epsilon)


def mlp(sizes: list[int], activation: Activation, *, activate_last: bool) -> nn.Sequential:
    """Build Linear layers of the given sizes with activations between them, and after the last if asked."""
    modules: list[nn.Module] = []
    for number, (size_in, size_out) in enumerate(pairwise(sizes)):
        modules.append(nn.Linear(size_in, size_out))
        if activate_last or number < len(sizes) - 2:
            modules.append(ACTIVATIONS[activation]())
    return nn.Sequential(*modules)


LAYERS: dict[str, type[GCNLayer] | type[GINLayer] | type[GATLayer]] = {
    "gcn": GCNLayer,
    "gin": GINLayer,
    "gat": GATLayer,
}


def scale_rows(features: Tensor, norm: float) -> Tensor:
    """Scale every row to this norm; 0 leaves the rows unscaled."""
    return features * row_scales(features, norm) if norm else features


def row_scales(features: Tensor, norm: float) -> Tensor:
    """float32 [rows, 1]: what every row is multiplied by to have this norm."""
    # The lower limit keeps a row of zeros at zero.
    norms: Tensor = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    return norm / norms.clamp(min=1e-12)


class GNN(nn.Module):
    """Encoder, message passing and decoder: scores for every root.

    Args:
        num_features: columns of the features.
        num_outputs: columns of the scores.
        model: "gcn", "gin", "gat", or "mlp", which passes no messages.
        num_layers: r, rounds of message passing.
        hidden: size of every hidden layer.
        encoder_layers: Linear layers before message passing, each followed by the activation; at least 1.
        decoder_layers: Linear layers after it; at least 1.
        activation: "tanh" or "relu".
        feature_norm: scale every row of features to this norm first; 0 leaves the features unscaled. The
            scale of a row depends on that row alone.
        attends: whether "gat" learns attention weights. Training that reads no edges gives queries and keys
            no gradient: they would be noise alone.
        num_relations: how many relations have a map of their own; of "gcn" alone. With one, all reads have
            the same.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        *,
        model: Model = "gcn",
        num_layers: int = 1,
        hidden: int = 256,
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        activation: Activation = "tanh",
        feature_norm: float = 0.0,
        attends: bool = True,
        num_relations: int = 1,
    ) -> None:
        super().__init__()
        rounds = 0 if model == "mlp" else num_layers
        is_relational = num_relations > 1 and rounds > 0
        maps = num_layers * (1 + num_relations if is_relational else 1)
        _check_fits(num_features, num_outputs, hidden, maps, encoder_layers + decoder_layers)
        self.feature_norm = feature_norm
        self.encoder = mlp([num_features] + [hidden] * encoder_layers, activation, activate_last=True)
        options = {"attends": attends} if model == "gat" else {}
        self.layers = nn.ModuleList(
            RelationalGCNLayer(hidden, activation, num_relations)
            if is_relational
            else LAYERS[model](hidden, activation, **options)
            for _ in range(rounds)
        )
        self.decoder = mlp([hidden] * decoder_layers + [num_outputs], activation, activate_last=False)

    @property
    def depth(self) -> int:
        """r: how many rounds of message passing there are."""
        return len(self.layers)

    @property
    def root_layers(self) -> frozenset[str]:
        """Names of the layers that see one row for every root, whatever the trees."""
        names = {f"decoder.{name}" for name, _ in self.decoder.named_modules()}
        if self.depth:
            last = self.depth - 1
            # Keys and values of attention are those of the rows that are read.
            below = {"key", "value"} if getattr(self.layers[last], "attends", False) else set()
            names |= {
                f"layers.{last}.{name}" for name, _ in self.layers[last].named_modules() if name not in below
            }
        return frozenset(names)

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        """Compute scores [roots, outputs] from features [rows of the deepest level, d].

        `blocks` has one entry per round, that of the roots first.
        """
        return self.propagate(self.encoder(self.scaled(x)), blocks)

    def scaled(self, x: Tensor) -> Tensor:
        """Scale features [rows, d] as the encoder expects them."""
        return scale_rows(x, self.feature_norm)

    def propagate(self, h: Tensor, blocks: Sequence[Reads]) -> Tensor:
        """Apply everything after the encoder to its output."""
        for layer, reads in zip(self.layers, reversed(blocks), strict=True):
            h = layer(h, reads)
        scores: Tensor = self.decoder(h)
        return scores


class ReadingMLP(nn.Module):
    """One hidden layer over (features, reading), and a linear skip connection from the reading to the scores.

    Args:
        num_features: columns of the features.
        num_outputs: columns of the scores.
        reading_width: columns of the reading, which follow those of the features; as many as scores by
            default.
        num_readings, ballot_width: how many readings of a board come first among these, one for each
            relation, and how wide each is; one reading by default.
        hidden: size of the hidden layer.
        activation: "tanh" or "relu".
    """

    # A reading is evidence for its classes without any training, so training starts from this weight.
    _READING_WEIGHT = 2.0

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        *,
        hidden: int,
        reading_width: int | None = None,
        num_readings: int = 1,
        ballot_width: int = 0,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        reading_width = num_outputs if reading_width is None else reading_width
        width = num_features + reading_width
        _check_fits(width, num_outputs, hidden, 0, 2)
        self.num_features = num_features
        self.encoder = mlp([width, hidden], activation, activate_last=True)
        self.decoder = nn.Linear(hidden, num_outputs)
        self.skip = nn.Linear(reading_width, num_outputs, bias=False)
        nn.init.zeros_(self.decoder.weight)
        with torch.no_grad():
            self.skip.weight.copy_(self._READING_WEIGHT * torch.eye(num_outputs, reading_width))
            if num_readings > 1:
                # Readings have noise of one size each: together they begin with as much noise as one.
                each = torch.eye(num_outputs, ballot_width).repeat(1, num_readings)
                self.skip.weight.zero_()
                self.skip.weight[:, : each.shape[1]] = self._READING_WEIGHT * num_readings**-0.5 * each

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        """Compute scores [rows, outputs] from features and readings; `blocks` is not used."""
        readings = x[:, self.num_features :]
        scores: Tensor = self.decoder(self.encoder(x)) + self.skip(readings)
        return scores


def start_at(model: GNN | ReadingMLP, output: float) -> GNN | ReadingMLP:
    """Let a new model begin with this output, in every column; 0 leaves it as it is."""
    if output:
        last = [each for each in model.decoder.modules() if isinstance(each, nn.Linear)][-1]
        nn.init.constant_(last.bias, output)
    return model


def _check_fits(features: int, outputs: int, hidden: int, rounds: int, linears: int) -> None:
    """Refuse a model that this machine cannot train, before the system kills the process."""
    weights = hidden * (features + outputs) + hidden * hidden * (rounds + linears - 2)
    memory = _physical_memory()
    if rounds + linears > MOST_LAYERS or weights * _BYTES_PER_WEIGHT > memory:
        raise ModelError(
            f"{features} features, {outputs} outputs, hidden={hidden}, {rounds} rounds and {linears} other "
            f"layers: about {weights:.2g} weights; this machine can train {memory // _BYTES_PER_WEIGHT:.2g} "
            f"in at most {MOST_LAYERS} layers; make the model smaller"
        )


def _physical_memory() -> int:
    """Bytes of memory of this machine; 1 TiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 40
