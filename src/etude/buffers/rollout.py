"""One on-policy rollout: filled by collecting, emptied by learning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from etude.buffers.base import Batch, Buffer, allocate, bytes_of_step, in_bytes
from etude.buffers.columns import as_array, copy_columns, leaves, leaves_like, map_columns, take, todays_names
from etude.buffers.free_memory import free_memory
from etude.config.constraints import PositiveInt
from etude.config.schema import Config
from etude.errors import EtudeError, UserError

__all__ = ["RolloutBuffer", "RolloutConfig", "flatten", "length_problems", "minibatches", "take"]


@dataclass(frozen=True)
class RolloutConfig:
    """One on-policy rollout."""

    type: str = "rollout"
    """The registered name of the buffer."""
    steps: PositiveInt | None = None
    """Vector steps per rollout. Default: the algorithm's rollout_steps."""


def length_problems(config: Config) -> Iterator[str]:
    """Yield rollouts of another length than the algorithm, which learns from one at a time, says they have."""
    algorithm = config.algorithm
    for name, options in config.buffers.items():
        steps = getattr(options, "steps", None)
        if steps not in (None, algorithm.rollout_steps):
            yield (
                f"buffers.{name}.steps={steps}: {algorithm.name} learns from algorithm.rollout_steps={algorithm.rollout_steps} "
                "at a time; set that, and leave this out"
            )


class RolloutBuffer(Buffer):
    """Columns of shape (T, N, ...), written in order and learnt from as a whole."""

    Config = RolloutConfig

    def __init__(self, steps: int, name: str = "rollout", device: torch.device | str = "cpu") -> None:
        self.steps = steps
        self.name = name
        self.device = torch.device(device)
        self.columns: dict[str, Any] = {}
        self.cursor = 0
        self._views: dict[int, list[Tensor]] = {}
        self._array_views: dict[int, list[np.ndarray]] = {}

    @classmethod
    def build(cls, options: RolloutConfig, config: Config, name: str) -> RolloutBuffer:
        """Make a rollout as long as its options or the algorithm's `rollout_steps` say."""
        steps = options.steps or config.algorithm.rollout_steps
        if steps is None:
            raise UserError(f"buffers.{name}.steps: how long is a rollout? {config.algorithm.name} does not say")
        return cls(steps, name, config.experiment.device)

    def bind(self, environment: Any) -> None:
        """Refuse a rollout that can't fit into memory before the run begins."""
        each = bytes_of_step(environment.single_observation_space, environment.single_action_space)
        needed, free = each * self.steps * environment.num_envs, free_memory(self.device)
        if free is not None and needed > free:
            raise UserError(
                f"buffers.{self.name}: {self.steps:,} steps of {environment.num_envs:,} environments are about "
                f"{in_bytes(needed)}, and {in_bytes(free)} are free on {self.device}; lower algorithm.rollout_steps or "
                "environment.num_envs"
            )

    def add(self, row: Mapping[str, Any]) -> None:
        """Copy one vector step (N, ...) in."""
        if self.ready:
            raise IndexError(f"buffer '{self.name}' is full ({self.steps} vector steps): learn from it or clear it first")
        if not self.columns:
            self.columns = allocate(row, (self.steps, len(row["reward"])), self.name, self.device)
        self.write(self.cursor, row)
        self.cursor += 1

    def write(self, place: int, row: Mapping[str, Any]) -> None:
        """Copy one vector step to a place, and count nothing."""
        if type(row["reward"]) is np.ndarray:
            arrays = self._array_views.get(place)
            if arrays is None:
                arrays = self._array_views[place] = [as_array(column[place]) for column in leaves_like(self.columns, row)]
            for array, value in zip(arrays, row.values(), strict=True):
                array[...] = value
            return
        # The views of a row are made once and written in one call: a fifth of the cost of indexing each column anew.
        views = self._views.get(place)
        if views is None:
            views = self._views[place] = [column[place] for column in leaves_like(self.columns, row)]
        torch._foreach_copy_(views, list(leaves(row)))  # type: ignore[reportPrivateImportUsage] # torch has no public name for it

    @property
    def takes_arrays(self) -> bool:
        """On the CPU, once there are columns."""
        return self.device.type == "cpu" and bool(self.columns)

    @property
    def ready(self) -> bool:
        """Whether the rollout is complete."""
        return self.cursor == self.steps

    def steps_to_ready(self, num_envs: int) -> int:
        """Return the steps of a rollout."""
        return self.steps

    @property
    def room(self) -> int | None:
        """How many vector steps are still missing."""
        return self.steps - self.cursor

    @property
    def size(self) -> int:
        """How many transitions are held."""
        return self.cursor * (len(self.columns["reward"][0]) if self.columns else 0)

    def sample(self, n: int, generator: Generator) -> Batch:
        """Return n transitions of the rollout so far, drawn with replacement."""
        held = flatten(self._written())
        index = torch.randint(self.size, (n,), generator=generator, device=generator.device)
        return take(held, index)

    def draw(self, n: int, generator: Generator) -> Batch:
        """Return the whole rollout (T, N, ...) as one batch, and begin the next: its experience is used once."""
        batch = map_columns(self.columns, torch.clone)
        self.clear()
        return batch

    def clear(self) -> None:
        """Begin the next rollout; memory is kept."""
        self.cursor = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the rows written so far, and the shapes of all columns."""
        return {
            "cursor": self.cursor,
            "columns": self._written(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the rows that were saved."""
        if state["cursor"] > self.steps:
            raise EtudeError(f"buffer '{self.name}' has room for {self.steps} steps; the saved one holds {state['cursor']}")
        self.cursor, columns = state["cursor"], todays_names(state["columns"])
        if not self.columns and columns:
            example = map_columns(columns, lambda t: t.new_empty(t.shape[1:]))
            self.columns = allocate(example, (self.steps, len(example["reward"])), self.name, self.device)
        copy_columns(self._written(), columns)

    def _written(self) -> Batch:
        return map_columns(self.columns, lambda column: column[: self.cursor])


def flatten(columns: Mapping[str, Any]) -> Batch:
    """(T, N, ...) → (N·T, ...), each environment's steps together; images keep their shape."""
    return {
        key: flatten(value) if isinstance(value, Mapping) else value.transpose(0, 1).flatten(0, 1)
        for key, value in columns.items()
    }


def minibatches(size: int, batch_size: int, epochs: int, generator: Generator) -> Iterator[Tensor]:
    """Yield index tensors: `epochs` passes over `size` rows, each row once a pass, in a new order every pass."""
    if size % batch_size:
        raise ValueError(f"a batch of {batch_size} does not divide {size} rows")
    for _ in range(epochs):
        order = torch.randperm(size, generator=generator, device=generator.device)
        yield from order.split(batch_size)
