"""Tiny environments whose right answers are known by hand, as Gymnasium tasks `etude.testing.probes:probe/NAME-v0`.

Each exists in several forms, so that every algorithm finds one that it can act in: observations are a vector with a single 1
(box) or a number (discrete), actions one of two (discrete) or a number in [-1, 1] (box).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 5
"""Steps of an episode of Termination, and of TimeLimit."""
WANTED = (-1, 1, 1, -1, 1, -1, -1, 1)
"""The action that earns in each state of Now and Later: enough that a policy can't be right by luck."""


class Probe(gymnasium.Env[Any, Any]):
    """A task with a handful of states, all of them seen."""

    states: ClassVar[int]

    def __init__(
        self, observations: Literal["box", "discrete"] = "box", actions: Literal["box", "discrete"] = "discrete"
    ) -> None:
        is_box = observations == "box"
        self.observation_space = spaces.Box(0, 1, (self.states,), np.float32) if is_box else spaces.Discrete(self.states)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if actions == "box" else spaces.Discrete(2)
        self.state = 0
        self.age = 0

    def observe(self) -> Any:
        """Return the state as it is seen."""
        if isinstance(self.observation_space, spaces.Discrete):
            return self.state
        return np.eye(self.states, dtype=np.float32)[self.state]

    def choice(self, action: Any) -> float:
        """Return an action as a number from -1 to 1."""
        return 2.0 * int(action) - 1.0 if isinstance(self.action_space, spaces.Discrete) else float(np.clip(action[0], -1, 1))

    def begin(self) -> None:
        """Choose the first state of an episode."""
        self.state = 0

    def advance(self, choice: float) -> tuple[float, bool, bool]:
        """Move on; returns (reward, terminated, truncated)."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.age = 0
        self.begin()
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        self.age += 1
        reward, terminated, truncated = self.advance(self.choice(action))
        return self.observe(), reward, terminated, truncated, {}


class TimeLimit(Probe):
    """Reward 1 for ever; a time limit cuts it again and again, and nothing tells when: worth 1/(1-γ)."""

    states = 1

    def advance(self, choice: float) -> tuple[float, bool, bool]:
        """Nothing changes."""
        return 1.0, False, self.age == LENGTH


class Termination(Probe):
    """Reward 1 a step, and a real end after five of them, which the state tells: worth a finite sum."""

    states = LENGTH + 1

    def advance(self, choice: float) -> tuple[float, bool, bool]:
        """Grow older."""
        self.state = self.age
        return 1.0, self.age == LENGTH, False


class FinalObservation(Probe):
    """From A a step leads to B, where a time limit cuts; from B a step earns 5 and ends. Three of four episodes begin in A.

    So A is worth 5γ and B is worth 5. Whoever takes the value of the next episode's first observation instead of the final
    one gets 5γ/(4-3γ) for A; whoever takes the limit for an end gets 0.
    """

    states = 2

    def begin(self) -> None:
        """A or B."""
        self.state = int(self.np_random.integers(4) == 0)

    def advance(self, choice: float) -> tuple[float, bool, bool]:
        """To the other state."""
        was_a, self.state = self.state == 0, 1 - self.state
        return (0.0, False, True) if was_a else (5.0, True, False)


class Now(Probe):
    """The state says which action earns now; the next state has nothing to do with it. At best 1 a step, by chance 0.5."""

    states = len(WANTED)

    def begin(self) -> None:
        """Any."""
        self.state = int(self.np_random.integers(self.states))

    def advance(self, choice: float) -> tuple[float, bool, bool]:
        """Pay for this step's action in this step's state."""
        reward = (1 + choice * WANTED[self.state]) / 2
        self.begin()
        return reward, False, self.age == 10


class Later(Probe):
    """As Now, but paid one step later: the state remembers whether the last action was right."""

    states = 2 * len(WANTED)

    def begin(self) -> None:
        """Any, with nothing earned."""
        self.state = int(self.np_random.integers(len(WANTED)))

    def advance(self, choice: float) -> tuple[float, bool, bool]:
        """Pay for the action of the step before."""
        earned, shown = divmod(self.state, len(WANTED))
        # By chance where an action is neither fully right nor wrong, so that what it earns on average is smooth in it.
        right = self.np_random.random() < (1 + choice * WANTED[shown]) / 2
        self.state = len(WANTED) * int(right) + int(self.np_random.integers(len(WANTED)))
        return float(earned), False, self.age == 10


class Endings(Probe):
    """Ends one way or the other, and the last observation says which: 0 first, 1 under way, 2 terminated, 3 truncated."""

    states = 4

    def begin(self) -> None:
        """Choose how this one will end."""
        self.state = 0
        self.terminates = bool(self.np_random.integers(2))

    def advance(self, choice: float) -> tuple[float, bool, bool]:
        """Walk to the end."""
        terminated, truncated = self.terminates and self.age == 2, not self.terminates and self.age == 3
        self.state = 2 if terminated else 3 if truncated else 1
        return float(self.np_random.normal()), terminated, truncated


class Masked(gymnasium.Env[Any, Any]):
    """Two to four of four actions are allowed at any time, none once it has ended, and the higher ones earn more."""

    def __init__(self) -> None:
        parts = {"seen": spaces.Box(-1, 1, (2,), np.float32), "action_mask": spaces.MultiBinary(4)}
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Discrete(4)
        self.age = 0

    def _observe(self) -> dict[str, Any]:
        mask = np.zeros(4, np.int8)
        if self.age < 6:
            mask[self.np_random.permutation(4)[: self.np_random.integers(2, 5)]] = 1
        return {"seen": self.np_random.uniform(-1, 1, 2).astype(np.float32), "action_mask": mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.age = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        self.age += 1
        return self._observe(), float(action), self.age == 6, False, {}


PROBES: dict[str, type[gymnasium.Env[Any, Any]]] = {
    cls.__name__: cls for cls in (TimeLimit, Termination, FinalObservation, Now, Later, Endings, Masked)
}
for _name, _class in PROBES.items():
    if f"probe/{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"probe/{_name}-v0", entry_point=_class)
