"""CartPole that takes a while for each step: asleep, as a simulator elsewhere, or busy, as one here."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class SlowCartPole(CartPoleEnv):
    """CartPole-v1 with steps of `milliseconds`; `busy` takes a core for them."""

    def __init__(self, milliseconds: float = 10.0, *, busy: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._seconds, self._busy = milliseconds / 1000, busy

    def step(self, action: Any) -> Any:
        """Step, after a while."""
        if self._busy:
            until = time.thread_time() + self._seconds
            while time.thread_time() < until:
                pass
        else:
            time.sleep(self._seconds)
        return super().step(action)


gymnasium.register("slow/CartPole-v1", entry_point=SlowCartPole, max_episode_steps=500)
