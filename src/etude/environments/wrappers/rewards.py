"""Other rewards for the same task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from etude.environments.vector import Observation
from etude.environments.wrappers.options import RewardConfig
from etude.environments.wrappers.transform import Transform


class EachReward(Transform):
    """A change of each reward by itself: `relabel` is all there is to it."""

    def reward(self, reward: Tensor, observation: Observation, terminated: Tensor) -> Tensor:
        """Change it, whatever was done."""
        changed = self.relabel(reward)
        assert changed is not None, "a subclass defines it"
        return changed


@dataclass(frozen=True)
class RewardClipConfig(RewardConfig):
    """Smaller rewards."""

    id: str = "reward_clip"
    low: float | None = None
    """The lowest reward. With neither bound, rewards become their signs: -1, 0 or 1."""
    high: float | None = None
    """The highest reward."""

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low={self.low:g} is above high={self.high:g}")


class RewardClip(EachReward):
    """Rewards within bounds, or only their signs, as in the DQN of Mnih et al. 2015."""

    Config = RewardClipConfig
    config: RewardClipConfig

    def relabel(self, reward: Tensor) -> Tensor:
        """Clip."""
        low, high = self.config.low, self.config.high
        return reward.sign() if low is None and high is None else reward.clamp(low, high)


@dataclass(frozen=True)
class RewardScaleConfig(RewardConfig):
    """Rewards in another unit."""

    id: str = "reward_scale"
    factor: float = 1.0
    """What each reward is multiplied by."""
    offset: float = 0.0
    """What is added then. In tasks that end, this changes which policy is best."""


class RewardScale(EachReward):
    """reward · factor + offset"""

    Config = RewardScaleConfig
    config: RewardScaleConfig

    def relabel(self, reward: Tensor) -> Tensor:
        """Scale."""
        return reward * self.config.factor + self.config.offset
