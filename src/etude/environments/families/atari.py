"""Atari games of the Arcade Learning Environment."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment


def register() -> None:
    """Importing the package registers its games."""
    importlib.import_module("ale_py")


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnvironment | None:
    """Return ALE's vector class, unless a state that can be captured is asked for, or something it does not know."""
    from etude.environments.atari.settings import read_settings
    from etude.environments.atari.vector import AtariVector

    settings = read_settings(config.id, config.kwargs, config.max_episode_steps)
    if settings is None or config.exact or not settings.suits_vector:
        return None
    return AtariVector(settings, num_envs)


def make_one(config: EnvironmentConfig, render_mode: Any) -> gymnasium.Env[Any, Any] | None:
    """Return one game on its own emulator, with the same preprocessing."""
    from etude.environments.atari.game import AtariGame
    from etude.environments.atari.settings import read_settings

    settings = read_settings(config.id, config.kwargs, config.max_episode_steps)
    return None if settings is None else AtariGame(settings, render_mode)
