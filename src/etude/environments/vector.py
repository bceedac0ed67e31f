"""The environment contract: N copies of a task stepped together, in tensors, with same-step autoreset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from etude.environments.mirror import Mirror

Observation = Tensor | dict[str, Tensor]
Snapshot = Literal["exact", "rewind", "restart"]
ACTION_MASK = "action_mask"
"""The key of an observation that says which actions are allowed: 1 or true where one is."""
RAW_REWARD = "raw_reward"
"""The key of `Step.info` under which the task's own reward stands where a wrapper changed it. (N,)"""


class Step(NamedTuple):
    """What one vector step did. Valid until the second next `step()`: whoever keeps it copies it."""

    observation: Observation
    """What to act on next, after autoreset. (N, ...)"""
    reward: Tensor
    """(N,) float"""
    terminated: Tensor
    """(N,) bool: the task ended here; nothing follows."""
    truncated: Tensor
    """(N,) bool: the episode was cut here; the value of what would follow still counts."""
    final_observation: Observation
    """Where the transition really led; the same object as `observation` where nothing ended."""
    info: dict[str, Tensor]


class ArrayStep(NamedTuple):
    """The same in NumPy arrays."""

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observation: np.ndarray


class VectorEnvironment(ABC):
    """N copies of a task. In-process and worker versions give identical trajectories for the same seeds."""

    num_envs: int
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    device: torch.device
    snapshot: Snapshot = "restart"
    """exact: state and randomness are captured; rewind: rebuilt from actions; restart: new episodes after a resume."""
    action_repeat: int = 1
    """Environment steps per decision (a wrapper's frame skip); a simulator's own substeps never count."""
    render_fps: float | None = None
    """Steps that make a second of the task's own time."""
    return_threshold: float | None = None
    max_episode_steps: int | None = None
    """After how many environment steps an episode is cut, by the task or a wrapper, where that is known."""
    step_arrays: Callable[[np.ndarray], ArrayStep] | None = None
    """`step` from arrays to arrays, where there are no others underneath and nothing to report: for few copies of a quick task
    it is the way between arrays and tensors that takes the time."""
    capturable: bool = False
    """Whether steps can be captured with what surrounds them: they ask the device for nothing, change their state in place,
    draw from `generators` alone and report nothing."""
    generators: Sequence[torch.Generator] = ()
    touched: Sequence[Tensor] = ()
    """Where it is capturable: all tensors that a step changes."""
    step_with: Callable[[Tensor, Any], Step] | None = None
    """Where it is capturable: `step` with random numbers from elsewhere, by `etude.compute.draws`."""
    compute_reward: Callable[[Tensor, Tensor], Tensor] | None = None
    """Tasks with goals: the reward (n,) of having achieved one goal (n, ...) when another was desired."""
    compute_terminated: Callable[[Tensor, Tensor], Tensor] | None = None
    """Tasks with goals: whether that ends an episode."""

    def mirror(self) -> Mirror | None:
        """Return how left and right change places in observations and actions, where a task has a mirror image."""
        return None

    @property
    def base(self) -> VectorEnvironment:
        """The environment itself, without the transforms around it."""
        return self

    @abstractmethod
    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""

    @abstractmethod
    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""

    def check(self) -> None:  # noqa: B027 # most say so at once
        """Raise what has gone wrong in the steps so far, where a step on a device can't; called after a few of them."""

    def more_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return what follows from the means of `Step.info` over some steps, to be logged beside them."""
        return {}

    def render(self) -> Any:
        """Return a picture of the first copy, or None."""
        return None

    def close(self) -> None:  # noqa: B027 # most hold nothing
        """Free what the environment holds."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to continue from here; empty where `snapshot` is restart."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} can't restore a state")
