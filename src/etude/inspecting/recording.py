"""A recorded episode: every step with what the algorithm said of it, its pictures, and places to begin other futures from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from etude.components.returns import generalized_advantages, reward_to_go
from etude.files.png import png_bytes
from etude.inspecting.driving import Command
from etude.inspecting.insights import Insight, Units
from etude.orchestration.player import Array, Place

if TYPE_CHECKING:
    from etude.inspecting.inspector import Performer

Ending = Literal["terminated", "truncated", "max steps", "stopped", "memory full"]
"""max steps: by the limit given; stopped: because nobody wanted to see more; memory full: because no more may be kept."""


@dataclass(frozen=True)
class InspectedStep:
    """One step of an episode."""

    observation: Array
    """What the policy was given, with the environment's wrappers."""
    seen: Array | None
    """The same after the policy's own statistics, as its network reads it, where that differs."""
    action: np.ndarray
    chosen: np.ndarray
    """What the policy would have done; another action only where one was asked for."""
    is_forced: bool
    reward: float
    terminated: bool
    truncated: bool
    insight: Insight
    command: Command | None = None
    """What the robot was asked for by whoever drove it."""

    @property
    def size(self) -> int:
        """Bytes that it keeps."""
        kept = (self.observation, self.seen, self.insight.predicted_observation)
        return 512 + sum(_size(each) for each in kept if each is not None)


class Mark(NamedTuple):
    """Where an episode stood before a step, with what a critic remembered."""

    place: Place
    memory: Any


class Origin(NamedTuple):
    """The episode that another future branches from, and the step with which it differs."""

    recording: Recording
    step: int


class Budget:
    """How many bytes all recordings of an inspection may keep together."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def take(self, size: int) -> None:
        """Count what is kept."""
        self.used += size

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be kept."""
        return self.used >= self.limit


class Columns(NamedTuple):
    """What follows from a whole episode, for each of its steps; None where there is no value function."""

    returns: np.ndarray
    """Rewards so far, this step's included, undiscounted."""
    mc_returns: np.ndarray
    """Discounted rewards from here on, to the last step; nothing is bootstrapped."""
    values: np.ndarray | None
    advantages: np.ndarray | None


@dataclass
class Recording:
    """An episode. `steps[t]` led from `frames[t]` to `frames[t + 1]`."""

    performer: Performer
    """Who acts from the branch on, or from the beginning."""
    seed: int
    units: Units
    steps: list[InspectedStep] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    """PNG, one more than there are steps; none where the environment draws nothing."""
    poses: list[np.ndarray] = field(default_factory=list, repr=False)
    """Where the shapes of a simulated world are, (shapes, 7) each, one more than there are steps; else none."""
    ending: Ending = "stopped"
    final_observation: Array | None = None
    final_value: float | None = None
    """What the last observation is worth, where the episode did not end there by itself."""
    marks: dict[int, Mark] = field(default_factory=dict, repr=False)
    origin: Origin | None = None
    kept: int = 0
    """Bytes of pictures and observations that are its own, not of the episode that it branches from."""
    _last_picture: np.ndarray | None = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        """Whether the environment ended it."""
        return self.ending in ("terminated", "truncated")

    @property
    def total_reward(self) -> float:
        """The return, undiscounted."""
        return float(sum(step.reward for step in self.steps))

    def add_frame(self, picture: np.ndarray | None) -> int:
        """Keep a picture and return how many bytes that took; one that is shown again is kept once."""
        if picture is None:
            return 0
        again = self.frames and self._last_picture is not None and np.array_equal(self._last_picture, picture)
        self._last_picture = picture
        self.frames.append(self.frames[-1] if again else png_bytes(picture))
        return 0 if again else len(self.frames[-1])

    def add_pose(self, pose: np.ndarray | None) -> int:
        """Keep where the shapes are and return how many bytes that took; the last ones again where nobody knows."""
        if pose is None and not self.poses:
            return 0
        self.poses.append(self.poses[-1] if pose is None else pose)
        return 0 if pose is None else pose.nbytes

    def as_it_stands(self) -> Recording:
        """Return it as it is now, for whoever reads while it is played further."""
        return replace(self, steps=list(self.steps), frames=list(self.frames), poses=list(self.poses))

    def columns(self) -> Columns:
        """Return what is known of each step once the episode is."""
        rewards = torch.tensor([[step.reward] for step in self.steps], dtype=torch.float64).reshape(-1, 1)
        ended = torch.tensor([[step.terminated or step.truncated] for step in self.steps]).reshape(-1, 1)
        if not self.steps:
            return Columns(np.zeros(0), np.zeros(0), None, None)
        ends = reward_to_go(rewards, ended, self.units.gamma)[:, 0].numpy()
        so_far = rewards.cumsum(0)[:, 0].numpy()
        said = [step.insight.value for step in self.steps]
        known = [value for value in said if value is not None]
        if len(known) < len(said):
            return Columns(so_far, ends, None, None)
        values = torch.tensor(known, dtype=torch.float64).unsqueeze(-1)
        last = torch.tensor([[self.final_value or 0.0]], dtype=torch.float64)
        following = torch.cat([values[1:], last])
        terminated = torch.tensor([[step.terminated] for step in self.steps])
        gamma, gae_lambda = self.units.gamma, self.units.gae_lambda
        advantages = generalized_advantages(rewards, values, following, terminated, ended, gamma, gae_lambda)
        return Columns(so_far, ends, values[:, 0].numpy(), advantages[:, 0].numpy())


def same_future(one: Sequence[InspectedStep], other: Sequence[InspectedStep]) -> bool:
    """Whether two stretches of steps are the same to the last bit: what was seen, done and earned, and how they ended."""
    return len(one) == len(other) and all(
        _same(a.observation, b.observation)
        and np.array_equal(a.action, b.action)
        and (a.reward, a.terminated, a.truncated) == (b.reward, b.terminated, b.truncated)
        for a, b in zip(one, other, strict=True)
    )


def _same(one: Array, other: Array) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
    return np.array_equal(one, other, equal_nan=True)  # type: ignore[arg-type] # both are arrays


def _size(array: Array) -> int:
    return sum(part.nbytes for part in array.values()) if isinstance(array, dict) else array.nbytes
