"""Which transitions a batch is made of: drawn uniformly, or by priority.

Prioritised replay (Schaul et al. 2016), proportional: what surprised the learner most is replayed most.

    P(i) = p_i^alpha / sum of all        weight_i = (size · P(i))^-beta, divided by the largest weight of the batch
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Generator, Tensor

from etude.buffers.store import Store
from etude.buffers.sum_tree import SumTree
from etude.config.constraints import PositiveFloat, UnitInterval, between
from etude.config.schedules import Moment, Schedule

FAR_MORE_THAN_HELD = 2**62
"""Places are drawn as the rest of a whole number below this: how many are held may then be known on the device alone."""
LARGEST_PRIORITY = 1e8
"""Beyond this nothing else would ever be drawn; an infinite one would break the sums."""
RISING_BETA = Schedule(0.4, 1.0)


class Bounds:
    """Which transitions can be drawn: those whose view reaches no further than what is held."""

    def __init__(self, store: Store, reach: tuple[int, int]) -> None:
        self.store, self.reach = store, reach
        self._there: dict[str, dict[str, Tensor]] = {}  # by kind of device: "cuda" and "cuda:0" are one, and differ as keys
        self._known: dict[tuple[str, str], int] = {}

    @property
    def first(self) -> int:
        """The number of the first step that can be drawn."""
        # Before the very first step there is nothing, which views know; before others there was something.
        return self.store.begin + (self.reach[0] if self.store.begin else 0)

    @property
    def end(self) -> int:
        """The number after that of the last step that can be drawn."""
        return max(self.first, self.store.written - self.reach[1])

    @property
    def count(self) -> int:
        """How many transitions can be drawn."""
        return (self.end - self.first) * self.store.num_envs

    @property
    def offset(self) -> int:
        """Where the first of them lies; 0 where every row can be drawn, whichever is the oldest."""
        is_whole = self.end - self.first == self.store.rows
        return 0 if is_whole else self.first % self.store.rows * self.store.num_envs

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """Return these numbers, and how much was written, as tensors that are up to date: what is captured reads them."""
        numbers, kind = {"written": self.store.written}, device.type
        if kind != "cpu":  # where the host knows them
            numbers |= {"count": self.count, "offset": self.offset}
        if kind not in self._there:
            self._there[kind] = {name: torch.zeros((), dtype=torch.int64, device=device) for name in numbers}
        for name, number in numbers.items():
            if self._known.get((kind, name), 0) != number:
                self._there[kind][name].fill_(number)
                self._known[kind, name] = number
        return self._there[kind]


class Places(ABC):
    """Draws the places of transitions."""

    follows_learning: ClassVar[bool] = False
    """Whether what is drawn next depends on what was learnt."""
    draws_on_device: ClassVar[bool] = True
    """Whether the host decides nothing, so that drawing may be part of a capture."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.store = bounds, bounds.store

    @abstractmethod
    def random(self, n: int, generator: Generator) -> dict[str, Tensor]:
        """Draw the random numbers of one batch, (n,) each."""

    def random_many(self, count: int, n: int, generator: Generator) -> dict[str, Tensor] | None:
        """Draw those of several batches at once, if they are the numbers that as many calls of `random` would draw."""
        return None

    @abstractmethod
    def find(self, random: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """Return which transitions the numbers (..., n) mean: `index`, and `weight` if they are not all as likely."""

    def allocate(self) -> None:  # noqa: B027 # uniform places need none
        """Take the memory, now that it is known how much is held."""

    def expected_bytes(self, capacity: int) -> int:
        """Return how much memory that will be."""
        return 0

    @property
    def nbytes(self) -> int:
        """How much memory was taken."""
        return 0

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """The settings that change over a run."""
        return {}

    def set_schedules(self, now: Moment) -> None:  # noqa: B027 # uniform places have none
        """Give settings that change over a run their value at a moment of it."""

    def clear(self) -> None:  # noqa: B027 # uniform places remember nothing
        """Forget everything."""

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while learning."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 # uniform places remember nothing
        """Go on with what was saved."""


class Uniform(Places):
    """Every transition is as likely."""

    def random(self, n: int, generator: Generator) -> dict[str, Tensor]:
        """Whole numbers."""
        return {"place": torch.randint(FAR_MORE_THAN_HELD, (n,), generator=generator, device=generator.device)}

    def random_many(self, count: int, n: int, generator: Generator) -> dict[str, Tensor] | None:
        """On the CPU a stream gives number after number, however many are asked for at once. A GPU's does not."""
        if generator.device.type != "cpu":
            return None
        return {"place": torch.randint(FAR_MORE_THAN_HELD, (count, n), generator=generator)}

    def find(self, random: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """The rest after division by how many there are."""
        place, every = random["place"], self.store.rows * self.store.num_envs
        if place.device.type == "cpu":
            index, offset = place % self.bounds.count, self.bounds.offset
            index = (index + offset) % every if offset else index
            return {"index": index if device.type == "cpu" else index.to(device)}
        bounds = self.bounds.on(place.device)
        return {"index": ((place % bounds["count"] + bounds["offset"]) % every).to(device)}


@dataclass(frozen=True)
class Priority:
    """How far transitions are drawn by priority."""

    alpha: UnitInterval = 0.6
    """How much priorities count: 0 is uniform, 1 is in full proportion."""
    beta: Annotated[Schedule, between(0, 1)] = RISING_BETA
    """How far weights correct for the uneven sampling; 1 corrects in full. By default it rises to 1 over the run."""
    smallest_priority: PositiveFloat = 1e-6
    """Added to every priority, so that nothing is lost for good."""


class Prioritized(Places):
    """Transitions are as likely as the learner says: `learned(index, generation, priority=|td error|)`."""

    follows_learning = True

    def __init__(self, bounds: Bounds, settings: Priority) -> None:
        super().__init__(bounds)
        self.alpha, self.smallest = settings.alpha, settings.smallest_priority
        self._beta_schedule = Schedule.parse(settings.beta)
        self.beta = self._beta_schedule.start
        self.tree = SumTree(1)
        self._largest = torch.ones((), dtype=torch.float64, device=self.store.device)
        self._none = torch.zeros_like(self._largest)
        self._ranked = self._forgotten = 0  # steps in between have a priority

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """Beta's."""
        return {"beta": self._beta_schedule}

    def set_schedules(self, now: Moment) -> None:
        """Move beta along its schedule."""
        self.beta = self._beta_schedule.at(now)

    def allocate(self) -> None:
        """A leaf for each transition."""
        self.tree = SumTree(self.store.rows * self.store.num_envs, self.store.device)
        self._ranked = self._forgotten = self.store.begin

    def expected_bytes(self, capacity: int) -> int:
        """Two numbers for each transition, rounded up to a power of two."""
        return 2 * (1 << max(0, (capacity - 1).bit_length())) * 8

    @property
    def nbytes(self) -> int:
        """How much memory the tree takes."""
        return self.tree.nodes.nbytes if self.store.columns else 0

    def clear(self) -> None:
        """Forget all priorities but the largest."""
        self.tree.clear()
        self._ranked = self._forgotten = self.store.written

    def random(self, n: int, generator: Generator) -> dict[str, Tensor]:
        """Shares of the sum of priorities."""
        return {"share": torch.rand(n, dtype=torch.float64, generator=generator, device=generator.device)}

    def find(self, random: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """One draw from each n-th of the total: the same odds, with less chance in it."""
        self.rank_new_steps()
        share = random["share"].to(self.store.device)
        n = share.shape[-1]
        amount = (share + torch.arange(n, dtype=torch.float64, device=share.device)) * (self.tree.total / n)
        index = self.tree.find(amount.reshape(-1)).view(share.shape)
        value = self.tree.leaves[index]
        # (size · P)^-beta over its largest: size and total cancel.
        weight = (value.amin(-1, keepdim=True) / value).pow(self.beta)
        return {"index": index, "weight": weight.to(torch.float32)}

    def rank_new_steps(self) -> None:
        """Give steps that can be drawn now the largest priority so far, and those that can't any more none."""
        store, first, end = self.store, self.bounds.first, self.bounds.end
        # Rows that were written over since the last time belong to others by now, which come below.
        self._fill(max(self._forgotten, store.written - store.rows), min(first, store.written), self._none)
        self._fill(max(self._ranked, first), end, self._largest.pow(self.alpha))
        self._fill(end, store.written, self._none)  # not in reach yet
        self._ranked, self._forgotten = max(self._ranked, end), max(self._forgotten, first)

    def _fill(self, first: int, end: int, value: Tensor) -> None:
        count = self.store.num_envs
        for rows in self.store.slices(first, end) if first < end else ():
            self.tree.fill(rows.start * count, rows.stop * count, value)

    def learned(self, index: Tensor, fresh: Tensor, priority: Tensor) -> None:
        """Set the priorities of transitions (count, n), those of them that are still there.

        Of several batches the last one decides; within a batch, the largest.
        """
        self.rank_new_steps()
        given = priority.detach().to(self.store.device, torch.float64).abs().reshape(index.shape)
        priority = torch.nan_to_num(given, nan=0.0).clamp(max=LARGEST_PRIORITY) + self.smallest
        self._largest = torch.maximum(self._largest, torch.where(fresh, priority, 0.0).max())
        value = priority.pow(self.alpha)
        leaves = self.tree.leaves
        for batch, is_same, values in zip(index, fresh, value, strict=True):
            kept = torch.where(is_same, values, leaves.index_select(0, batch))
            leaves.scatter_reduce_(0, batch, kept, "amax", include_self=False)
        self.tree.update(index.reshape(-1))

    def state_dict(self) -> dict[str, Any]:
        """Return the priorities of what is held, which change and are written whole."""
        self.rank_new_steps()
        store, count = self.store, self.store.num_envs
        rows = store.slices(store.begin, store.written) if store.held else []
        values = [self.tree.leaves[each.start * count : each.stop * count] for each in rows]
        held = values[0] if len(values) == 1 else torch.cat([self.tree.leaves[:0], *values])
        return {"priorities": {"values": held, "alpha": self.alpha, "largest": self._largest}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give what is held its priorities."""
        store, saved, count = self.store, state["priorities"], self.store.num_envs
        self.tree.clear()
        self._largest = saved["largest"].to(store.device, torch.float64, copy=True)
        self._ranked, self._forgotten = self.bounds.end, self.bounds.first
        values = saved["values"][max(0, len(saved["values"]) - store.held * count) :].to(store.device)
        if saved["alpha"] != self.alpha:
            values = values.pow(self.alpha / saved["alpha"]) if saved["alpha"] else torch.ones_like(values)
        for rows in store.slices(store.begin, store.written) if store.held else []:
            size = (rows.stop - rows.start) * count
            self.tree.fill(rows.start * count, rows.stop * count, values[:size])
            values = values[size:]
