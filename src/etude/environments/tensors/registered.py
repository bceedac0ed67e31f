"""The tasks of torch tensors that there are, by name, and how many copies of one are made."""

from __future__ import annotations

from functools import partial

import gymnasium
import torch

from etude.config.registry import load_object
from etude.config.schema import EnvironmentConfig
from etude.environments.check.complaints import complaint
from etude.environments.tensors.env import TensorEnv
from etude.environments.tensors.task import TensorTask
from etude.environments.tensors.vector import TensorVector
from etude.errors import UserError

_CLASSIC, _ARCADE = "etude.environments.tensors.classic", "etude.environments.tensors.arcade"
TASKS: dict[str, str | type[TensorTask]] = {
    "CartPole-v0": f"{_CLASSIC}:CartPoleV0",
    "CartPole-v1": f"{_CLASSIC}:CartPole",
    "Pendulum-v1": f"{_CLASSIC}:Pendulum",
    "MountainCar-v0": f"{_CLASSIC}:MountainCar",
    "Acrobot-v1": f"{_CLASSIC}:Acrobot",
}
"""Classes, or where they are. Those of Gymnasium's names are its tasks again, made only where backend=torch asks for them."""
ARCADE = {
    "BrickWall-v0": f"{_ARCADE}:BrickWall",
    "RoadCrossing-v0": f"{_ARCADE}:RoadCrossing",
    "FruitFall-v0": f"{_ARCADE}:FruitFall",
}


def register_task(name: str, task: type[TensorTask]) -> None:
    """Make a task of tensors known by a name such as MyTask-v0, here and to Gymnasium, one copy at a time.

    A config names it as `module:MyTask-v0`, which imports the module first.
    """
    if name in ARCADE or TASKS.get(name, task) is not task:
        raise UserError(f"environment '{name}' is registered already; give yours another name")
    TASKS[name] = task
    if name not in gymnasium.registry:
        limits = {"max_episode_steps": task.max_episode_steps, "reward_threshold": task.return_threshold}
        gymnasium.register(name, partial(TensorEnv, task), **limits)


def make_tensors(config: EnvironmentConfig, count: int, device: torch.device | None) -> TensorVector | None:
    """Return many copies; None where the task has no such form, or has another one that nobody chose against."""
    name = config.id.rpartition(":")[2]
    task = ARCADE.get(name) or TASKS.get(name)
    if task is None or (isinstance(task, str) and name not in ARCADE and config.backend != "torch"):
        return None
    made = load_object(task) if isinstance(task, str) else task
    try:
        return TensorVector(made(**config.kwargs), count, device, max_episode_steps=config.max_episode_steps)
    except TypeError as problem:
        if not config.kwargs:
            raise
        raise UserError(f"environment.kwargs={config.kwargs}: {config.id} {complaint(problem)}") from problem
