"""Soft actor-critic (Haarnoja et al. 2018), with automatic temperature; continuous and discrete actions.

    critic       y = r + γ [ min Q'(s', a') − α log π(a'|s') ],  a' ~ π(s');  each Q towards y
    actor        α log π(a|s) − min Q(s, a),  a ~ π(s), through the reparameterised sample
    temperature  α rises while the policy's entropy is below its target, and falls while it is above
    targets      Q' ← Q' + τ (Q − Q')

With discrete actions every expectation over actions is a sum, and nothing is sampled (Christodoulou 2019).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.components.critics import Follow, target_of, with_action
from etude.components.distributions import Categorical, CategoricalHead, Distribution, SquashedGaussianHead, check_mask
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.components.normalizers import ObservationNormalizer
from etude.compute.noise import Noise
from etude.config.constraints import PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schema import Config
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Batch, Metrics, Out, Stage, Update, WrittenLoss
from etude.workflows.base import ActResult, Context, PolicyWorkflow, State
from etude.workflows.off_policy import OffPolicyConfig, WithCritics, critics, judged, random_actions
from etude.workflows.written_critic_losses import (
    WrittenDiscreteSACActor,
    WrittenDiscreteSACCritics,
    WrittenSACActor,
    WrittenSACCritics,
    WrittenTemperature,
    critics_are_plain,
)


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


_WRITTEN_OUT = ("critic_loss", "actor_loss", "losses", "seen", "targets", "believed", "lowest_or_mean",
                "make_temperature", "with_temperature", "discrete_critic_loss", "discrete_actor_loss",
                "policy_noise")  # fmt: skip
"""What a subclass must not have changed for its losses to be those in NumPy."""


class SAC(PolicyWorkflow, WithCritics):
    """Soft actor-critic."""

    Config = SACConfig
    actor: nn.Module
    settings: SACConfig

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two hidden layers of 256."""
        network = {"type": "mlp", "hidden_dims": [256, 256], "activation": "relu"}
        return {"actor": network, "critic": dict(network)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes and discrete actions."""
        check_mask(observation_space, cls.head_of(action_space))

    @classmethod
    def head_of(cls, space: gymnasium.Space[Any]) -> CategoricalHead | SquashedGaussianHead:
        """Return what makes distributions of the actor's outputs."""
        if isinstance(space, spaces.Discrete):
            return CategoricalHead(space)
        if isinstance(space, spaces.Box):
            return SquashedGaussianHead(space)
        raise UserError(f"sac acts in Box and Discrete spaces, not {type(space).__name__}; ppo takes any")

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """The actor describes a distribution. Critics read continuous actions, and have an output for each discrete one."""
        head = cls.head_of(action_space)
        critic = critics(config, observation_space, action_space)
        if isinstance(head, CategoricalHead):
            critic = replace(critic, outputs=head.size, inputs=None)
        return {"actor": NetworkSpec(head, output_gain=POLICY_GAIN), "critic": critic}

    def initialize(self, context: Context) -> None:
        """Bind actor and critics, and build what surrounds them."""
        super().initialize(context)
        self.head = self.head_of(context.action_space).to(context.device)
        self.is_discrete = isinstance(self.head, CategoricalHead)
        mode = context.config.environment.normalize_observations
        self.normalizer = ObservationNormalizer(context.observation_space, mode).to(context.device)
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space, with_log_prob=False)
        self.target_critic = target_of(self.critic)
        self.temperature = self.make_temperature().to(context.device)
        rates = {"actor": self.scheduled("learning_rate")}
        for role in ("critic", "temperature"):
            name = f"{role}_learning_rate"
            rates[role] = self.scheduled(name) if getattr(self.settings, name) is not None else rates["actor"]
        parts = {"actor": self.actor, "critic": self.critic, "temperature": self.temperature}
        groups = {role: (list(part.parameters()), rates[role]) for role, part in parts.items()}
        self.critic_optimizer = build_optimizer(self.settings.optimizer, {"critic": groups["critic"]})
        learnt = ("actor", "temperature") if self.settings.temperature is None else ("actor",)
        self.actor_optimizer = build_optimizer(self.settings.optimizer, {role: groups[role] for role in learnt})
        self._executor = self.executor(self.losses())

    def losses(self) -> Update:
        """Critics first, then actor and temperature against the new critics, then the targets."""
        critic_loss, actor_loss = self.critic_loss, self.actor_loss
        if self.is_discrete:
            critic_loss, actor_loss = self.discrete_critic_loss, self.discrete_actor_loss
        clip, written = self.settings.max_grad_norm, dict[str, WrittenLoss]()
        is_known = type(self.head) in (SquashedGaussianHead, CategoricalHead)
        if self.is_written(self.context.config) and is_known and ACTION_MASK not in leaf_spaces(self.context.observation_space):
            networks = {"actor": self.actor, "critic": self.critic, "target": self.target_critic}
            written["critic"] = WrittenLoss(networks, self._written_critic_loss)
            learnt = tuple(self.temperature.parameters())
            written["actor"] = WrittenLoss({**networks, "target": self.actor}, self._written_actor_loss, learnt)
        return Update(
            [
                Stage("critic", critic_loss, self.critic_optimizer, clip, written=written.get("critic")),
                Stage("actor", actor_loss, self.actor_optimizer, clip, written=written.get("actor")),
            ],
            after=Follow([self.critic], [self.target_critic], self.settings.tau),
        )

    @classmethod
    def is_written(cls, config: Config) -> bool:
        """Where networks are plain; losses of one's own are torch's."""
        own = any(getattr(cls, name) is not getattr(SAC, name) for name in _WRITTEN_OUT)
        return not own and critics_are_plain(config)

    def _written_critic_loss(self, networks: Mapping[str, Any], gradients: Mapping[Tensor, Any]) -> Any:
        common = (networks, self.normalizer, self.settings.reward_scale, self._written_temperature(gradients))
        return WrittenDiscreteSACCritics(*common) if self.is_discrete else WrittenSACCritics(*common)

    def _written_actor_loss(self, networks: Mapping[str, Any], gradients: Mapping[Tensor, Any]) -> Any:
        common = (networks, self.normalizer, self._written_temperature(gradients), self.settings.actor_q_reduction)
        return WrittenDiscreteSACActor(*common) if self.is_discrete else WrittenSACActor(*common)

    def _written_temperature(self, gradients: Mapping[Tensor, Any]) -> WrittenTemperature:
        log_alpha, any_policy = self.temperature.log_alpha, Categorical(torch.zeros(1, self.head.size))
        target = self.temperature.target(any_policy)  # the same for every one, where none is masked
        assert isinstance(target, float)
        return WrittenTemperature(log_alpha.detach(), gradients.get(log_alpha), target)

    # ---- continuous actions ---------------------------------------------------------------------------------------------

    def critic_loss(self, batch: Batch, noise: Noise) -> Out:
        """Half the squared error of every critic, summed over them."""
        with torch.no_grad():
            next_observation, distribution = self.seen(batch, "next_observation")
            action, log_prob = distribution.draw(self.policy_noise(batch, noise)[1])
            next_value = self.target_critic(with_action(next_observation, action)).squeeze(-1).amin(0)
            targets = self.targets(batch, next_value - self.temperature() * log_prob)
        observation = self.normalizer(batch["observation"])
        values = self.critic(with_action(observation, batch["sample"])).squeeze(-1)  # (E, B)
        return judged(values, targets, batch, scale=0.5)

    def actor_loss(self, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        """Climb the critics, keep the entropy."""
        observation, distribution = self.seen(batch, "observation")
        action, log_prob = distribution.draw(self.policy_noise(batch, noise)[0])
        value = self.believed(self.critic(with_action(observation, action)))
        loss = (self.temperature().detach() * log_prob - value).mean()
        return self.with_temperature(loss, -log_prob, distribution)

    def policy_noise(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the noise of the actions here, and of those at the next observation. (2, B, D)"""
        return noise.normal("policy", (2, len(batch["reward"]), self.head.size // 2))

    # ---- discrete actions: the same in expectation, nothing sampled -------------------------------------------------------

    def discrete_critic_loss(self, batch: Batch) -> Out:
        """Half the squared error of every critic at the action taken."""
        with torch.no_grad():
            next_observation, distribution = self.seen(batch, "next_observation")
            next_value = soft_value(distribution, self.target_critic(next_observation).amin(0), self.temperature())
            targets = self.targets(batch, next_value)
        values = self.critic(self.normalizer(batch["observation"]))  # (E, B, A)
        taken = batch["sample"].expand(len(values), -1).unsqueeze(-1)
        return judged(values.gather(-1, taken).squeeze(-1), targets, batch, scale=0.5)

    def discrete_actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Climb the critics, keep the entropy."""
        observation, distribution = self.seen(batch, "observation")
        with torch.no_grad():
            values = self.lowest_or_mean(self.critic(observation))
        entropy = distribution.entropy()
        gain = (distribution.log_probs.exp() * values).sum(-1) + self.temperature().detach() * entropy
        return self.with_temperature(-gain.mean(), entropy, distribution)

    # ---- what they have in common -----------------------------------------------------------------------------------------

    def seen(self, batch: Batch, key: str) -> tuple[Observation, Any]:
        """Return the normalised observation of a batch, and the actor's distribution there."""
        observation = self.normalizer(batch[key])
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        return observation, self.head(self.actor(observation), mask)

    def targets(self, batch: Batch, next_value: Tensor) -> Tensor:
        """(B,) → (B,): what the critics are to say."""
        return (self.settings.reward_scale * batch["reward"] + batch["discount"] * next_value).detach()

    def believed(self, outputs: Tensor) -> Tensor:
        """(E, B, outputs) → (B,): what the actor believes of an action."""
        return self.lowest_or_mean(outputs.squeeze(-1))

    def lowest_or_mean(self, values: Tensor) -> Tensor:
        """(E, B, ...) → (B, ...): the lowest critic, or their mean."""
        return values.amin(0) if self.settings.actor_q_reduction == "min" else values.mean(0)

    def make_temperature(self) -> Temperature:
        """Return what weighs the entropy."""
        return Temperature(self.settings, self.head)

    def with_temperature(self, loss: Tensor, entropy: Tensor, distribution: Distribution) -> tuple[Tensor, Metrics]:
        """Return the actor's loss with the temperature's: neither reaches the other's parameters."""
        metrics = {"train/entropy": entropy.detach().mean(), "train/alpha": self.temperature().detach()}
        if self.settings.temperature is None:
            own = self.temperature.loss(entropy, distribution)
            return loss + own, {**metrics, "train/temperature_loss": own.detach()}
        return loss, metrics

    # ---- acting -----------------------------------------------------------------------------------------------------------

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Any action, each as likely as the others."""
        if isinstance(self.head, SquashedGaussianHead):
            return random_actions(self.head, state, is_first, generator)
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        sample = self.head(torch.zeros(len(is_first), self.head.size, device=is_first.device), mask).sample(generator)
        return ActResult(self.head.to_environment(sample), state, {"sample": sample})

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

    def keep(self, entropy: float) -> None:
        """Have this entropy kept from now on."""
        self._target = entropy

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


def soft_value(policy: Categorical, values: Tensor, temperature: Tensor) -> Tensor:
    """(B, A) values of each action → (B,): what the policy expects of them, and its entropy."""
    return (policy.log_probs.exp() * values).sum(-1) + temperature * policy.entropy()
