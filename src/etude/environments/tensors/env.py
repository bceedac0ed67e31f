"""One copy of a task of tensors, as Gymnasium has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from etude.environments.tensors.task import TensorTask
from etude.environments.vector import Observation


class TensorEnv(gymnasium.Env[Any, Any]):
    """Steps one copy on the CPU."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 # as Gymnasium has it

    def __init__(self, make: Callable[..., TensorTask], render_mode: str | None = None, **kwargs: Any) -> None:
        self.task, self.render_mode = make(**kwargs), render_mode
        self.observation_space, self.action_space = self.task.observation_space, self.task.action_space
        self.task.to(torch.device("cpu"))
        self._generator = torch.Generator()
        self._state = self.task.begin(1, self._generator)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._generator.manual_seed(seed)
        self._state = self.task.begin(1, self._generator)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act once; what cuts episodes is Gymnasium's own wrapper."""
        given = torch.as_tensor(np.asarray(action))[None]
        self._state, reward, terminated = self.task.advance(self._state, given, self._generator)
        return self._seen(), float(reward), bool(terminated), False, {}

    def render(self) -> Any:
        """Return a picture, where the task draws any."""
        picture = self.task.draw(self._state)
        return None if picture is None else picture.numpy()

    def state_dict(self) -> dict[str, Any]:
        """Return the state and the stream."""
        state = {name: value.clone().numpy() for name, value in self._state.items()}
        return {"state": state, "generator": self._generator.get_state().numpy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where it was."""
        self._state = {name: torch.from_numpy(np.array(value)) for name, value in state["state"].items()}
        self._generator.set_state(torch.from_numpy(np.array(state["generator"])))

    def _seen(self) -> Any:
        seen: Observation = self.task.observe(self._state)
        return seen[0].numpy().copy() if isinstance(seen, Tensor) else {name: part[0].numpy() for name, part in seen.items()}
