"""What a policy observes of a MiniGrid world."""

from __future__ import annotations

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
        view, cells = world.agent_view_size, (world.width, world.height)
        whole = spaces.Box(0, 255, (*cells, 3), np.uint8)
        parts: dict[str, spaces.Space[Any]] = {
            "image": {"image": spaces.Box(0, 255, (view, view, 3), np.uint8), "full": whole}.get(
                self.observation, spaces.Box(0, 255, (view * _TILE_PIXELS, view * _TILE_PIXELS, 3), np.uint8)
            ),
            "direction": spaces.Discrete(4),
        }
        if self.observation == "flat":
            flat = spaces.Box(0, 1, (view * view * sum(_KINDS) + 4,), np.float32)
            if not self.has_mission:
                return flat
            parts = {"flat": flat}
        elif self.observation == "rgb":
            del parts["direction"]  # the view turns with the agent, and so does its picture
        if self.has_mission:
            parts["mission"] = spaces.MultiDiscrete([len(VOCABULARY) + 1] * self.words)
        elif len(parts) == 1:
            return parts["image"]
        return spaces.Dict(list(parts.items()))

    def _show(self, seen: dict[str, Any]) -> Any:
        shown: dict[str, Any]
        if self.observation == "image":
            shown = {"image": seen["image"], "direction": seen["direction"]}
        elif self.observation == "flat":
            flat = one_hot(seen["image"], int(seen["direction"]))
            if not self.has_mission:
                return flat
            shown = {"flat": flat}
        elif self.observation == "full":
            shown = {"image": self._whole(), "direction": seen["direction"]}
        else:
            world: Any = self.unwrapped
            picture = world.get_frame(tile_size=_TILE_PIXELS, agent_pov=True)
            if not self.has_mission:
                return picture
            shown = {"image": picture}
        if self.has_mission:
            shown["mission"] = self._reader.read(seen["mission"])
        return shown

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


_OFFSETS: dict[int, np.ndarray] = {}


def _one_hot_offsets(cells: int) -> np.ndarray:
    if cells not in _OFFSETS:
        within = np.cumsum([0, *_KINDS[:-1]])
        _OFFSETS[cells] = np.arange(cells)[:, None] * sum(_KINDS) + within
    return _OFFSETS[cells]
