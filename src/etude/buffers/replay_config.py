"""The settings of a replay, in each of their spellings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from etude.buffers.hindsight import Hindsight
from etude.buffers.places import Priority
from etude.buffers.views import View
from etude.config.constraints import ByteCount, Component, NonNegativeInt, PositiveInt, at_least
from etude.config.registry import views
from etude.config.validate import Part
from etude.errors import UserError


@dataclass(frozen=True)
class StoreConfig:
    """What every replay has."""

    type: str = "replay"
    """The registered name of the buffer."""
    capacity: PositiveInt = 1_000_000
    """Transitions held. More remembers older policies' experience longer and takes more memory."""
    max_bytes: ByteCount | None = None
    """What it may take in all, such as 8GB, in memory and on disk together: where the capacity would take more, it holds what
    fits. Default: no limit of its own."""
    storage: Literal["memory", "disk"] = "memory"
    """Where observations lie: disk keeps those of 1 KiB and more in a file and reads them for each batch, for replays that are
    larger than memory. Everything else stays in memory."""
    folder: str | None = None
    """The folder whose disk such a file is on. It has no name there and is gone with the process. Default: that of the runs."""
    min_size: NonNegativeInt | None = None
    """Transitions before learning starts. Default: the algorithm's learning_starts, or its batch_size."""
    n_step: PositiveInt | None = None
    """Rewards summed before bootstrapping. More learns faster from rare rewards and leans on old behaviour. Default: the
    algorithm's n_step, or 1."""
    device: str = "auto"
    """Where transitions lie: auto is where the networks live; cpu saves GPU memory and costs a copy per batch."""
    on_low_memory: Literal["shrink", "strict"] = "shrink"
    """If the capacity does not fit into free memory: shrink makes it fit and says so, strict is an error."""
    leave_out: tuple[str, ...] = ()
    """Columns that the learner does not need and that are not stored."""
    frame_stack: Annotated[int, at_least(2)] | None = None
    """Observations are stacks of so many frames along their first dimension, the newest last: keep one frame of each and put
    stacks together when they are sampled. 4 takes a quarter of the memory."""
    sequence: Annotated[int, at_least(2)] | None = None
    """Draw windows of so many steps in a row, across the ends of episodes, in place of single transitions. Default: as the
    algorithm learns from them."""
    online: bool = False
    """Draw each new window once, as soon as it is complete, before uniform ones fill the batch: those of an environment follow
    one another without overlap. Learns sooner from what just happened."""
    rewritten: tuple[str, ...] = ()
    """More columns that learning writes anew, besides those that the algorithm names itself, such as latents."""
    view: Annotated[Any, Component("view")] | None = None
    """A view of your own, by import path, with its options: what is made of the transitions that were drawn."""


@dataclass(frozen=True)
class ReplayConfig(StoreConfig):
    """The last transitions, sampled uniformly, or otherwise."""

    priority: Priority | None = None
    """Draw transitions in proportion to a priority: {} or {alpha, beta, smallest_priority}, as type prioritized has them."""
    hindsight: Hindsight | None = None
    """Replay with goals that were reached later: {} or {strategy, ratio, ends_on_success}, as type hindsight has them."""


@dataclass(frozen=True)
class PrioritizedConfig(Priority, StoreConfig):
    """The last transitions, sampled in proportion to their priority."""

    type: str = "prioritized"
    """The registered name of the buffer."""
    hindsight: Hindsight | None = None
    """Replay with goals that were reached later: {} or {strategy, ratio, ends_on_success}, as type hindsight has them."""


@dataclass(frozen=True)
class HindsightConfig(Hindsight, StoreConfig):
    """The last transitions, most of them with goals that were reached later."""

    type: str = "hindsight"
    """The registered name of the buffer."""
    priority: Priority | None = None
    """Draw transitions in proportion to a priority: {} or {alpha, beta, smallest_priority}, as type prioritized has them."""


def settings_of(cls: type[Any], options: Any, key: str) -> Any:
    """Return settings that stand under a key of their own, or among the others."""
    if isinstance(options, cls):
        return cls(**{each.name: getattr(options, each.name) for each in fields(cls)})
    return getattr(options, key)


def device_of(options: StoreConfig, networks: str, name: str) -> str:
    """Return where transitions lie, if networks live on a device."""
    if options.storage == "disk" and options.device not in ("auto", "cpu"):
        raise UserError(
            f"buffers.{name}.device={options.device}: not with storage=disk, whose batches are put together by the host; leave "
            "it at auto"
        )
    return "cpu" if options.storage == "disk" else networks if options.device == "auto" else options.device


def own_view(part: Part, where: str) -> View:
    """Make the view that a config names."""
    cls = views.resolve(part.type)
    if not isinstance(cls, type) or not issubclass(cls, View):
        raise UserError(f"{where}={part.type}: is no view: it must be derived from {View.__module__}.View")
    try:
        return cls(**part.options)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {part.type} does not work with {part.options or 'no options'}: {error}") from error
