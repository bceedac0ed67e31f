"""What a person would see, as the observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from etude.environments.rendering import draw
from etude.environments.spaces import leaf_spaces
from etude.environments.wrappers.options import WrapperConfig
from etude.errors import EtudeError, UserError


@dataclass(frozen=True)
class PixelObservationsConfig(WrapperConfig):
    """Pictures as observations."""

    id: str = "pixel_observations"
    keep_state: bool = False
    """Keep what the task itself shows: a Dict with `pixels` and `observation` (or the task's own keys)."""


class PixelObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows the learner the picture that the task draws of itself, (H, W, 3) bytes; drawing takes most of the time."""

    Config = PixelObservationsConfig
    needs_pictures: ClassVar[bool] = True

    def __init__(self, env: gymnasium.Env[Any, Any], config: PixelObservationsConfig) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise EtudeError(f"pixel_observations: the task draws no pictures (render_mode is {env.render_mode})")
        self._keep = config.keep_state
        env.reset(seed=0)  # most tasks draw nothing before their first episode; the seed keeps this from being random
        picture = self._picture()
        pixels = spaces.Box(0, 255, picture.shape, np.uint8)
        leaves = leaf_spaces(env.observation_space)
        if "pixels" in leaves:
            raise UserError("the observation has a part `pixels` already")
        named = {"observation": leaves[""]} if "" in leaves else leaves
        self.observation_space = spaces.Dict({**named, "pixels": pixels}) if self._keep else pixels

    def observation(self, observation: Any) -> Any:
        """Draw."""
        picture = self._picture()
        if not self._keep:
            return picture
        if isinstance(observation, tuple):
            observation = {str(place): part for place, part in enumerate(observation)}
        return {**(observation if isinstance(observation, dict) else {"observation": observation}), "pixels": picture}

    def _picture(self) -> np.ndarray:
        picture = draw(self.env)
        if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.ndim != 3:
            raise EtudeError(f"pixel_observations: the task draws a {type(picture).__name__}, not a picture of bytes")
        return picture
