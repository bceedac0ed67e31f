"""A task in time with its motion: the gait's clock goes round once while the motion does."""

from __future__ import annotations

from dataclasses import replace

from etude.config.robots import RobotConfig
from etude.robots.motions.motion import Motion


def in_time(task: RobotConfig, motion: Motion) -> RobotConfig:
    """Return the task with the clock of its motion."""
    return with_files(replace(task, commands=replace(task.commands, gait_hz=1 / motion.duration)), task)


def with_files(task: RobotConfig, like: RobotConfig) -> RobotConfig:
    """Return the task with the stored files of another one: a copy of settings does not have them."""
    object.__setattr__(task, "files", like.files)
    object.__setattr__(task, "networks", like.networks)
    return task
