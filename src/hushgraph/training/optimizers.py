"""The update of a step, and Adam; SGD, and Adam of other weights than float32, are those of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.models.recording import Recording
from hushgraph.noise.source import join
from hushgraph.runs.checkpoint import Optimizer
from hushgraph.runs.config import TrainingConfig

if TYPE_CHECKING:
    from hushgraph.training.prepare import OptimizerFactory


def build_optimizer(
    model: nn.Module,
    average: dict[str, Tensor],
    config: TrainingConfig,
    own: OptimizerFactory | None,
) -> Optimizer:
    """The optimiser of a run: built in, or what the caller's function makes.

    Args:
        model: whose parameters it is for.
        average: of the weights, by name.
        config: of the run.
        own: the caller's function.
    """
    if (own is not None) != (config.optimizer == "own"):
        raise InputError(
            f"optimizer={config.optimizer!r}: expected adam or sgd, or for a run with an optimiser of your "
            "own the function that makes it"
        )
    parameters = dict(model.named_parameters())
    if own is not None:
        return own(model.parameters())
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters.values(), lr=config.learning_rate, momentum=config.momentum)
    settings: dict[str, Any] = {"lr": config.learning_rate, "betas": (config.momentum, 0.999)}
    if all(parameter.dtype == torch.float32 for parameter in parameters.values()):
        return Adam(parameters, average, **settings)
    return torch.optim.Adam(parameters.values(), **settings)


def move_weights(
    model: nn.Module,
    average: dict[str, Tensor],
    optimizer: Optimizer,
    sums: Mapping[str, Tensor],
    batch_size: int,
    *,
    decay: float,
) -> None:
    """Divide by the expected batch size, step the optimiser, move the average of the weights.

    Args:
        model: whose weights move.
        average: the averaged weights, which keep `decay` of themselves.
        optimizer: of the weights.
        sums: of the gradients, noise included.
        batch_size: the expected number of roots of a batch.
        decay: from 0 to 1.
    """
    if isinstance(optimizer, Adam):
        optimizer.move(sums, batch_size, decay)
        return
    parameters = dict(model.named_parameters())
    means = torch._foreach_div([sums[name] for name in parameters], float(batch_size))
    for parameter, mean in zip(parameters.values(), means, strict=True):
        parameter.grad = mean.to(parameter.dtype)
    optimizer.step()
    weights = [parameter.detach() for parameter in parameters.values()]
    torch._foreach_lerp_([average[name] for name in parameters], weights, 1 - decay)


class Adam:
    """Adam as in `torch.optim.Adam` (Kingma and Ba 2015), without weight decay, of float32 weights.

    Weights, their average and the averages of Adam are views of one tensor each. An update is then a handful
    of operations, however many parameters there are: on a GPU, and for small models, the time goes into
    starting operations. On a GPU they are recorded.

    Args:
        parameters: by name, on one device.
        average: the averaged weights, by name; its tensors are replaced by the views.
        lr: the learning rate.
        betas: decay of the averages of gradients and of their squares.
        eps: added to the root of the averaged squares.

    Attributes:
        param_groups: one group, with the parameters and `lr`, as those of a `torch.optim.Optimizer`.
        state: what is kept for every parameter.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        average: dict[str, Tensor],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self._names, values = list(parameters), list(parameters.values())
        self.param_groups: list[dict[str, Any]] = [{"params": values, "lr": lr, "betas": betas, "eps": eps}]
        self._weights, views = _join([value.detach() for value in values])
        for parameter, view in zip(values, views, strict=True):
            parameter.data = view
        self._average, views = _join([average[name] for name in self._names])
        average |= zip(self._names, views, strict=True)
        self._gradients, gradients = _join([torch.zeros_like(value) for value in values])
        self._squares, squares = _join([torch.zeros_like(value) for value in values])
        self.state: dict[Tensor, dict[str, Tensor]] = {
            value: {"step": torch.tensor(0.0), "exp_avg": gradient, "exp_avg_sq": square}
            for value, gradient, square in zip(values, gradients, squares, strict=True)
        }
        self._sums = torch.zeros_like(self._weights, dtype=torch.float64)
        # Rate, correction, what the average moves by, and the batch size: what a recording reads anew.
        self._numbers = torch.zeros(4, dtype=torch.float64, device=self._weights.device)
        self._recording: Recording[None] | None = None

    def state_dict(self) -> dict[str, Any]:
        """The state by the place of the parameter."""
        return {"state": {place: dict(kept) for place, kept in enumerate(self.state.values())}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; KeyError for a parameter that there is not, ValueError for another shape."""
        own = dict(enumerate(self.state.values()))
        for place, kept in state_dict["state"].items():
            shapes = {name: value.shape for name, value in own[place].items()}
            if {name: value.shape for name, value in kept.items()} != shapes:
                raise ValueError(
                    f"the optimiser's state of weight {place} lacks a part, or has another shape"
                )
            for name, value in kept.items():
                own[place][name].copy_(value)

    def step(self) -> None:
        """Move the weights along their gradients."""
        gradients = [parameter.grad for parameter in self.state]
        self.move(dict(zip(self._names, gradients, strict=True)), 1.0, decay=1.0)

    @torch.no_grad()
    def move(self, sums: Mapping[str, Any], batch_size: float, decay: float) -> None:
        """Move the weights along `sums` and their average, which keeps `decay` of itself, towards them."""
        [group], kept = self.param_groups, [each["step"] for each in self.state.values()]
        torch._foreach_add_(kept, 1)
        beta1, beta2 = group["betas"]
        # All parameters have taken equally many steps. Both averages began at zero, which this makes up for.
        step = kept[0].item()
        rate, correction = group["lr"] / (1 - beta1**step), math.sqrt(1 - beta2**step)
        joined = join([sums[name] for name in self._names])
        if self._weights.is_cuda:
            self._sums.copy_(joined)
            numbers = [rate, correction, 1 - decay, float(batch_size)]
            pinned = torch.tensor(numbers, dtype=torch.float64, pin_memory=True)
            self._numbers.copy_(pinned, non_blocking=True)
            self._recording = self._recording or Recording(self.move_by_numbers, self._weights.device)
            self._recording()
            return
        _move(
            joined.double().numpy(),
            *self._arrays,
            float(batch_size),
            np.array([1 - beta1, beta2, 1 - beta2, group["eps"]], np.float32),
            np.array([rate, correction, 1 - decay], np.float32),
        )

    @cached_property
    def _arrays(self) -> list[npt.NDArray[np.float32]]:
        """What `_move` changes."""
        return [each.numpy() for each in (self._gradients, self._squares, self._weights, self._average)]

    def move_by_numbers(self) -> None:
        """What `move` does, with numbers that are read from the device."""
        [group] = self.param_groups
        beta1, beta2 = group["betas"]
        rate, correction, moved, batch_size = self._numbers.unbind()
        means = (self._sums / batch_size).float()
        self._gradients.lerp_(means, 1 - beta1)
        self._squares.mul_(beta2).addcmul_(means, means, value=1 - beta2)
        root = self._squares.sqrt().div_(correction.float()).add_(group["eps"])
        self._weights.sub_(self._gradients.div(root).mul_(rate.float()))
        self._average.add_((self._weights - self._average).mul_(moved.float()))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _move(sums, gradients, squares, weights, averages, batch_size, settings, numbers):  # type: ignore[no-untyped-def]
    """`Adam.move_by_numbers` in one pass."""
    share, kept, square_share, eps = settings
    rate, correction, moved = numbers
    for i in range(len(weights)):
        mean = np.float32(sums[i] / batch_size)
        gradients[i] += share * (mean - gradients[i])
        squares[i] = kept * squares[i] + square_share * (mean * mean)
        weights[i] -= rate * (gradients[i] / (np.sqrt(squares[i]) / correction + eps))
        averages[i] += moved * (weights[i] - averages[i])


def _join(tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """One tensor with the numbers of all, and the views that have their shapes."""
    joined = torch.cat([tensor.reshape(-1) for tensor in tensors])
    parts = torch.split(joined, [tensor.numel() for tensor in tensors])
    return joined, [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
