"""Ballots of rows without labels, from probabilities that a test chooses."""

from __future__ import annotations

import numpy as np

from hushgraph.billboard.ballots import Ballots, add_soft


def with_probabilities(ballots: Ballots, said: np.ndarray) -> Ballots:
    """Rows that cast no label cast these probabilities, as `Classes` centres them."""
    c = ballots.width

    def centre(rows: np.ndarray) -> np.ndarray:
        return (said[rows].astype(np.float64) - 1 / c) / np.sqrt(1 - 1 / c)

    return add_soft(ballots, ~ballots.is_cast, centre)
