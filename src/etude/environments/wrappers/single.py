"""A transform inside one copy of a Gymnasium environment: a batch of one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.spaces import first_value, observation_specs, to_gymnasium
from etude.environments.vector import RAW_REWARD, Observation
from etude.environments.wrappers.transform import Transform

_ONLY = torch.zeros(1, dtype=torch.int64)


class SingleTransform(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Applies a transform to one environment. Numbers take the same types as around a vector, and so the same values."""

    def __init__(self, env: gymnasium.Env[Any, Any], transform: Transform) -> None:
        super().__init__(env)
        self._specs = observation_specs(env.observation_space)
        transform.bind(env.observation_space, env.action_space, 1, torch.device("cpu"))
        self.transform = transform
        self.observation_space, self.action_space = transform.observation_space, transform.action_space
        self.changes_reward = type(transform).reward is not Transform.reward
        self._offset, self._inner_offset = first_value(self.action_space), first_value(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode; with a seed, random streams begin anew too."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self.transform.seed([seed])
        return _first_row(self.transform.begin(self._as_batch(observation), _ONLY)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        inner = self.transform.action(torch.from_numpy(np.asarray(action)[None] - self._offset))
        (acted,) = to_gymnasium(inner, self.env.action_space, self._inner_offset)
        observation, raw, terminated, truncated, info = self.env.step(acted)
        inner_final = self._as_batch(observation)
        seen = self.transform.observe(inner_final)
        given = torch.tensor([raw], dtype=torch.float32)
        reward = self.transform.reward(given, inner_final, torch.tensor([terminated]))
        if reward is not given:
            info = {RAW_REWARD: float(raw), **info}
        return _first_row(seen), float(reward) if reward is not given else raw, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return what the transform remembers."""
        return self.transform.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember what was saved."""
        self.transform.load_state_dict(state)

    def _as_batch(self, observation: Any) -> Observation:
        space = self.env.observation_space
        if isinstance(space, spaces.Dict | spaces.Tuple):
            pairs = observation.items() if isinstance(observation, dict) else enumerate(observation)
            return {str(key): self._tensor(value, str(key)) for key, value in pairs}
        return self._tensor(observation, "")

    def _tensor(self, value: Any, name: str) -> Tensor:
        return torch.from_numpy(np.array(value, self._specs[name].numpy_dtype)[None])


def _first_row(observation: Observation) -> Any:
    if isinstance(observation, dict):
        return {key: value[0].numpy() for key, value in observation.items()}
    return observation[0].numpy()
