"""Default settings of a run, by rules that read no private data.

The rules use the size of the training split, epsilon, delta, the depth, the owner of the edges and the number
of classes, all of which are public. `docs/defaults.md` has the measurements behind them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from hushgraph.privacy import bounds
from hushgraph.privacy.choices import EdgeOwner

# Training nodes per class that justify the noise of one more reader at epsilon 1.
_NODES_PER_READER = 10_000
_MOST_READERS = 10
# Full batches up to this size: the larger the batch, the less the noise matters.
LARGEST_BATCH = 200_000
STEPS = 600
# Where edges are read and the noise on the mean gradient is below this, half of the steps lose little.
_NOISE_FOR_FEWER_STEPS = 8e-5
_HIDDEN = 128
# A larger norm moves the first layer more, which has most of the parameters.
_FEATURE_NORM = 6.0
# Learning rate times steps for negligible noise, and the noise at which it is halved.
_TRAVEL = 8.0
_NOISE_AT_HALF_TRAVEL = 6e-4
MOMENTUM = 0.7
# Billboard: steps, the share of the budget for the boards, and the strength at which it starts to grow.
BILLBOARD_STEPS = 300
_LEAST_BOARD_SHARE, _USUAL_BOARD_SHARE, _MOST_BOARD_SHARE = 0.2, 0.4, 0.75
_WEAK_STRENGTH, _STRONG_STRENGTH = 600.0, 3000.0
_BILLBOARD_TRAVEL = 5.6
_BILLBOARD_NOISE_AT_HALF_TRAVEL = 2.6e-3
# Without noise, the number of training nodes per class decides when a model starts to overfit.
_PLENTY_PER_CLASS = 10_000
_PLENTY_PER_CLASS_OF_MLP = 2_000


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Values for all settings of a run on trees."""

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
    """Choose the settings of private training.

    Training reads edges only as far as the number of training nodes per class and epsilon justify the noise;
    otherwise K = 0 trains on features alone and passes messages at inference. The learning rate falls as the
    noise grows.
    """
    shift = _approximate_shift(epsilon, delta)
    affordable = int(math.sqrt(epsilon) * num_train_nodes / (_NODES_PER_READER * num_classes))
    changed = 1 + min(affordable, _MOST_READERS)
    readers = _choose_readers(changed, num_layers, edge_owner)
    reads = choose_reads(readers, edge_owner)
    trees = bounds.changed_trees(readers, reads, num_layers, edge_owner, num_trees=num_train_nodes)
    # Noise on the mean gradient of a run that is a single Gaussian step.
    noise = (2 * trees - 1) / (num_train_nodes * shift)
    travel = _TRAVEL / (1 + noise / _NOISE_AT_HALF_TRAVEL)
    steps = STEPS // 2 if readers and noise < _NOISE_FOR_FEWER_STEPS else STEPS
    return Defaults(
        max_readers=readers,
        max_reads=reads,
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=steps,
        learning_rate=float(f"{travel / steps:.2g}"),
        hidden=_HIDDEN,
        feature_norm=_FEATURE_NORM,
        momentum=MOMENTUM,
    )


def choose_non_private(*, num_train_nodes: int, num_classes: int, model: str = "gcn") -> Defaults:
    """Choose the settings of training without privacy: long lists and fewer steps on small data.

    An MLP, which reads no neighbours, overfits later than a GNN; attention needs smaller steps.
    """
    plenty = _PLENTY_PER_CLASS_OF_MLP if model == "mlp" else _PLENTY_PER_CLASS
    return Defaults(
        max_readers=20,
        max_reads=16,
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=600 if num_train_nodes >= plenty * num_classes else 300,
        learning_rate=0.003 if model == "gat" else 0.01,
        hidden=256,
        feature_norm=0.0 if model == "mlp" else _FEATURE_NORM,
        momentum=0.9,
    )


def adapt_to_task(defaults: Defaults, task: str) -> Defaults:
    """Numbers take small steps and small features: gradients of one size overshoot near the truth."""
    if task != "number":
        return defaults
    reading = choose_reading(task)
    rate = float(f"{reading.travel * defaults.learning_rate:.3g}")
    norm = min(defaults.feature_norm, reading.feature_norm)
    return replace(defaults, learning_rate=rate, feature_norm=norm)


def choose_reads(max_readers: int, edge_owner: EdgeOwner) -> int:
    """Choose D for a K: K where reads cost privacy, otherwise enough for most offers."""
    if max_readers == 0 or edge_owner == "reader":
        return max_readers
    return 4 * max_readers + 4


def _choose_readers(changed: int, num_layers: int, edge_owner: EdgeOwner) -> int:
    """Choose the largest K for which at most `changed` trees change; 0 if no layer reads edges."""
    if num_layers == 0:
        return 0
    return max(
        k
        for k in range(_MOST_READERS + 1)
        if k == 0
        or bounds.changed_trees(k, choose_reads(k, edge_owner), num_layers, edge_owner, num_trees=changed)
        <= changed
    )


def _approximate_shift(epsilon: float, delta: float) -> float:
    """Shift of the Gaussian mechanism with (epsilon, delta), too small by up to a quarter."""
    log_term = math.log(1 / delta)
    # Rounding gives 0 for a tiny epsilon, and the noise is divided by this.
    return max(1e-9, math.sqrt(2 * log_term + 2 * epsilon) - math.sqrt(2 * log_term))


class ReadingDefaults(NamedTuple):
    """How the model of a billboard reads, by task; docs/defaults.md says how they were found.

    Attributes:
        num_boards: 1 or 2.
        list_size: what the logarithm of the size of a row's list is multiplied by as an input; 0 for none.
        own_place: whether the board at a row's own place is an input.
        damped: whether loud places are turned down.
        reading_scale, reading_radius: as in `TrainingConfig`.
        feature_norm: of rows of features.
        travel: what the learning rate is multiplied by.
        most_share: the largest share of the boards.
        hidden: the width of the hidden layer.
    """

    num_boards: int = 2
    list_size: float = 0.0
    own_place: bool = False
    damped: bool = True
    reading_scale: float = 0.3
    reading_radius: float = 6.0
    feature_norm: float = _FEATURE_NORM
    travel: float = 1.0
    most_share: float = 1.0
    hidden: int = 64


# Many classes need no more than the board; votes and numbers gain by who lists how many, and by one's place.
_READINGS = {
    "classes": ReadingDefaults(),
    "binary": ReadingDefaults(
        num_boards=1,
        list_size=1.0,
        own_place=True,
        damped=False,
        travel=2.0,
        most_share=0.5,
    ),
    # The scale is that of the whole reading, see `choose_reading`.
    "labels": ReadingDefaults(num_boards=1, list_size=2.0, damped=False, feature_norm=1.0, hidden=16),
    "number": ReadingDefaults(num_boards=1, list_size=0.5, own_place=True, feature_norm=2.0, travel=0.25),
}


def choose_reading(task: str, num_outputs: int = 1) -> ReadingDefaults:
    """Choose how rows read, by the name of the task and its outputs; one from outside reads as numbers do.

    Noise of a reading enters every output, so that the reading of L labels is scaled by 1 / sqrt(L): its
    noise is as long for many labels as for one.
    """
    reading = _READINGS.get(task, _READINGS["number"])
    scale = reading.reading_scale / math.sqrt(num_outputs) if task == "labels" else reading.reading_scale
    return reading._replace(reading_scale=scale)


@dataclass(frozen=True, kw_only=True)
class BillboardDefaults:
    """Values for all settings of a billboard run."""

    board_share: float
    batch_size: int
    steps: int
    learning_rate: float
    hidden: int
    momentum: float
    reading: ReadingDefaults


def choose_billboard(
    *, num_train_nodes: int, num_classes: int, epsilon: float, delta: float, task: str = "classes"
) -> BillboardDefaults:
    """Choose the settings of a private billboard run.

    The share of the boards grows with the number of training nodes per class and with the budget: boards are
    then worth more than training. The learning rate falls as the noise grows.
    """
    # Imported here: the command line shows these defaults before it loads SciPy.
    from hushgraph.accounting.accountants import gaussian_shift

    mu = max(gaussian_shift(epsilon, delta), 1e-9)
    strength = num_train_nodes * mu / math.sqrt(num_classes)
    # Between weak and strong it is the usual one. Below, boards say little, and training needs the budget.
    share = _USUAL_BOARD_SHARE * min(1.0, strength / _WEAK_STRENGTH)
    if strength > _STRONG_STRENGTH:
        share += 0.25 * math.log(strength / _STRONG_STRENGTH)
    reading = choose_reading(task, num_classes)
    share = min(max(share, _LEAST_BOARD_SHARE), _MOST_BOARD_SHARE, reading.most_share)
    # Noise on the mean gradient of a run that is a single Gaussian step.
    noise = 1 / (num_train_nodes * mu * math.sqrt(1 - share))
    travel = _BILLBOARD_TRAVEL / (1 + noise / _BILLBOARD_NOISE_AT_HALF_TRAVEL)
    return BillboardDefaults(
        board_share=float(f"{share:.3f}"),
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=BILLBOARD_STEPS,
        learning_rate=float(f"{reading.travel * travel / BILLBOARD_STEPS:.3g}"),
        hidden=reading.hidden,
        momentum=MOMENTUM,
        reading=reading,
    )


def choose_billboard_non_private(
    *, num_train_nodes: int, num_classes: int, task: str = "classes"
) -> BillboardDefaults:
    """Choose the settings of a billboard run without noise, against which the cost of privacy is measured."""
    return BillboardDefaults(
        board_share=0.5,
        batch_size=min(num_train_nodes, LARGEST_BATCH),
        steps=100,
        learning_rate=0.01,
        hidden=128,
        momentum=0.9,
        reading=choose_reading(task, num_classes),
    )
