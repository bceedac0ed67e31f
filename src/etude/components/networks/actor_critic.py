"""A policy, with or without a value function, from spaces and a name: for notebooks and algorithms of your own."""

from __future__ import annotations

from typing import Any

import gymnasium
from torch import Tensor, nn

from etude.components.distributions import ActionHead, Distribution, check_mask, make_head
from etude.components.networks.build import build_network
from etude.components.networks.memory import has_memory
from etude.compute.random_streams import derive_seed
from etude.config.constraints import Component
from etude.config.validate import Validator
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import ConfigError, UserError


class ActorCritic(nn.Module):
    """From an observation to a distribution over actions and, if it has a critic, a value."""

    def __init__(self, actor: nn.Module, head: ActionHead, critic: nn.Module | None = None) -> None:
        super().__init__()
        self.actor, self.head, self.critic = actor, head, critic

    def forward(self, observation: Observation) -> tuple[Distribution, Tensor | None]:
        """(N, ...) → distribution over N actions, values (N,) or None"""
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        distribution = self.head(self.actor(observation), mask)
        return distribution, None if self.critic is None else self.critic(observation).squeeze(-1)


def make_actor_critic(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    network: str = "mlp",
    *,
    critic: bool = True,
    seed: int = 1,
    init_noise_std: float = 1.0,
    fixed_std: bool = False,
    **options: Any,
) -> ActorCritic:
    """Build a policy, and a critic of the same kind unless told otherwise.

    `network` is a registered name or an import path, and `options` are its settings; a wrong one is an error that names it.
    """
    settings = _validated({"type": network, **options})
    head = make_head(action_space, init_noise_std=init_noise_std, fixed_std=fixed_std)
    check_mask(observation_space, head)

    def build(role: str, outputs: int, gain: float) -> nn.Module:
        made = build_network(
            settings, observation_space, outputs, seed=derive_seed(seed, "init", role), output_gain=gain, where=role
        )
        if has_memory(made):
            raise UserError(
                f"{network} has memory, and an ActorCritic looks at one observation at a time; use the network itself"
            )
        return made

    return ActorCritic(build("actor", head.size, 0.01), head, build("critic", 1, 1.0) if critic else None)


def _validated(data: dict[str, Any]) -> Any:
    validator = Validator()
    built = validator._component(Component("network"), data, "network")
    if validator.problems:
        raise ConfigError(*validator.problems)
    return built
