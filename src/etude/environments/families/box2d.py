"""Gymnasium's Box2D tasks. CarRacing, where most of a step is drawing, has a faster class of ours."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import gymnasium
from gymnasium.envs.registration import EnvSpec

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig


def spec(config: EnvironmentConfig) -> EnvSpec | None:
    """Return what to make in place of the class that Gymnasium knows, or None; its registry stays as it is."""
    known = gymnasium.registry.get(config.id)
    if config.id != "CarRacing-v3" or config.backend == "gymnasium" or known is None:
        return None
    if not str(known.entry_point).startswith("gymnasium.envs.box2d"):
        return None  # somebody has registered a class of their own under this id
    ours = copy.deepcopy(known)
    ours.entry_point = "etude.environments.box2d.car_racing:CarRacing"
    return ours
