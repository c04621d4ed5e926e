"""What a run uses where nothing was said: a rule that reads no private data.

It sees the size of the training split, epsilon, delta, the depth, who owns the edges and how many classes
there are; all of these are public. `docs/defaults.md` has the measurements behind it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushgraph.accounting.gaussian import gaussian_shift
from hushgraph.privacy import bounds
from hushgraph.privacy.choices import EdgeOwner

# Training nodes per class that make one more reader worth its noise at epsilon 1.
_NODES_PER_READER = 10_000
_MOST_READERS = 10
# All training nodes at once up to here: the larger the batch, the less the noise weighs.
LARGEST_BATCH = 200_000
STEPS = 600
_HIDDEN = 128
# Rows of larger norm move the first layer more, which is where most parameters are.
_FEATURE_NORM = 6.0
# Learning rate times steps where noise is negligible, and the noise at which it is halved.
_TRAVEL = 8.0
_NOISE_AT_HALF_TRAVEL = 6e-4
MOMENTUM = 0.7
# Billboard: steps, the boards' part of the budget, and where it begins to grow.
BILLBOARD_STEPS = 300
_LEAST_BOARD_SHARE, _MOST_BOARD_SHARE = 0.4, 0.75
_STRENGTH_AT_LEAST_SHARE = 3000.0
_BILLBOARD_TRAVEL = 5.6
_BILLBOARD_NOISE_AT_HALF_TRAVEL = 2.6e-3
# Without noise, training nodes per class decide how long it takes until a model learns them by heart.
_PLENTY_PER_CLASS = 10_000


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """One choice for everything the caller left open."""

    max_readers: int
    max_reads: int
    batch_size: int
    steps: int
    learning_rate: float
    hidden: int
    feature_norm: float
    momentum: float


def choose_private(
    *,
    num_train_nodes: int,
    epsilon: float,
    delta: float,
    num_layers: int,
    num_classes: int,
    edge_owner: EdgeOwner = "sender",
) -> Defaults:
    """The rule for private training.

    Edges are read in training only as far as training nodes per class and epsilon pay for it; without that,
    K = 0 trains on features and passes messages at inference. The learning rate falls as the noise grows.
    """
    affordable = int(math.sqrt(epsilon) * num_train_nodes / (_NODES_PER_READER * num_classes))
    changed = 1 + min(affordable, _MOST_READERS)
    readers = _choose_readers(changed, num_layers, edge_owner)
    reads = choose_reads(readers, edge_owner)
    trees = bounds.changed_trees(readers, reads, num_layers, edge_owner, num_trees=num_train_nodes)
    # Size of one unit of noise on the mean gradient over a whole run, if the run were a single Gaussian step.
    noise = (2 * trees - 1) / (num_train_nodes * _gaussian_mu(epsilon, delta))
    travel = _TRAVEL / (1 + noise / _NOISE_AT_HALF_TRAVEL)
    return Defaults(
        max_readers=readers,
        max_reads=reads,
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=STEPS,
        learning_rate=float(f"{travel / STEPS:.2g}"),
        hidden=_HIDDEN,
        feature_norm=_FEATURE_NORM,
        momentum=MOMENTUM,
    )


def choose_non_private(*, num_train_nodes: int, num_classes: int) -> Defaults:
    """The rule for training without privacy: wide lists, nothing to save on, an early end."""
    return Defaults(
        max_readers=20,
        max_reads=16,
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=600 if num_train_nodes >= _PLENTY_PER_CLASS * num_classes else 300,
        learning_rate=0.01,
        hidden=256,
        feature_norm=0.0,
        momentum=0.9,
    )


def choose_reads(max_readers: int, edge_owner: EdgeOwner) -> int:
    """D for a K: as small as K where reads cost, with room for most offers where they do not."""
    if max_readers == 0 or edge_owner == "reader":
        return max_readers
    return 4 * max_readers + 4


def _choose_readers(changed: int, num_layers: int, edge_owner: EdgeOwner) -> int:
    """The largest K for which at most `changed` trees change; 0 where no layer reads edges."""
    if num_layers == 0:
        return 0
    return max(
        k
        for k in range(_MOST_READERS + 1)
        if k == 0
        or bounds.changed_trees(k, choose_reads(k, edge_owner), num_layers, edge_owner, num_trees=changed)
        <= changed
    )


def _gaussian_mu(epsilon: float, delta: float) -> float:
    """mu of the Gaussian mechanism that has (epsilon, delta), low by up to a quarter: enough for a rate."""
    log_term = math.log(1 / delta)
    # Rounding leaves nothing of a tiny epsilon, and noise is divided by this.
    return max(1e-9, math.sqrt(2 * log_term + 2 * epsilon) - math.sqrt(2 * log_term))


@dataclass(frozen=True, kw_only=True)
class BillboardDefaults:
    """One choice for everything that a billboard run leaves open."""

    board_share: float
    batch_size: int
    steps: int
    learning_rate: float
    hidden: int
    feature_norm: float
    momentum: float


def choose_billboard(
    *, num_train_nodes: int, num_classes: int, epsilon: float, delta: float
) -> BillboardDefaults:
    """The rule for private billboard runs.

    The more training nodes stand behind a class, and the larger the budget, the more of it the boards get:
    what they say is then worth more than a longer training. The learning rate falls as the noise grows.
    """
    mu = max(gaussian_shift(epsilon, delta), 1e-9)
    strength = num_train_nodes * mu / math.sqrt(num_classes)
    share = _LEAST_BOARD_SHARE + 0.25 * math.log(strength / _STRENGTH_AT_LEAST_SHARE)
    share = min(max(share, _LEAST_BOARD_SHARE), _MOST_BOARD_SHARE)
    # Size of one unit of noise on the mean gradient over a whole run, if the run were a single Gaussian step.
    noise = 1 / (num_train_nodes * mu * math.sqrt(1 - share))
    travel = _BILLBOARD_TRAVEL / (1 + noise / _BILLBOARD_NOISE_AT_HALF_TRAVEL)
    return BillboardDefaults(
        board_share=float(f"{share:.3f}"),
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=BILLBOARD_STEPS,
        learning_rate=float(f"{travel / BILLBOARD_STEPS:.3g}"),
        hidden=64,
        feature_norm=_FEATURE_NORM,
        momentum=MOMENTUM,
    )


def choose_billboard_non_private(*, num_train_nodes: int) -> BillboardDefaults:
    """The rule for the same method without noise: what privacy costs is measured against it."""
    return BillboardDefaults(
        board_share=0.5,
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=100,
        learning_rate=0.01,
        hidden=128,
        feature_norm=_FEATURE_NORM,
        momentum=0.9,
    )
