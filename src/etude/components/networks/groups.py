"""Networks that see a group of the observation each: an actor what the robot senses, a critic what the simulator knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium import spaces
from torch import Tensor, nn

from etude.components.networks.keyed_encoder import SINGLE
from etude.components.networks.memory import MemoryNetwork, has_memory, is_capturable
from etude.components.recipes import recipe_with_parts, remember
from etude.environments.vector import Observation

ACTOR = "actor"


def group_of(role: str, space: gymnasium.Space[Any], beside: Sequence[str] = ()) -> gymnasium.Space[Any] | None:
    """Return what a role sees of a Dict observation that has a group of its name; None where it sees all.

    A Dict is one of groups if it has one called `actor`; other parts of it then belong to the networks they are named after.
    `beside` are parts that a role reads as well, such as the action that a critic values.
    """
    if not isinstance(space, spaces.Dict) or ACTOR not in space.spaces or role not in space.spaces:
        return None
    group = space.spaces[role]
    return spaces.Dict({SINGLE: group, **{name: space.spaces[name] for name in beside}}) if beside else group


def reads_group(network: nn.Module, key: str, beside: Sequence[str] = ()) -> nn.Module:
    """Return the network, fed with one part of the observation, and those beside it."""
    reader = RememberingGroupReader(network, key, beside) if has_memory(network) else GroupReader(network, key, beside)
    return remember(reader, recipe_with_parts("group", {"network": network}, values={"key": key, "beside": list(beside)}))


class GroupReader(nn.Module):
    """A network and the part of the observation that it sees."""

    def __init__(self, network: nn.Module, key: str, beside: Sequence[str] = ()) -> None:
        super().__init__()
        self.network, self.key, self.beside = network, key, tuple(beside)

    def forward(self, observation: Observation, *rest: Any) -> Any:
        """Pass that part on."""
        return self.network(self.part(observation), *rest)

    def part(self, observation: Observation) -> Any:
        """Return what of an observation the network sees."""
        assert isinstance(observation, dict)
        group: Any = observation[self.key]
        return {SINGLE: group, **{name: observation[name] for name in self.beside}} if self.beside else group


def group_of_all(networks: Sequence[nn.Module]) -> tuple[str, tuple[str, ...]] | None:
    """Return the part of the observation that all of several networks see, and what they see beside; None where they differ."""
    seen = {(each.key, each.beside) if type(each) is GroupReader else None for each in networks}
    return seen.pop() if len(seen) == 1 else None


class RememberingGroupReader(GroupReader, MemoryNetwork):  # type: ignore[override] # the same arguments
    """One that carries a state from step to step."""

    def __init__(self, network: nn.Module, key: str, beside: Sequence[str] = ()) -> None:
        super().__init__(network, key, beside)
        self.capturable = is_capturable(network)

    def initial_state(self, n: int) -> Any:
        """Return the network's own."""
        return self.network.initial_state(n)  # type: ignore[operator] # a network with memory has it

    def unroll(self, observation: Observation, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        """Take the network's own T steps."""
        return self.network.unroll(self.part(observation), state, is_first)  # type: ignore[operator] # as above
