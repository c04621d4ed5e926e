"""The update of a step, and the built-in optimisers.

Those of torch import its compiler first, which takes seconds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
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
    parameters: Iterator[nn.Parameter], config: TrainingConfig, own: OptimizerFactory | None
) -> Optimizer:
    """The optimiser of a run: built in, or what the caller's function makes."""
    if (own is not None) != (config.optimizer == "own"):
        raise InputError(
            f"optimizer={config.optimizer!r}: expected adam or sgd, or for a run with an optimiser of your "
            "own the function that makes it"
        )
    if own is not None:
        return own(parameters)
    if config.optimizer == "sgd":
        return SGD(parameters, lr=config.learning_rate, momentum=config.momentum)
    return Adam(parameters, lr=config.learning_rate, betas=(config.momentum, 0.999))


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
    if isinstance(optimizer, Adam) and (joined := optimizer.join(model, average)) is not None:
        joined.move(sums, batch_size, decay)
        return
    parameters = dict(model.named_parameters())
    means = torch._foreach_div([sums[name] for name in parameters], float(batch_size))
    for parameter, mean in zip(parameters.values(), means, strict=True):
        parameter.grad = mean.to(parameter.dtype)
    optimizer.step()
    weights = [parameter.detach() for parameter in parameters.values()]
    torch._foreach_lerp_([average[name] for name in parameters], weights, 1 - decay)


class _Optimizer(ABC):
    """Parameters, settings and state, laid out as those of a `torch.optim.Optimizer`.

    Attributes:
        param_groups: one group, with the parameters and `lr`.
        state: what is kept for every parameter.
    """

    def __init__(self, params: Iterable[Tensor], **settings: Any) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(params), **settings}]
        self.state: dict[Tensor, dict[str, Any]] = {}

    def state_dict(self) -> dict[str, Any]:
        """The state by the place of the parameter, and the settings."""
        [group] = self.param_groups
        places = {parameter: place for place, parameter in enumerate(group["params"])}
        settings = {name: value for name, value in group.items() if name != "params"}
        return {
            "state": {places[parameter]: dict(kept) for parameter, kept in self.state.items()},
            "param_groups": [{**settings, "params": list(places.values())}],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; raise KeyError for a parameter that there is not."""
        [group] = self.param_groups
        parameters = dict(enumerate(group["params"]))
        group |= {name: v for name, v in state_dict["param_groups"][0].items() if name != "params"}
        self.state = {}
        for place, kept in state_dict["state"].items():
            parameter = parameters[place]
            self.state[parameter] = {name: _like(value, name, parameter) for name, value in kept.items()}

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter along its gradient."""
        [group] = self.param_groups
        moved = [parameter for parameter in group["params"] if parameter.grad is not None]
        self._move(moved, [parameter.grad for parameter in moved], group)

    @abstractmethod
    def _move(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Move parameters along their gradients, with the settings of their group."""


class Adam(_Optimizer):
    """Adam as in `torch.optim.Adam` (Kingma and Ba 2015), without weight decay.

    Args:
        params: the parameters.
        lr: the learning rate.
        betas: decay of the averages of gradients and of their squares.
        eps: added to the root of the averaged squares.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps)
        self._joined: JoinedWeights | None = None

    def join(self, model: nn.Module, average: dict[str, Tensor]) -> JoinedWeights | None:
        """The weights of `model` and their average in one tensor each; None unless all are float32."""
        if self._joined is None or self._joined.average is not average:
            parameters = dict(model.named_parameters())
            if any(parameter.dtype != torch.float32 for parameter in parameters.values()):
                return None
            self._joined = JoinedWeights(parameters, average, self)
        return self._joined

    def prepare(self, parameters: list[Tensor]) -> list[dict[str, Any]]:
        """What is kept for each parameter; zero at first."""
        for parameter in parameters:
            if parameter not in self.state:
                zeros = torch.zeros_like(parameter), torch.zeros_like(parameter)
                self.state[parameter] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": zeros[0],
                    "exp_avg_sq": zeros[1],
                }
        return [self.state[parameter] for parameter in parameters]

    def count_step(self, kept: dict[str, Any]) -> tuple[float, float]:
        """Count a step of one parameter.

        Return its learning rate, and what the root of the averaged squares is divided by: both correct for
        averages that began at zero.
        """
        kept["step"] += 1
        return self.correct_rate(kept["step"].item())

    def correct_rate(self, step: float) -> tuple[float, float]:
        """What `count_step` returns for a parameter that takes this step."""
        [group] = self.param_groups
        beta1, beta2 = group["betas"]
        return group["lr"] / (1 - beta1**step), math.sqrt(1 - beta2**step)

    def average_gradient(self, kept: dict[str, Any], gradient: Tensor, correction: float | Tensor) -> Tensor:
        """Move both averages; return the root of that of the squares."""
        [group] = self.param_groups
        beta1, beta2 = group["betas"]
        kept["exp_avg"].lerp_(gradient, 1 - beta1)
        squares = kept["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root: Tensor = squares.sqrt().div_(correction).add_(group["eps"])
        return root

    def _move(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        for parameter, kept, gradient in zip(parameters, self.prepare(parameters), gradients, strict=True):
            rate, correction = self.count_step(kept)
            root = self.average_gradient(kept, gradient, correction)
            parameter.addcdiv_(kept["exp_avg"], root, value=-rate)


class JoinedWeights:
    """Weights, their average and the averages of Adam, each as views of one tensor.

    An update is then a handful of operations, however many parameters there are: on a GPU, and for small
    models, the time goes into starting operations. On a GPU they are recorded.

    Args:
        parameters: of the model, by name, on one device.
        average: the averaged weights, by name; its tensors are replaced by the views.
        optimizer: of the parameters; its state is kept up to date.
    """

    def __init__(self, parameters: Mapping[str, Tensor], average: dict[str, Tensor], optimizer: Adam) -> None:
        self.average = average
        self._names, self._optimizer = list(parameters), optimizer
        self._kept = optimizer.prepare(list(parameters.values()))
        self._weights, views = _join([parameter.detach() for parameter in parameters.values()])
        for parameter, view in zip(parameters.values(), views, strict=True):
            parameter.data = view
        self._average, views = _join([average[name] for name in parameters])
        average |= zip(parameters, views, strict=True)
        gradients, views = _join([kept["exp_avg"] for kept in self._kept])
        squares, square_views = _join([kept["exp_avg_sq"] for kept in self._kept])
        for kept, view, square_view in zip(self._kept, views, square_views, strict=True):
            kept["exp_avg"], kept["exp_avg_sq"] = view, square_view
        self._averages = {"exp_avg": gradients, "exp_avg_sq": squares}
        self._sums = torch.zeros_like(self._weights, dtype=torch.float64)
        # Rate, correction, what the average moves by, and the batch size: what a recording reads anew.
        self._numbers = torch.zeros(4, dtype=torch.float64, device=self._weights.device)
        self._recording: Recording[None] | None = None

    @torch.no_grad()
    def move(self, sums: Mapping[str, Tensor], batch_size: float, decay: float) -> None:
        """Move the weights along `sums` and their average, which keeps `decay` of itself, towards them."""
        torch._foreach_add_([kept["step"] for kept in self._kept], 1)
        # All parameters have taken equally many steps.
        rate, correction = self._optimizer.correct_rate(self._kept[0]["step"].item())
        joined = join([sums[name] for name in self._names])
        if self._weights.is_cuda:
            self._sums.copy_(joined)
            numbers = [rate, correction, 1 - decay, float(batch_size)]
            pinned = torch.tensor(numbers, dtype=torch.float64, pin_memory=True)
            self._numbers.copy_(pinned, non_blocking=True)
            self._replay()
            return
        [group] = self._optimizer.param_groups
        beta1, beta2 = group["betas"]
        _move(
            joined.double().numpy(),
            *self._arrays,
            float(batch_size),
            np.array([1 - beta1, beta2, 1 - beta2, group["eps"]], np.float32),
            np.array([rate, correction, 1 - decay], np.float32),
        )

    @cached_property
    def _arrays(self) -> list[npt.NDArray[np.float32]]:
        """What `_move` changes: averages of Adam, weights and their average."""
        return [tensor.numpy() for tensor in (*self._averages.values(), self._weights, self._average)]

    def _replay(self) -> None:
        if self._recording is None:
            self._recording = Recording(self.move_by_numbers, self._weights.device)
        self._recording()

    def move_by_numbers(self) -> None:
        """What `move` does, with numbers that are read from the device."""
        rate, correction, moved, batch_size = self._numbers.unbind()
        means = (self._sums / batch_size).float()
        root = self._optimizer.average_gradient(self._averages, means, correction.float())
        self._weights.sub_(self._averages["exp_avg"].div(root).mul_(rate.float()))
        self._average.add_((self._weights - self._average).mul_(moved.float()))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _move(sums, gradients, squares, weights, averages, batch_size, settings, numbers):  # type: ignore[no-untyped-def]
    """`JoinedWeights.move_by_numbers` in one pass."""
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


class SGD(_Optimizer):
    """Gradient descent with momentum as in `torch.optim.SGD`.

    Args:
        params: the parameters.
        lr: the learning rate.
        momentum: what is kept of the last move; 0 keeps nothing.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float, momentum: float = 0.0) -> None:
        super().__init__(params, lr=lr, momentum=momentum)

    def _move(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            move = gradient
            if group["momentum"]:
                if parameter in self.state:
                    move = self.state[parameter]["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
                else:
                    move = gradient.clone()
                    self.state[parameter] = {"momentum_buffer": move}
            parameter.add_(move, alpha=-group["lr"])


def _like(value: Any, name: str, parameter: Tensor) -> Any:
    """A copy of a stored value on the device of its parameter; the number of steps stays on the CPU."""
    if not isinstance(value, Tensor):
        return value
    return value.clone() if name == "step" else value.to(parameter.device).clone()
