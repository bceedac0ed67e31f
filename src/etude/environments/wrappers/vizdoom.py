"""Rewards from the variables of a Doom game."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from etude.environments.spaces import leaf_spaces
from etude.environments.vector import RAW_REWARD
from etude.environments.wrappers.options import RewardConfig
from etude.errors import UserError


@dataclass(frozen=True)
class VizdoomShapingConfig(RewardConfig):
    """What changes of the game's variables earn."""

    id: str = "vizdoom_shaping"
    weights: dict[str, float] = field(default_factory=lambda: {"KILLCOUNT": 1.0, "HEALTH": 0.01, "AMMO2": 0.02})
    """By the variable's name: what one more of it earns; one less costs as much."""


class VizdoomShaping(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays for more kills, health and ammunition, and charges for less.

    Variables are read from info["game_variables"], from info entries of their own names, or from the part `gamevariables` of
    the observation: dicts, or arrays in the order of the task's `game.get_available_game_variables()`.
    """

    Config = VizdoomShapingConfig
    changes_reward = True

    def __init__(self, env: gymnasium.Env[Any, Any], config: VizdoomShapingConfig) -> None:
        super().__init__(env)
        self._weights = dict(config.weights)
        self._last: dict[str, float] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Note the variables."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._last = self._read(observation, info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Pay for what changed."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        # A game that ended has no variables any more, and shows zeros in their place.
        now = self._last if self._is_over(terminated) and not self._has_variables(info) else self._read(observation, info)
        earned = sum(self._weights[name] * (now[name] - self._last.get(name, now[name])) for name in now)
        self._last = now
        return observation, float(reward) + earned, terminated, truncated, {RAW_REWARD: float(reward), **info}

    def _is_over(self, terminated: bool) -> bool:
        game = getattr(self.unwrapped, "game", None)
        return terminated if game is None else bool(game.is_episode_finished())

    def _has_variables(self, info: Mapping[str, Any]) -> bool:
        return info.get("game_variables") is not None or any(name in info for name in self._weights)

    def _read(self, observation: Any, info: Mapping[str, Any]) -> dict[str, float]:
        named: Mapping[str, Any] = info
        values = info.get("game_variables")
        if values is None and isinstance(observation, dict):
            values = observation.get("gamevariables")
        if isinstance(values, Mapping):
            named = values
        elif values is not None:
            named = dict(zip(self._names(), np.ravel(values), strict=False))
        found = {name: float(named[name]) for name in self._weights if name in named}
        if not found:
            known = ", ".join(map(str, named)) or f"none (the observation has {', '.join(leaf_spaces(self.observation_space))})"
            raise UserError(f"vizdoom_shaping.weights: the task has none of {', '.join(self._weights)}; its variables: {known}")
        return found

    def _names(self) -> list[str]:
        game = getattr(self.unwrapped, "game", None)
        return [variable.name for variable in game.get_available_game_variables()] if game is not None else []
