"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018), and DDPG (Lillicrap et al. 2016) as settings of it.

    critics   y = r + γ min Q'(s', clip(π'(s') + ε)),  ε ~ clip(N(0, target_noise), ±target_noise_clip);  each Q towards y
    actor     climbs Q₁(s, π(s)), once in `policy_delay` updates
    targets   Q' and π' follow Q and π by τ, whenever the actor has moved

DDPG is one critic, an actor that moves every time, and targets without noise:

    etude train Pendulum-v1:td3 algorithm.critics=1 algorithm.policy_delay=1 algorithm.target_noise=0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.components.critics import Follow, target_of, with_action
from etude.components.distributions import DeterministicHead, check_mask
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.normalizers import ObservationNormalizer
from etude.config.constraints import NonNegativeFloat, NonNegativeSchedule, PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update_step import Stage, UpdateStep
from etude.workflows.base import NOT_READ, ActResult, Context, Mode, State
from etude.workflows.off_policy import OffPolicyConfig, WithCritics, uniform_actions
from etude.workflows.policy import ActorPolicy, Policy


@dataclass(frozen=True)
class TD3Config(OffPolicyConfig):
    """Twin delayed deterministic policy gradients; DDPG with critics=1, policy_delay=1, target_noise=0."""

    name: str = "td3"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(1e-3)
    """Step size. Higher learns faster and breaks sooner; lin_1e-3 lowers it to 0 over the run."""
    critic_learning_rate: PositiveSchedule | None = None
    """Step size of the critics, if it should differ."""
    exploration_noise: NonNegativeSchedule = Schedule.constant(0.1)
    """Standard deviation of the noise on actions while collecting, on a scale where the bounds are ±1."""
    target_noise: NonNegativeFloat = 0.2
    """Standard deviation of the noise on the target policy's actions; it smooths the values that are learnt."""
    target_noise_clip: NonNegativeFloat = 0.5
    """How far that noise may go."""
    policy_delay: PositiveInt = 2
    """Updates of the critics for each one of actor and targets."""
    critics: PositiveInt = 2
    """Action-value networks; the lowest of their values is believed."""
    reward_scale: PositiveFloat = 1.0
    """Multiplies rewards."""


class TD3(WithCritics):
    """Twin delayed deep deterministic policy gradients."""

    Config = TD3Config
    needs: ClassVar[Mapping[str, Sequence[str]]] = {"actor": ["forward"], "critic": ["forward"]}
    actor: nn.Module

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """The paper's layers."""
        network = {"type": "mlp", "hidden_dims": [400, 300], "activation": "relu"}
        return {"actor": network, "critic": dict(network)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        check_mask(observation_space, _head(action_space))

    @classmethod
    def output_sizes(cls, config: Config, action_space: gymnasium.Space[Any]) -> dict[str, int]:
        """An action, and its value."""
        return {"actor": _head(action_space).size, "critic": 1}

    def initialize(self, context: Context) -> None:
        """Bind actor and critics, and build what surrounds them."""
        super().initialize(context)
        self.settings: TD3Config = context.config.algorithm
        self.head = _head(context.action_space).to(context.device)
        mode = context.config.environment.normalize_observations
        self.normalizer = ObservationNormalizer(context.observation_space, mode).to(context.device)
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space, with_log_prob=False)
        self._policy.stochastic = False
        self.target_actor, self.target_critic = target_of(self.actor), target_of(self.critic)
        rate = self.scheduled("learning_rate")
        own_rate = self.settings.critic_learning_rate is not None
        critic_rate = self.scheduled("critic_learning_rate") if own_rate else rate
        groups = {"actor": (self.actor.parameters(), rate), "critic": (self.critic.parameters(), critic_rate)}
        self.actor_optimizer, self.critic_optimizer = (
            build_optimizer(self.settings.optimizer, {role: groups[role]}) for role in ("actor", "critic")
        )
        self.scheduled("exploration_noise")
        self._explore = self.captured(self._explored)
        self._begin()

    def update_step(self) -> UpdateStep:
        """Critics every time; now and then the actor against the new critics, and the targets with it."""
        delay, clip = self.settings.policy_delay, self.settings.max_grad_norm
        follow = Follow([self.actor, self.critic], [self.target_actor, self.target_critic], self.settings.tau)
        return UpdateStep(
            [
                Stage(CriticLoss(self), self.critic_optimizer, clip, "critic"),
                Stage(ActorLoss(self), self.actor_optimizer, clip, "actor", every=delay),
            ],
            after=follow,
            after_every=delay,
            changed_after=follow.tensors,
            skip_non_finite=self.context.config.training.on_nan == "skip",
            complete=self.complete,
            mode=self.context.mode,
        )

    def noise(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """The noise on the target policy's actions."""
        shape = (self.settings.batch_size, self.head.actions)
        # One update at a time, so that the numbers do not depend on how many are taken at once.
        drawn = [torch.empty(shape, device=generator.device).normal_(generator=generator) for _ in range(count)]
        return {"next_noise": torch.stack(drawn)}

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the actor's action; while collecting, with noise on it, and at first a random one."""
        space = self.context.action_space
        assert isinstance(space, spaces.Box)
        if mode == "explore" and self.is_warming_up():
            sample = uniform_actions(space, observation, generator)
            return ActResult(self.head.to_environment(sample), state, {"sample": sample})
        if mode != "explore":
            return self._policy.act(observation, state, is_first, mode=mode, generator=generator)
        return self._explored(observation) if self._explore is None else self._explore(observation)

    def _explored(self, observation: Observation) -> ActResult:
        generator = self.context.streams["action"]
        sample = self._policy.act(observation, None, NOT_READ, mode="explore", generator=generator).extras["sample"]
        noise = torch.empty_like(sample).normal_(generator=generator)
        sample = (sample + self.scheduled("exploration_noise") * noise).clamp(-1, 1)
        return ActResult(self.head.to_environment(sample), None, {"sample": sample})

    def likeliest(self, observation: Observation) -> Tensor:
        """The actor's action."""
        with evaluating(mode_dependent(self.actor)):
            return self.head(self.actor(observation)).mode()

    def policy(self) -> Policy:
        """Normaliser, actor and head: all that acting needs."""
        return self._policy


class _Loss(nn.Module):
    """The networks a loss reads; which of them it changes is its optimiser's business."""

    def __init__(self, workflow: TD3) -> None:
        super().__init__()
        self.settings = workflow.settings
        self.normalizer, self.head = workflow.normalizer, workflow.head
        self.actor, self.critic = workflow.actor, workflow.critic
        self.target_actor, self.target_critic = workflow.target_actor, workflow.target_critic


class CriticLoss(_Loss):
    """The squared error of every critic, summed over them."""

    def forward(self, rows: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and what to log of it."""
        settings, reach = self.settings, self.settings.target_noise_clip
        with torch.no_grad():
            following = self.normalizer(rows["next_observation"])
            noise = (settings.target_noise * rows["next_noise"]).clamp(-reach, reach)
            action = (self.head(self.target_actor(following)).mode() + noise).clamp(-1, 1)
            next_value = self.target_critic(with_action(following, action)).squeeze(-1).amin(0)
            targets = settings.reward_scale * rows["reward"] + rows["discount"] * next_value
        observation = self.normalizer(rows["observation"])
        values = self.critic(with_action(observation, rows["sample"])).squeeze(-1)  # (E, B)
        loss = (values - targets).square().mean(1).sum()
        return loss, {"train/q_mean": values.detach().mean(), "train/q_target_mean": targets.mean()}


class ActorLoss(_Loss):
    """Climb the first critic."""

    def forward(self, rows: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and what to log of it."""
        observation = self.normalizer(rows["observation"])
        action = self.head(self.actor(observation)).mode()
        value = self.critic(with_action(observation, action))[0]
        return -value.mean(), {"train/action_abs_mean": action.detach().abs().mean()}


def _head(space: gymnasium.Space[Any]) -> DeterministicHead:
    if isinstance(space, spaces.Box):
        return DeterministicHead(space)
    raise UserError(f"td3 acts in Box spaces, not {type(space).__name__}; ppo and sac take discrete actions")
