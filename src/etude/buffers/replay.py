"""Uniform replay: the last transitions, sampled again and again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from torch import Generator, Tensor

from etude.buffers.base import Batch, Buffer, bytes_of_step, bytes_per_transition, in_bytes, say
from etude.buffers.columns import leaves, map_columns, take, todays_name, todays_names
from etude.buffers.frame_stacks import FrameStacks
from etude.buffers.free_memory import free_memory
from etude.buffers.given import given_non_finite
from etude.buffers.n_step import LookAhead
from etude.buffers.ring import Ring
from etude.buffers.ring_state import RingState
from etude.config.constraints import NonNegativeInt, PositiveInt, at_least
from etude.config.schema import Config
from etude.errors import UserError

FAR_MORE_THAN_HELD = 2**62
"""Places are drawn as the rest of a whole number below this: how many are held may then be known on the device alone."""
SHARE_OF_FREE_MEMORY = 0.8
"""What a buffer that must shrink leaves to the rest: networks, batches, other processes."""


@dataclass(frozen=True)
class ReplayConfig:
    """The last transitions, sampled uniformly."""

    type: str = "replay"
    """The registered name of the buffer."""
    capacity: PositiveInt = 1_000_000
    """Transitions held. More remembers older policies' experience longer and takes more memory."""
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


class ReplayBuffer(Buffer):
    """A ring of transitions on any device. Nothing in adding or sampling asks the device for a number."""

    Config: type = ReplayConfig

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        *,
        min_size: int = 1,
        n_step: int = 1,
        gamma: float = 1.0,
        name: str = "replay",
        device: torch.device | str = "cpu",
        strict: bool = False,
        leave_out: tuple[str, ...] = (),
        frame_stack: int | None = None,
    ) -> None:
        self._check(capacity, num_envs, min_size, name)
        needed = ("reward", "terminated") if n_step == 1 else ("reward", "terminated", "truncated", "is_first")
        for column in leave_out:
            if column in needed:
                raise UserError(f"buffers.{name}.leave_out: '{column}' is needed" + (" for n_step" if n_step > 1 else ""))
        self.name, self.strict, self.leave_out = name, strict, tuple(map(todays_name, leave_out))
        self.min_size, self.n_step, self.gamma = min_size, n_step, gamma
        self.ring = Ring(capacity // num_envs, name, torch.device(device))
        self._asked_rows = self.ring.rows
        if frame_stack is not None and type(self) is not ReplayBuffer:
            raise UserError(f"buffers.{name}.frame_stack={frame_stack}: only with buffers.{name}.type=replay; set it to null")
        self._stacks = None if frame_stack is None else FrameStacks(frame_stack, self.ring, name)
        self._frames_of_stack = frame_stack or 1
        self._num_envs = num_envs
        self._look_ahead: LookAhead | None = None
        self._expected_bytes: int | None = None
        self._notes: list[str] = []
        self._saver = RingState(self.ring)
        self._size_there: Tensor | None = None
        self._known_there = 0

    @classmethod
    def build(cls, options: Any, config: Config, name: str) -> Self:
        """Make the buffer that its options describe; the algorithm's own settings fill what they leave open."""
        return cls(**cls.arguments(options, config, name))

    @classmethod
    def arguments(cls, options: Any, config: Config, name: str) -> dict[str, Any]:
        """Return what the constructor is given for these options."""
        algorithm = config.algorithm
        n_step = options.n_step or getattr(algorithm, "n_step", 1)
        gamma = getattr(algorithm, "gamma", None)
        if gamma is None and n_step > 1:
            raise UserError(f"buffers.{name}.n_step={n_step}: {algorithm.name} has no gamma to discount rewards with")
        first_batch = max(1, int(getattr(algorithm, "batch_size", 1)))
        wanted = options.min_size if options.min_size is not None else getattr(algorithm, "learning_starts", first_batch)
        return {
            "capacity": options.capacity,
            "num_envs": config.environment.num_envs,
            "min_size": max(1, wanted),
            "n_step": n_step,
            "gamma": 1.0 if gamma is None else float(gamma),
            "name": name,
            "device": config.experiment.device if options.device == "auto" else options.device,
            "strict": options.on_low_memory == "strict",
            "leave_out": options.leave_out,
            "frame_stack": options.frame_stack,
        }

    @staticmethod
    def _check(capacity: int, num_envs: int, min_size: int, name: str) -> None:
        if capacity < num_envs:
            raise UserError(f"buffers.{name}.capacity={capacity}: must hold at least one step of all {num_envs} environments")
        held = capacity // num_envs * num_envs
        if min_size > held:
            raise UserError(
                f"buffers.{name}.capacity={capacity}: holds {held} transitions, and learning starts at {min_size} "
                f"(buffers.{name}.min_size, or the algorithm's learning_starts)"
            )

    # ---- writing ------------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> dict[str, Any]:  # type: ignore[override] # the ring's own
        """The stored columns (rows, N, ...)."""
        return self.ring.columns

    @property
    def capacity(self) -> int:
        """How many transitions fit."""
        return self.ring.rows * self._num_envs

    @property
    def reduced_to(self) -> int | None:
        """The capacity, where memory made it smaller than asked."""
        return None if self.ring.rows == self._asked_rows else self.capacity

    @property
    def is_full(self) -> bool:
        """Whether the oldest transitions make room for new ones."""
        return self.size >= self.capacity

    def add(self, row: Mapping[str, Any]) -> None:
        """Copy one vector step (N, ...) in, over the oldest one if there is no room."""
        kept = {key: value for key, value in row.items() if key not in self.leave_out} if self.leave_out else row
        if self._stacks is not None:
            if not self.ring.written:
                self._stacks.note_start(kept)
            kept = self._stacks.single(kept, row["is_first"])
        if not self.ring.columns:
            self._allocate(kept)
        self.ring.add(kept)

    @property
    def takes_arrays(self) -> bool:
        """Where they are copied as they come."""
        on_host = self.ring.device.type == "cpu" and bool(self.ring.columns)
        return on_host and self._stacks is None and type(self).add is ReplayBuffer.add

    def given_non_finite(self) -> str | None:
        """Return what the environment gave that is NaN or infinite, the oldest first."""
        return given_non_finite(self.columns, self.ring.begin % self.ring.rows)

    def bind(self, environment: Any) -> None:
        """Look how much memory the task's transitions will take, so that what does not fit is known before the run begins."""
        observation, action = environment.single_observation_space, environment.single_action_space
        if self._stacks is not None:
            self._stacks.check(observation)
        self._expected_bytes = bytes_of_step(observation, action, frames=self._frames_of_stack)
        note = self._fit(self._expected_bytes, environment.num_envs)
        self._notes = [note] if note else []

    def begin(self, observation: Any) -> None:
        """See how episodes begin, where stacks are put together from that."""
        if self._stacks is not None:
            self._stacks.note_start({"observation": observation})

    def notes(self) -> list[str]:
        """Return how much memory it will take, and whether that made it smaller than asked."""
        size = self.capacity
        expected = f"buffer '{self.name}': {size:,} transitions"
        if self._expected_bytes is not None:
            expected += f", about {in_bytes(size * self._expected_bytes)} on {self.ring.device}"
        return [*self._notes, f"{expected}; learning starts at {self.min_size:,}"]

    def _fit(self, each: int, num_envs: int) -> str | None:
        """Make the ring fit into free memory for transitions of so many bytes; returns what to tell the user about it."""
        ring, free = self.ring, free_memory(self.ring.device)
        asked = ring.rows * num_envs
        if free is None or each * asked <= free:
            return None
        if self.strict:
            raise UserError(
                f"buffers.{self.name}.capacity={asked}: {asked:,} transitions of about {each:,} bytes do not fit into the "
                f"{in_bytes(free)} free on {ring.device}; lower it, or set buffers.{self.name}.on_low_memory=shrink"
            )
        ring.rows = max(1, int(free * SHARE_OF_FREE_MEMORY) // (each * num_envs))
        self._check(ring.rows * num_envs, num_envs, self.min_size, self.name)
        return (
            f"buffer '{self.name}': {asked:,} transitions of {each:,} bytes do not fit into the {in_bytes(free)} free; it "
            f"holds {ring.rows * num_envs:,}"
        )

    def _allocate(self, row: Mapping[str, Any]) -> None:
        note = self._fit(bytes_per_transition(row), len(next(leaves(row))))
        if note:
            say(note)
        self.ring.allocate(row)

    @property
    def bytes_per_transition(self) -> int:
        """How much memory one of the transitions held takes."""
        return max(1, self.nbytes // max(1, self.capacity))

    @property
    def ready(self) -> bool:
        """Whether there is enough to learn from."""
        return self.size >= self.min_size

    def steps_to_ready(self, num_envs: int) -> int:
        """Return how many it takes to hold enough transitions."""
        return -(-self.min_size // num_envs)

    @property
    def size(self) -> int:
        """How many transitions are held."""
        return self.ring.held * self.ring.num_envs

    def clear(self) -> None:
        """Forget everything; memory is kept."""
        self.ring.clear()

    # ---- sampling -----------------------------------------------------------------------------------------------------

    def sample(self, n: int, generator: Generator, columns: Collection[str] | None = None) -> Batch:
        """Return n transitions drawn with replacement, on the generator's device; of the stored columns those asked for.

        Besides: `discount`, what the value of `next_observation` counts; `index` and `generation`, for `write_back`.
        """
        return self._batch(self._random(n, generator), generator.device, columns)

    def sample_many(self, count: int, n: int, generator: Generator, columns: Collection[str] | None = None) -> Batch:
        """Return `count` batches at once, (count, n, ...): bit for bit what as many calls of `sample` would return."""
        return self._batch(self._random_many(count, n, generator), generator.device, columns)

    def _random_many(self, count: int, n: int, generator: Generator) -> dict[str, Tensor]:
        """Draw what `count` batches need, (count, n) each: the numbers that as many calls of `_random` would draw."""
        if generator.device.type == "cpu" and type(self)._random is ReplayBuffer._random and self.size:
            # On the CPU a stream gives number after number, however many are asked for at once. A GPU's does not.
            return {"index": torch.randint(FAR_MORE_THAN_HELD, (count, n), generator=generator) % self._drawable}
        draws = [self._random(n, generator) for _ in range(count)]
        return {name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}

    def _random(self, n: int, generator: Generator) -> dict[str, Tensor]:
        """Draw all the random numbers that one batch needs, (n,) each."""
        if not self.size:
            raise IndexError(f"buffer '{self.name}' is empty: there is nothing to sample")
        drawn = torch.randint(FAR_MORE_THAN_HELD, (n,), generator=generator, device=generator.device)
        return {"index": drawn % self.size_on(generator.device)}

    def size_on(self, device: torch.device) -> Tensor | int:
        """Return how many transitions can be drawn, as an up-to-date number on a device: what is captured there reads it."""
        size = self._drawable
        if device.type == "cpu":
            return size
        if self._size_there is None:
            self._size_there, self._known_there = torch.zeros((), dtype=torch.int64, device=device), 0
        if self._known_there != size:
            self._size_there.fill_(size)
            self._known_there = size
        return self._size_there

    @property
    def _drawable(self) -> int:
        return self.size if self._stacks is None else self.size - self._stacks.lost * self.ring.num_envs

    wants_errors: ClassVar[bool] = False
    """Whether it wants to be told how wrong losses were about each transition, before it is drawn from again."""

    @property
    def is_plain(self) -> bool:
        """Whether a batch is the rows at random places and nothing else: a function of tensors, to be captured or compiled."""
        return type(self) is ReplayBuffer and self.n_step == 1 and self._stacks is None

    def draw_places(self, count: int, n: int, generator: Generator) -> Tensor:
        """Return where the transitions of `count` batches lie, (count, n): those that `sample_many` would return."""
        return self._index(self._random_many(count, n, generator))

    def _index(self, random: Mapping[str, Tensor]) -> Tensor:
        """Return which transitions were drawn: slot · N + environment. (..., n)"""
        index = random["index"].to(self.ring.device)
        return index if self._stacks is None else self._stacks.whole(index)

    def _batch(self, random: Mapping[str, Tensor], device: torch.device, columns: Collection[str] | None) -> Batch:
        """Return the transitions that were drawn, (n, ...) or (count, n, ...)."""
        ring, index = self.ring, self._index(random)
        flat = index.reshape(-1)
        stored = ring.flat if columns is None else {key: ring.flat[key] for key in columns if key in ring.flat}
        batch = self._one_step(stored, flat) if self.n_step == 1 else self._several_steps(stored, flat)
        if index.ndim > 1:
            batch = map_columns(batch, lambda column: column.view(*index.shape, *column.shape[1:]))
        batch |= {"index": index, "generation": ring.generation(index)}
        batch |= self._more(batch, random)
        return batch if ring.device == device else map_columns(batch, lambda column: column.to(device, non_blocking=True))

    def _more(self, batch: Batch, random: Mapping[str, Tensor]) -> Batch:
        """Return what another way of replaying adds to a batch, or puts in the place of what is stored."""
        return {}

    def _one_step(self, stored: Mapping[str, Any], index: Tensor) -> Batch:
        batch = self._take(stored, index)
        ended = batch["terminated"] if "terminated" in batch else self.ring.flat["terminated"].index_select(0, index)
        batch["discount"] = discounts(ended, self.gamma, self.ring.flat["reward"].dtype)
        return batch

    def _several_steps(self, stored: Mapping[str, Any], index: Tensor) -> Batch:
        if self._look_ahead is None:
            self._look_ahead = LookAhead(self.n_step, self.gamma, self.ring.num_envs, self.ring.device)
        outlook = self._look_ahead(self.ring.flat, index, self.ring.cursor)
        at_last = ("terminated", "truncated", "next_observation")
        batch = self._take({key: value for key, value in stored.items() if key not in (*at_last, "reward")}, index)
        batch |= self._take({key: value for key, value in stored.items() if key in at_last}, outlook.last)
        return {**batch, "reward": outlook.reward, "discount": outlook.discount}

    def _take(self, stored: Mapping[str, Any], index: Tensor) -> Batch:
        batch = take(stored, index)
        return batch if self._stacks is None else self._stacks.join(batch, index)

    # ---- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the rows held: those of whole segments to be written once, the newest with each checkpoint."""
        stacks = {} if self._stacks is None else {"stacks": self._stacks.state_dict()}
        return {"asked": self._asked_rows, **stacks, **self._saver.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the rows that were saved; the newest of them, if the capacity was lowered since."""
        ring = self.ring
        if state["tail"] and not ring.columns:
            # What memory decided when the run began holds for the whole run; what the user changes now does not.
            ring.rows = state["rows"] if state["asked"] == self._asked_rows else self._asked_rows
            self._allocate(map_columns(todays_names(state["tail"]), lambda column: column.new_empty(column.shape[1:])))
        self._saver.load_state_dict(state)
        if self._stacks is not None:
            self._stacks.load_state_dict(state["stacks"])


def discounts(ended: Tensor, gamma: float, dtype: torch.dtype) -> Tensor:
    """Return what the value of where each transition led counts: nothing where the task ended. (n,)"""
    return ended.logical_not().to(dtype) * gamma
