"""Soft actor-critic (Haarnoja et al. 2018), with automatic temperature; continuous and discrete actions.

    critic       y = r + γ [ min Q'(s', a') − α log π(a'|s') ],  a' ~ π(s');  each Q towards y
    actor        α log π(a|s) − min Q(s, a),  a ~ π(s), through the reparameterised sample
    temperature  α rises while the policy's entropy is below its target, and falls while it is above
    targets      Q' ← Q' + τ (Q − Q')

With discrete actions every expectation over actions is a sum, and nothing is sampled (Christodoulou 2019).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.components.critics import Follow, target_of, with_action
from etude.components.distributions import Categorical, CategoricalHead, Distribution, SquashedGaussianHead, check_mask
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.normalizers import ObservationNormalizer
from etude.config.constraints import PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update_step import Stage, UpdateStep
from etude.workflows.base import NOT_READ, ActResult, Context, Mode, State
from etude.workflows.off_policy import OffPolicyConfig, WithCritics, uniform_actions
from etude.workflows.policy import ActorPolicy, Policy


@dataclass(frozen=True)
class SACConfig(OffPolicyConfig):
    """Soft actor-critic."""

    name: str = "sac"
    """The registered name of the algorithm."""
    critic_learning_rate: PositiveSchedule | None = None
    """Step size of the critics, if it should differ."""
    temperature_learning_rate: PositiveSchedule | None = None
    """Step size of the temperature, if it should differ."""
    temperature: PositiveFloat | None = None
    """A fixed weight of the entropy. Default: it is learnt, so that the entropy meets its target."""
    initial_temperature: PositiveFloat = 1.0
    """Where a learnt temperature begins."""
    target_entropy: float | Literal["auto"] | None = None
    """The entropy to keep. Default, or auto: minus the number of action dimensions; of discrete actions a share of the greatest
    entropy that those allowed have."""
    target_entropy_scale: PositiveFloat = 0.98
    """Discrete actions: that share. Lower lets the policy become surer."""
    reward_scale: PositiveFloat = 1.0
    """Multiplies rewards. With a fixed temperature, higher explores less."""
    critics: PositiveInt = 2
    """Action-value networks; the lowest of their values is believed."""
    actor_q_reduction: Literal["min", "mean"] = "min"
    """What the actor climbs: the lowest critic, or their mean."""


class SAC(WithCritics):
    """Soft actor-critic."""

    Config = SACConfig
    needs: ClassVar[Mapping[str, Sequence[str]]] = {"actor": ["forward"], "critic": ["forward"]}
    actor: nn.Module

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two hidden layers of 256."""
        network = {"type": "mlp", "hidden_dims": [256, 256], "activation": "relu"}
        return {"actor": network, "critic": dict(network)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes and discrete actions."""
        check_mask(observation_space, _head(action_space))

    @classmethod
    def input_spaces(
        cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, gymnasium.Space[Any]]:
        """Critics of continuous actions read the action; those of discrete ones have an output for each."""
        if isinstance(action_space, spaces.Discrete):
            return {}
        return super().input_spaces(observation_space, action_space)

    @classmethod
    def output_sizes(cls, config: Config, action_space: gymnasium.Space[Any]) -> dict[str, int]:
        """The actor describes a distribution; a critic is one number, or one for each discrete action."""
        values = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 1
        return {"actor": _head(action_space).size, "critic": values}

    def initialize(self, context: Context) -> None:
        """Bind actor and critics, and build what surrounds them."""
        super().initialize(context)
        self.settings: SACConfig = context.config.algorithm
        self.head = _head(context.action_space).to(context.device)
        self.is_discrete = isinstance(self.head, CategoricalHead)
        mode = context.config.environment.normalize_observations
        self.normalizer = ObservationNormalizer(context.observation_space, mode).to(context.device)
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space, with_log_prob=False)
        self.target_critic = target_of(self.critic)
        self.temperature = Temperature(self.settings, self.head).to(context.device)
        rates = {"actor": self.scheduled("learning_rate")}
        for role in ("critic", "temperature"):
            name = f"{role}_learning_rate"
            rates[role] = self.scheduled(name) if getattr(self.settings, name) is not None else rates["actor"]
        parts = {"actor": self.actor, "critic": self.critic, "temperature": self.temperature}
        groups = {role: (list(part.parameters()), rates[role]) for role, part in parts.items()}
        self.critic_optimizer = build_optimizer(self.settings.optimizer, {"critic": groups["critic"]})
        learnt = ("actor", "temperature") if self.settings.temperature is None else ("actor",)
        self.actor_optimizer = build_optimizer(self.settings.optimizer, {role: groups[role] for role in learnt})
        self._explore = self.captured(self._explored)
        self._begin()

    def _explored(self, observation: Observation) -> ActResult:
        return self._policy.act(observation, None, NOT_READ, mode="explore", generator=self.context.streams["action"])

    def update_step(self) -> UpdateStep:
        """Critics first, then actor and temperature against the new critics, then the targets."""
        critic_loss, actor_loss = self.losses()
        follow = Follow([self.critic], [self.target_critic], self.settings.tau)
        clip = self.settings.max_grad_norm
        return UpdateStep(
            [
                Stage(critic_loss, self.critic_optimizer, clip, "critic"),
                Stage(actor_loss, self.actor_optimizer, clip, "actor"),
            ],
            after=follow,
            changed_after=follow.tensors,
            skip_non_finite=self.context.config.training.on_nan == "skip",
            complete=self.complete,
            mode=self.context.mode,
        )

    def losses(self) -> tuple[nn.Module, nn.Module]:
        """Return the critics' loss, and that of actor and temperature."""
        if self.is_discrete:
            return DiscreteCriticLoss(self), DiscreteActorLoss(self)
        return CriticLoss(self), ActorLoss(self)

    def noise(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """The policy's noise, here and at the next observation."""
        if self.is_discrete:
            return {}
        shape = (self.settings.batch_size, self.head.size // 2)
        # One update at a time, so that the numbers do not depend on how many are taken at once.
        drawn = [torch.empty(2, *shape, device=generator.device).normal_(generator=generator) for _ in range(count)]
        here, there = (drawn[0][None] if count == 1 else torch.stack(drawn)).unbind(1)
        return {"noise": here, "next_noise": there}

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Act as the policy does; uniformly at random until there is enough to learn from."""
        if mode == "explore" and self.is_warming_up():
            sample = self._random_action(observation, generator)
            return ActResult(self.head.to_environment(sample), state, {"sample": sample})
        if mode == "explore" and self._explore is not None:
            return self._explore(observation)
        return self._policy.act(observation, state, is_first, mode=mode, generator=generator)

    def _random_action(self, observation: Observation, generator: Generator) -> Tensor:
        space = self.context.action_space
        if isinstance(space, spaces.Box):
            return uniform_actions(space, observation, generator)
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        first = next(iter(observation.values())) if isinstance(observation, dict) else observation
        return self.head(torch.zeros(len(first), self.head.size, device=first.device), mask).sample(generator)

    def likeliest(self, observation: Observation) -> Tensor:
        """The distribution's mode."""
        with evaluating(mode_dependent(self.actor)):
            return self.head(self.actor(observation)).mode()

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """As with every critic; of discrete actions the mean over them, and their entropy."""
        if not self.is_discrete:
            return super().values(observation)
        seen = self.normalizer(observation)
        mask = seen.get(ACTION_MASK) if isinstance(seen, dict) else None
        with evaluating(mode_dependent(self.actor, self.critic)):
            distribution, lowest = self.head(self.actor(seen), mask), self.critic(seen).amin(0)
        assert isinstance(distribution, Categorical)
        return soft_value(distribution, lowest, self.temperature()) / self.settings.reward_scale

    def policy(self) -> Policy:
        """Normaliser, actor and head: all that acting needs."""
        return self._policy


class Temperature(nn.Module):
    """The weight α of the entropy, kept as its logarithm so that it stays above 0."""

    def __init__(self, settings: SACConfig, head: CategoricalHead | SquashedGaussianHead) -> None:
        super().__init__()
        fixed = settings.temperature
        begin = settings.initial_temperature if fixed is None else fixed
        self.log_alpha = nn.Parameter(torch.tensor(math.log(begin)), requires_grad=fixed is None)
        self._share = settings.target_entropy_scale
        self._target: float | None = None if settings.target_entropy in (None, "auto") else float(settings.target_entropy)
        if self._target is None and not isinstance(head, CategoricalHead):
            self._target = -float(head.actions)

    def forward(self) -> Tensor:
        """Return α."""
        return self.log_alpha.exp()

    def target(self, distribution: Distribution) -> float | Tensor:
        """Return the entropy to keep; one for each row (N,) where a mask makes that of discrete actions differ."""
        if self._target is not None:
            return self._target
        assert isinstance(distribution, Categorical)
        return self._share * distribution.greatest_entropy()

    def loss(self, entropy: Tensor, distribution: Distribution) -> Tensor:
        """Return what to minimise, given the policy of each row and its entropy."""
        return (self.log_alpha * (entropy.detach() - self.target(distribution))).mean()


class _Loss(nn.Module):
    """The networks a loss reads; which of them it changes is its optimiser's business."""

    def __init__(self, workflow: SAC) -> None:
        super().__init__()
        self.settings = workflow.settings
        self.normalizer, self.actor, self.head = workflow.normalizer, workflow.actor, workflow.head
        self.critic, self.target_critic, self.temperature = workflow.critic, workflow.target_critic, workflow.temperature

    def seen(self, rows: Mapping[str, Any], key: str) -> tuple[Observation, Any]:
        """Return the normalised observation of a batch, and the actor's distribution there."""
        observation = self.normalizer(rows[key])
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        return observation, self.head(self.actor(observation), mask)

    def targets(self, rows: Mapping[str, Any], next_value: Tensor) -> Tensor:
        """(B,) → (B,): what the critics are to say."""
        return (self.settings.reward_scale * rows["reward"] + rows["discount"] * next_value).detach()

    def critic_loss(self, values: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Half the squared error, summed over critics (E, B)."""
        loss = 0.5 * (values - targets).square().mean(1).sum()
        return loss, {"train/q_mean": values.detach().mean(), "train/q_target_mean": targets.mean()}

    def actor_loss(self, loss: Tensor, entropy: Tensor, distribution: Distribution) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss with the temperature's: neither reaches the other's parameters."""
        metrics = {"train/entropy": entropy.detach().mean(), "train/alpha": self.temperature().detach()}
        if self.settings.temperature is None:
            own = self.temperature.loss(entropy, distribution)
            return loss + own, {**metrics, "train/temperature_loss": own.detach()}
        return loss, metrics

    def values(self, outputs: Tensor) -> Tensor:
        """(E, B, 1) → (E, B): what each critic says of an action."""
        return outputs.squeeze(-1)

    def believed(self, values: Tensor) -> Tensor:
        """(E, B, ...) → (B, ...): the lowest critic, or their mean."""
        return values.amin(0) if self.settings.actor_q_reduction == "min" else values.mean(0)


class CriticLoss(_Loss):
    """Continuous actions: the error of every critic."""

    def forward(self, rows: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and what to log of it."""
        with torch.no_grad():
            following, distribution = self.seen(rows, "next_observation")
            action, log_prob = distribution.draw(rows["next_noise"])
            next_value = self.values(self.target_critic(with_action(following, action))).amin(0)
            targets = self.targets(rows, next_value - self.temperature() * log_prob)
        observation = self.normalizer(rows["observation"])
        values = self.values(self.critic(with_action(observation, rows["sample"])))  # (E, B)
        return self.critic_loss(values, targets)


class ActorLoss(_Loss):
    """Continuous actions: climb the critics, keep the entropy."""

    def forward(self, rows: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and what to log of it."""
        observation, distribution = self.seen(rows, "observation")
        action, log_prob = distribution.draw(rows["noise"])
        value = self.believed(self.values(self.critic(with_action(observation, action))))
        loss = (self.temperature().detach() * log_prob - value).mean()
        return self.actor_loss(loss, -log_prob, distribution)


class DiscreteCriticLoss(_Loss):
    """Discrete actions: the error of every critic at the action taken."""

    def forward(self, rows: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and what to log of it."""
        with torch.no_grad():
            following, distribution = self.seen(rows, "next_observation")
            next_value = soft_value(distribution, self.target_critic(following).amin(0), self.temperature())
            targets = self.targets(rows, next_value)
        values = self.critic(self.normalizer(rows["observation"]))  # (E, B, A)
        taken = rows["sample"].expand(len(values), -1).unsqueeze(-1)
        return self.critic_loss(values.gather(-1, taken).squeeze(-1), targets)


class DiscreteActorLoss(_Loss):
    """Discrete actions: the same in expectation, nothing sampled."""

    def forward(self, rows: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and what to log of it."""
        observation, distribution = self.seen(rows, "observation")
        with torch.no_grad():
            values = self.believed(self.critic(observation))
        entropy = distribution.entropy()
        gain = (distribution.log_probs.exp() * values).sum(-1) + self.temperature().detach() * entropy
        return self.actor_loss(-gain.mean(), entropy, distribution)


def soft_value(policy: Categorical, values: Tensor, temperature: Tensor) -> Tensor:
    """(B, A) values of each action → (B,): what the policy expects of them, and its entropy."""
    return (policy.log_probs.exp() * values).sum(-1) + temperature * policy.entropy()


def _head(space: gymnasium.Space[Any]) -> CategoricalHead | SquashedGaussianHead:
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(space)
    if isinstance(space, spaces.Box):
        return SquashedGaussianHead(space)
    raise UserError(f"sac acts in Box and Discrete spaces, not {type(space).__name__}; ppo takes any")
