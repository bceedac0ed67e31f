"""PPO for networks with memory: whole rollouts as rows, and a state for the first step of each.

    start ──→ step 0 ──→ step 1 ──→ … ──→ step T-1 ──→ start of the next rollout
    (stored)     │ is_first: forget before looking
                 └─→ next_observation, seen with the memory that the step left: what a time limit is bootstrapped with

A minibatch is some environments' whole rollouts, so gradients flow through all T steps, and no further back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from etude.components.networks.memory import has_memory, is_capturable
from etude.components.networks.modes import evaluating, mode_dependent
from etude.compute.trees import at, copy_, first_leaf, map_tree, storable
from etude.config.registry import networks
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.learning.update import Batch


class RolloutMemory:
    """What each network that remembers had in mind when the rollout at hand began."""

    def __init__(
        self, roles: Mapping[str, nn.Module], num_envs: int, accelerated: Callable[[Any], Any] = lambda function: function
    ) -> None:
        """`accelerated` makes of a function of tensors one that runs as the config chooses."""
        self.start: dict[str, Any] = {
            role: network.initial_state(num_envs)  # type: ignore[operator] # has_memory says that it can be called
            for role, network in roles.items()
            if has_memory(network)
        }
        self.is_capturable = all(map(is_capturable, roles.values()))
        """Whether updates and values may be part of CUDA graphs."""
        values = partial(values_by_steps, roles["critic"])
        self._values = accelerated(values) if self.is_capturable else values
        self.after: dict[str, Any] = {}
        """What follows the rollout at hand, of the roles that don't act and are brought along by learning."""

    def begin(self, actor_state: Any) -> None:
        """Keep what the actor has in mind before the first step of a rollout."""
        if "actor" in self.start:
            self.start["actor"] = map_tree(torch.clone, actor_state)

    def values(self, observation: Observation, next_observation: Observation, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """Value each step with the memory of that step, and where it led. Observations (N·T, ...), the rest (T, N)"""

        def by_time(value: Tensor) -> Tensor:
            return value.unflatten(0, (is_first.shape[1], -1)).transpose(0, 1)

        seen, led_to = (map_tree(by_time, each) for each in (observation, next_observation))
        values, next_values, after = self._values(seen, led_to, self.start["critic"], is_first)
        self.after["critic"] = map_tree(torch.clone, after)
        return values, next_values

    def go_on(self) -> None:
        """The rollout is learnt from: the next one begins where it ended."""
        self.start |= self.after
        self.after = {}

    def rows(self) -> dict[str, Any]:
        """Return the states as columns of a batch: one row an environment."""
        return {f"{role}_state": state for role, state in self.start.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the states that the rollout began with."""
        return storable(self.start)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin as the saved rollout did."""
        copy_(self.start, state)


def values_by_steps(
    critic: nn.Module, seen: Observation, led_to: Observation, state: Any, is_first: Tensor
) -> tuple[Tensor, Tensor, Any]:
    """Return the value of each step (T, N), that of where it led, and what the critic has in mind after the last."""
    values, next_values = [], []
    never = torch.zeros_like(is_first[0])
    with evaluating(mode_dependent(critic)):
        for t, first in enumerate(is_first):
            value, state = critic(at(seen, t), state, first)
            # With the memory after step t and before any reset: the next row may begin another episode with an empty one.
            following, _ = critic(at(led_to, t), state, never)
            values.append(value.squeeze(-1))
            next_values.append(following.squeeze(-1))
    return torch.stack(values), torch.stack(next_values), state


def outputs_of_sequences(network: nn.Module, rows: Batch, role: str) -> Tensor:
    """Return a network's outputs for rows that are whole rollouts, from the stored state on: (n, T, ...) → (n, T, outputs)."""
    by_time = map_tree(lambda value: value.transpose(0, 1), rows["observation"])
    if not has_memory(network):
        flat = network(map_tree(lambda value: value.flatten(0, 1), by_time))
        return flat.unflatten(0, rows["is_first"].T.shape).transpose(0, 1)
    outputs, _ = network.unroll(by_time, rows[f"{role}_state"], rows["is_first"].T)  # type: ignore[operator] # as above
    return outputs.transpose(0, 1)


def first_outputs(network: nn.Module, observation: Observation) -> Tensor:
    """Return the outputs of a network that remembers, as if observations (N, ...) were the first of their episodes."""
    count = len(first_leaf(observation))
    nothing = network.initial_state(count)  # type: ignore[operator] # as above
    everywhere = torch.ones(count, dtype=torch.bool, device=next(network.parameters()).device)
    outputs, _ = network(observation, nothing, everywhere)
    return outputs


def as_sequences(rows: Mapping[str, Any], num_envs: int) -> Batch:
    """(N · T, ...) → (N, T, ...), where each environment's steps are together."""
    return map_tree(lambda value: value.unflatten(0, (num_envs, -1)), rows)


def remembers(config: Config) -> list[str]:
    """Return the roles whose network has memory."""
    return [role for role, options in config.network.items() if has_memory(networks.resolve(options.type))]


def batch_problems(config: Config, batch: int) -> Iterator[str]:
    """Yield what is wrong with a batch that must be made of whole rollouts."""
    steps, num_envs = config.algorithm.rollout_steps, config.environment.num_envs
    allowed = [steps * count for count in range(1, num_envs + 1) if num_envs % count == 0]
    if batch not in allowed:
        near = next((size for size in allowed if size >= batch), allowed[-1])
        yield (
            f"algorithm.batch_size={config.algorithm.batch_size}: networks with memory learn from whole rollouts of {steps} "
            f"steps, so it must be {steps} times a divisor of environment.num_envs={num_envs}; {near} is the next"
        )
