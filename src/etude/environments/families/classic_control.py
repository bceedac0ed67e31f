"""Gymnasium's classic control, many copies at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnvironment | None:
    """Return the native class, which knows no arguments; MountainCarContinuous has none."""
    from etude.environments.native import classic

    if config.kwargs or config.id not in classic.TASKS:
        return None
    return classic.TASKS[config.id](config.id, num_envs, max_episode_steps=config.max_episode_steps)
