"""Networks that see a group of the observation each: an actor what the robot senses, a critic what the simulator knows."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces
from torch import nn

from etude.components.networks.memory import has_memory
from etude.environments.vector import Observation

ACTOR = "actor"


def group_of(role: str, space: gymnasium.Space[Any]) -> gymnasium.Space[Any] | None:
    """Return what a role sees of a Dict observation that has a group of its name; None where it sees all.

    A Dict is one of groups if it has one called `actor`; other parts of it then belong to the networks they are named after.
    """
    if isinstance(space, spaces.Dict) and ACTOR in space.spaces:
        return space.spaces.get(role)
    return None


def reads_group(network: nn.Module, key: str) -> nn.Module:
    """Return the network, fed with one part of the observation."""
    return RememberingGroupReader(network, key) if has_memory(network) else GroupReader(network, key)


class GroupReader(nn.Module):
    """A network and the part of the observation that it sees."""

    def __init__(self, network: nn.Module, key: str) -> None:
        super().__init__()
        self.network, self.key = network, key

    def forward(self, observation: Observation, *rest: Any) -> Any:
        """Pass that part on."""
        assert isinstance(observation, dict)
        return self.network(observation[self.key], *rest)


class RememberingGroupReader(GroupReader):
    """One that carries a state from step to step."""

    def initial_state(self, n: int) -> Any:
        """Return the network's own."""
        return self.network.initial_state(n)  # type: ignore[operator] # a network with memory has it
