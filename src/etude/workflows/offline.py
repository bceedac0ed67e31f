"""What algorithms that learn from datasets have in common: data, its scale, and phases of updates alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
from torch import Generator, Tensor

from etude.components.normalizers import ObservationNormalizer
from etude.compute.trees import Tree, map_tree
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import Component, PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.datasets.buffer import DatasetBuffer, learnt_from
from etude.learning.sources import SAMPLED_AT_ONCE, Source
from etude.learning.update import Batch
from etude.workflows.base import Context, HookResult, Phase, Workflow

ROWS_AT_ONCE = 65_536
Gather = Callable[[Mapping[str, Any], Tensor], Batch]
"""From a dataset's columns and numbers of steps (B,) to a batch."""


@dataclass(frozen=True)
class OfflineConfig(AlgorithmSettings):
    """Settings of whatever learns from a dataset."""

    name: str = ""
    """The registered name of the algorithm."""
    updates: PositiveInt = 100_000
    """Gradient steps on the dataset. More fits it closer, until it remembers noise."""
    learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size. Higher learns faster and breaks sooner; lin_3e-4 lowers it to 0 over the run."""
    batch_size: PositiveInt = 256
    """Steps of the dataset per gradient step. More is steadier and slower."""
    normalize: bool = True
    """Put observations on the scale of the dataset, by the mean and variance of each entry; pictures stay as they are."""
    max_grad_norm: PositiveFloat | None = None
    """Clip each network's gradient to this norm; null leaves it alone."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adam", {})
    """adam, adamw, sgd or an import path, with its options."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from data_problems(self.name, config)


def data_problems(algorithm: str, config: Config) -> Iterator[str]:
    """Yield which settings of the environment can't be combined with a dataset."""
    environment = config.environment
    if environment.normalize_observations != "off":
        yield (
            f"environment.normalize_observations={environment.normalize_observations}: {algorithm} takes the scale from its "
            "dataset (algorithm.normalize); set it to off"
        )
    if environment.normalize_rewards:
        yield f"environment.normalize_rewards: not with {algorithm}, whose dataset has rewards as they were paid"


class Recorded(Source):
    """Batches from a dataset."""

    def __init__(self, buffer: DatasetBuffer, gather: Gather, batch_size: int, generator: Generator, *, room: int = 0) -> None:
        """`room`: so many steps must follow each one that is drawn."""
        self._buffer, self._gather, self._batch_size, self._generator = buffer, gather, batch_size, generator
        self._highest = buffer.size - room
        self._in_place = buffer.device.type == generator.device.type
        self.identity = ("dataset", buffer.name, batch_size, room, self._in_place)
        on_device = generator.device.type == "cuda"
        self.generators = (generator,) if self._in_place and on_device else ()
        # Indices alone: on the host several updates' numbers are those that would have been drawn one by one.
        self.at_once = 1 if on_device or not self._in_place else max(1, SAMPLED_AT_ONCE // (8 * batch_size))

    @property
    def columns(self) -> Mapping[str, Any]:
        """The dataset's memory; nothing where batches go to another device."""
        return self._buffer.columns if self._in_place else {}

    def draw(self, count: int) -> Tree:
        """Return numbers of steps, or whole batches."""
        where = self._generator.device
        index = torch.randint(self._highest, (count, self._batch_size), generator=self._generator, device=where)
        if self._in_place:
            return index
        batches = [self._gather(self._buffer.columns, each.to(self._buffer.device)) for each in index]
        return map_tree(lambda *rows: torch.stack(rows).to(where), batches[0], *batches[1:])

    def gather(self, columns: Mapping[str, Any], drawn: Tree) -> Batch:
        """Return one update's rows; a function of tensors."""
        return self._gather(columns, drawn) if self._in_place else drawn


class LearnsFromData(Workflow):
    """Takes gradient steps on a dataset; no environment is stepped unless a phase says so."""

    settings: Any

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """A dataset."""
        return {"data": {"type": "dataset"}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Updates alone."""
        updates = config.algorithm.updates
        return [{"name": "learn", "type": "offline", "buffer": "data", "hooks": ["update"], "duration_updates": updates}]

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return how many gradient steps the whole run takes."""
        return config.algorithm.updates

    def recorded(self, buffer: DatasetBuffer, room: int = 0) -> Source:
        """Return where batches come from."""
        settings, generator = self.settings, self.context.streams["buffer"]
        return Recorded(buffer, partial(self.gathered, buffer), settings.batch_size, generator, room=room)

    def gathered(self, buffer: DatasetBuffer, columns: Mapping[str, Any], index: Tensor) -> Batch:
        """Return a batch of the steps with these numbers (B,); a function of tensors."""
        return buffer.steps(columns, index)

    def update(self, phase: Phase, count: int) -> HookResult:
        """Take `count` gradient steps on the phase's dataset."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, DatasetBuffer)
        self.note(self._executor.run(self.recorded(buffer), count, self.scheduled_before(phase)))
        return HookResult(updates=count)


def scale_of_data(context: Context, normalize: bool) -> ObservationNormalizer:
    """Return what puts observations on the scale of the run's datasets; of a policy that is loaded, still without numbers."""
    normalizer = ObservationNormalizer(context.observation_space, "rolling" if normalize else "off").to(context.device)
    for buffer in learnt_from(context.buffers):
        rows = buffer.columns["row"]
        for first in range(0, len(rows), ROWS_AT_ONCE):
            index = rows[first : first + ROWS_AT_ONCE]
            seen = map_tree(lambda column, index=index: column[index].to(context.device), buffer.columns["observation"])
            normalizer.update(seen)
    return normalizer
