"""Advantage actor-critic (Mnih et al. 2016, in its synchronous form), for every action space and on any device.

One cycle is `collect` (rollout_steps vector steps) and `update` (one gradient step on all of it):

    rollout ─→ normalisers ─→ values, advantages ─→ loss, clipped gradient step

With gae_lambda=1 each step looks to the end of its rollout: n-step returns of every length up to rollout_steps, as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
import torch
from torch import Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.buffers.rollout import RolloutBuffer, length_problems
from etude.components.distributions import GaussianHead, check_mask, make_head
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.components.rollout_preparation import Normalizers, actor_critic_rows, standardize, values_of
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import Component, NonNegativeSchedule, PositiveFloat, PositiveInt, PositiveSchedule, UnitInterval
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.vector import ACTION_MASK, Observation
from etude.learning.optimizers import build_optimizer
from etude.learning.sources import Minibatches
from etude.learning.update import Batch, Stage, Update, WrittenLoss
from etude.workflows.base import Context, HookResult, Phase, PolicyWorkflow
from etude.workflows.metrics import Metrics
from etude.workflows.written_losses import WrittenA2C, WrittenActorCritic, settings_are_plain, spaces_are_plain


@dataclass(frozen=True)
class A2CConfig(AlgorithmSettings):
    """Advantage actor-critic."""

    name: str = "a2c"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(7e-4)
    """Step size. Higher learns faster and breaks sooner; lin_7e-4 lowers it to 0 over the run."""
    critic_learning_rate: PositiveSchedule | None = None
    """Step size of the critic, if it should differ."""
    rollout_steps: PositiveInt = 5
    """Vector steps per gradient step. Longer sees further into an episode and learns less often."""
    gamma: UnitInterval = 0.99
    """Discount: how much the next step counts. Closer to 1 looks further ahead and is noisier."""
    gae_lambda: UnitInterval = 1.0
    """Advantage horizon: 1 is unbiased and noisy, 0 leans on the critic alone."""
    value_coef: NonNegativeSchedule = Schedule.constant(0.5)
    """Weight of the value loss."""
    entropy_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Weight of the entropy bonus. Higher explores longer."""
    normalize_advantages: Literal["rollout", "batch", "off"] = "off"
    """Scale advantages to mean 0 and deviation 1; the rollout is the batch here."""
    max_grad_norm: PositiveFloat | None = 0.5
    """Clip the gradient to this norm; null leaves it alone."""
    accumulate: PositiveInt = 1
    """Pieces in which each gradient is computed before its step, for batches too large for memory; the step is the same."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("rmsprop", {"alpha": 0.99, "eps": 1e-5})
    """adam, adamw, rmsprop, sgd or an import path, with its options."""
    init_noise_std: PositiveFloat = 1.0
    """Continuous actions: the standard deviation to begin with, on a scale where the bounds are ±1."""
    fixed_std: bool = False
    """Continuous actions: keep that standard deviation instead of learning it."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from length_problems(config)


class A2C(PolicyWorkflow):
    """Policy gradient with a learned value function, one step a rollout."""

    learns_from = RolloutBuffer
    Config = A2CConfig
    settings: A2CConfig
    actor: nn.Module
    critic: nn.Module
    supports_ranks: ClassVar[bool] = True
    supports_samplers: ClassVar[bool] = True
    of_rank: ClassVar[tuple[str, ...]] = ("reward_normalizer",)

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two separate networks, so that the value loss can't disturb the policy."""
        network = {"type": "mlp", "hidden_dims": [64, 64], "activation": "tanh"}
        return {"actor": network, "critic": dict(network)}

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return the number of rollouts."""
        return config.training.total_steps // (config.algorithm.rollout_steps * config.environment.num_envs)

    @classmethod
    def is_written(cls, config: Config) -> bool:
        """Where networks are plain; a loss of one's own is torch's."""
        return cls.loss is A2C.loss and settings_are_plain(config)

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """The actor describes a distribution; the critic is one number."""
        return {"actor": NetworkSpec(make_head(action_space), output_gain=POLICY_GAIN), "critic": NetworkSpec(1)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Any action space that has a distribution will do."""
        check_mask(observation_space, make_head(action_space))

    def initialize(self, context: Context) -> None:
        """Bind actor and critic, and build what surrounds them."""
        super().initialize(context)
        settings = self.settings
        head = make_head(context.action_space, init_noise_std=settings.init_noise_std, fixed_std=settings.fixed_std)
        self.head = head.to(context.device)
        self._normalizers = Normalizers.build(
            context.config.environment, context.observation_space, context.num_envs, settings.gamma, context.device
        )
        self.normalizer, self.reward_normalizer = self._normalizers
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space)
        rate = self.scheduled("learning_rate")
        critic_rate = self.scheduled("critic_learning_rate") if settings.critic_learning_rate is not None else rate
        actor_parameters = [*self.actor.parameters(), *self.head.parameters()]
        groups = {"actor": (actor_parameters, rate), "critic": (self.critic.parameters(), critic_rate)}
        self.optimizer = build_optimizer(settings.optimizer, groups)
        self._executor = self.executor(self.losses())

    def losses(self) -> Update:
        """One loss of actor and critic together."""
        settings = self.settings
        for name in ("value_coef", "entropy_coef"):
            self.scheduled(name)
        plain = self.is_written(self.context.config) and spaces_are_plain(self.head, self.context.observation_space)
        roles = {"actor": self.actor, "critic": self.critic}
        written = WrittenLoss(roles, self._written_loss, tuple(self.head.parameters())) if plain else None
        options: dict[str, Any] = {"accumulate": settings.accumulate, "written": written}
        return Update([Stage("", self.loss, self.optimizer, settings.max_grad_norm, **options)])

    def _written_loss(self, networks: Mapping[str, Any], gradients: Mapping[Tensor, Any]) -> WrittenA2C:
        return WrittenA2C(WrittenActorCritic(networks, self.head, gradients), self._hyper)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a rollout: policy gradient, value error and entropy bonus."""
        mask = batch["observation"].get(ACTION_MASK) if isinstance(batch["observation"], dict) else None
        distribution = self.head(self.actor(batch["observation"]), mask)
        policy_loss = -(distribution.log_prob(batch["sample"]) * batch["advantages"]).mean()
        value_loss = (self.critic(batch["observation"]).squeeze(-1) - batch["returns"]).square().mean()
        entropy = distribution.entropy().mean()
        loss = policy_loss + self.scheduled("value_coef") * value_loss - self.scheduled("entropy_coef") * entropy
        return loss, {"train/policy_loss": policy_loss, "train/value_loss": value_loss, "train/entropy": entropy}

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return the critic's value of raw observations (N, ...)."""
        with evaluating(mode_dependent(self.critic)):
            return self.critic(self.normalizer(observation)).squeeze(-1)

    def update(self, phase: Phase, count: int) -> HookResult:
        """Take one step on the rollout, once it is complete, and empty it."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, RolloutBuffer)
        if not buffer.ready:
            return HookResult()
        self.set_schedules(phase)
        settings, value, world = self.settings, values_of(self.critic), self.context.world
        batch = actor_critic_rows(buffer.columns, value, self._normalizers, settings.gamma, settings.gae_lambda, world=world)
        if self.settings.normalize_advantages != "off":
            batch["advantages"] = standardize(batch["advantages"], world)
        everything = torch.arange(buffer.size, device=self.context.device).unsqueeze(0)
        self.note(self._executor.run(Minibatches(batch, everything), 1))
        self.metrics.add(self._rollout_metrics(batch), group="rollout")
        buffer.clear()
        return HookResult(updates=1)

    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on rows with their advantages and returns."""
        return self._executor.learn(batch)

    @torch.no_grad()
    def _rollout_metrics(self, batch: Batch) -> Metrics:
        unexplained = (batch["returns"] - batch["values"]).var()
        metrics: dict[str, Tensor] = {
            "train/explained_variance": 1 - unexplained / (batch["returns"].var() + 1e-8),
            "train/value_mean": batch["values"].mean(),
        }
        if isinstance(self.head, GaussianHead):
            metrics["train/action_std"] = self.head.log_std.exp().mean()
        return metrics
