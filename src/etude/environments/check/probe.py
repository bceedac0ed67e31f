"""Tries an environment: builds it, takes random steps, takes a picture. Written to be called in its own process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.config.compose import compose
from etude.config.environment_presets import environment_preset
from etude.config.schema import EnvironmentConfig
from etude.environments.families import family_of
from etude.environments.make import make_environment
from etude.environments.rendering import Camera, make_to_show
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation, VectorEnvironment
from etude.errors import EtudeError

Tell = Callable[..., None]


class WrongDataError(EtudeError):
    """An environment returned what can't be learnt from."""


def probe_steps(tell: Tell, name: str, steps: int, backend: Literal["auto", "envpool"] = "auto") -> None:
    """Build one copy and take `steps` random steps; tells what it is and how fast."""
    torch.set_num_threads(1)
    tell(stage="build")
    began = time.perf_counter()
    environment = make_environment(_described(name, backend))
    try:
        tell(
            stage="step",
            build_s=round(time.perf_counter() - began, 3),
            backend=type(environment).__name__,
            observation=in_words(environment.single_observation_space),
            action=in_words(environment.single_action_space),
        )
        _walk(tell, environment, name, steps)
    finally:
        environment.close()


def probe_picture(tell: Tell, name: str) -> None:
    """Draw one picture of an environment; tells its size and what drew it."""
    tell(stage="draw")
    described = _described(name, "auto") if family_of(name).name == "robots" else EnvironmentConfig(id=name)
    environment = make_to_show(described, "pictures")
    tell(gl=os.environ.get("MUJOCO_GL") or None)
    try:
        environment.reset([0])
        tell(picture=list(Camera(environment, name).take().shape))
    finally:
        environment.close()


def random_action(space: gymnasium.Space[Any], observation: Observation, count: int) -> Tensor:
    """Return a random action for each of `count` copies, as our environments take them: counted from 0, masked."""
    mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
    if isinstance(space, spaces.Discrete):
        masks = [None] * count if mask is None else [row.cpu().numpy().astype(np.int8) for row in mask]
        return torch.tensor([int(space.sample(mask=row)) - int(space.start) for row in masks])
    drawn = torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(count)]))
    return drawn - torch.as_tensor(space.start) if isinstance(space, spaces.MultiDiscrete) else drawn


def in_words(space: gymnasium.Space[Any]) -> str:
    """Return a space as `Box(84, 84, 3) uint8` or `Discrete(4)`; the parts of a Dict by name."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return ", ".join(f"{name}: {in_words(part)}" for name, part in leaf_spaces(space).items())
    if isinstance(space, spaces.Box):
        return f"Box({', '.join(map(str, space.shape))}) {space.dtype}"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, spaces.MultiDiscrete):
        return f"MultiDiscrete({', '.join(str(n) for n in space.nvec.ravel())})"
    return f"MultiBinary({', '.join(map(str, space.shape or ()))})" if isinstance(space, spaces.MultiBinary) else str(space)


def _described(name: str, backend: Literal["auto", "envpool"]) -> EnvironmentConfig:
    """An id with a preset is tried as the preset has it; robots exist only there."""
    if backend != "auto" or not environment_preset(name):
        return EnvironmentConfig(id=name, num_envs=1, backend=backend)
    return replace(compose(f"{name}:random").config.environment, num_envs=1, workers=0)


def _walk(tell: Tell, environment: VectorEnvironment, name: str, steps: int) -> None:
    space, count = environment.single_action_space, environment.num_envs
    space.seed(0)
    observation, _ = environment.reset(list(range(count)))
    tell(snapshot=environment.snapshot)
    observation = environment.step(random_action(space, observation, count)).observation  # what is built on the first step
    episodes, took = 0, np.zeros(steps)
    for number in range(steps):
        action = random_action(space, observation, count)
        began = time.perf_counter()
        step = environment.step(action)
        took[number] = time.perf_counter() - began
        observation = step.observation
        _check_finite(name, number, "reward", step.reward)
        for key, part in observation.items() if isinstance(observation, dict) else [("observation", observation)]:
            _check_finite(name, number, key, part)
        episodes += int((step.terminated | step.truncated).sum())
    tell(steps=steps, episodes=episodes, steps_per_s=None if not steps else round(count / _usual(took), 1))


def _usual(took: np.ndarray) -> float:
    """The time of a step in the fastest fifth of the walk: what other programs took away is not the environment's."""
    return min(float(part.mean()) for part in np.array_split(took, min(5, len(took))))


def _check_finite(name: str, number: int, what: str, value: Tensor) -> None:
    if value.is_floating_point() and bool(value.isnan().any()):
        raise WrongDataError(f"{name}: {what} is NaN after {number + 1} random steps")
