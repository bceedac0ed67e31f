"""ALE's own vector class, with the settings of Etude's Atari games and its way of resetting."""

from __future__ import annotations

from typing import Any

from measurement import NotAvailableError, answer, steady, versions
from tasks import stepping_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Step with actions drawn beforehand."""
    try:
        import gymnasium
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise NotAvailableError("ale-py is not installed") from error

    from sides.stepping import drawn_actions, step_through

    task = stepping_task(request["task"])
    game = gymnasium.spec(task.env_id).kwargs["game"]
    settings = {"repeat_action_probability": 0.25, "reward_clipping": False, "autoreset_mode": "SameStep"}
    environment = AtariVectorEnv(game, task.num_envs, num_threads=request["threads"], **settings)
    actions = drawn_actions(task, environment.single_action_space, "int64")
    environment.reset(seed=task.seed)
    points = step_through(environment.step, actions, task)
    return {
        **steady(points, points[1].units),
        "resolved": {"class": "AtariVectorEnv", "autoreset": "same step", "threads": request["threads"], **settings},
        "versions": versions("ale-py", "gymnasium", "numpy"),
    }


if __name__ == "__main__":
    answer(measure)
