"""Other actions for the same task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.spaces import TensorSpec, action_spec, discrete_actions, finite_range, leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation
from etude.environments.wrappers.options import WrapperConfig
from etude.environments.wrappers.transform import Transform
from etude.errors import UserError


def _bounded_box(space: gymnasium.Space[Any]) -> spaces.Box:
    if not isinstance(space, spaces.Box) or not np.issubdtype(np.dtype(space.dtype), np.floating):
        raise UserError(f"needs continuous actions, and these are {space}")
    return space


@dataclass(frozen=True)
class ActionRescaleConfig(WrapperConfig):
    """Actions in a range of your own."""

    id: str = "action_rescale"
    low: float = -1.0
    """The learner's lowest action, which becomes the task's."""
    high: float = 1.0
    """The learner's highest action, which becomes the task's."""

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}")


class ActionRescale(Transform):
    """The learner acts between `low` and `high`, whatever the task's range is; what lies beyond is clipped."""

    Config = ActionRescaleConfig
    config: ActionRescaleConfig

    def prepare(self) -> None:
        """Take the bounds of the task."""
        box = _bounded_box(self.action_space)
        if not finite_range(box).all():
            raise UserError("needs actions with finite bounds")
        self._box_low, self._box_high = (
            torch.tensor(bound, dtype=torch.float32, device=self.device) for bound in (box.low, box.high)
        )
        self.action_space = spaces.Box(self.config.low, self.config.high, box.shape, np.float32)

    def action(self, action: Tensor) -> Tensor:
        """Both ends are met exactly."""
        low, high = self.config.low, self.config.high
        share = (action.clamp(low, high) - low) / (high - low)
        return (1 - share) * self._box_low + share * self._box_high


@dataclass(frozen=True)
class ActionClipConfig(WrapperConfig):
    """Actions within the task's bounds."""

    id: str = "action_clip"


class ActionClip(Transform):
    """What lies beyond the task's bounds becomes the nearest action within."""

    Config = ActionClipConfig

    def prepare(self) -> None:
        """Take the bounds of the task."""
        box = _bounded_box(self.action_space)
        self._low, self._high = (torch.tensor(bound, dtype=torch.float32, device=self.device) for bound in (box.low, box.high))

    def action(self, action: Tensor) -> Tensor:
        """Clip."""
        return action.clamp(self._low, self._high)


@dataclass(frozen=True, kw_only=True)
class ActionRemapConfig(WrapperConfig):
    """A list of actions to choose from."""

    id: str = "action_remap"
    actions: tuple[Any, ...]
    """What each of the learner's actions does: numbers counted from 0 where actions are discrete, else lists of them."""


class ActionRemap(Transform):
    """The learner chooses from a list of the task's actions."""

    Config = ActionRemapConfig
    config: ActionRemapConfig

    def prepare(self) -> None:
        """Check every entry."""
        spec = action_spec(self.action_space)
        actions = self.config.actions
        if not actions:
            raise UserError("actions=[]: there must be something to choose from")
        for action in actions:
            _check_action(action, self.action_space, spec)
        self._table = torch.tensor(actions, dtype=spec.dtype, device=self.device)
        self.action_space = spaces.Discrete(len(actions))

    def action(self, action: Tensor) -> Tensor:
        """Look up."""
        return self._table[action]


def _check_action(action: Any, space: gymnasium.Space[Any], spec: TensorSpec) -> None:
    try:
        array = np.asarray(action, np.float64)
    except (ValueError, TypeError):
        raise UserError(f"actions: {action!r} is not made of numbers") from None
    if array.shape != spec.shape:
        wanted = "a number" if not spec.shape else f"a list of {' × '.join(map(str, spec.shape))} numbers"
        raise UserError(f"actions: {action!r} is no action of this task, which is {wanted}")
    if isinstance(space, spaces.Box):
        fits = bool(((space.low <= array) & (array <= space.high)).all())
    else:
        count: Any = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", 2)  # or binary
        fits = bool(((array >= 0) & (array < count) & (array == np.floor(array))).all())
    if not fits:
        raise UserError(f"actions: {action!r} is not among the actions of this task, {space}")


@dataclass(frozen=True, kw_only=True)
class ActionMaskConfig(WrapperConfig):
    """Fewer actions, by a mask."""

    id: str = "action_mask"
    allowed: tuple[int, ...]
    """The actions that may be chosen, counted from 0."""


class ActionMask(Transform):
    """Says which discrete actions are allowed, under the key `action_mask` of the observation."""

    Config = ActionMaskConfig
    config: ActionMaskConfig

    def prepare(self) -> None:
        """Add the mask to the observation, beside `observation` where that was not a Dict."""
        allowed, count = list(self.config.allowed), discrete_actions(self.action_space, "; action_remap chooses from any")
        wrong = [action for action in allowed if not 0 <= action < count]
        if wrong or not allowed:
            raise UserError(f"allowed={allowed}: must be some of the actions 0 to {count - 1}")
        self._mask = torch.zeros(self.num_envs, count, dtype=torch.int8, device=self.device)
        self._mask[:, allowed] = 1
        leaves = leaf_spaces(self.observation_space)
        named = {"observation": leaves[""]} if "" in leaves else leaves
        self.observation_space = spaces.Dict({**named, ACTION_MASK: spaces.MultiBinary(count)})

    def begin(self, observation: Observation, copies: Tensor) -> Observation:
        """Add the mask."""
        return self._with_mask(observation, len(copies))

    def observe(self, observation: Observation) -> Observation:
        """Add the mask."""
        return self._with_mask(observation, self.num_envs)

    def _with_mask(self, observation: Observation, count: int) -> Observation:
        named = observation if isinstance(observation, dict) else {"observation": observation}
        mask = self._mask[:count]
        if ACTION_MASK in named:  # the task's own: both must allow an action
            mask = mask * named[ACTION_MASK].to(mask.dtype)
        return {**named, ACTION_MASK: mask}
