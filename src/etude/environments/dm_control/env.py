"""A task of the Control Suite as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from etude.environments.dm_control.suite_task import SuiteTask

_OBSERVED_PIXELS, _DRAWN_PIXELS = 84, 480  # what networks are given, and what people like to look at
_ELSEWHERE = {
    "time_limit": "environment.max_episode_steps (in steps)",
    "random": "experiment.seed",
    "frame_skip": "a wrapper that repeats actions",
}


class DmControlEnv(gymnasium.Env[Any, np.ndarray]):
    """Observes numbers (one vector, or a dict with the suite's names) or pixels.

    A discount of 0 is a termination. The time limit is Gymnasium's TimeLimit, which truncates: the discount stays 1 there.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 # as Gymnasium declares it; an instance has one with its speed

    def __init__(
        self,
        task: str,
        *,
        flatten: bool = True,
        pixels: bool = False,
        height: int | None = None,
        width: int | None = None,
        camera_id: int = 0,
        render_mode: str | None = None,
        **others: Any,
    ) -> None:
        for name in others:
            if name in _ELSEWHERE:
                raise ValueError(f"takes no '{name}': set {_ELSEWHERE[name]}")
            raise TypeError(f"got an unexpected keyword argument '{name}'")
        self.suite_task = SuiteTask(task)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1 / self.suite_task.seconds_per_step)}
        size = _OBSERVED_PIXELS if pixels else _DRAWN_PIXELS
        self._picture = self._checked_picture(size if height is None else height, size if width is None else width, camera_id)
        self._is_flat, self._has_pixels = flatten, pixels
        self._row = np.empty(self.suite_task.size, np.float32)
        self.action_space = self.suite_task.action_space
        self.observation_space = self._space()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; a seed is that of the task's own generator, which goes on without one."""
        return self._show(self.suite_task.begin(seed)), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act for one control step."""
        reward, terminated = self.suite_task.advance(action)
        return self._show(self.suite_task.observe()), reward, terminated, False, {}

    def render(self) -> Any:
        """Return a picture, if that is the render mode."""
        return self._draw() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free the simulation's drawing context."""
        self.suite_task.physics.free()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the task; nothing else here changes."""
        return self.suite_task.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.suite_task.load_state_dict(state)

    def _checked_picture(self, height: Any, width: Any, camera_id: Any) -> dict[str, int]:
        model = self.suite_task.physics.model
        largest = {"height": model.vis.global_.offheight, "width": model.vis.global_.offwidth}
        for name, value in (("height", height), ("width", width)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest[name]:
                raise ValueError(f"{name}={value!r} must be a whole number from 1 to {largest[name]}")
        if isinstance(camera_id, bool) or not isinstance(camera_id, int) or not -1 <= camera_id < model.ncam:
            raise ValueError(f"camera_id={camera_id!r} must be a whole number from -1 (a free camera) to {model.ncam - 1}")
        return {"height": height, "width": width, "camera_id": camera_id}

    def _space(self) -> spaces.Space[Any]:
        if self._has_pixels:
            return spaces.Box(0, 255, (self._picture["height"], self._picture["width"], 3), np.uint8)
        if self._is_flat:
            return spaces.Box(-np.inf, np.inf, (self.suite_task.size,), np.float32)
        parts = self.suite_task.shapes.items()
        # A list of pairs: the suite's order is kept, where a dict of them would be sorted.
        return spaces.Dict([(name, spaces.Box(-np.inf, np.inf, shape, np.float32)) for name, shape in parts])

    def _show(self, observation: dict[str, Any]) -> Any:
        if self._has_pixels:
            return self._draw()
        if self._is_flat:
            write(observation, self._row)
            return self._row.copy()
        return {name: np.asarray(value, np.float32) for name, value in observation.items()}

    def _draw(self) -> np.ndarray:
        return self.suite_task.physics.render(**self._picture)


def write(observation: dict[str, Any], row: np.ndarray) -> None:
    """Write the parts of an observation one after the other; the row's own type is kept."""
    begin = 0
    for value in observation.values():
        if value.ndim == 1:
            end = begin + len(value)
            row[begin:end] = value
        else:
            end = begin + value.size
            row[begin:end] = value.ravel()
        begin = end
