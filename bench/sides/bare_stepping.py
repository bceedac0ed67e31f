"""Environments as their own package has them, one after the other: what any layer around them adds to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from measurement import NotAvailableError, answer, steady, versions
from tasks import stepping_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Step with actions drawn beforehand; an environment that ends is reset in the same step."""
    from sides.stepping import drawn_actions, step_through

    task = stepping_task(request["task"])
    os.environ.setdefault("MUJOCO_GL", "egl")
    steppers = []
    space: Any = None
    for index in range(task.num_envs):
        space, stepper = _make(task.env_id, index)
        steppers.append(stepper)
    actions = drawn_actions(task, space, "int64" if hasattr(space, "n") else "float64")

    def step(action: Any) -> None:
        for stepper, one in zip(steppers, action, strict=True):
            stepper(one)

    points = step_through(step, actions, task)
    return {
        **steady(points, points[1].units),
        "resolved": {"class": "a list of environments", "autoreset": "same step"},
        "versions": versions("dm_control", "minigrid", "mujoco", "numpy"),
    }


def _make(name: str, seed: int) -> tuple[Any, Callable[[Any], None]]:
    try:
        return _make_suite_task(name, seed) if name.startswith("dmc/") else _make_world(name, seed)
    except ModuleNotFoundError as error:
        raise NotAvailableError(f"{error.name} is not installed") from error


def _make_suite_task(name: str, seed: int) -> tuple[Any, Callable[[Any], None]]:
    from dm_control import suite
    from gymnasium import spaces

    domain, _, task = name.removeprefix("dmc/").partition("-")
    environment = suite.load(domain, task, task_kwargs={"random": seed})
    environment.reset()
    spec = environment.action_spec()

    def step(action: Any) -> None:
        if environment.step(action).last():
            environment.reset()

    return spaces.Box(spec.minimum, spec.maximum, dtype=spec.dtype), step


def _make_world(name: str, seed: int) -> tuple[Any, Callable[[Any], None]]:
    import gymnasium
    import minigrid  # noqa: F401 # registers its worlds

    environment = gymnasium.make(name, disable_env_checker=True)
    environment.reset(seed=seed)

    def step(action: Any) -> None:
        _, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            environment.reset()

    return environment.action_space, step


if __name__ == "__main__":
    answer(measure)
