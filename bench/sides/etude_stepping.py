"""Etude's vector environments: the native backend, Gymnasium's classes, or worker processes."""

from __future__ import annotations

from typing import Any

from measurement import NotAvailableError, answer, steady, versions
from tasks import stepping_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Step with actions drawn beforehand."""
    import torch

    from etude.config.schema import EnvironmentConfig
    from sides.stepping import drawn_actions, step_through

    task = stepping_task(request["task"])
    torch.set_num_threads(request["threads"])
    config = EnvironmentConfig(id=task.env_id, num_envs=task.num_envs, **request["environment"])
    environment = _make(config)
    space = environment.single_action_space
    actions = [torch.from_numpy(a) for a in drawn_actions(task, space, "int64" if hasattr(space, "n") else "float32")]
    environment.reset(range(task.num_envs))
    points = step_through(environment.step, actions, task)
    simulation = getattr(environment, "simulation", None)
    environment.close()
    return {
        **steady(points, points[1].units),
        "resolved": {
            "class": type(environment).__name__,
            "autoreset": "same step",
            "physics_threads": getattr(simulation, "threads", None),
            "backend": config.backend,
            "workers": config.workers,
        },
        "versions": versions("etude", "torch", "gymnasium", "mujoco", "numpy"),
    }


def _make(config: Any) -> Any:
    from etude.environments.gymnasium import GymnasiumVector
    from etude.environments.make import make_environment
    from etude.errors import UserError

    try:
        environment = make_environment(config)
    except UserError as error:
        if config.backend == "native":
            raise NotAvailableError(f"this Etude has no native {config.id}") from error
        raise
    if type(environment) is GymnasiumVector and (config.backend == "native" or config.workers):
        environment.close()
        raise NotAvailableError(f"this Etude has no {'worker processes' if config.workers else f'native {config.id}'}")
    return environment


if __name__ == "__main__":
    answer(measure)
