"""Truncated quantile critics (Kuznetsov et al. 2020): soft actor-critic whose critics describe the distribution of returns.

Each of E critics says Q quantiles of the return of (s, a). All E·Q quantiles at the next observation are pooled and sorted, the
highest are dropped, and the rest, shifted by reward and entropy, is what every critic learns to describe:

    z'      the lowest (Q − d)·E of the pooled target quantiles at (s', a'),  a' ~ π(s')
    critics quantile Huber loss towards  y = r + γ [ z' − α log π(a'|s') ]
    actor   α log π(a|s) − mean of all quantiles

Dropping is what the lowest of two critics does in SAC, in steps as fine as wanted: it keeps overestimation in check. Actor,
temperature and targets are SAC's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor

from etude.components.critics import with_action
from etude.components.networks.spec import NetworkSpec
from etude.components.quantiles import quantile_huber_losses, quantile_levels
from etude.compute.noise import Noise
from etude.config.constraints import NonNegativeInt, PositiveInt
from etude.config.schema import Config
from etude.errors import UserError
from etude.learning.update import Batch, Out
from etude.workflows.base import Context
from etude.workflows.sac import SAC, SACConfig


@dataclass(frozen=True)
class TQCConfig(SACConfig):
    """Truncated quantile critics."""

    name: str = "tqc"
    """The registered name of the algorithm."""
    quantiles: PositiveInt = 25
    """Quantiles that each critic describes the return by. More is finer and slower."""
    drop_quantiles: NonNegativeInt = 2
    """The highest quantiles to drop, for each critic. More is more cautious, and fewer where returns vary a lot."""
    actor_q_reduction: Literal["min", "mean"] = "mean"
    """What the actor climbs: the mean of the critics, as in the paper, or the lowest."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if self.drop_quantiles >= self.quantiles:
            yield (
                f"algorithm.drop_quantiles={self.drop_quantiles}: leaves nothing of algorithm.quantiles={self.quantiles}; "
                "2 of 25 is usual"
            )


class TQC(SAC):
    """Truncated quantile critics."""

    Config = TQCConfig

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        if not isinstance(action_space, spaces.Box):
            raise UserError(f"tqc acts in Box spaces, not {type(action_space).__name__}; ppo and sac take discrete actions")
        super().check_spaces(observation_space, action_space)

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """A critic says several quantiles."""
        roles = super().roles(config, observation_space, action_space)
        return {**roles, "critic": replace(roles["critic"], outputs=config.algorithm.quantiles)}

    def initialize(self, context: Context) -> None:
        """As SAC, with the levels of the quantiles."""
        settings: TQCConfig = context.config.algorithm
        self._fixed = {"levels": quantile_levels(settings.quantiles).to(context.device)}
        self._kept = (settings.quantiles - settings.drop_quantiles) * settings.critics
        super().initialize(context)

    def truncated(self, quantiles: Tensor) -> Tensor:
        """(E, B, Q) → (B, kept): the lowest of all critics' quantiles together."""
        return quantiles.transpose(0, 1).flatten(1).sort(dim=-1).values[:, : self._kept]

    def critic_loss(self, batch: Batch, noise: Noise) -> Out:
        """How badly the quantiles of every critic fit the truncated targets."""
        with torch.no_grad():
            next_observation, distribution = self.seen(batch, "next_observation")
            action, log_prob = distribution.draw(self.policy_noise(batch, noise)[1])
            next_quantiles = self.truncated(self.target_critic(with_action(next_observation, action)))
            bonus = self.temperature() * log_prob
            # A row's reward and discount count for each of its quantiles: (B,) against (kept, B).
            targets = self.targets(batch, (next_quantiles - bonus.unsqueeze(-1)).T).T
        observation = self.normalizer(batch["observation"])
        quantiles = self.critic(with_action(observation, batch["sample"]))  # (E, B, Q)
        losses = quantile_huber_losses(quantiles, targets, self._fixed["levels"])
        metrics = {"train/q_mean": quantiles.detach().mean(), "train/q_target_mean": targets.mean()}
        if "weight" not in batch:
            return Out(losses.mean(), metrics)
        wrong = (quantiles.detach().mean((0, 2)) - targets.mean(1)).abs()
        return Out((losses * batch["weight"].unsqueeze(-1)).mean(), metrics, per_row={"priority": wrong})

    def believed(self, outputs: Tensor) -> Tensor:
        """(E, B, Q) → (B,): the mean of the quantiles, of every critic."""
        return self.lowest_or_mean(outputs.mean(-1))
