"""The update of the weights on a GPU, recorded: mean of the sum, step of Adam, average of the weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hushgraph.models.recording import Recording
from hushgraph.training.optimizers import Adam


class RecordedUpdate:
    """Does at once what `Trainer` does to the weights with one operation after the other.

    Weights, their average and the averages of Adam become views of one tensor each: on a GPU the time goes
    into starting operations, however many numbers they compute.

    Args:
        parameters: of the model, by name, on a device.
        average: the averaged weights, by name; its tensors are replaced by the views.
        optimizer: of the parameters; its state is kept up to date.
        batch_size: what sums are divided by.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        average: dict[str, Tensor],
        optimizer: Adam,
        batch_size: float,
    ) -> None:
        self._names, self._optimizer = list(parameters), optimizer
        self._batch_size = float(batch_size)
        self._kept = optimizer.prepare(list(parameters.values()))
        self._weights, views = _join([parameter.detach() for parameter in parameters.values()])
        for parameter, view in zip(parameters.values(), views, strict=True):
            parameter.data = view
        self._average, views = _join([average[name] for name in parameters])
        average |= zip(parameters, views, strict=True)
        self._gradients, views = _join([kept["exp_avg"] for kept in self._kept])
        self._squares, square_views = _join([kept["exp_avg_sq"] for kept in self._kept])
        for kept, view, square_view in zip(self._kept, views, square_views, strict=True):
            kept["exp_avg"], kept["exp_avg_sq"] = view, square_view
        self._sums = torch.zeros_like(self._weights, dtype=torch.float64)
        self._numbers = torch.zeros(3, device=self._weights.device)
        self._move = Recording(self._compute, self._weights.device)

    @torch.no_grad()
    def apply(self, sums: Mapping[str, Tensor], decay: float) -> None:
        """Move the weights along `sums` and their average, which keeps `decay` of itself, towards them."""
        for kept in self._kept:
            kept["step"] += 1
        # All parameters have taken equally many steps.
        rate, correction = self._optimizer.correct_rate(self._kept[0]["step"].item())
        numbers = torch.tensor([rate, correction, 1 - decay], pin_memory=self._numbers.is_cuda)
        self._numbers.copy_(numbers, non_blocking=True)
        torch.cat([sums[name].reshape(-1) for name in self._names], out=self._sums)
        self._move()

    def _compute(self) -> bool:
        rate, correction, moved = self._numbers.unbind()
        means = (self._sums / self._batch_size).float()
        kept = {"exp_avg": self._gradients, "exp_avg_sq": self._squares}
        root = self._optimizer.average_gradient(kept, means, correction)
        self._weights.sub_(self._gradients.div(root).mul_(rate))
        self._average.add_((self._weights - self._average).mul_(moved))
        return True


def _join(tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """One tensor with the numbers of all, and the views that have their shapes."""
    joined = torch.cat([tensor.reshape(-1) for tensor in tensors])
    parts = torch.split(joined, [tensor.numel() for tensor in tensors])
    return joined, [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
