"""Implicit Q-learning (Kostrikov et al. 2021): values of a dataset without asking what was not done in it.

value     loss = |τ − 1(u < 0)| u²,   u = min Q'(s, a) − V(s)             an expectile: what good actions there are worth
critics   loss = |r + γ V(s') − Q(s, a)|²
actor     loss = − min(exp(β u), most_weight) log π(a | s)                do what was done, the better the more
targets   Q' follows Q by τ_target
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.components.critics import Follow, target_of, with_action
from etude.components.distributions import check_mask
from etude.components.mixture_head import MixtureHead
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.config.constraints import Bounds, NonNegativeFloat, PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schema import Config
from etude.datasets.buffer import learnt_from
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Batch, Metrics, Out, Stage, Update
from etude.workflows.base import Context, PolicyWorkflow
from etude.workflows.off_policy import critics, judged
from etude.workflows.offline import scale_of_data
from etude.workflows.offline_to_online import OfflineToOnline, OfflineToOnlineConfig

SPAN = 1000.0
"""What the returns of a dataset are stretched to, where nobody says otherwise: the paper's scale for locomotion."""


@dataclass(frozen=True)
class IQLConfig(OfflineToOnlineConfig):
    """Implicit Q-learning."""

    name: str = "iql"
    """The registered name of the algorithm."""
    expectile: Annotated[float, Bounds(low=0.5, high=1)] = 0.7
    """How good the actions are whose worth a state is taken for; 0.5 is their mean, 0.9 nearly the best there was."""
    beta: NonNegativeFloat = 3.0
    """How much better actions count more. 0 is behaviour cloning; higher follows the values."""
    most_weight: PositiveFloat = 100.0
    """The most that one step counts."""
    critics: PositiveInt = 2
    """Action-value networks; the lowest of their values is believed."""
    critic_learning_rate: PositiveSchedule | None = None
    """Step size of critics and values, if it should differ."""
    reward_scale: PositiveFloat | None = None
    """Multiplies rewards. Default: such that the dataset's returns span 1,000."""


class IQL(OfflineToOnline, PolicyWorkflow):
    """Implicit Q-learning."""

    Config = IQLConfig
    actor: nn.Module
    value: nn.Module
    settings: Any

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two layers of 256 each."""
        network = {"type": "mlp", "hidden_dims": [256, 256], "activation": "relu"}
        return {"actor": network, "critic": dict(network), "value": dict(network)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        check_mask(observation_space, _head(action_space))

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """A Gaussian, what actions are worth, and what states are worth."""
        actor = NetworkSpec(_head(action_space), output_gain=POLICY_GAIN)
        return {"actor": actor, "critic": critics(config, observation_space, action_space), "value": NetworkSpec(1)}

    def initialize(self, context: Context) -> None:
        """Bind the networks, measure the data, and build what surrounds them."""
        super().initialize(context)
        self.head = _head(context.action_space).to(context.device)
        self.normalizer = scale_of_data(context, self.settings.normalize)
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space, with_log_prob=False)
        self.target_critic = target_of(self.critic)
        self.reward_scale = torch.tensor(self._reward_scale(), device=context.device)
        rate = self.scheduled("learning_rate")
        own = self.settings.critic_learning_rate is not None
        critic_rate = self.scheduled("critic_learning_rate") if own else rate
        groups = {"value": critic_rate, "critic": critic_rate, "actor": rate}
        self.value_optimizer, self.critic_optimizer, self.actor_optimizer = (
            build_optimizer(self.settings.optimizer, {role: (getattr(self, role).parameters(), rate)})
            for role, rate in groups.items()
        )
        self._executor = self.executor(self.losses())

    def _reward_scale(self) -> float:
        if self.settings.reward_scale is not None:
            return float(self.settings.reward_scale)
        for buffer in learnt_from(self.context.buffers):
            returns = buffer.dataset.manifest.returns
            if max(returns) > min(returns):
                return SPAN / (max(returns) - min(returns))
        return 1.0

    def losses(self) -> Update:
        """What states are worth, what to do, what actions are worth, then the targets."""
        clip = self.settings.max_grad_norm
        return Update(
            [
                Stage("value", self.value_loss, self.value_optimizer, clip),
                Stage("actor", self.actor_loss, self.actor_optimizer, clip),
                Stage("critic", self.critic_loss, self.critic_optimizer, clip),
            ],
            after=Follow([self.critic], [self.target_critic], self.settings.tau),
        )

    def value_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """An expectile of what the actions of the batch are worth."""
        ahead = self._ahead(batch, self.value(self.normalizer(batch["observation"])).squeeze(-1))
        weight = torch.where(ahead > 0, self.settings.expectile, 1 - self.settings.expectile)
        return (weight * ahead.square()).mean(), {"train/advantage_mean": ahead.detach().mean()}

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Do what was done, the better the more."""
        observation = self.normalizer(batch["observation"])
        with torch.no_grad():
            ahead = self._ahead(batch, self.value(observation).squeeze(-1))
            weight = (self.settings.beta * ahead).exp().clamp_max(self.settings.most_weight)
        unlikely = -self.head(self.actor(observation)).log_prob(batch["sample"])
        return (weight * unlikely).mean(), {"train/bc_loss": unlikely.detach().mean(), "train/weight_mean": weight.mean()}

    def critic_loss(self, batch: Batch) -> Out:
        """The squared error of every critic, summed over them."""
        with torch.no_grad():
            next_value = self.value(self.normalizer(batch["next_observation"])).squeeze(-1)
            targets = self.reward_scale * batch["reward"] + batch["discount"] * next_value
        observation = self.normalizer(batch["observation"])
        return judged(self.critic(with_action(observation, batch["sample"])).squeeze(-1), targets, batch)

    def _ahead(self, batch: Batch, value: Tensor) -> Tensor:
        """How much more the actions of a batch are worth than its states. (B,)"""
        with torch.no_grad():
            observation = self.normalizer(batch["observation"])
            worth = self.target_critic(with_action(observation, batch["sample"])).squeeze(-1).amin(0)
        return worth - value

    def likeliest(self, observation: Observation) -> Tensor:
        """The Gaussian's mean."""
        with evaluating(mode_dependent(self.actor)):
            return self.head(self.actor(observation)).mode()

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return what each row of an observation is worth, in units of reward."""
        with evaluating(mode_dependent(self.value)):
            return self.value(self.normalizer(observation)).squeeze(-1) / self.reward_scale


def _head(space: gymnasium.Space[Any]) -> MixtureHead:
    if isinstance(space, spaces.Box):
        return MixtureHead(space)
    raise UserError(f"iql acts in Box spaces, not {type(space).__name__}; bc takes discrete actions")
