"""Gymnasium's own vector environments, sync or async, with their default autoreset."""

from __future__ import annotations

from typing import Any

from measurement import answer, steady, versions
from tasks import stepping_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Step with actions drawn beforehand."""
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from sides.stepping import drawn_actions, step_through

    task = stepping_task(request["task"])

    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make(task.env_id, disable_env_checker=True)

    vector = AsyncVectorEnv if request["is_async"] else SyncVectorEnv
    environment = vector([make] * task.num_envs)
    space = environment.single_action_space
    actions = drawn_actions(task, space, space.dtype)
    environment.reset(seed=task.seed)
    points = step_through(environment.step, actions, task, resets_take_a_step=True)
    autoreset = environment.metadata["autoreset_mode"]
    environment.close()
    return {
        **steady(points, points[1].units),
        "resolved": {"class": vector.__name__, "autoreset": str(autoreset.value)},
        "versions": versions("gymnasium", "mujoco", "numpy"),
    }


if __name__ == "__main__":
    answer(measure)
