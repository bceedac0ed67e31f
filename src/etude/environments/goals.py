"""Tasks with a goal: the reward of reaching it, for goals other than the one that was asked for.

The convention is Gymnasium-Robotics': observations have the keys `observation`, `achieved_goal` and `desired_goal`, and the
environment has `compute_reward(achieved_goal, desired_goal, info)` for whole batches, and perhaps `compute_terminated`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.spaces import observation_specs

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")
GoalFunction = Callable[[Tensor, Tensor], Tensor]
"""(achieved (n, ...), desired (n, ...)) -> (n,)"""


class GoalFunctions(NamedTuple):
    """What a task says about goals; None where it says nothing."""

    compute_reward: GoalFunction | None = None
    compute_terminated: GoalFunction | None = None


def is_goal_space(space: gymnasium.Space[Any]) -> bool:
    """Whether observations say what was achieved and what was asked for."""
    return isinstance(space, spaces.Dict) and all(key in space.spaces for key in GOAL_KEYS)


def goal_functions(env: gymnasium.Env[Any, Any]) -> GoalFunctions:
    """Return an environment's own functions of goals, for batches of tensors."""
    if not is_goal_space(env.observation_space):
        return GoalFunctions()
    dtype = observation_specs(env.observation_space)["achieved_goal"].numpy_dtype
    own = (getattr(env.unwrapped, name, None) for name in GoalFunctions._fields)
    kinds = (torch.float32, torch.bool)
    return GoalFunctions(
        *(_of_tensors(function, dtype, kind) if callable(function) else None for function, kind in zip(own, kinds, strict=True))
    )


def _of_tensors(function: Callable[..., Any], dtype: Any, kind: torch.dtype) -> GoalFunction:
    def call(achieved: Tensor, desired: Tensor) -> Tensor:
        result = np.asarray(function(achieved.cpu().numpy().astype(dtype), desired.cpu().numpy().astype(dtype), {}))
        # Some answer with one value for all: Gymnasium-Robotics' compute_terminated is False whatever it is asked.
        spread = np.broadcast_to(result, (len(achieved),))
        return torch.from_numpy(spread.copy()).to(achieved.device, kind)

    return call
