"""Etude's arcade-like tasks, which are torch tensors."""

from __future__ import annotations

from typing import Any

import gymnasium

STEPS = {"BrickWall-v0": 1000, "RoadCrossing-v0": 500, "FruitFall-v0": 500}
THRESHOLDS = {"BrickWall-v0": 28.0}
"""What the classes say too; here, so that a list of environments needs no torch."""


def register() -> None:
    """Make them known to Gymnasium."""
    for name, steps in STEPS.items():
        if name not in gymnasium.registry:
            entry = f"{__name__}:make"
            threshold = THRESHOLDS.get(name)
            gymnasium.register(name, entry, threshold, max_episode_steps=steps, kwargs={"name": name})


def make(name: str, **settings: Any) -> gymnasium.Env[Any, Any]:
    """Make one copy."""
    from etude.config.registry import load_object
    from etude.environments.tensors.env import TensorEnv
    from etude.environments.tensors.registered import ARCADE

    return TensorEnv(load_object(ARCADE[name]), **settings)
