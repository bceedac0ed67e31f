"""What can be viewed: a run of a robot, or a robot's task by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from etude.config.environment_presets import environment_preset
from etude.environments.check.robots import MODEL_FILES, TASK_FILES, described_robots
from etude.environments.make import make_environment
from etude.errors import UserError
from etude.runs.checkpoint_selection import checkpoint_folders
from etude.runs.run import Run
from etude.training import stored_config
from etude.using.play import ENDLESS, set_stage
from etude.viewing.checkpoints import Checkpoints
from etude.viewing.live_robot import LiveRobot
from etude.viewing.performers import Act, PolicyPerformer, Puppet
from etude.viewing.show import Show


def is_task(what: str) -> bool:
    """Whether a word means a robot's task, or the file of one or of a robot; anything else is a run's name."""
    if Path(what).suffix.lower() in (*MODEL_FILES, *TASK_FILES):
        return True
    task, colon, _ = what.partition(":")
    if colon and _is_robot_task(task):
        raise UserError(f"{what}: name the task alone, {task}, or a run of it")
    return _is_robot_task(what)


def _is_robot_task(name: str) -> bool:
    return environment_preset(name).get("environment", {}).get("robot") is not None


def show_task(
    what: str,
    settings: Mapping[str, Any],
    *,
    act: Act,
    seed: int = 0,
    speed: float = 1.0,
    paused: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Show:
    """Return a show of a task, whose robot nobody in particular moves."""
    described = described_robots(what, settings)
    if described is None:
        raise UserError(f"{what}: is no robot's task")
    config, _ = described
    environment = make_environment(replace(config, max_episode_steps=ENDLESS), num_envs=1)
    live = LiveRobot(Puppet(environment, act), seed=seed)
    doing = "random actions" if act == "random" else "standing"
    return Show(live, f"{config.id} · {doing}", speed=speed, paused=paused, tell=tell)


def show_run(
    run: Run,
    *,
    checkpoint: str | None = None,
    follows: bool = False,
    mode: Literal["auto", "greedy", "sample"] = "auto",
    trusted: bool = False,
    device: str | None = None,
    seed: int = 0,
    speed: float = 1.0,
    paused: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Show:
    """Return a show of a run's robot, with the policy of a checkpoint; of the newest and of those to come if it `follows`."""
    require_robot(run, trusted=trusted)
    prefer: Literal["best", "last"] = "last" if follows else "best"
    stage = set_stage(run, checkpoint, mode=mode, endless=True, trusted=trusted, device=device, prefer=prefer)
    stored, (player,) = stage.stored, stage.players
    if stored.note is not None:
        tell(stored.note)
    live = LiveRobot(PolicyPerformer(player, stage.root_seed), seed=seed)
    checkpoints = Checkpoints(stored, player.environment, follows=follows)
    checkpoints.list()
    show = Show(live, stored.config.environment.id, checkpoints=checkpoints, speed=speed, paused=paused, tell=tell)
    if follows:
        show.look()
    return show


def require_robot(run: Run, *, trusted: bool) -> None:
    """Refuse a run of anything else."""
    config = stored_config.load_config(run, trusted=trusted)
    if config.environment.robot is None:
        task = config.environment.id
        raise UserError(f"run {run.id} is of {task}, which is no robot: `etude play` and `etude inspect` show it")


def wait_for_checkpoint(run: Run, tell: Callable[[str], None], every_s: float = 1.0) -> None:
    """Wait until a run that trains has written its first checkpoint."""
    told = False
    while not checkpoint_folders(run.checkpoints_path):
        if run.status != "running":
            raise UserError(f"run {run.id} has no checkpoint, and is {run.status}")
        if not told:
            tell(f"run {run.id} has no checkpoint yet: waiting for the first")
        told = True
        time.sleep(every_s)
