"""EnvPool's C++ thread pool through its Gymnasium interface; run by the peers' python."""

from __future__ import annotations

from typing import Any

from measurement import answer, steady, versions
from tasks import stepping_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Step with actions drawn beforehand."""
    import envpool

    from sides.stepping import drawn_actions, step_through

    task = stepping_task(request["task"])
    threads = request["threads"]
    environment = envpool.make_gymnasium(task.env_id, num_envs=task.num_envs, num_threads=threads, seed=task.seed)
    dtype = environment.spec.action_array_spec["action"].dtype
    actions = drawn_actions(task, environment.action_space, dtype)
    environment.reset()
    points = step_through(environment.step, actions, task, resets_take_a_step=True)
    config = environment.spec.config._asdict()
    kept = ("num_envs", "batch_size", "num_threads", "max_episode_steps", "frame_skip", "post_constraint")
    return {
        **steady(points, points[1].units),
        "resolved": {
            "autoreset": "next step",
            "action_dtype": str(dtype),
            **{key: config[key] for key in kept if key in config},
        },
        "versions": versions("envpool", "gymnasium", "numpy"),
    }


if __name__ == "__main__":
    answer(measure)
