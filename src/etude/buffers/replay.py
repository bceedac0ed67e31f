"""Replay: the last transitions, drawn again and again. A store holds them, places say which are drawn, views what is seen."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Generator, Tensor

from etude.buffers.base import Batch, Buffer, ColumnSpecs, bytes_per_transition, say
from etude.buffers.columns import map_columns, sent, todays_name, todays_names
from etude.buffers.episodes import STEP
from etude.buffers.frame_stacks import FrameStacks
from etude.buffers.given_to_store import given_to_store
from etude.buffers.hindsight import Hindsight, OtherGoals
from etude.buffers.places import Bounds, Places, Prioritized, Priority, Uniform
from etude.buffers.replay_arguments import arguments_of, check_capacity, check_goals, check_left_out, places_of
from etude.buffers.replay_config import HindsightConfig, PrioritizedConfig, ReplayConfig
from etude.buffers.room import Room, Sizes
from etude.buffers.store import AT, LEADS_TO, OBSERVATIONS, Store
from etude.buffers.store_state import StoreState
from etude.buffers.views import Held, Steps, View
from etude.config.schedules import Moment, Schedule
from etude.config.schema import Config
from etude.errors import UserError


class ReplayBuffer(Buffer):
    """The last transitions, on any device. Nothing in adding or sampling asks the device for a number."""

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
        sequence: int | None = None,
        rewritten: tuple[str, ...] = (),
        max_bytes: int | None = None,
        storage: Literal["memory", "disk"] = "memory",
        folder: Path | str | None = None,
        online: bool = False,
        priority: Priority | None = None,
        hindsight: Hindsight | None = None,
        view: View | None = None,
    ) -> None:
        check_capacity(capacity, num_envs, min_size, name)
        self.name, self.leave_out = name, tuple(map(todays_name, leave_out))
        self.min_size, self.sequence, self._num_envs = min_size, sequence, num_envs
        rows = capacity // num_envs
        self.store = Store(rows, name, torch.device(device), keeps_ends="next_observation" not in self.leave_out)
        self._asked_rows = self._wanted_rows = rows
        self._chosen_folder = None if folder is None else Path(folder)
        if storage == "disk":
            self.store.folder = self._chosen_folder or Path(tempfile.gettempdir())
        self.steps = Steps(n_step, gamma)
        self.stacks = None if frame_stack is None else FrameStacks(frame_stack, rows, name)
        self.goals = None if hindsight is None else OtherGoals(hindsight, self.store)
        self.views = [each for each in (self.goals, view) if each is not None]
        self._check_needs()
        parts = [*self.views, *([] if self.stacks is None else [self.stacks])]
        ahead = max((each.reach[1] for each in parts), default=0) + (0 if sequence is None else sequence - 1)
        self.bounds = Bounds(self.store, (max((each.reach[0] for each in parts), default=0), ahead))
        self.places = places_of(self.bounds, priority, newest=(sequence or 1) if online else None, name=name)
        self._draws = tuple(name for each in self.views for name in each.draws)
        self.rewritten, self._saver = rewritten, StoreState(self.store, rewritten)
        self.room_for = Room(
            name,
            self.store.device,
            strict=strict,
            max_bytes=max_bytes,
            keeps_ends=self.store.keeps_ends,
            priorities=self.places.expected_bytes,
        )
        self._added: ColumnSpecs = {}
        self._notes: list[str] = []

    def _check_needs(self) -> None:
        windows: tuple[str, ...] = ("is_first",) if self.sequence else ()
        needs = {"n_step" if self.steps.count > 1 else "": self.steps.needs, "sequences": windows}
        needs |= {"frame_stack": () if self.stacks is None else self.stacks.needs}
        needs |= {"hindsight" if each is self.goals else type(each).__name__: each.needs for each in self.views}
        check_left_out(self.name, self.leave_out, needs)
        if self.goals is not None:
            check_goals(self.name, self.sequence, None if self.stacks is None else self.stacks.count)

    @classmethod
    def build(cls, options: Any, config: Config, name: str) -> Self:
        """Make the buffer that its options describe; the algorithm's own settings fill what they leave open."""
        return cls(**arguments_of(options, config, name))

    # ---- writing ------------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> dict[str, Any]:  # type: ignore[override] # the store's own
        """The stored columns (rows, N, ...), without the observations."""
        return self.store.columns

    @property
    def capacity(self) -> int:
        """How many transitions fit."""
        return self.store.rows * self._num_envs

    @property
    def reduced_to(self) -> int | None:
        """The capacity, where memory made it smaller than asked."""
        return None if self.store.rows == self._wanted_rows else self.capacity

    @property
    def is_full(self) -> bool:
        """Whether the oldest transitions make room for new ones."""
        return self.store.is_full

    def add(self, row: Mapping[str, Any]) -> None:
        """Copy one vector step (N, ...) in, over the oldest one if there is no room.

        What it saw is where the step before led, unless `is_first`; so it is not kept twice.
        """
        if self.stacks is not None:
            if not self.store.written:
                self.stacks.note_start(row["observation"])
            row = self.stacks.single(row)
        if self.goals is not None:
            row = self.goals.with_step(row)
        if not self.store.columns:
            # What bytes decided is decided anew, now that all columns are known; what memory decided stays.
            self._allocate(self._kept(row), self._asked_rows if self.reduced_to is None else self.store.rows)
        if self.goals is not None:
            self.goals.episodes.add(row, row[STEP])
        self.store.add(row)

    def _kept(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {key: value for key, value in row.items() if key not in self.leave_out} if self.leave_out else row

    @property
    def takes_arrays(self) -> bool:
        """Where they are copied as they come."""
        return self.store.device.type == "cpu" and bool(self.store.columns) and self.goals is None

    def given_non_finite(self) -> str | None:
        """Return what the environment gave that is NaN or infinite, the oldest first."""
        return given_to_store(self.store)

    def bind(self, environment: Any) -> None:
        """Look how much memory the task's transitions will take, so that what does not fit is known before the run begins."""
        observation, action = environment.single_observation_space, environment.single_action_space
        if self.stacks is not None:
            self.stacks.check(observation)
        for view in self.views:
            view.bind(environment)
        sizes = Sizes.of_spaces(
            observation,
            action,
            self._added,
            self.rewritten,
            stacked=1 if self.stacks is None else self.stacks.count,
            more=sum(view.bytes_each for view in self.views),
            on_disk=self.store.folder is not None,
        )
        note = self._fit(self._asked_rows, sizes, environment.num_envs)
        self._notes = [note] if note else []

    def keep_files_in(self, folder: Path) -> None:
        """Where frames lie in a file, unless the user says where."""
        if self.store.folder is not None and self._chosen_folder is None:
            self.store.folder = folder

    def expect(self, columns: ColumnSpecs) -> None:
        """Count these columns too."""
        self._added = columns

    def begin(self, observation: Any) -> None:
        """See how episodes begin, where stacks are put together from that."""
        if self.stacks is not None:
            self.stacks.note_start(observation)

    def notes(self) -> list[str]:
        """Return how much memory it will take and for what, and whether that made it smaller than asked."""
        expected = f"buffer '{self.name}': {self.capacity:,} transitions{self.room_for.said(self.store.folder)}"
        unknown = [name for name in self.rewritten if name not in self._added]
        if unknown and not self.store.columns:
            expected += f"; {', '.join(unknown)} come with the first step and are not counted"
        return [*self._notes, f"{expected}; learning starts at {self.min_size:,}"]

    def _fit(self, rows: int, sizes: Sizes, num_envs: int) -> str | None:
        """Give the store as many of `rows` as there is room for; returns what to tell the user about it."""
        self.store.rows, note = self.room_for.fit(rows, num_envs, sizes, self.store.folder)
        self._wanted_rows = self.room_for.allowed(self._asked_rows, num_envs, sizes)
        if note and self.store.rows * num_envs < self.min_size:
            starts = f"(buffers.{self.name}.min_size, or the algorithm's learning_starts)"
            raise UserError(f"{note}, and learning starts at {self.min_size:,} {starts}")
        return note

    def _allocate(self, row: Mapping[str, Any], rows: int) -> None:
        sizes = Sizes.of_row(row, self.rewritten, on_disk=self.store.folder is not None)
        note = self._fit(rows, sizes, len(row["reward"]))
        if note and note not in self._notes:
            say(note)
        self.store.allocate(row)
        self.places.allocate()
        if self.goals is not None:
            self.goals.episodes.start()
        self.steps.prepare(self.store.device)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self.store.nbytes + self.places.nbytes

    @property
    def bytes_per_transition(self) -> int:
        """How much memory a batch takes of each transition: both of its observations, and the rest."""
        store = self.store
        seen = 2 * bytes_per_transition(store.memory) * (1 if self.stacks is None else self.stacks.count)
        return max(1, seen + bytes_per_transition(store.flat))

    @property
    def ready(self) -> bool:
        """Whether there is enough to learn from."""
        return self.bounds.count > 0 and (self.size >= self.min_size or self.is_full)

    def steps_to_ready(self, num_envs: int) -> int:
        """Return how many it takes to hold enough transitions."""
        return max(-(-self.min_size // num_envs), self.bounds.reach[1] + 1)

    @property
    def size(self) -> int:
        """How many transitions are held."""
        return self.store.held * self.store.num_envs

    def clear(self) -> None:
        """Forget everything; memory is kept."""
        self.store.clear()
        self.places.clear()
        if self.goals is not None:
            self.goals.episodes.clear()

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """Those of the places."""
        return self.places.schedules

    def set_schedules(self, now: Moment) -> None:
        """Move what changes over a run along its schedule."""
        self.places.set_schedules(now)

    # ---- sampling -----------------------------------------------------------------------------------------------------

    def sample(self, n: int, generator: Generator, columns: Collection[str] | None = None) -> Batch:
        """Return n transitions drawn with replacement, on the generator's device; of the stored columns those asked for.

        Besides: `discount`, what the value of `next_observation` counts; `index` and `generation`, for `learned`.
        """
        return map_columns(self.sample_many(1, n, generator, columns), lambda column: column[0])

    def sample_many(
        self,
        count: int,
        n: int,
        generator: Generator,
        columns: Collection[str] | None = None,
        places: Places | None = None,
        *,
        single: bool = False,
    ) -> Batch:
        """Return `count` batches at once, (count, n, ...): bit for bit what as many calls of `sample` would return.

        `single` steps also where sequences are drawn.
        """
        device, drawn = self.store.device, self.draw_places(count, n, generator, places)
        flat = {name: values.reshape(-1) for name, values in drawn.items()}
        batch = self.gather(self.tensors(), flat, columns, single=single)
        batch["generation"] = self.store.generation(batch["index"])
        batch = map_columns(batch, lambda column: column.view(count, n, *column.shape[1:]))
        return batch if device == generator.device else map_columns(batch, partial(sent, device=generator.device))

    def peek(self, n: int, generator: Generator, columns: Collection[str] | None = None) -> Batch:
        """Return n transitions drawn uniformly, for somebody who only looks: what is learnt from next stays as it is."""
        return map_columns(self.sample_many(1, n, generator, columns, Uniform(self.bounds)), lambda column: column[0])

    def walk(self, names: Collection[str], *, first: int, at_once: int, device: torch.device) -> Iterator[Batch]:
        """Yield everything from step number `first` on that is held, in order, as single transitions, so many at a time."""
        store, rows = self.store, max(1, at_once // self._num_envs)
        for begin in range(max(first, store.begin), store.written, rows):
            steps = torch.arange(begin, min(begin + rows, store.written), device=store.device) % store.rows
            index = (steps[:, None] * self._num_envs + torch.arange(self._num_envs, device=store.device)).flatten()
            batch = self.gather(self.tensors(), {"index": index}, names, single=True)
            batch["generation"] = store.generation(index)
            yield batch if store.device == device else map_columns(batch, partial(sent, device=device))

    @property
    def _window(self) -> tuple[int, ...]:
        return () if self.sequence is None else (self.sequence,)

    def draw_places(self, count: int, n: int, generator: Generator, places: Places | None = None) -> dict[str, Tensor]:
        """Return what tells `count` batches, (count, n) each: places, their weights, and random numbers that views want."""
        if not self.bounds.count:
            raise IndexError(f"buffer '{self.name}' is empty: there is nothing to sample")
        places = places or self.places
        random = None if self._draws else places.random_many(count, n, generator)
        if random is None:
            draws = [self._random(n, generator, places) for _ in range(count)]
            random = {name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}
        found = places.find(random, self.store.device)
        return found | {name: random[name].to(self.store.device) for name in self._draws}

    def _random(self, n: int, generator: Generator, places: Places) -> dict[str, Tensor]:
        """Draw all the random numbers that one batch needs, (n,) each."""
        drawn = places.random(n, generator)
        for name in self._draws:
            drawn[name] = torch.rand(n, dtype=torch.float64, generator=generator, device=generator.device)
        return drawn

    @property
    def is_prioritized(self) -> bool:
        """Whether it must be told how wrong losses were about each transition, before it is drawn from again."""
        return isinstance(self.places, Prioritized)

    @property
    def follows_learning(self) -> bool:
        """Whether the next batch depends on what was learnt from this one."""
        return self.places.follows_learning or bool(self.rewritten)

    @property
    def is_tensor_function(self) -> bool:
        """Whether `gather` asks the host for nothing: then compiled and captured updates contain it."""
        return not self.store.has_files and all(view.is_tensor_function for view in self.views)

    def tensors(self) -> dict[str, Any]:
        """Return all that `gather` reads, where it lies."""
        written = self.bounds.on(self.store.device)["written"]
        return {"columns": self.store.flat, "memory": self.store.memory, "written": written}

    def gather(
        self,
        tensors: Mapping[str, Any],
        drawn: Mapping[str, Tensor],
        names: Collection[str] | None = None,
        *,
        single: bool = False,
    ) -> Batch:
        """Return the transitions that were drawn, (n,) each, of the columns those in `names`; a function of tensors."""
        held = Held(tensors, self.store.rows, self._num_envs, self.stacks)
        index = drawn["index"]
        if self.sequence is not None and not single:
            index = held.window(index, self.sequence)
        batch: Batch = {"index": index}
        look = self.steps(held, index, partial(self._facts, held, batch, drawn) if self.views else None)
        own = {"reward": look.reward, "terminated": look.terminated}
        known = [*(name for name in held.columns if name not in (AT, LEADS_TO)), *(OBSERVATIONS if held.memory else ())]
        for name in known if names is None else [name for name in names if name in known]:
            if name in own:
                batch[name] = own[name]
            elif name == "observation":
                batch[name] = held.observation(index)
            elif name == "next_observation":
                if "next_observation" not in self.leave_out:
                    batch[name] = held.next_observation(look.last)
            else:
                batch[name] = held.take(name, look.last if name == "truncated" else index)
        batch["discount"] = look.discount
        if "weight" in drawn:
            batch["weight"] = drawn["weight"]
        for view in self.views:
            batch = view(held, batch, drawn)
        return batch

    def _facts(
        self, held: Held, batch: Batch, drawn: Mapping[str, Tensor], rows: Tensor, reward: Tensor, terminated: Tensor
    ) -> tuple[Tensor, Tensor]:
        for view in self.views:
            reward, terminated = view.facts(held, batch, rows, reward, terminated, drawn)
        return reward, terminated

    def window(self, index: Tensor) -> Tensor:
        """Return the transitions that belong to places as they are drawn: themselves, or (..., L) in sequences."""
        if self.sequence is None:
            return index
        return Held(self.tensors(), self.store.rows, self._num_envs).window(index, self.sequence)

    # ---- learning -----------------------------------------------------------------------------------------------------

    def learned(self, index: Tensor, generation: Tensor, **per_row: Tensor) -> None:
        """Write back what was learnt of sampled transitions, as many as there are: priorities, and rewritten columns.

        Transitions that were overwritten since are left alone. Of a window, a priority is that of its first step.
        """
        store = self.store
        index, generation = index.to(store.device), generation.to(store.device)
        fresh = store.generation(index) == generation
        for name, values in per_row.items():
            if name == "priority" and isinstance(self.places, Prioritized):
                first = (slice(None),) * (index.ndim - len(self._window)) + ((0,) if self._window else ())
                place, same = index[first], fresh[first]
                same = same & (generation[first] * store.rows + place // store.num_envs >= self.bounds.first)
                flat = (-1, place.shape[-1])
                self.places.learned(place.reshape(flat), same.reshape(flat), values)
            elif name in self.rewritten:
                column, place = store.flat[name], index.reshape(-1)
                given = values.detach().to(column).reshape(len(place), *column.shape[1:])
                kept = fresh.reshape(-1, *[1] * (column.ndim - 1))
                column.index_copy_(0, place, torch.where(kept, given, column.index_select(0, place)))
                self._saver.changed(place)
            else:
                known = ["priority"] * isinstance(self.places, Prioritized) + [*self.rewritten]
                raise TypeError(
                    f"buffer '{self.name}' is told {', '.join(known) or 'nothing'} by learning, not {name}; "
                    f"see buffers.{self.name}.priority and rewritten"
                )

    # ---- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what is held: whole segments to be written once, the newest steps with each checkpoint."""
        stacks = {} if self.stacks is None else {"stacks": self.stacks.state_dict()}
        asked = {"asked": self._asked_rows, "max_bytes": self.room_for.max_bytes}
        return {**asked, **stacks, **self._saver.state_dict(), **self.places.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold what was saved; the newest of it, if the capacity was lowered since."""
        store = self.store
        if state["tail"] and not store.columns:
            # What memory decided when the run began holds for the whole run; what the user changes now does not.
            is_as_asked = (state["asked"], state.get("max_bytes")) == (self._asked_rows, self.room_for.max_bytes)
            rows = state["rows"] if is_as_asked else self._asked_rows
            saved = {**todays_names(state["tail"]), **state.get("rewritten", {}).get("tail", {})}
            example = {name: value for name, value in saved.items() if name not in ("ends", "frame_age")}
            self._allocate(self._kept(map_columns(example, lambda column: column.new_empty(column.shape[1:]))), rows)
        self._saver.load_state_dict(state)
        if store.columns:
            self.places.load_state_dict(state)
            if self.goals is not None:
                self.goals.episodes.rebuild()
        if self.stacks is not None:
            self.stacks.load_state_dict(state["stacks"])


class PrioritizedReplayBuffer(ReplayBuffer):
    """Another spelling of a replay with `priority`."""

    Config = PrioritizedConfig


class HindsightBuffer(ReplayBuffer):
    """Another spelling of a replay with `hindsight`."""

    Config = HindsightConfig
