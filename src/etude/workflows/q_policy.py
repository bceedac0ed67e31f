"""The policy of algorithms that learn what each action is worth: take the best one."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.components.action_values import ActionValues, allowed
from etude.components.networks.mlp import HostMLP
from etude.components.normalizers import ObservationNormalizer
from etude.environments.vector import Observation
from etude.workflows.base import ActResult, Mode, State
from etude.workflows.policy import Policy


class QPolicy(Policy):
    """Normalise, one network pass, the action with the highest value among those that are allowed."""

    exportable = True
    stochastic = False

    def __init__(
        self, normalizer: ObservationNormalizer, q: ActionValues, observation_space: gymnasium.Space[Any] | None = None
    ) -> None:
        self.parts = nn.ModuleDict({"normalizer": normalizer, "q": q})
        self._normalizer, self._q = normalizer, q
        self._forward = (observation_space and HostMLP.of(q.network, observation_space)) or q.network

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return what each action is worth, (N, actions); −∞ where a mask forbids it."""
        outputs = self._q.shaped(self._forward(self._normalizer(observation)))
        return allowed(self._q.values(outputs), observation)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Take the best action, in any mode: exploring is the algorithm's business."""
        return ActResult(self.values(observation).argmax(-1), state)

    def state_dict(self) -> dict[str, Any]:
        """Return weights and statistics."""
        return self.parts.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and statistics."""
        self.parts.load_state_dict(state)
