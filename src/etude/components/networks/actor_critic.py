"""A policy, with or without a value function, from spaces and a name: for notebooks and algorithms of your own."""

from __future__ import annotations

from typing import Any

import gymnasium
from torch import Tensor, nn

from etude.components.distributions import ActionHead, Distribution, check_mask, make_head
from etude.components.networks.build import build_network
from etude.components.networks.memory import has_memory
from etude.components.networks.spec import POLICY_GAIN
from etude.components.recipes import Recipe, remember
from etude.compute.random_streams import derive_seed
from etude.config.constraints import Component
from etude.config.validate import Validator
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import UserError


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
    settings = Validator().choose(Component("network"), {"type": network, **options}, "network")
    return build_actor_critic(
        settings,
        observation_space,
        action_space,
        critic=critic,
        seed=seed,
        init_noise_std=init_noise_std,
        fixed_std=fixed_std,
    )


def build_actor_critic(
    settings: Any,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    *,
    critic: bool,
    seed: int,
    init_noise_std: float,
    fixed_std: bool,
) -> ActorCritic:
    """Build it of a network's settings, which are as they should be."""
    head = make_head(action_space, init_noise_std=init_noise_std, fixed_std=fixed_std)
    check_mask(observation_space, head)

    def build(role: str, outputs: int, gain: float) -> nn.Module:
        made = build_network(
            settings, observation_space, outputs, seed=derive_seed(seed, "init", role), output_gain=gain, where=role
        )
        if has_memory(made):
            raise UserError(
                f"{settings.type} has memory, and an ActorCritic looks at one observation at a time; use the network itself"
            )
        return made

    made = ActorCritic(build("actor", head.size, POLICY_GAIN), head, build("critic", 1, 1.0) if critic else None)
    spaces = {"observation_space": observation_space, "action_space": action_space}
    values = {"critic": critic, "seed": seed, "init_noise_std": init_noise_std, "fixed_std": fixed_std}
    return remember(made, Recipe("actor_critic", settings, spaces, values=values))
