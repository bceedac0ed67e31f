"""From a raw rollout to what on-policy algorithms learn from: statistics taken in, values and advantages computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor, nn

from etude.buffers.base import Batch
from etude.buffers.rollout import flatten
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.normalizers import ObservationNormalizer, RewardNormalizer
from etude.components.returns import generalized_advantages
from etude.components.symmetry import with_image
from etude.compute.world import ALONE, Moments, World
from etude.config.schema import EnvironmentConfig
from etude.environments.mirror import Mirror
from etude.environments.vector import Observation

Valuer = Callable[[Observation, Observation, Tensor], tuple[Tensor, Tensor]]
"""Values each step and where it led, (T, N) both, from observations (N·T, ...) of the two and is_first (T, N)."""


class Normalizers(NamedTuple):
    """The statistics that the environment's settings ask for."""

    observation: ObservationNormalizer
    reward: RewardNormalizer | None

    @classmethod
    def build(
        cls, environment: EnvironmentConfig, space: gymnasium.Space[Any], num_envs: int, gamma: float, device: torch.device
    ) -> Normalizers:
        """Make them; rewards are left alone where observations are scaled by static bounds."""
        observation = ObservationNormalizer(space, environment.normalize_observations).to(device)
        if not environment.normalize_rewards or environment.normalize_observations == "static":
            return cls(observation, None)
        return cls(observation, RewardNormalizer(num_envs, gamma).to(device))

    @torch.no_grad()
    def take_in(
        self, columns: Mapping[str, Any], ended: Tensor, mirror: Mirror | None = None, world: World = ALONE
    ) -> tuple[Observation, Tensor]:
        """Count a raw rollout in, and its mirror image; returns observations (T, N, ...) and rewards (T, N) on their scale."""
        observation, rewards = columns["observation"], columns["reward"]
        flat = flatten({"observation": observation})["observation"]
        self.observation.update(flat if mirror is None else with_image(flat, mirror), world)
        if self.reward is not None:
            self.reward.update(rewards, ended, world)
            rewards = self.reward(rewards)
        return self.observation(observation), rewards


def episode_ends(columns: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return where episodes ended, and where one was cut off without an end (both (T, N)).

    Only a resume that can't bring an environment back cuts: new episodes begin amid the rollout.
    """
    ended = columns["terminated"] | columns["truncated"]
    cut = torch.zeros_like(ended)
    cut[:-1] = columns["is_first"][1:] & ~ended[:-1]
    return ended, cut


def values_of(critic: nn.Module) -> Valuer:
    """Return how a critic without memory values a rollout."""

    def value(observation: Observation, next_observation: Observation, is_first: Tensor) -> tuple[Tensor, Tensor]:
        steps, num_envs = is_first.shape
        with evaluating(mode_dependent(critic)):
            seen, led_to = (critic(each).view(num_envs, steps).T for each in (observation, next_observation))
        return seen, led_to

    return value


@torch.no_grad()
def actor_critic_rows(
    columns: Mapping[str, Any],
    value: Valuer,
    normalizers: Normalizers,
    gamma: float,
    gae_lambda: float,
    mirror: Mirror | None = None,
    world: World = ALONE,
) -> Batch:
    """From a raw rollout (T, N, ...) to flat rows (N·T, ...) with values, advantages and returns."""
    ended, cut = episode_ends(columns)
    observation, rewards = normalizers.take_in(columns, ended | cut, mirror, world)
    # next_observation is where each transition led: the next row's observation, or what an ended episode ended in.
    next_observation = normalizers.observation(columns["next_observation"])
    flat = flatten({"observation": observation, "final": next_observation, "sample": columns["sample"]})
    values, next_values = value(flat["observation"], flat.pop("final"), columns["is_first"])
    advantages = generalized_advantages(rewards, values, next_values, columns["terminated"], ended | cut, gamma, gae_lambda)
    told = {"log_prob": columns["log_prob"], "values": values, "advantages": advantages, "returns": advantages + values}
    return {**flat, **flatten(told)}


def standardize(values: Tensor, world: World = ALONE) -> Tensor:
    """Return values with mean 0 and standard deviation 1, over all ranks."""
    if world.size == 1:
        return (values - values.mean()) / (values.std() + 1e-8)
    count, mean, var = world.merged(Moments.of(values.double().flatten()))
    return ((values - mean) / ((var * count / (count - 1)).sqrt() + 1e-8)).to(values.dtype)
