"""Generated graphs with planted classes, for demonstrations, tests and benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.datasets.splits import random_split
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph


def synthetic(
    *,
    num_nodes: int = 20_000,
    num_classes: int = 8,
    num_features: int = 64,
    average_degree: float = 12.0,
    homophily: float = 0.7,
    feature_signal: float = 0.15,
    exponent: float = 2.5,
    class_skew: float = 0.0,
    directed: bool = False,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    seed: int = 0,
) -> Graph:
    """Generate a random graph in which neighbours reveal more about a node's class than its own features.

    Args:
        num_nodes, num_classes, num_features: the sizes of the graph.
        average_degree: reads per node, before repeats are dropped.
        homophily: the share of edges drawn within a class; the others ignore classes.
        feature_signal: features are bits, set with probability 0.3, or 0.3 + feature_signal for the quarter
            of them that marks the node's class. 0 makes features useless; the largest value is 0.7.
        exponent: of the power law of degrees, above 2.
        class_skew: the share of class c is proportional to (c + 1)^-class_skew; 0 makes them equal.
        directed: draw single reads of popular nodes instead of undirected edges.
        fractions: shares of training, validation and test nodes.
        seed: the same seed gives the same graph on any machine with the same NumPy streams.

    Returns:
        The generated graph.

    Examples:
        >>> import hushgraph as hg
        >>> hg.datasets.synthetic(num_nodes=100, num_classes=3, num_features=5).x.shape
        (100, 5)
    """
    checks = [
        ("num_nodes", num_nodes, num_nodes >= 1, "at least 1"),
        ("num_classes", num_classes, num_classes >= 1, "at least 1"),
        ("num_features", num_features, num_features >= 1, "at least 1"),
        ("average_degree", average_degree, 0 <= average_degree <= num_nodes, f"0..{num_nodes} (num_nodes)"),
        ("homophily", homophily, 0 <= homophily <= 1, "0..1"),
        ("feature_signal", feature_signal, 0 <= feature_signal <= 0.7, "0..0.7"),
        ("exponent", exponent, exponent > 2, "a number above 2"),
        ("class_skew", class_skew, 0 <= class_skew <= 10, "0..10"),
    ]
    wrong = [
        f"{name}={value}: expected {expected}" for name, value, is_valid, expected in checks if not is_valid
    ]
    if wrong:
        raise GraphError("; ".join(wrong))
    rng = np.random.Generator(np.random.PCG64(seed))
    y = _draw_classes(rng, num_nodes, num_classes, class_skew)
    by_class = np.argsort(y, kind="stable").astype(np.int32)
    weight = _popularity(num_nodes, exponent)[rng.permutation(num_nodes)][by_class]
    tickets = np.repeat(by_class, weight)
    # Class c holds the tickets bounds[c]..bounds[c + 1] - 1.
    bounds = np.concatenate([[0], np.cumsum(np.bincount(y[by_class], weight, num_classes).astype(np.int64))])

    draws = round(num_nodes * average_degree * (1.0 if directed else 0.5))
    # In a directed graph all nodes read about equally often, and popular nodes are read more often.
    first = rng.integers(num_nodes, size=draws) if directed else rng.choice(tickets, draws)
    inside = rng.random(draws) < homophily
    low = np.where(inside, bounds[y[first]], 0)
    width = np.where(inside, np.diff(bounds)[y[first]], len(tickets))
    second = tickets[low + (rng.random(draws) * width).astype(np.int64)]

    x = _draw_features(rng, y, num_classes, num_features, feature_signal)
    train, val, test = random_split(num_nodes, fractions, seed=seed)
    return Graph.from_arrays(
        edge_index=np.stack([second, first]),
        x=x,
        y=y,
        train_idx=train,
        val_idx=val,
        test_idx=test,
        num_classes=num_classes,
        symmetrize=not directed,
        directed=directed,
    )


def _draw_classes(
    rng: np.random.Generator, num_nodes: int, num_classes: int, class_skew: float
) -> npt.NDArray[np.int64]:
    if class_skew == 0:
        return rng.integers(num_classes, size=num_nodes)
    share = (np.arange(num_classes) + 1.0) ** -class_skew
    ends = np.cumsum(share / share.sum())
    # Rounding may leave the last end below 1.
    return np.minimum(np.searchsorted(ends, rng.random(num_nodes), side="right"), num_classes - 1)


def _popularity(num_nodes: int, exponent: float) -> npt.NDArray[np.int64]:
    """Return the number of tickets of each node in the draw of edges: a power law with mean about 16."""
    rank = np.arange(num_nodes) + 1.0
    # The offset keeps the largest expected degree near 50 times the average.
    share = (1.0 + rank * (50.0 ** (exponent - 1.0) / num_nodes)) ** (-1.0 / (exponent - 1.0))
    weight: npt.NDArray[np.int64] = np.rint(16.0 * share / share.mean()).astype(np.int64)
    return weight


def _draw_features(
    rng: np.random.Generator, y: npt.NDArray[Any], num_classes: int, num_features: int, feature_signal: float
) -> npt.NDArray[np.float32]:
    """Draw bits [N, d]; for each class, a random quarter of the columns is set more often."""
    marked = rng.random((num_classes, num_features)) < 0.25
    threshold = np.rint(256 * np.where(marked, 0.3 + feature_signal, 0.3)).astype(np.uint16)
    bits = rng.integers(256, size=(len(y), num_features), dtype=np.uint8)
    features: npt.NDArray[np.float32] = (bits < threshold[y]).astype(np.float32)
    return features
