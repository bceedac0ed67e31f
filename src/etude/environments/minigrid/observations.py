"""What a policy observes of a MiniGrid world."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

from etude.environments.minigrid.missions import VOCABULARY, MissionReader, is_constant, words_of
from etude.errors import UserError, did_you_mean

_CHOICES = {"observation": ("image", "full", "rgb", "flat"), "mission": ("auto", "ids", "off")}
_TILE_PIXELS = 8
_KINDS = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX))
"""How many objects, colours and states a cell of the image may name."""


@dataclass(frozen=True)
class Settings:
    """The words of `environment.kwargs` that are about observing."""

    observation: str = "image"
    mission: str = "auto"

    @classmethod
    def taken_from(cls, kwargs: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        """Return these settings, and what is left for the world itself."""
        for name, choices in _CHOICES.items():
            value = kwargs.get(name, choices[0])
            # YAML reads a bare off as false.
            if value not in choices and not (name == "mission" and value is False):
                near = did_you_mean(str(value), choices)
                raise UserError(f"environment.kwargs.{name}={value}: must be one of {', '.join(choices)}{near}")
        own = {name: "off" if kwargs[name] is False else kwargs[name] for name in _CHOICES if name in kwargs}
        return cls(**own), {name: value for name, value in kwargs.items() if name not in _CHOICES}


class Observed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows a world as `settings` say; it takes part in nothing else."""

    def __init__(self, env: gymnasium.Env[Any, Any], settings: Settings) -> None:
        super().__init__(env)
        world: Any = env.unwrapped
        self.observation = settings.observation
        self.has_mission = settings.mission == "ids" or (settings.mission == "auto" and not is_constant(world))
        self.words = words_of(world)
        self._reader = MissionReader(self.words)
        self.observation_space = self._space(world)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        seen, info = self.env.reset(seed=seed, options=options)
        return self._show(seen), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        return self._show(seen), reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: what is shown depends on the world alone."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on; the world brings all there is."""

    def _space(self, world: Any) -> spaces.Space[Any]:
        """Return the space of what `_show` returns."""
        view = world.agent_view_size
        parts: dict[str, spaces.Space[Any]]
        if self.observation == "flat":
            parts = {"flat": spaces.Box(0, 1, (view * view * sum(_KINDS) + 4,), np.float32)}
        elif self.observation == "rgb":  # the view turns with the agent, so its picture needs no direction beside it
            parts = {"image": _bytes(view * _TILE_PIXELS, view * _TILE_PIXELS)}
        else:
            image = _bytes(world.width, world.height) if self.observation == "full" else _bytes(view, view)
            parts = {"image": image, "direction": spaces.Discrete(4)}
        if self.has_mission:
            parts["mission"] = spaces.MultiDiscrete([len(VOCABULARY) + 1] * self.words)
        return spaces.Dict(list(parts.items())) if len(parts) > 1 else next(iter(parts.values()))

    def _show(self, seen: dict[str, Any]) -> Any:
        """Return the parts that were asked for by name, or the only one."""
        shown: dict[str, Any]
        if self.observation == "flat":
            shown = {"flat": one_hot(seen["image"], int(seen["direction"]))}
        elif self.observation == "rgb":
            world: Any = self.unwrapped
            shown = {"image": world.get_frame(tile_size=_TILE_PIXELS, agent_pov=True)}
        else:
            image = self._whole() if self.observation == "full" else seen["image"]
            shown = {"image": image, "direction": seen["direction"]}
        if self.has_mission:
            shown["mission"] = self._reader.read(seen["mission"])
        return shown if len(shown) > 1 else next(iter(shown.values()))

    def _whole(self) -> np.ndarray:
        """Return the codes of every cell, walls hiding nothing, with the agent where it stands."""
        world: Any = self.unwrapped
        codes = world.grid.encode()
        column, row = world.agent_pos
        codes[column, row] = (OBJECT_TO_IDX["agent"], COLOR_TO_IDX["red"], world.agent_dir)
        return codes


def one_hot(image: np.ndarray, direction: int) -> np.ndarray:
    """Return the codes of an image as zeros and ones, cell by cell, and then the direction."""
    cells = image.reshape(-1, 3)
    row = np.zeros(len(cells) * sum(_KINDS) + 4, np.float32)
    # (cells, 3): where the ones of each cell's object, colour and state are
    row[(cells + _one_hot_offsets(len(cells))).ravel()] = 1.0
    row[len(row) - 4 + direction] = 1.0
    return row


@functools.cache
def _one_hot_offsets(cells: int) -> np.ndarray:
    return np.arange(cells)[:, None] * sum(_KINDS) + np.cumsum([0, *_KINDS[:-1]])


def _bytes(width: int, height: int) -> spaces.Box:
    return spaces.Box(0, 255, (width, height, 3), np.uint8)
