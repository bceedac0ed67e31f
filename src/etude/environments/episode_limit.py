"""After how many environment steps an episode is cut, by whatever cuts it first."""

from __future__ import annotations

import math

import gymnasium

from etude.config.schema import EnvironmentConfig
from etude.environments.families import family_of
from etude.environments.wrappers.timing import FrameSkipConfig, TimeLimitConfig


def episode_limit(config: EnvironmentConfig) -> int | None:
    """Return the tightest of the config's own limit, or else the registered one, and those of wrappers; None without any."""
    limit = config.max_episode_steps
    if limit is None and config.robot is not None:
        limit = config.robot.usual_episode_steps
    elif limit is None:
        family_of(config.id).register()
        spec = gymnasium.registry.get(config.id.rpartition(":")[2])
        limit = spec.max_episode_steps if spec is not None else None
    known, repeats = [] if limit is None else [limit], 1
    for wrapper in config.wrappers:
        if isinstance(wrapper, FrameSkipConfig):
            repeats *= wrapper.skip
        elif isinstance(wrapper, TimeLimitConfig):  # it counts decisions as they come to it
            known.append(wrapper.steps * repeats)
    return min(known, default=None)


def steps_per_decision(config: EnvironmentConfig) -> int:
    """Return how many environment steps the config's wrappers make of each decision, before an environment is made."""
    return math.prod(wrapper.skip for wrapper in config.wrappers if isinstance(wrapper, FrameSkipConfig))
