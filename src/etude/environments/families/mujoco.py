"""Gymnasium's MuJoCo tasks, many simulations at a time."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnvironment | None:
    """Return the native class, for the version and the arguments that it knows."""
    if importlib.util.find_spec("mujoco.batch") is None:
        return None  # a MuJoCo before 3.17, which other packages may insist on
    from etude.environments.native.mujoco_tasks import TASKS

    task = TASKS.get(config.id)
    if task is None or not task.supports(config.kwargs):
        return None
    return task(num_envs, max_episode_steps=config.max_episode_steps, kwargs=config.kwargs)
