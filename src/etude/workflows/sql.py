"""Soft Q-learning (Haarnoja et al. 2017): learn the soft Q-function, and a network that draws actions from exp Q.

    value     V(s') = log ∫ exp min Q'(s', a) da  ≈  logsumexp over uniform particles − log of how many + D log 2
    critics   each Q towards  y = r + γ V(s')
    sampler   a = tanh f(s, ξ),  ξ ~ N(0, I);  moved along the Stein variational gradient of  min Q(s, a) + Σ log(1 − a²)
    targets   Q' ← Q' + τ (Q − Q'), once in `target_every` updates

The sampler's actions have no density in closed form, and need none: two thirds of them may go left and a third right. Entropy
counts as much as reward; scaling rewards up makes it count less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.acting.policy import PartsPolicy
from etude.components.critics import Follow, space_with, target_of, with_action, with_part
from etude.components.distributions import DeterministicHead, check_mask
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import NetworkSpec, vector
from etude.components.normalizers import ObservationNormalizer
from etude.components.stein import squash_correction, stein_direction
from etude.compute.noise import Noise
from etude.compute.trees import map_tree
from etude.config.constraints import Bounds, PositiveFloat, PositiveInt
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Batch, Metrics, Out, Stage, Update
from etude.workflows.base import ActResult, Context, Mode, PolicyWorkflow, State
from etude.workflows.off_policy import OffPolicyConfig, WithCritics, critics, judged, random_actions

NOISE = "noise"


@dataclass(frozen=True)
class SQLConfig(OffPolicyConfig):
    """Soft Q-learning."""

    name: str = "sql"
    """The registered name of the algorithm."""
    reward_scale: PositiveFloat = 1.0
    """Multiplies rewards. Higher seeks reward more and spreads less: one over it is the temperature."""
    value_particles: PositiveInt = 16
    """Uniform actions that a state's value is estimated from. More is steadier and slower."""
    kernel_particles: PositiveInt = 16
    """Actions of the sampler in each state that its direction is found with. More tells modes apart better, and is slower."""
    kernel_update_ratio: Annotated[float, Bounds(low=0, high=1, low_open=True)] = 0.5
    """The share of these that is moved; the others are where the density is looked at."""
    target_every: PositiveInt = 1
    """Updates between moves of the target critics. With tau=1 they are copied: every 1,000 updates in the paper."""
    critics: PositiveInt = 2
    """Action-value networks; the lowest of their values is believed."""

    def moved_particles(self) -> int:
        """Return how many of the kernel's particles are moved."""
        return int(self.kernel_particles * self.kernel_update_ratio)

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        moved, particles = self.moved_particles(), self.kernel_particles
        if moved < 1 or particles - moved < 2:
            yield (
                f"algorithm.kernel_update_ratio={self.kernel_update_ratio:g}: moves {moved} of "
                f"algorithm.kernel_particles={particles} and keeps {particles - moved}; at least 1 must move and 2 stay"
            )


class SQL(PolicyWorkflow, WithCritics):
    """Soft Q-learning."""

    Config = SQLConfig
    evaluation_mode: ClassVar[Mode] = "sample"
    sampler: nn.Module
    critic: nn.Module
    settings: SQLConfig

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two hidden layers of 128."""
        network = {"type": "mlp", "hidden_dims": [128, 128]}
        # A sampler without biases yet is odd in its noise with tanh: it begins with actions on both sides. With relu it may
        # fold both halves of the noise onto one side, and never find a mode on the other.
        return {"sampler": {**network, "activation": "tanh"}, "critic": {**network, "activation": "relu"}}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        check_mask(observation_space, _head(action_space))

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """An action of as many random numbers, which the sampler reads too, and its value."""
        head = _head(action_space)
        sampler = NetworkSpec(head, space_with(observation_space, NOISE, vector(head.size)))
        return {"sampler": sampler, "critic": critics(config, observation_space, action_space)}

    def initialize(self, context: Context) -> None:
        """Bind sampler and critics, and build what surrounds them."""
        super().initialize(context)
        self.head = _head(context.action_space).to(context.device)
        mode = context.config.environment.normalize_observations
        self.normalizer = ObservationNormalizer(context.observation_space, mode).to(context.device)
        self._policy = SamplerPolicy(self.normalizer, self.sampler, self.head)
        self.target_critic = target_of(self.critic)
        rate = self.scheduled("learning_rate")
        self.sampler_optimizer, self.critic_optimizer = (
            build_optimizer(self.settings.optimizer, {role: (network.parameters(), rate)})
            for role, network in {"sampler": self.sampler, "critic": self.critic}.items()
        )
        self._asked = mode_dependent(self.critic)
        self._executor = self.executor(self.losses())

    def losses(self) -> Update:
        """Critics first, then the sampler against the new critics, then the targets when they are due."""
        clip = self.settings.max_grad_norm
        return Update(
            [
                Stage("critic", self.critic_loss, self.critic_optimizer, clip),
                Stage("sampler", self.sampler_loss, self.sampler_optimizer, clip),
            ],
            after=Follow([self.critic], [self.target_critic], self.settings.tau),
            after_every=self.settings.target_every,
        )

    def critic_loss(self, batch: Batch, noise: Noise) -> Out:
        """Half the squared error of every critic, summed over them."""
        settings, size = self.settings, self.head.actions
        particles = noise.uniform("particles", (settings.value_particles, size), -1, 1)  # the same for all rows
        with torch.no_grad():
            next_observation = self.normalizer(batch["next_observation"])
            each = particles.expand(len(batch["reward"]), -1, -1)
            next_value = soft_value(self.lowest(self.target_critic, next_observation, each), size)
            targets = settings.reward_scale * batch["reward"] + batch["discount"] * next_value
        observation = self.normalizer(batch["observation"])
        return judged(self.critic(with_action(observation, batch["sample"])).squeeze(-1), targets, batch, scale=0.5)

    def sampler_loss(self, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        """A number whose gradient moves the sampler's actions along their Stein variational gradient."""
        observation, particles, size = self.normalizer(batch["observation"]), self.settings.kernel_particles, self.head.actions
        drawn = noise.normal("sampler", (len(batch["reward"]), particles, size))
        actions = sampled(self.sampler, self.head, repeated(observation, particles), drawn.reshape(-1, size)).view_as(drawn)
        moved = self.settings.moved_particles()
        fixed, updated = actions.split([particles - moved, moved], dim=1)
        with torch.no_grad():
            fixed = fixed.detach()
            direction = stein_direction(fixed, updated.detach(), self.score(observation, fixed))
        spread = actions.detach().std(1).mean()
        return -(updated * direction).sum(-1).mean(), {"train/action_spread": spread}

    def score(self, observation: Observation, actions: Tensor) -> Tensor:
        """Return the gradient of the target's log-density at actions (B, K, D)."""

        def log_density(at: Tensor) -> Tensor:
            return (self.lowest(self.critic, observation, at) + squash_correction(at)).sum()

        with evaluating(self._asked):  # it is asked here, not taught
            return torch.func.grad(log_density)(actions).detach()

    def lowest(self, critic: nn.Module, observation: Observation, actions: Tensor) -> Tensor:
        """Return the lowest critic's value of actions (B, P, D) in each of B observations: (B, P)."""
        rows, particles, size = actions.shape
        each = with_action(repeated(observation, particles), actions.reshape(-1, size))
        return critic(each).squeeze(-1).amin(0).view(rows, particles)

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Any action, each as likely as the others."""
        return random_actions(self.head, state, is_first, generator)

    def likeliest(self, observation: Observation) -> Tensor:
        """The sampler's answer to no noise."""
        first = next(iter(observation.values())) if isinstance(observation, dict) else observation
        with evaluating(mode_dependent(self.sampler)):
            nothing = torch.zeros(len(first), self.head.actions, device=first.device)
            return sampled(self.sampler, self.head, observation, nothing)


class SamplerPolicy(PartsPolicy):
    """Actions as a network's answer to an observation and noise; its mode is the answer to no noise."""

    def __init__(self, normalizer: ObservationNormalizer, sampler: nn.Module, head: DeterministicHead) -> None:
        super().__init__(normalizer=normalizer, sampler=sampler, head=head)
        self._normalizer, self._sampler, self._head = normalizer, sampler, head

    @torch.no_grad()
    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the environment action; extras hold it on a scale where the bounds are ±1."""
        noise = torch.zeros(is_first.shape[0], self._head.actions, device=is_first.device)
        if mode != "greedy":
            noise.normal_(generator=generator)
        with evaluating(self._switched):
            sample = sampled(self._sampler, self._head, self._normalizer(observation), noise)
        return ActResult(self._head.to_environment(sample), state, {"sample": sample})

    @property
    def capturable(self) -> bool:
        """One pass."""
        return True


def sampled(sampler: nn.Module, head: DeterministicHead, observation: Observation, noise: Tensor) -> Tensor:
    """Return the actions (N, D) in [-1, 1] that noise (N, D) leads to."""
    return head(sampler(with_part(observation, NOISE, noise))).mode()


def repeated(observation: Observation, times: int) -> Observation:
    """(B, ...) → (B · times, ...): each row so many times in turn."""
    return map_tree(lambda part: part.unsqueeze(1).expand(-1, times, *part.shape[1:]).flatten(0, 1), observation)


def soft_value(values: Tensor, actions: int) -> Tensor:
    """(..., P) values of uniform actions in [-1, 1]^actions → (...): log of the integral of their exponential.

    The mean over particles times the volume 2^actions.
    """
    return values.logsumexp(-1) - math.log(values.shape[-1]) + actions * math.log(2)


def _head(space: gymnasium.Space[Any]) -> DeterministicHead:
    if isinstance(space, spaces.Box):
        return DeterministicHead(space)
    raise UserError(f"sql acts in Box spaces, not {type(space).__name__}; ppo and sac take discrete actions")
