"""The tasks of `etude.environments.small`, many copies at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etude.environments import small
from etude.environments.check.complaints import complaint
from etude.errors import UserError

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment


def register() -> None:
    """Make them known to Gymnasium."""
    small.register()


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnvironment | None:
    """Return the native class; CartPole without velocities is another one's wrapper as soon as it has arguments."""
    if config.id not in small.NATIVE or (config.id == small.NO_VELOCITY and config.kwargs):
        return None
    try:
        return small.make_native(config.id, num_envs, config.kwargs, config.max_episode_steps)
    except (TypeError, ValueError) as problem:
        raise UserError(f"environment.kwargs={config.kwargs}: {config.id} {complaint(problem)}") from problem
