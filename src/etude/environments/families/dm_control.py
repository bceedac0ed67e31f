"""DeepMind Control."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium

from etude.environments.dm_control.tasks import IDS, MAX_EPISODE_STEPS

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment


def register() -> None:
    """Make every task of the suite known to Gymnasium; the suite itself is imported when one is built."""
    for name in IDS:
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                "etude.environments.dm_control.env:DmControlEnv",
                max_episode_steps=MAX_EPISODE_STEPS,
                kwargs={"task": name},
            )


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnvironment | None:
    """Return many copies that observe one vector; pixels and dicts are the Gymnasium environment's."""
    if config.id not in IDS or config.kwargs not in ({}, {"flatten": True}):
        return None
    from etude.environments.dm_control.vector import DmControlVector

    return DmControlVector(config.id, num_envs, max_episode_steps=config.max_episode_steps)
