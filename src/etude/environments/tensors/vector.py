"""N copies of a task of torch tensors, stepped where they are: on a GPU a step asks the host for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from etude.compute.random_streams import derive_seed
from etude.compute.trees import map_tree
from etude.environments.spaces import observation_specs
from etude.environments.tensors.task import State, TensorTask
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.errors import UserError


class TensorVector(VectorEnvironment):
    """All copies in one call. All random numbers come from one stream, whose seed is made of the seeds of all copies."""

    snapshot = "exact"
    capturable = True

    def __init__(
        self, task: TensorTask, num_envs: int, device: torch.device | None = None, *, max_episode_steps: int | None = None
    ) -> None:
        self.task, self.num_envs = task, num_envs
        self.device = torch.device("cpu") if device is None else device
        self.single_observation_space, self.single_action_space = task.observation_space, task.action_space
        self.return_threshold = task.return_threshold
        self._limit = max_episode_steps or task.max_episode_steps or torch.iinfo(torch.int64).max
        self.generator = torch.Generator(device=self.device)
        self.generators = (self.generator,)
        self._age = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        task.to(self.device)
        self._state = task.begin(num_envs, self.generator.manual_seed(0))
        self._check()

    @property
    def touched(self) -> list[Tensor]:  # type: ignore[override] # read, never set
        """Everything that a step changes: all of it in place, so that steps can be captured."""
        return [*self._state.values(), self._age]

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes; all seeds together are the seed of the one stream."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} copies")
        self.generator.manual_seed(derive_seed(int(seeds[0]), "tensors", *(int(seed) for seed in seeds[1:])))
        self._write(self.task.begin(self.num_envs, self.generator))
        self._age.zero_()
        return self._seen(), {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        return self.step_with(action, self.generator)

    def step_with(self, action: Tensor, generator: Any) -> Step:  # type: ignore[override] # never set
        """Act in every copy, with random numbers from elsewhere.

        Where each would begin is drawn whether it ends or not: whether any does, only the host could say.
        """
        moved, reward, terminated = self.task.advance(self._state, action, generator)
        self._age += 1
        truncated = self._age >= self._limit
        led_to, ended = self.task.observe(moved), terminated | truncated
        fresh = self.task.begin(self.num_envs, generator)
        self._write({name: torch.where(_beside(ended, value), fresh[name], value) for name, value in moved.items()})
        self._age *= ~ended
        return Step(self._seen(), reward, terminated, truncated, led_to, {})

    def render(self) -> Any:
        """Return a picture of the first copy, where the task draws any."""
        picture = self.task.draw(self._state)
        return None if picture is None else picture.to("cpu").numpy()

    def state_dict(self) -> dict[str, Any]:
        """Return states, ages and the stream."""
        return {
            "state": {name: value.clone() for name, value in self._state.items()},
            "age": self._age.clone(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        self._write(state["state"])
        self._age.copy_(state["age"])
        self.generator.set_state(state["generator"].to("cpu"))

    def _seen(self) -> Observation:
        """Return what is seen, apart from the state, which the next step writes over."""
        return map_tree(torch.clone, self.task.observe(self._state))

    def _write(self, state: State) -> None:
        for name, value in self._state.items():
            value.copy_(state[name])

    def _check(self) -> None:
        """Refuse a task whose tensors are not what its spaces say."""
        name, count = type(self.task).__name__, self.num_envs
        for key, value in self._state.items():
            if value.shape[:1] != (count,) or value.device.type != self.device.type:
                raise UserError(
                    f"{name}.begin: '{key}' is {tuple(value.shape)} on {value.device}; it must be ({count}, ...) on "
                    f"{self.device}"
                )
        seen = self.task.observe(self._state)
        parts = seen if isinstance(seen, dict) else {"": seen}
        specs = observation_specs(self.single_observation_space)
        if parts.keys() != specs.keys():
            raise UserError(f"{name}.observe: returns {sorted(parts)}, and its observation_space has {sorted(specs)}")
        for key, spec in specs.items():
            if parts[key].shape != (count, *spec.shape) or parts[key].dtype != spec.dtype:
                raise UserError(
                    f"{name}.observe: {key or 'the observation'} is {tuple(parts[key].shape)} of {parts[key].dtype}; its space "
                    f"says ({count}, {', '.join(map(str, spec.shape))}) of {spec.dtype}"
                )


def _beside(rows: Tensor, values: Tensor) -> Tensor:
    """(N,) → (N, 1, ...), with as many dimensions as `values`."""
    return rows.view(-1, *[1] * (values.ndim - 1))
