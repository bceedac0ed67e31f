"""Stands in for an environment where nobody acts: a run that learns from data alone has its spaces, and no task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import torch
from torch import Tensor

from etude.environments.spaces import observation_specs
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.errors import UserError


class Unplayed(VectorEnvironment):
    """Spaces, and observations of zeros that mean nothing."""

    snapshot = "exact"

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], num_envs: int = 1) -> None:
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.num_envs, self.device = num_envs, torch.device("cpu")

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Return zeros."""
        specs = observation_specs(self.single_observation_space)
        parts = {name: torch.zeros((self.num_envs, *spec.shape), dtype=spec.dtype) for name, spec in specs.items()}
        return (parts[""] if set(parts) == {""} else parts), {}

    def step(self, action: Tensor) -> Step:
        """Refuse: nothing is there to be played."""
        raise UserError("this run learns from data alone, and has no environment to act in; give it a phase that collects")

    def state_dict(self) -> dict[str, Any]:
        """Return that there is nothing to continue."""
        return {"unplayed": True}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with nothing."""
