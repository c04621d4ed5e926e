"""Ballots of rows without labels, from probabilities that a test chooses."""

from __future__ import annotations

import numpy as np
import torch

from hushgraph.billboard.ballots import Ballots, with_predictions
from hushgraph.tasks.classes import Classes


class ChosenProbabilities(Classes):
    """Classes whose outputs are probabilities, or anything a test puts in their place."""

    def show(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs


def with_probabilities(ballots: Ballots, said: np.ndarray) -> Ballots:
    """Rows that cast no label cast these probabilities."""
    task = ChosenProbabilities(num_classes=ballots.width)
    return with_predictions(ballots, torch.from_numpy(np.asarray(said)), task)
