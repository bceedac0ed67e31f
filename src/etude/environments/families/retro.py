"""Retro games through stable-retro: one emulator a process, whose state is captured whole.

Only Airstriker-Genesis comes with the package; the ROMs of other games are yours to import (`python -m stable_retro.import`).
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from etude.errors import UserError, did_you_mean

_PREFIX = "Retro/"
_HERE = "etude.environments.families.retro"


def register() -> None:
    """Make the games known whose ROM is here."""
    data: Any = importlib.import_module("stable_retro.data")
    for game in data.list_games():
        with suppress(FileNotFoundError):
            data.get_romfile_path(game)
            register_id(_PREFIX + game)


def register_id(name: str) -> None:
    """Make one game known; whether there is a ROM of it shows when it is made."""
    if name not in gymnasium.registry:
        gymnasium.register(name, f"{_HERE}:RetroGame", kwargs={"game": name.removeprefix(_PREFIX)})


class RetroGame(gymnasium.Env[Any, Any]):
    """A game; the arguments are stable-retro's own (state, scenario, players, ...)."""

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 60}  # noqa: RUF012 # as Gymnasium declares it

    def __init__(self, game: str, render_mode: str | None = None, **options: Any) -> None:
        retro: Any = importlib.import_module("stable_retro")
        self.render_mode = render_mode
        try:
            # Its own default is a window.
            self.game = retro.make(game, render_mode=render_mode or "rgb_array", **options)
        except FileNotFoundError as problem:
            games = retro.data.list_games()
            if game in games:
                raise UserError(
                    f"{_PREFIX}{game}: its ROM is not here; import yours: python -m stable_retro.import FOLDER"
                ) from problem
            raise UserError(f"{_PREFIX}{game}: no such game{did_you_mean(game, games)}") from problem
        self.observation_space, self.action_space = self.game.observation_space, self.game.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the game itself has no randomness but what its own clock gives."""
        super().reset(seed=seed)
        return self.game.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one frame."""
        observation, reward, terminated, truncated, info = self.game.step(action)
        return observation, float(reward), terminated, truncated, info

    def render(self) -> Any:
        """Return the screen."""
        return self.game.render()

    def close(self) -> None:
        """Free the emulator, so that this process may make another."""
        self.game.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the emulator's memory and our generator."""
        return {"emulator": np.frombuffer(self.game.em.get_state(), np.uint8).copy(), "generator": self.np_random}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if self.game.img is None:
            self.game.reset()
        self._np_random = state["generator"]
        self.game.em.set_state(state["emulator"].tobytes())
        self.game.data.reset()
        self.game.data.update_ram()
