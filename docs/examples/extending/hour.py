"""A task from outside: an hour of the day, where 23 and 1 are two hours apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import GraphError
from hushgraph.tasks.task import Evaluation, Task, register


@register
@dataclass(frozen=True, kw_only=True)
class Hour(Task):
    """An hour from 0 to 24: a point on a circle, two outputs, squared distance."""

    name = "hour"
    headline = "closeness"

    num_outputs = 2
    ballot_width = 2
    label_change = 4.0  # Opposite points of the circle are 2 apart.

    def check_labels(self, labels: Any) -> np.ndarray:
        hours = np.asarray(labels, np.float32)
        if ((hours < 0) | (hours >= 24)).any():
            raise GraphError("labels: expected hours of at least 0 and below 24, and NaN for no label")
        return hours

    def make_ballots(self, labels: np.ndarray) -> np.ndarray:
        angles = labels.astype(np.float64) * (2 * np.pi / 24)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def predict_ballots(self, outputs: Tensor) -> np.ndarray:
        return self.show(outputs).double().numpy()

    @staticmethod
    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        angles = torch.nan_to_num(labels) * (2 * torch.pi / 24)
        points = torch.stack([angles.cos(), angles.sin()], dim=1)
        return torch.where(labels.isnan(), 0.0, (outputs - points).square().sum(dim=1))

    def show(self, outputs: Tensor) -> Tensor:
        return torch.nn.functional.normalize(outputs, dim=1)

    def predict(self, shown: Tensor) -> Tensor:
        return torch.atan2(shown[:, 1], shown[:, 0]) * (24 / (2 * torch.pi)) % 24

    def evaluate(self, predicted: np.ndarray, labels: np.ndarray) -> Evaluation:
        away = np.cos((predicted - labels) * (2 * np.pi / 24))
        return Evaluation(figures={"closeness": float(away.mean())})
