"""Offline reinforcement learning, and online fine-tuning after it, as phases of one run.

learn      updates on the dataset alone                                          algorithm.updates
finetune   the policy collects into a replay; batches are part dataset, part replay     algorithm.finetune_steps
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor

from etude.buffers.base import Buffer
from etude.buffers.replay import ReplayBuffer
from etude.components.distributions import BoundedHead
from etude.compute.trees import Tree, map_tree
from etude.config.constraints import Bounds, NonNegativeInt, PositiveInt
from etude.config.schema import Config
from etude.datasets.buffer import DatasetBuffer, learnt_from
from etude.errors import UserError
from etude.learning.sources import Replayed, Source
from etude.learning.update import Batch
from etude.workflows.base import Context, HookResult, Phase
from etude.workflows.off_policy import OffPolicyConfig, WithCritics
from etude.workflows.offline import Recorded, data_problems


@dataclass(frozen=True)
class OfflineToOnlineConfig(OffPolicyConfig):
    """Settings of offline reinforcement learning with fine-tuning."""

    updates: PositiveInt = 1_000_000
    """Gradient steps on the dataset, before anything is collected."""
    normalize: bool = True
    """Put observations on the scale of the dataset, by the mean and variance of each entry; pictures stay as they are."""
    finetune_steps: NonNegativeInt = 0
    """Environment steps of fine-tuning after that; 0: the run learns from the dataset alone."""
    offline_share: Annotated[float, Bounds(low=0, high=1)] = 0.5
    """How much of each batch of fine-tuning is the dataset's. More is steadier, less follows the new experience sooner."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        yield from data_problems(self.name, config)
        if self.n_step != 1:
            yield f"algorithm.n_step={self.n_step}: {self.name} learns from single steps of its dataset; set it to 1"
        if config.training.total_steps < self.finetune_steps:
            yield (
                f"algorithm.finetune_steps={self.finetune_steps}: is more than training.total_steps="
                f"{config.training.total_steps}; raise that"
            )


class Mixed(Source):
    """Batches of which a part comes from one source, and the rest from another."""

    def __init__(self, one: Source, other: Source) -> None:
        self._parts = (one, other)
        self.unit, self.at_once = 1, min(one.at_once, other.at_once)
        self.generators = (*one.generators, *other.generators)
        # Drawing is inside a capture as a whole, or not at all.
        if not (one.generators and other.generators):
            self.generators = ()
        self.identity = (one.identity, other.identity)

    @property
    def columns(self) -> Mapping[str, Any]:
        """The memory of both."""
        return {str(place): part.columns for place, part in enumerate(self._parts)}

    def begin(self) -> None:
        """Bring both up to date."""
        for part in self._parts:
            part.begin()

    def draw(self, count: int) -> Tree:
        """Return what tells the batches of both."""
        return [part.draw(count) for part in self._parts]

    def gather(self, columns: Mapping[str, Any], drawn: Tree) -> Batch:
        """Return one update's rows, those of the first source first."""
        one, other = (part.gather(columns[str(place)], drawn[place]) for place, part in enumerate(self._parts))
        return map_tree(lambda ours, theirs: torch.cat([ours, theirs]), dict(one), dict(other))


class OfflineToOnline(WithCritics):
    """Learns from a dataset, then from a dataset and a replay."""

    learns_from = Buffer
    supports_ranks = False
    supports_samplers = False
    head: BoundedHead
    settings: Any

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """A dataset, and a replay for fine-tuning."""
        return {"data": {"type": "dataset"}, "replay": {"type": "replay"}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Updates alone, then collecting and updates in turn, if there are steps for that."""
        settings = config.algorithm
        learn = {"type": "offline", "buffer": "data", "hooks": ["update"], "duration_updates": settings.updates}
        phases: list[Mapping[str, Any]] = [{"name": "learn", **learn}]
        if settings.finetune_steps:
            hooks = [{"collect": {"count": settings.train_every}}, {"update": {"count": settings.gradient_steps}}]
            finetune = {"buffer": "replay", "hooks": hooks, "duration_steps": settings.finetune_steps}
            phases.append({"name": "finetune", **finetune})
        return phases

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return how many gradient steps the whole run takes."""
        settings, copies = config.algorithm, config.environment.num_envs
        return settings.updates + settings.finetune_steps // (settings.train_every * copies) * settings.gradient_steps

    def initialize(self, context: Context) -> None:
        """Know whether fine-tuning has begun."""
        super().initialize(context)
        self.is_online = torch.zeros((), device=context.device)
        """1 while batches are mixed with what was collected."""

    def is_warming_up(self) -> bool:
        """Never: the first steps are the policy's already."""
        return False

    def update(self, phase: Phase, count: int) -> HookResult:
        """Take `count` gradient steps on the dataset, or on the dataset and the replay once that holds enough."""
        buffer = self.buffer(phase)
        if not buffer.ready:
            return HookResult()
        self.is_online.fill_(float(not isinstance(buffer, DatasetBuffer)))
        self.note(self._executor.run(self.source(buffer), count, self.scheduled_before(phase)))
        return HookResult(updates=count)

    def source(self, buffer: Buffer) -> Source:
        """Return where batches come from in a phase with this buffer."""
        settings, streams = self.settings, self.context.streams
        if isinstance(buffer, DatasetBuffer):
            return Recorded(buffer, partial(self.gathered, buffer), settings.batch_size, streams["data"])
        if not isinstance(buffer, ReplayBuffer) or buffer.follows_learning:
            raise UserError(f"{settings.name} fine-tunes from a replay without priorities; set its type to replay")
        recorded, size = learnt_from(self.context.buffers), settings.batch_size
        of_data = round(settings.offline_share * size) if recorded else 0
        parts: list[Source] = []
        if of_data:
            parts.append(Recorded(recorded[0], partial(self.gathered, recorded[0]), of_data, streams["data"]))
        if size - of_data:
            parts.append(Replayed(buffer, self.columns, size - of_data, streams["buffer"]))
        return Mixed(*parts) if len(parts) == 2 else parts[0]

    def gathered(self, buffer: DatasetBuffer, columns: Mapping[str, Any], index: Tensor) -> Batch:
        """Return a batch of the dataset's steps (B,), with actions on the critics' scale."""
        steps = buffer.steps(columns, index)
        steps["sample"] = self.head.from_environment(steps["action"].float())
        return {name: steps[name] for name in self.columns}
