"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018), and DDPG (Lillicrap et al. 2016) as settings of it.

    critics   y = r + γ min Q'(s', clip(π'(s') + ε)),  ε ~ clip(N(0, target_noise), ±target_noise_clip);  each Q towards y
    actor     climbs Q₁(s, π(s)), once in `policy_delay` updates
    targets   Q' and π' follow Q and π by τ, whenever the actor has moved

DDPG is one critic, an actor that moves every time, and targets without noise:

    etude train Pendulum-v1:td3 algorithm.critics=1 algorithm.policy_delay=1 algorithm.target_noise=0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.components.critics import Follow, target_of, with_action
from etude.components.distributions import DeterministicHead, check_mask
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.components.normalizers import ObservationNormalizer
from etude.compute.noise import Noise
from etude.config.constraints import NonNegativeFloat, NonNegativeSchedule, PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Batch, Metrics, Out, Stage, Update, WrittenLoss
from etude.workflows.base import ActResult, Context, Mode, PolicyWorkflow, State
from etude.workflows.off_policy import OffPolicyConfig, WithCritics, critics, judged, random_actions
from etude.workflows.written_critic_losses import WrittenTD3Actor, WrittenTD3Critics, critics_are_plain


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


class TD3(PolicyWorkflow, WithCritics):
    """Twin delayed deep deterministic policy gradients."""

    Config = TD3Config
    actor: nn.Module
    settings: TD3Config

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
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """An action, and its value."""
        actor = NetworkSpec(_head(action_space), output_gain=POLICY_GAIN)
        return {"actor": actor, "critic": critics(config, observation_space, action_space)}

    def initialize(self, context: Context) -> None:
        """Bind actor and critics, and build what surrounds them."""
        super().initialize(context)
        self.head = _head(context.action_space).to(context.device)
        self.normalizer = self.observation_scale(context)
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
        self._executor = self.executor(self.losses())

    def observation_scale(self, context: Context) -> ObservationNormalizer:
        """Return what puts observations on their scale."""
        mode = context.config.environment.normalize_observations
        return ObservationNormalizer(context.observation_space, mode).to(context.device)

    def losses(self) -> Update:
        """Critics every time; now and then the actor against the new critics, and the targets with it."""
        delay, clip, written = self.settings.policy_delay, self.settings.max_grad_norm, dict[str, WrittenLoss]()
        if self.is_written(self.context.config):
            networks = {"actor": self.actor, "critic": self.critic}
            targets = {"actor": self.target_actor, "critic": self.critic, "target": self.target_critic}
            written["critic"] = WrittenLoss(targets, self._written_critic_loss)
            written["actor"] = WrittenLoss(networks, self._written_actor_loss)
        return Update(
            [
                Stage("critic", self.critic_loss, self.critic_optimizer, clip, written=written.get("critic")),
                Stage("actor", self.actor_loss, self.actor_optimizer, clip, every=delay, written=written.get("actor")),
            ],
            after=Follow([self.actor, self.critic], [self.target_actor, self.target_critic], self.settings.tau),
            after_every=delay,
        )

    @classmethod
    def is_written(cls, config: Config) -> bool:
        """Where networks are plain; losses of one's own are torch's."""
        own = any(getattr(cls, name) is not getattr(TD3, name) for name in ("critic_loss", "actor_loss", "losses"))
        return not own and critics_are_plain(config)

    def _written_critic_loss(self, networks: Mapping[str, Any], gradients: Mapping[Tensor, Any]) -> WrittenTD3Critics:
        settings, noise = self.settings, (self.settings.target_noise, self.settings.target_noise_clip)
        return WrittenTD3Critics(networks, self.normalizer, settings.reward_scale, *noise)

    def _written_actor_loss(self, networks: Mapping[str, Any], gradients: Mapping[Tensor, Any]) -> WrittenTD3Actor:
        return WrittenTD3Actor(networks, self.normalizer)

    def critic_loss(self, batch: Batch, noise: Noise) -> Out:
        """The squared error of every critic, summed over them."""
        settings, reach = self.settings, self.settings.target_noise_clip
        drawn = noise.normal("target", (len(batch["reward"]), self.head.actions))
        with torch.no_grad():
            next_observation = self.normalizer(batch["next_observation"])
            smoothing = (settings.target_noise * drawn).clamp(-reach, reach)
            action = (self.head(self.target_actor(next_observation)).mode() + smoothing).clamp(-1, 1)
            next_value = self.target_critic(with_action(next_observation, action)).squeeze(-1).amin(0)
            targets = settings.reward_scale * batch["reward"] + batch["discount"] * next_value
        observation = self.normalizer(batch["observation"])
        return judged(self.critic(with_action(observation, batch["sample"])).squeeze(-1), targets, batch)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Climb the first critic."""
        observation = self.normalizer(batch["observation"])
        action = self.head(self.actor(observation)).mode()
        value = self.critic(with_action(observation, action))[0]
        return -value.mean(), {"train/action_abs_mean": action.detach().abs().mean()}

    @property
    def capturable(self) -> bool:
        """Where the policy's is."""
        return self._policy.capturable

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the actor's action; while exploring, with noise on it."""
        result = self._policy.act(observation, state, is_first, mode=mode, generator=generator)
        if mode != "explore":
            return result
        noise = torch.empty_like(result.extras["sample"]).normal_(generator=generator)
        sample = (result.extras["sample"] + self.scheduled("exploration_noise") * noise).clamp(-1, 1)
        return ActResult(self.head.to_environment(sample), state, {"sample": sample})

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Any action, each as likely as the others."""
        return random_actions(self.head, state, is_first, generator)

    def likeliest(self, observation: Observation) -> Tensor:
        """The actor's action."""
        with evaluating(mode_dependent(self.actor)):
            return self.head(self.actor(observation)).mode()


def _head(space: gymnasium.Space[Any]) -> DeterministicHead:
    if isinstance(space, spaces.Box):
        return DeterministicHead(space)
    raise UserError(f"td3 acts in Box spaces, not {type(space).__name__}; ppo and sac take discrete actions")
