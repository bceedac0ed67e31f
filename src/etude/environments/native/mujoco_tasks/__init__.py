"""Gymnasium's MuJoCo v5 tasks, many copies in one call."""

from __future__ import annotations

from typing import Any

from etude.environments.native.mujoco_tasks.ant import Ant
from etude.environments.native.mujoco_tasks.half_cheetah import HalfCheetah
from etude.environments.native.mujoco_tasks.hopper import Hopper
from etude.environments.native.mujoco_tasks.humanoid import Humanoid
from etude.environments.native.mujoco_tasks.inverted_double_pendulum import InvertedDoublePendulum
from etude.environments.native.mujoco_tasks.inverted_pendulum import InvertedPendulum
from etude.environments.native.mujoco_tasks.pusher import Pusher
from etude.environments.native.mujoco_tasks.reacher import Reacher
from etude.environments.native.mujoco_tasks.swimmer import Swimmer
from etude.environments.native.mujoco_tasks.vector import MujocoVector
from etude.environments.native.mujoco_tasks.walker2d import Walker2d

__all__ = ["TASKS", "MujocoVector"]

_ALL = (
    Ant,
    HalfCheetah,
    Hopper,
    Humanoid,
    InvertedDoublePendulum,
    InvertedPendulum,
    Pusher,
    Reacher,
    Swimmer,
    Walker2d,
)
TASKS: dict[str, type[MujocoVector[Any]]] = {task.id: task for task in _ALL}
"""The native class of each Gymnasium id that has one."""
