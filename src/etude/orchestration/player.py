"""One policy in one environment, a decision at a time: for whoever wants to look at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from etude.acting.actor import Actor
from etude.compute.random_streams import derive_seed
from etude.compute.trees import map_tree
from etude.environments.rendering import Camera
from etude.environments.vector import Observation, VectorEnvironment

Array = np.ndarray | dict[str, np.ndarray]


@dataclass(frozen=True)
class Moment:
    """One step of an episode; its arrays are the reader's own."""

    observation: Array
    action: np.ndarray
    reward: float
    next_observation: Array
    """Where the step led, also where it ended the episode."""
    terminated: bool
    truncated: bool
    extras: dict[str, np.ndarray]
    """What the policy says about its action, such as log_prob or value."""

    @property
    def ended(self) -> bool:
        """Whether this was the episode's last step."""
        return self.terminated or self.truncated


class Player:
    """Plays episodes in an environment of one copy. An episode depends on its seed alone, not on those before it."""

    def __init__(
        self,
        policy: Any,
        environment: VectorEnvironment,
        *,
        mode: Literal["sample", "greedy"],
        device: torch.device | str = "cpu",
        camera: Camera | None = None,
        captured: bool = False,
    ) -> None:
        """`captured` has a policy on a GPU act as CUDA graphs, where it can."""
        if environment.num_envs != 1:
            raise ValueError(f"a player needs an environment of one copy, this one has {environment.num_envs}")
        self.policy, self.environment, self.mode = policy, environment, mode
        self.picture: np.ndarray | None = None
        """What the camera saw last."""
        self._camera, self._device = camera, torch.device(device)
        self._actor = Actor(policy, mode, torch.Generator(self._device), captured=captured)
        self._observation: Observation = torch.empty(0)
        self._state: Any = None
        self._is_first = torch.ones(1, dtype=torch.bool, device=self._device)

    def begin(self, seed: int) -> None:
        """Begin a new episode: the first one of an evaluation with the same seed and one copy."""
        self._actor.generator.manual_seed(derive_seed(seed, "action"))
        self._observation, _ = self.environment.reset([derive_seed(seed, "env", 0)])
        self._state = self._actor.initial_state(1)
        self._is_first.fill_(True)
        if self._camera is not None:
            self.picture = self._camera.take()

    @torch.no_grad()
    def step(self) -> Moment:
        """Act once."""
        seen = map_tree(lambda tensor: tensor.to(self._device), self._observation)
        before = _array(self._observation)
        action, self._state, extras = self._actor(seen, self._state, self._is_first)
        step = self.environment.step(action.to(self.environment.device))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        ended = terminated or truncated
        self._observation = step.observation
        self._is_first.fill_(ended)
        if self._camera is not None:
            # Where an environment shows no end, the last picture stays.
            after = self._camera.take_after_step(ended=ended)
            self.picture = self.picture if after is None else after
        return Moment(
            observation=before,
            action=_copy(action),
            reward=float(step.reward[0]),
            next_observation=_array(step.final_observation),
            terminated=terminated,
            truncated=truncated,
            extras={name: _copy(value) for name, value in (extras or {}).items()},
        )

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def _array(observation: Observation) -> Array:
    if isinstance(observation, dict):
        return {name: _copy(value) for name, value in observation.items()}
    return _copy(observation)


def _copy(tensor: torch.Tensor) -> np.ndarray:
    return tensor[0].detach().to("cpu").numpy().copy()
