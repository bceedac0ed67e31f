"""Brax: physics in JAX, all copies in one compiled call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium

from etude.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment

_PREFIX = "brax/"
_HERE = "etude.environments.brax_vector"
# Listed without importing JAX, which takes seconds.
_TASKS = (
    *("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_pendulum", "inverted_double_pendulum"),
    *("pusher", "reacher", "swimmer", "walker2d"),
)


def register() -> None:
    """Make its tasks known to Gymnasium too, one copy at a time."""
    for task in _TASKS:
        if _PREFIX + task not in gymnasium.registry:
            gymnasium.register(_PREFIX + task, f"{_HERE}:BraxEnv", kwargs={"task": task})


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnvironment | None:
    """Return the compiled copies; raises UserError for a task that Brax does not have."""
    from etude.environments.brax_vector import BraxVector

    task = config.id.removeprefix(_PREFIX)
    if task not in _TASKS:
        raise UserError(f"environment '{config.id}': Brax has no such task{did_you_mean(task, _TASKS)} ({', '.join(_TASKS)})")
    try:
        return BraxVector(task, num_envs, config.max_episode_steps, **config.kwargs)
    except TypeError as problem:
        raise UserError(f"environment.kwargs={config.kwargs}: {config.id}: {problem}") from problem
