"""The policy of algorithms that learn what each action is worth: take the best one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Generator, Tensor

from etude.acting.policy import ActResult, Mode, PartsPolicy, State
from etude.components.action_values import ActionValues, allowed
from etude.components.networks.mlp import HostMLP
from etude.components.networks.modes import evaluating
from etude.components.normalizers import ObservationNormalizer
from etude.components.value_distributions import MeanValue
from etude.environments.vector import Observation


class QPolicy(PartsPolicy):
    """Normalise, one network pass, the action with the highest value among those that are allowed."""

    stochastic = False

    def __init__(
        self, normalizer: ObservationNormalizer, q: ActionValues, observation_space: gymnasium.Space[Any] | None = None
    ) -> None:
        super().__init__(normalizer=normalizer, q=q)
        self._normalizer, self._q = normalizer, q
        on_host = HostMLP.of(q.network, observation_space) if observation_space is not None else None
        self._forward = on_host or q.network
        self.on_host = on_host if q.dueling is None and isinstance(q.distribution, MeanValue) else None
        """The network in NumPy, where its outputs are the actions' values as they are; None elsewhere."""

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return what each action is worth, (N, actions); −∞ where a mask forbids it."""
        with evaluating(self._switched):
            outputs = self._q.shaped(self._forward(self._normalizer(observation)))
        return allowed(self._q.values(outputs), observation)

    def values_on_host(self, observation: np.ndarray) -> np.ndarray:
        """Return what each action is worth, (N, actions), where `on_host` is."""
        assert self.on_host is not None
        if self._normalizer.mode != "off":
            seen = self._normalizer(torch.from_numpy(observation))
            observation = seen.numpy()
        return self.on_host.forward(observation)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Take the best action, in any mode: exploring is the algorithm's business."""
        if self.on_host is not None:
            assert isinstance(observation, Tensor)
            return ActResult(torch.from_numpy(self.values_on_host(observation.numpy()).argmax(-1)), state)
        return ActResult(self.values(observation).argmax(-1), state)

    @property
    def capturable(self) -> bool:
        """One pass."""
        return True
