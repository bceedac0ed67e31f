"""CartPole that shows where cart and pole are and not how fast they move: the rest has to be remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from etude.environments.native.classic import Array, CartPole

SEEN = slice(None, None, 2)
"""Position and angle of (position, velocity, angle, angular velocity)."""


class CartPoleNoVelocity(CartPole):
    """Many copies at once."""

    def observe(self, state: Array, out: Array) -> None:
        """Position and angle."""
        out[:] = state[:, SEEN]


class CartPoleNoVelocityEnv(CartPoleEnv):
    """One copy, as Gymnasium has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        whole = self.observation_space
        assert isinstance(whole, spaces.Box)
        self.observation_space = spaces.Box(whole.low[SEEN], whole.high[SEEN], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        observation, info = super().reset(seed=seed, options=options)
        return observation[SEEN].copy(), info

    def step(self, action: Any) -> Any:
        """Push once."""
        observation, *rest = super().step(action)
        return observation[SEEN].copy(), *rest
