"""Time: how long an episode lasts, how much of it is left, and how long an action is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.compute.random_streams import derive_seed
from etude.config.constraints import PositiveInt, UnitInterval
from etude.environments.vector import RAW_REWARD, Observation
from etude.environments.wrappers.options import WrapperConfig
from etude.environments.wrappers.transform import Transform
from etude.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TimeLimitConfig(WrapperConfig):
    """A time limit in decisions."""

    id: str = "time_limit"
    steps: PositiveInt
    """Cut episodes after this many decisions (a truncation)."""
    training_only: bool = False
    """Evaluate and play whole episodes: for tasks of which the beginning teaches most."""


class TimeLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts episodes. Unlike environment.max_episode_steps it counts what stands before it in the list as one step."""

    Config = TimeLimitConfig

    def __init__(self, env: gymnasium.Env[Any, Any], config: TimeLimitConfig) -> None:
        super().__init__(env)
        self._limit, self._elapsed = config.steps, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin to count."""
        self._elapsed = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Count."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._elapsed += 1
        return observation, reward, terminated, truncated or self._elapsed >= self._limit, info


@dataclass(frozen=True, kw_only=True)
class TimeFeatureConfig(WrapperConfig):
    """The time that is left."""

    id: str = "time_feature"
    limit: PositiveInt
    """Steps after which none is left: the task's time limit."""


class TimeFeature(Transform):
    """Adds the share of time that is left, from 1 to 0, to a vector, or under the key `time_left` to a Dict."""

    Config = TimeFeatureConfig
    config: TimeFeatureConfig
    remembers = ("_elapsed",)

    def prepare(self) -> None:
        """Make room for one more number."""
        space = self.observation_space
        self._elapsed = torch.zeros(self.num_envs, device=self.device)
        if isinstance(space, spaces.Dict):
            self.observation_space = spaces.Dict({**space.spaces, "time_left": spaces.Box(0, 1, (1,), np.float32)})
            return
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise UserError(f"needs a vector or a Dict observation, and this is {type(space).__name__} {space.shape}")
        low, high = np.append(space.low, 0), np.append(space.high, 1)
        self.observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def begin(self, observation: Observation, copies: Tensor) -> Observation:
        """All of it is left."""
        self._elapsed = self._elapsed.index_fill(0, copies, 0)
        return self._with_time(observation, self._elapsed[copies])

    def observe(self, observation: Observation) -> Observation:
        """One step less is left."""
        self._elapsed = self._elapsed + 1
        return self._with_time(observation, self._elapsed)

    def _with_time(self, observation: Observation, elapsed: Tensor) -> Observation:
        left = (1 - elapsed / self.config.limit).clamp(min=0).unsqueeze(1)
        if isinstance(observation, dict):
            return {**observation, "time_left": left}
        return torch.cat([observation.to(torch.float32), left], 1)


@dataclass(frozen=True)
class FrameSkipConfig(WrapperConfig):
    """Actions that last."""

    id: str = "frame_skip"
    skip: PositiveInt = 4
    """Environment steps per decision. Budgets and metrics go on counting environment steps."""
    max_pool: bool = False
    """Show the larger of the last two frames, number by number, for games that draw some things in every other frame only."""


class FrameSkip(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action and adds up the rewards; an episode may end in between."""

    Config = FrameSkipConfig

    def __init__(self, env: gymnasium.Env[Any, Any], config: FrameSkipConfig) -> None:
        super().__init__(env)
        self.action_repeat, self._max_pool = config.skip, config.max_pool
        if config.max_pool and not isinstance(env.observation_space, spaces.Box):
            raise UserError(f"max_pool=true: needs pictures, and observations are {type(env.observation_space).__name__}")

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step until the action is over or the episode is."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        total, before = float(reward), None
        raw = info.get(RAW_REWARD)
        for _ in range(self.action_repeat - 1):
            if terminated or truncated:
                break
            before = np.array(observation) if self._max_pool else None
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            raw = raw if raw is None else raw + info[RAW_REWARD]
        if before is not None:
            observation = np.maximum(before, observation)
        return observation, total, terminated, truncated, info if raw is None else {**info, RAW_REWARD: raw}


@dataclass(frozen=True)
class StickyActionsConfig(WrapperConfig):
    """Actions that may repeat."""

    id: str = "sticky_actions"
    probability: UnitInterval = 0.25
    """How often the action before is repeated instead of the new one."""


class StickyActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats the action before with some probability (Machado et al. 2018); an episode's first action is never replaced."""

    Config = StickyActionsConfig

    def __init__(self, env: gymnasium.Env[Any, Any], config: StickyActionsConfig) -> None:
        super().__init__(env)
        self._probability = config.probability
        self._random = np.random.default_rng()
        self._last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Forget the action before."""
        if seed is not None:
            self._random = np.random.default_rng(derive_seed(seed, "sticky_actions"))
        self._last = None
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, or repeat."""
        if self._last is None or self._random.random() >= self._probability:
            self._last = np.array(action) if isinstance(action, np.ndarray) else action
        return self.env.step(np.array(self._last) if isinstance(self._last, np.ndarray) else self._last)
