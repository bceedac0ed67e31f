"""What the learner knows of environments that others step: their spaces, and what follows from the task's settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from etude.environments.vector import Observation, Step, VectorEnvironment


class SampledEnvironment(VectorEnvironment):
    """Copies that live in samplers. It is described by one copy here, which takes no step."""

    def __init__(self, one: VectorEnvironment, num_envs: int, close: Callable[[], None]) -> None:
        self._one, self._close = one, close
        self.num_envs, self.device = num_envs, one.device
        self.single_observation_space, self.single_action_space = one.single_observation_space, one.single_action_space
        self.action_repeat, self.return_threshold = one.action_repeat, one.return_threshold
        self.max_episode_steps = one.base.max_episode_steps
        self.compute_reward, self.compute_terminated = one.compute_reward, one.compute_terminated
        self.snapshot = one.snapshot

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Nobody steps it here."""
        raise NotImplementedError("these copies live in samplers")

    def step(self, action: Tensor) -> Step:
        """Nobody steps it here."""
        raise NotImplementedError("these copies live in samplers")

    def more_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """What follows from the means of a step's info."""
        return self._one.more_metrics(metrics)

    def render(self) -> Any:
        """Nothing is seen from here."""
        return None

    def close(self) -> None:
        """End the samplers."""
        self._close()
        self._one.close()
