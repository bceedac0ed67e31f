"""Gymnasium's MuJoCo v5 tasks, many copies in one call."""

from __future__ import annotations

from typing import Any

from etude.environments.native.mujoco_tasks.runners import HalfCheetah, Hopper, Swimmer, Walker2d
from etude.environments.native.mujoco_tasks.tasks import (
    Ant,
    Humanoid,
    InvertedDoublePendulum,
    InvertedPendulum,
    Pusher,
    Reacher,
)
from etude.environments.native.mujoco_tasks.vector import MujocoVector

__all__ = ["TASKS", "MujocoVector"]

_ALL = (Ant, HalfCheetah, Hopper, Humanoid, InvertedDoublePendulum, InvertedPendulum, Pusher, Reacher, Swimmer, Walker2d)
TASKS: dict[str, type[MujocoVector[Any]]] = {task.id: task for task in _ALL}
"""The native class of each Gymnasium id that has one."""
