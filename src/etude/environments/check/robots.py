"""Which robots a name or a file means, for their check: a task by its id or its file, or a robot in a plain task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from etude.compute.devices import pick_device
from etude.config.compose import compose
from etude.config.environment_presets import environment_preset
from etude.config.layers import overlay
from etude.config.schema import Config, EnvironmentConfig
from etude.config.source_file import read_file
from etude.config.validate import Validator, to_plain
from etude.errors import UserError

MODEL_FILES = (".xml", ".mjcf", ".urdf")
TASK_FILES = (".yaml", ".yml")
PLAIN_TASK = {
    "observations": {
        "actor": {
            "base_angular_velocity": {},
            "gravity": {},
            "command": {},
            "joint_position": {},
            "joint_velocity": {},
            "action": {},
        }
    },
    "rewards": {"track_linear_velocity": 1.0, "track_turn": 0.5, "torques": -2e-4},
    "terminations": {"tilt": {}, "unstable": {}},
}
"""What a robot that comes without a task is asked to do: follow commands until it falls."""


def described_robots(name: str, settings: Mapping[str, Any]) -> tuple[EnvironmentConfig, torch.device] | None:
    """Return the robots of this name as training would have them, and its device; None where no robot is called so.

    `settings` are a training's own, such as `{"environment": {"max_episode_steps": 50}}`.
    """
    path = Path(name).expanduser()
    if path.suffix in (*MODEL_FILES, *TASK_FILES):
        if not path.is_file():
            raise UserError(f"{name}: there is no such file")
        config = _of_file(path, settings)
    elif environment_preset(name).get("environment", {}).get("robot") is not None:
        config = _composed(f"{name}:random", None, settings)
    else:
        return None
    if config.environment.robot is None:
        raise UserError(f"{name}: describes no robot; etude check ID checks an environment by its id")
    return config.environment, pick_device(config.experiment.device)


def _of_file(path: Path, settings: Mapping[str, Any]) -> Config:
    if path.suffix in MODEL_FILES:
        return _in_plain_task(path, settings)
    document = read_file(path).data
    if "file" in document:  # a robot's own
        return _in_plain_task(path, settings)
    task, algorithm = (each if isinstance(each := document.get(key), Mapping) else {} for key in ("environment", "algorithm"))
    names_algorithm = bool(algorithm.get("name")) or "extends" in document or "defaults" in document
    return _composed(None if names_algorithm else f"{task.get('id') or path.stem}:random", path, settings)


def _composed(spec: str | None, file: Path | None, settings: Mapping[str, Any]) -> Config:
    config = compose(spec, file=file).config
    return Validator().build(Config, overlay(to_plain(config), settings)) if settings else config


def _in_plain_task(path: Path, settings: Mapping[str, Any]) -> Config:
    if set(settings) - {"environment"}:
        raise UserError(f"{sorted(set(settings) - {'environment'})[0]}: a robot's check takes environment.… settings")
    own = {"environment": {"id": path.stem, "robot": {"model": str(path), **PLAIN_TASK}}}
    data = overlay(own, settings)["environment"]
    return Config(environment=Validator().build(EnvironmentConfig, data, "environment"))
