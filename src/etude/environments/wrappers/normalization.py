"""Names for the normalisation that algorithms do themselves; a config that lists them has them moved to its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from etude.environments.wrappers.options import WrapperConfig
from etude.environments.wrappers.transform import Transform


@dataclass(frozen=True)
class NormalizeObservationsConfig(WrapperConfig):
    """Normalised observations."""

    id: str = "normalize_observations"
    mode: Literal["rolling", "static"] = "rolling"
    """rolling: by running mean and variance; static: finite bounds to [0, 1]."""


class NormalizeObservations(Transform):
    """Means environment.normalize_observations. The statistics belong to the policy: what was trained is what is evaluated."""

    Config = NormalizeObservationsConfig


@dataclass(frozen=True)
class NormalizeRewardsConfig(WrapperConfig):
    """Normalised rewards."""

    id: str = "normalize_rewards"


class NormalizeRewards(Transform):
    """Means environment.normalize_rewards."""

    Config = NormalizeRewardsConfig
