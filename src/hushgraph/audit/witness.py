"""What the attacker sees: every released gradient, through an optimiser of the attacker's own.

A guarantee on the noisy sums holds whatever an optimiser makes of them. This one notes how far each sum
points along a chosen direction, and then sets the weights that the next step shall start from, by a schedule
fixed beforehand.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from hushgraph.audit.weights import Weights, use
from hushgraph.training.optimizers import SGD


# Not one of torch.optim, which imports the compiler of torch: two seconds.
class Witness(SGD):
    """Notes <released sum, direction> of every step; a stack of trials is noted trial by trial.

    Args:
        model: whose gradients are released.
        phases: the weights of step t are those of phase t modulo their number.
        directions: per phase and parameter.
        batch_size: what the released sums were divided by.
        follower: the module that gets the weights of the phase; `model` itself unless trials are stacked.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        phases: list[Weights],
        directions: list[Weights],
        batch_size: int,
        follower: nn.Module | None = None,
    ) -> None:
        super().__init__(model.parameters(), lr=1.0)
        self._model, self._follower = model, model if follower is None else follower
        self.phases, self._directions, self._batch_size = phases, directions, batch_size
        self.seen: list[Tensor] = []
        self.restart()

    @property
    def phase(self) -> int:
        """Which weights are in use."""
        return len(self.seen) % len(self.phases)

    def restart(self) -> None:
        """Before a trial."""
        self.seen = []
        use(self._follower, self.phases[0])

    def step(self) -> None:
        direction = self._directions[self.phase]
        along_direction: Tensor | float = 0.0
        for name, parameter in self._model.named_parameters():
            if parameter.grad is None:
                raise RuntimeError(f"{name}: released without a gradient")
            along = direction[name]
            # Leading dimensions that the direction has not are trials.
            lead = parameter.grad.dim() - along.dim()
            released = parameter.grad.detach().flatten(lead) if along.dim() else parameter.grad.detach()
            along_direction = along_direction + (released.double() @ along.flatten())
        self.seen.append(torch.as_tensor(along_direction) * self._batch_size)
        use(self._follower, self.phases[self.phase])


def stack_parameters(model: nn.Module, trials: int) -> nn.Module:
    """A module with the parameters of `model`, by name, `trials` times over; it cannot be called."""
    stack = copy.deepcopy(model)
    for module in stack.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            repeated = parameter.detach().expand(trials, *parameter.shape).clone()
            module.register_parameter(name, nn.Parameter(repeated))
    return stack
