"""Encoder -> r rounds of message passing -> decoder: the shape of every model of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from hushgraph.errors import ModelError
from hushgraph.models.blocks import Reads
from hushgraph.models.device import physical_memory
from hushgraph.models.gat import GATLayer
from hushgraph.models.gcn import GCNLayer
from hushgraph.models.gin import GINLayer
from hushgraph.models.parts import ACTIVATIONS, Activation, mlp
from hushgraph.privacy.fields import MOST_LAYERS

ModelName = Literal["gcn", "gin", "gat", "mlp"]

LAYERS: dict[str, type[GCNLayer] | type[GINLayer] | type[GATLayer]] = {
    "gcn": GCNLayer,
    "gin": GINLayer,
    "gat": GATLayer,
}
MODEL_NAMES = (*LAYERS, "mlp")


# Training holds the weights, their average, gradient sum and noise, and two moments of the optimiser.
_BYTES_A_WEIGHT = 6 * 4


def _check_fits(features: int, classes: int, hidden: int, rounds: int, linears: int) -> None:
    """Refuse a model that this machine cannot train, before the system ends the process for it."""
    weights = hidden * (features + classes) + hidden * hidden * (rounds + linears - 2)
    memory = physical_memory()
    if rounds + linears > MOST_LAYERS or weights * _BYTES_A_WEIGHT > memory:
        raise ModelError(
            f"{features} features, {classes} classes, hidden={hidden}, {rounds} rounds and {linears} other "
            f"layers: about {weights:.2g} weights; this machine can train {memory // _BYTES_A_WEIGHT:.2g} "
            f"in at most {MOST_LAYERS} layers; make the model smaller"
        )


class GNN(nn.Module):
    """encoder(x) -> message passing -> decoder: one row of scores per root.

    Args:
        num_features: columns of the features.
        num_classes: columns of the scores.
        model: "gcn", "gin", "gat", or "mlp", which passes no messages.
        num_layers: r, rounds of message passing.
        hidden: size of every hidden layer.
        encoder_layers: Linear layers before message passing, each followed by the activation; at least 1.
        decoder_layers: Linear layers after it; at least 1.
        activation: "tanh" or "relu".
        feature_norm: scale every row of features to this norm first, from that row alone; 0 leaves them as
            they are.
        attends: whether "gat" learns whom to attend to. Training that reads no edges cannot teach it: its
            queries and keys would be noise alone.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        model: ModelName = "gcn",
        num_layers: int = 1,
        hidden: int = 256,
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        activation: Activation = "tanh",
        feature_norm: float = 0.0,
        attends: bool = True,
    ) -> None:
        super().__init__()
        if model not in MODEL_NAMES:
            raise ModelError(f"model={model!r}: expected one of {', '.join(MODEL_NAMES)}")
        if activation not in ACTIVATIONS:
            raise ModelError(f"activation={activation!r}: expected one of {', '.join(ACTIVATIONS)}")
        sizes = {
            "num_features": (num_features, 1),
            "num_classes": (num_classes, 2),
            "hidden": (hidden, 1),
            "encoder_layers": (encoder_layers, 1),
            "decoder_layers": (decoder_layers, 1),
            "num_layers": (num_layers, 0),
        }
        wrong = [
            f"{name}={value} (at least {least})" for name, (value, least) in sizes.items() if value < least
        ]
        if wrong:
            raise ModelError(f"sizes out of range: {', '.join(wrong)}")
        _check_fits(num_features, num_classes, hidden, max(0, num_layers), encoder_layers + decoder_layers)
        if not (math.isfinite(feature_norm) and feature_norm >= 0):
            raise ModelError(f"feature_norm={feature_norm}: expected a finite number, at least 0")
        self.feature_norm = feature_norm
        self.encoder = mlp([num_features] + [hidden] * encoder_layers, activation, activate_last=True)
        rounds = 0 if model == "mlp" else num_layers
        options = {"attends": attends} if model == "gat" else {}
        self.layers = nn.ModuleList(LAYERS[model](hidden, activation, **options) for _ in range(rounds))
        self.decoder = mlp([hidden] * decoder_layers + [num_classes], activation, activate_last=False)

    @property
    def depth(self) -> int:
        """r: how many levels of reads the model looks at."""
        return len(self.layers)

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        """Scores [roots, classes] from features [rows of the deepest level, d] and blocks, roots first."""
        return self.propagate(self.encoder(self.scaled(x)), blocks)

    def scaled(self, x: Tensor) -> Tensor:
        """Features [rows, d] as the encoder takes them."""
        if not self.feature_norm:
            return x
        # Rows of almost nothing stay almost nothing.
        norms: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return x * (self.feature_norm / norms.clamp(min=1e-12))

    def propagate(self, h: Tensor, blocks: Sequence[Reads]) -> Tensor:
        """Everything after the encoder."""
        for layer, reads in zip(self.layers, reversed(blocks), strict=True):
            h = layer(h, reads)
        scores: Tensor = self.decoder(h)
        return scores


class ReadingMLP(nn.Module):
    """A hidden layer over (features, reading), and a straight path from the reading to the scores.

    Args:
        num_features: columns of the features.
        num_classes: columns of the reading, which stands behind the features, and of the scores.
        hidden: size of the hidden layer.
        activation: "tanh" or "relu".
    """

    # A reading is evidence for its classes as it is; training starts from this weight on it.
    _READING_WEIGHT = 2.0

    def __init__(
        self, num_features: int, num_classes: int, *, hidden: int, activation: Activation = "tanh"
    ) -> None:
        super().__init__()
        width = num_features + num_classes
        _check_fits(width, num_classes, hidden, 0, 2)
        self.num_features = num_features
        self.encoder = mlp([width, hidden], activation, activate_last=True)
        self.decoder = nn.Linear(hidden, num_classes)
        self.skip = nn.Linear(num_classes, num_classes, bias=False)
        nn.init.zeros_(self.decoder.weight)
        with torch.no_grad():
            self.skip.weight.copy_(self._READING_WEIGHT * torch.eye(num_classes))

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        """Scores [rows, classes] from rows of features and readings; there are no blocks."""
        readings = x[:, self.num_features :]
        scores: Tensor = self.decoder(self.encoder(x)) + self.skip(readings)
        return scores
