"""How episodes begin and end: idle starts, lives, and buttons to press first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from etude.compute.random_streams import derive_seed
from etude.config.constraints import NonNegativeInt, PositiveInt
from etude.environments.spaces import discrete_actions
from etude.environments.wrappers.options import WrapperConfig
from etude.errors import UserError

_Reset = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class NoopStartConfig(WrapperConfig):
    """Idle starts."""

    id: str = "noop_start"
    maximum: PositiveInt = 30
    """An episode begins with 1 to this many idle steps."""
    action: NonNegativeInt = 0
    """The action that does nothing."""


class NoopStart(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins each episode with a random number of idle steps (Mnih et al. 2015); their rewards are not counted."""

    Config = NoopStartConfig

    def __init__(self, env: gymnasium.Env[Any, Any], config: NoopStartConfig) -> None:
        super().__init__(env)
        _check_action(env, config.action, "action")
        self._maximum, self._action = config.maximum, config.action
        self._random = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> _Reset:
        """Begin, and idle."""
        if seed is not None:
            self._random = np.random.default_rng(derive_seed(seed, "noop_start"))
        observation, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self._random.integers(1, self._maximum + 1))):
            observation, _, terminated, truncated, info = self.env.step(self._action)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info


@dataclass(frozen=True)
class LifeLossConfig(WrapperConfig):
    """A life, an episode."""

    id: str = "life_loss"
    action: NonNegativeInt = 0
    """What is done in the step that begins the next life."""
    training_only: bool = True
    """Evaluate and play whole games."""


class LifeLoss(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A lost life ends the episode for the learner; the game goes on, and begins anew when the last life is lost."""

    Config = LifeLossConfig

    def __init__(self, env: gymnasium.Env[Any, Any], config: LifeLossConfig) -> None:
        super().__init__(env)
        _check_action(env, config.action, "action")
        self._action = config.action
        self._lives, self._is_over = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> _Reset:
        """Begin the next life, or the next game."""
        if self._is_over or seed is not None:
            observation, info = self.env.reset(seed=seed, options=options)
        else:
            observation, _, terminated, truncated, info = self.env.step(self._action)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        self._is_over, self._lives = False, self._count(info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and see what it cost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._is_over = terminated or truncated
        lives, before = self._count(info), self._lives
        self._lives = lives
        return observation, reward, terminated or lives < before, truncated, info

    def _count(self, info: dict[str, Any]) -> int:
        if "lives" in info:
            return int(info["lives"])
        console = getattr(self.unwrapped, "ale", None)
        if console is None:
            raise UserError("needs a task with lives: one whose info has `lives`, or an Atari game")
        return int(console.lives())


@dataclass(frozen=True)
class FireResetConfig(WrapperConfig):
    """A button first."""

    id: str = "fire_reset"
    action: NonNegativeInt | None = None
    """The button's action. Default: the one that the game calls FIRE."""


class FireReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Presses a button when an episode begins, for games that wait for it."""

    Config = FireResetConfig

    def __init__(self, env: gymnasium.Env[Any, Any], config: FireResetConfig) -> None:
        super().__init__(env)
        names = getattr(env.unwrapped, "get_action_meanings", list)()
        if config.action is None and "FIRE" not in names:
            raise UserError(f"this task has no FIRE action (it has {', '.join(names) or 'no names for actions'}); set action")
        self._action = names.index("FIRE") if config.action is None else config.action
        _check_action(env, self._action, "action")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> _Reset:
        """Begin, and press it."""
        self.env.reset(seed=seed, options=options)
        observation, _, terminated, truncated, info = self.env.step(self._action)
        if terminated or truncated:
            observation, info = self.env.reset(options=options)
        return observation, info


def _check_action(env: gymnasium.Env[Any, Any], action: int, name: str) -> None:
    count = discrete_actions(env.action_space)
    if not 0 <= action < count:
        raise UserError(f"{name}={action}: this task has the actions 0 to {count - 1}")
