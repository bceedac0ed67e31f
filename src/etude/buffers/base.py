"""The buffer contract: preallocated columns that a collector writes and a workflow samples."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.buffers.columns import leaves, map_columns
from etude.buffers.free_memory import free_memory
from etude.buffers.given import given_non_finite
from etude.errors import EtudeError

if TYPE_CHECKING:
    from etude.config.schedules import Moment, Schedule
    from etude.config.schema import Config

ColumnSpecs = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
"""Columns before there are any: the shape of one transition's entry, and its type."""
Batch = dict[str, Any]
"""Named tensors; an observation may itself be a dict of tensors."""


class Buffer(ABC):
    """A store of experience. Memory is taken once, at the first write, when every column's shape is known."""

    columns: dict[str, Any]

    @classmethod
    @abstractmethod
    def build(cls, options: Any, config: Config, name: str) -> Buffer:
        """Make the buffer that its own options and the run's config describe."""

    def keep_files_in(self, folder: Path) -> None:  # noqa: B027 # most have none
        """Know before `bind` where files may lie that outgrow memory, unless the user says where."""

    def expect(self, columns: ColumnSpecs) -> None:  # noqa: B027 # most see it in the first step
        """Know before `bind` which columns an algorithm adds to each transition, to say how much memory that takes."""

    def bind(self, environment: Any) -> None:  # noqa: B027 # most need to know nothing
        """See the environment whose steps it will hold, before there are any; raise UserError if that can't work."""

    def begin(self, observation: Any) -> None:  # noqa: B027 # most need to know nothing
        """See the first observation (N, ...) of the run before it is written; raise UserError if that can't work."""

    @property
    def spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]] | None:
        """What was seen and done in experience that it brings along; None where all of it is still to be collected."""
        return None

    def check_fits(self, environment: Any, task: str) -> None:  # noqa: B027 # most bring nothing
        """Raise UserError unless the experience that it brings along could be of this environment."""

    def notes(self) -> list[str]:
        """Return what a user would want to know before the run begins, a line each."""
        return []

    @abstractmethod
    def add(self, row: Mapping[str, Any]) -> None:
        """Copy one vector step (N, ...) in."""

    @abstractmethod
    def sample(self, n: int, generator: Generator) -> Batch:
        """Return n rows drawn at random."""

    def draw(self, n: int, generator: Generator) -> Batch:
        """Return the next batch to learn from: n sampled rows, unless the buffer's experience is used only once."""
        return self.sample(n, generator)

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether there is enough to learn from."""

    def steps_to_ready(self, num_envs: int) -> int:
        """Return how many vector steps it takes, from empty, until there is enough to learn from."""
        return 1

    @property
    @abstractmethod
    def size(self) -> int:
        """How many transitions are held."""

    @property
    def reduced_to(self) -> int | None:
        """The capacity, where memory made it smaller than asked; None if it is as asked."""
        return None

    @property
    def takes_arrays(self) -> bool:
        """Whether a row may be of NumPy arrays too, now that there are columns to copy them to."""
        return False

    @property
    def is_full(self) -> bool:
        """Whether no more fits without dropping something, or learning first."""
        return self.room == 0

    @property
    def room(self) -> int | None:
        """How many more vector steps may be written before learning must empty it; None if any number may."""
        return None

    @abstractmethod
    def clear(self) -> None:
        """Forget everything; memory is kept."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what is held."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold what was saved."""

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """The settings that change over a run."""
        return {}

    def set_schedules(self, now: Moment) -> None:  # noqa: B027 # most have none
        """Give settings that change over a run their value at a moment of it; before each update."""

    def learned(self, index: Tensor, generation: Tensor, **per_row: Tensor) -> None:
        """Write back what was learnt of sampled rows (priorities, latents); rows overwritten since are left alone."""
        raise NotImplementedError(f"a {type(self).__name__} has no columns to write back")

    def given_non_finite(self) -> str | None:
        """Return what the environment gave that is NaN or infinite, in words, if any such number is held."""
        return given_non_finite(self.columns)

    @property
    def nbytes(self) -> int:
        """How much memory the columns take."""
        return sum(tensor.nbytes for tensor in leaves(self.columns))


def allocate(row: Mapping[str, Any], leading: tuple[int, ...], name: str, device: torch.device) -> dict[str, Any]:
    """Return zeroed columns of shape (*leading, ...) like the tensors of a first row (N, ...)."""
    needed = bytes_per_transition(row) * math.prod(leading)
    free = free_memory(device)
    if free is not None and needed > free:
        raise EtudeError(f"buffer '{name}' needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free; make it smaller")
    return map_columns(row, lambda t: torch.zeros((*leading, *t.shape[1:]), dtype=t.dtype, device=device))


def bytes_per_transition(row: Mapping[str, Any]) -> int:
    """Return the memory that one environment's part of a row (N, ...) takes."""
    return sum(t.shape[1:].numel() * t.element_size() for t in leaves(row))


def bytes_of_space(space: gymnasium.Space[Any]) -> int:
    """Return about how much memory one value of a space takes as a tensor."""
    if isinstance(space, spaces.Dict):
        return sum(bytes_of_space(part) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(bytes_of_space(part) for part in space.spaces)
    # Doubles become singles on their way in.
    width = min(4, space.dtype.itemsize) if isinstance(space, spaces.Box) and space.dtype.kind == "f" else None
    return math.prod(space.shape or ()) * (width or getattr(space.dtype, "itemsize", 8))


def bytes_of_parts(space: gymnasium.Space[Any]) -> list[int]:
    """Return about how much memory each part of a Dict observation takes; of any other, all of it."""
    return (
        [bytes_of_space(part) for part in space.spaces.values()] if isinstance(space, spaces.Dict) else [bytes_of_space(space)]
    )


def bytes_of_step(observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> int:
    """Return about how much memory a transition takes that is kept with both of its ends."""
    # The action, the reward and three flags besides; what an algorithm adds is small.
    return 2 * bytes_of_space(observation) + bytes_of_space(action) + 4 + 3


def in_bytes(count: float) -> str:
    """Return a number of bytes for people: `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def say(text: str) -> None:
    """Tell the user, on stderr: a training keeps what is said there in its run.log."""
    print(text, file=sys.stderr)
