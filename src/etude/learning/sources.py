"""Where the batches of updates come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from torch import Generator, Tensor

from etude.buffers.columns import take
from etude.buffers.replay import ReplayBuffer
from etude.compute.trees import Tree
from etude.errors import UserError
from etude.learning.update import Batch

SAMPLED_AT_ONCE = 2**21
"""Bytes of transitions gathered together for several updates: as many as stay in the processor's cache."""


class Source(ABC):
    """Draws which rows each update reads, and gathers them.

    Drawing advances random streams, one update at a time. Gathering is a function of tensors, which compiled and captured
    updates contain.
    """

    unit: int = 1
    """How many updates always come together: they may share a compiled or captured call, wherever a run is cut."""
    at_once: int = 1
    """For how many updates to draw together at most, where they are taken one by one."""
    follows_learning: bool = False
    """Whether the next batch depends on what was learnt from this one, as where replay is prioritised."""
    is_fixed: bool = True
    """Whether the columns stay where they are in memory."""
    generators: Sequence[Generator] = ()
    """What drawing reads, where it asks nothing of the host and may be part of a capture."""
    identity: Hashable = None
    """What tells sources apart that a captured update can't be shared by."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Any]:
        """The memory that batches are gathered from."""

    @abstractmethod
    def draw(self, count: int) -> Tree:
        """Return what tells the batches of the next `count` updates, (count, ...) each."""

    @abstractmethod
    def gather(self, columns: Mapping[str, Any], drawn: Tree) -> Batch:
        """Return one update's rows; a function of tensors."""

    def begin(self) -> None:  # noqa: B027 # most need nothing
        """Before captured updates: bring up to date on the device what only the host knows."""

    def learned(self, drawn: Tree, per_row: Mapping[str, Tensor]) -> None:  # noqa: B027 # most don't care
        """Take note of what losses said of each row, (updates, B) each."""


class Minibatches(Source):
    """A batch in memory, cut by an order of rows that is known beforehand, (updates, B)."""

    is_fixed = False
    identity = "minibatches"

    def __init__(self, batch: Batch, order: Tensor) -> None:
        self._batch, self._order, self._next = batch, order, 0
        self.unit = self.at_once = len(order)

    @property
    def columns(self) -> Mapping[str, Any]:
        """The batch."""
        return self._batch

    def draw(self, count: int) -> Tensor:
        """Return the next rows of the order."""
        self._next += count
        return self._order[self._next - count : self._next]

    def gather(self, columns: Mapping[str, Any], drawn: Tree) -> Batch:
        """Return the rows that were drawn."""
        return take(columns, drawn)


class Replayed(Source):
    """Batches from a replay buffer. They are read where they lie, unless a view asks the host or they lie on another device."""

    def __init__(
        self,
        buffer: ReplayBuffer,
        columns: Sequence[str],
        batch_size: int,
        generator: Generator,
        *,
        unit: int = 1,
        single: bool = False,
    ) -> None:
        """`single`: of a buffer that draws windows, steps by themselves."""
        self._single = single
        self._buffer, self._names, self._batch_size, self._generator = buffer, tuple(columns), batch_size, generator
        self._in_place = buffer.is_tensor_function and buffer.store.device.type == generator.device.type
        self.follows_learning = buffer.follows_learning
        self.unit, self.identity = unit, (buffer.name, self.follows_learning, self._in_place, single)
        size = batch_size * buffer.bytes_per_transition
        self.at_once = 1 if self.follows_learning else max(1, SAMPLED_AT_ONCE // size)
        on_device = buffer.places.draws_on_device and generator.device.type == "cuda"
        draws_inside = self._in_place and not self.follows_learning and on_device
        self.generators = (generator,) if draws_inside else ()

    @property
    def columns(self) -> Mapping[str, Any]:
        """The store's memory; nothing where the buffer puts batches together itself."""
        return self._buffer.tensors() if self._in_place else {}

    def begin(self) -> None:
        """Which transitions there are to draw from."""
        self._buffer.bounds.on(self._generator.device)

    def draw(self, count: int) -> dict[str, Any]:
        """Return places in the store, or whole batches."""
        if self._in_place:
            return self._buffer.draw_places(count, self._batch_size, self._generator)
        return self._buffer.sample_many(count, self._batch_size, self._generator, self._names, single=self._single)

    def gather(self, columns: Mapping[str, Any], drawn: Tree) -> Batch:
        """Return one update's rows; with `discount`, what the value of `next_observation` counts."""
        batch = self._buffer.gather(columns, drawn, self._names, single=self._single) if self._in_place else drawn
        return {name: batch[name] for name in (*self._names, "weight") if name in batch}

    def learned(self, drawn: Tree, per_row: Mapping[str, Tensor]) -> None:
        """Write back what belongs to the transitions drawn: how wrong the losses were about each, and what they became."""
        if not self.follows_learning:
            return
        buffer = self._buffer
        if buffer.is_prioritized and "priority" not in per_row:
            raise UserError(
                f"buffers.{buffer.name}: its replay is prioritised, and the losses don't say how wrong they were about each "
                f"row (Out.per_row['priority']); set buffers.{buffer.name}.type=replay, and priority to null"
            )
        index = buffer.window(drawn["index"]) if self._in_place and not self._single else drawn["index"]
        buffer.learned(index, buffer.store.generation(index), **per_row)
