"""What runs of the default method release but for noise, computed a second time, by the privacy contract.

Ballots, readings, clipped sums and counts of evaluated rows are written down here in float64, without the
code that trains.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import special

from hushgraph._files import read_tensors
from hushgraph.audit.runs import (
    Seen,
    Weights,
)
from hushgraph.audit.statistics import Floats
from hushgraph.figures.tables import Counts
from hushgraph.gradients.clip import Clipping, group_of
from hushgraph.graph.graph import Graph
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.tasks.class_tables import CONFIDENCE_EDGES

# Probabilities so near to each other, or to an edge of a bin, may be rounded otherwise.
_SAME = 1e-5


def list_records(graph: Graph, plan: PrivacyPlan) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The row that owns every record, and the place that it lists."""
    source, target = (np.concatenate(ends) for ends in zip(*graph.edge_chunks(), strict=True))
    return (source, target) if plan.edge_owner == "sender" else (target, source)


def expect_boards(seen: Seen, graph: Graph, plan: PrivacyPlan) -> tuple[list[Floats], list[Floats]]:
    """What rows may cast onto every board and what they read after it, by the contract."""
    c, config = graph.num_classes, seen.folder.config
    owners, places = list_records(graph, plan)
    degrees = np.bincount(owners, minlength=graph.num_nodes)
    shares = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0.0)[:, None]
    labels = np.zeros((graph.num_nodes, c))
    labels[graph.train_idx] = (np.eye(c)[graph.y[graph.train_idx]] - 1 / c) / math.sqrt(1 - 1 / c)
    has_label = np.isin(np.arange(graph.num_nodes), graph.train_idx)[:, None]
    ballots, boards = [labels * shares], []
    readings: list[Floats] = []
    for place, board in enumerate(seen.released_boards(plan.num_boards)):
        if place:
            weights, _ = read_tensors(seen.folder.halfway_path)
            scores = compute_scores(weights, graph, readings[-1])[0]
            soft = (special.softmax(scores, axis=1) - 1 / c) / math.sqrt(1 - 1 / c)
            soft /= np.maximum(1.0, np.linalg.norm(soft, axis=1, keepdims=True))
            ballots.append(np.where(has_label, labels, soft) * shares)
        boards.append((board.values.astype(np.float64), plan.board_noise[place]))
        precisions = np.array([std**-2 for _, std in boards])
        parts = precisions / precisions.sum()
        mean = sum(part * values for part, (values, _) in zip(parts, boards, strict=True))
        mean = mean - mean.mean(axis=1, keepdims=True)
        std = precisions.sum() ** -0.5
        loudness = np.maximum(np.square(mean / std).sum(axis=1) - c, 0.0) / c
        damping = 1 / np.sqrt(1 + loudness)
        own = sum(part * cast for part, cast in zip(parts, ballots, strict=True))
        total, square = np.zeros_like(mean), np.zeros(graph.num_nodes)
        np.add.at(total, owners, damping[places, None] * (mean[places] - own[owners]))
        np.add.at(square, owners, damping[places] ** 2)
        read = total / np.sqrt(np.where(square > 0, square, 1.0))[:, None] * config.reading_scale / std
        norms = np.square(read).sum(axis=1, keepdims=True)
        readings.append(read / np.sqrt(1 + norms / config.reading_radius**2))
    return ballots, readings


def compute_scores(weights: Weights, graph: Graph, readings: Floats) -> tuple[Floats, Floats, Floats]:
    """Scores, inputs and hidden values of all rows, by the default model."""
    w = {name: value.double().numpy() for name, value in weights.items()}
    x = graph.dense_features(np.arange(graph.num_nodes)).astype(np.float64)
    inputs = np.concatenate([x, readings], axis=1)
    hidden = np.tanh(inputs @ w["encoder.0.weight"].T + w["encoder.0.bias"])
    scores = hidden @ w["decoder.weight"].T + w["decoder.bias"] + readings @ w["skip.weight"].T
    return scores, inputs, hidden


def expect_sum(weights: Weights, graph: Graph, readings: Floats, clipping: Clipping) -> Weights:
    """The sum of the clipped gradients of all training rows, written out layer by layer."""
    rows = graph.train_idx
    scores, inputs, hidden = (each[rows] for each in compute_scores(weights, graph, readings))
    readings = readings[rows]
    outer = special.softmax(scores, axis=1) - np.eye(graph.num_classes)[graph.y[rows]]
    inner = (outer @ weights["decoder.weight"].double().numpy()) * (1 - hidden**2)

    # The gradient of a row by layer: an outer product, or a vector.
    parts: dict[str, tuple[Floats, Floats | None]] = {
        "encoder.0.weight": (inner, inputs),
        "encoder.0.bias": (inner, None),
        "decoder.weight": (outer, hidden),
        "decoder.bias": (outer, None),
        "skip.weight": (outer, readings),
    }
    by_group = np.zeros((3, len(rows)))
    for name, (left, right) in parts.items():
        square = np.square(left).sum(axis=1)
        by_group[group_of(name)] += square if right is None else square * np.square(right).sum(axis=1)
    factors = clipping.factors(torch.from_numpy(by_group)).numpy()
    sums: Weights = {}
    for name, (left, right) in parts.items():
        scaled = left * factors[group_of(name)][:, None]
        sums[name] = torch.from_numpy(scaled.sum(axis=0) if right is None else scaled.T @ right)
    return sums


def expect_counts(weights: Weights, graph: Graph, readings: Floats) -> tuple[dict[str, Counts], int]:
    """Labels against predictions, and how sure a prediction was against whether it is right, by split."""
    shown = special.softmax(compute_scores(weights, graph, readings)[0], axis=1)
    edges, best = np.append(CONFIDENCE_EDGES, np.inf), shown.argmax(axis=1)
    counts: dict[str, Counts] = {}
    unsure = 0
    for split, rows in (("val", graph.val_idx), ("test", graph.test_idx)):
        confusion = np.zeros((graph.num_classes, graph.num_classes), np.int64)
        calibration = np.zeros((len(edges), 2), np.int64)
        for row in rows[graph.y[rows] >= 0]:
            sure = shown[row].max()
            confusion[graph.y[row], best[row]] += 1
            calibration[int(np.argmax(sure <= edges)), int(best[row] == graph.y[row])] += 1
            second = np.sort(shown[row])[-2]
            unsure += bool(np.abs(edges - sure).min() < _SAME or sure - second < _SAME)
        counts[split] = (confusion, calibration)
    return counts, unsure
