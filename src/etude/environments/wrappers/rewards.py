"""Other rewards for the same task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from etude.environments.vector import Observation
from etude.environments.wrappers.options import RewardConfig
from etude.environments.wrappers.transform import Transform


@dataclass(frozen=True)
class RewardClipConfig(RewardConfig):
    """Smaller rewards."""

    id: str = "reward_clip"
    """The registered name of the wrapper."""
    low: float | None = None
    """The lowest reward. With neither bound, rewards become their signs: -1, 0 or 1."""
    high: float | None = None
    """The highest reward."""

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low={self.low:g} is above high={self.high:g}")


class RewardClip(Transform):
    """Rewards within bounds, or only their signs, as in the DQN of Mnih et al. 2015."""

    Config = RewardClipConfig

    def __init__(self, config: RewardClipConfig) -> None:
        self._low, self._high = config.low, config.high

    def reward(self, reward: Tensor, observation: Observation, terminated: Tensor) -> Tensor:
        """Clip."""
        return self.relabel(reward)

    def relabel(self, reward: Tensor) -> Tensor:
        """Clip."""
        if self._low is None and self._high is None:
            return reward.sign()
        return reward.clamp(self._low, self._high)


@dataclass(frozen=True)
class RewardScaleConfig(RewardConfig):
    """Rewards in another unit."""

    id: str = "reward_scale"
    """The registered name of the wrapper."""
    factor: float = 1.0
    """What each reward is multiplied by."""
    offset: float = 0.0
    """What is added then. In tasks that end, this changes which policy is best."""


class RewardScale(Transform):
    """reward · factor + offset"""

    Config = RewardScaleConfig

    def __init__(self, config: RewardScaleConfig) -> None:
        self._factor, self._offset = config.factor, config.offset

    def reward(self, reward: Tensor, observation: Observation, terminated: Tensor) -> Tensor:
        """Scale."""
        return self.relabel(reward)

    def relabel(self, reward: Tensor) -> Tensor:
        """Scale."""
        return reward * self._factor + self._offset
