"""Prioritised replay (Schaul et al. 2016), proportional: what surprised the learner most is replayed most.

P(i) = p_i^alpha / sum of all        weight_i = (size · P(i))^-beta, divided by the largest weight of the batch
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Generator, Tensor

from etude.buffers.base import Batch
from etude.buffers.replay import ReplayBuffer, ReplayConfig
from etude.buffers.sum_tree import SumTree
from etude.config.constraints import PositiveFloat, UnitInterval, between
from etude.config.schedules import Moment, Schedule
from etude.config.schema import Config

LARGEST_PRIORITY = 1e8
"""Beyond this nothing else would ever be drawn; an infinite one would break the sums."""

RISING_BETA = Schedule(0.4, 1.0)


@dataclass(frozen=True)
class PrioritizedConfig(ReplayConfig):
    """The last transitions, sampled in proportion to their priority."""

    type: str = "prioritized"
    """The registered name of the buffer."""
    alpha: UnitInterval = 0.6
    """How much priorities count: 0 is uniform, 1 is in full proportion."""
    beta: Annotated[Schedule, between(0, 1)] = RISING_BETA
    """How far weights correct for the uneven sampling; 1 corrects in full. By default it rises to 1 over the run."""
    smallest_priority: PositiveFloat = 1e-6
    """Added to every priority, so that nothing is lost for good."""


class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay whose learner says how much each transition matters: `write_back(index, generation, priority=|td error|)`."""

    Config = PrioritizedConfig
    wants_errors = True

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        *,
        alpha: float = 0.6,
        beta: Schedule | float = 1.0,
        smallest_priority: float = 1e-6,
        **options: Any,
    ) -> None:
        super().__init__(capacity, num_envs, **options)
        self.alpha, self.smallest_priority = alpha, smallest_priority
        self._beta_schedule = Schedule.parse(beta)
        self.beta = self._beta_schedule.start
        self.tree = SumTree(1)
        self._largest = torch.ones((), dtype=torch.float64, device=self.ring.device)
        self._ranked = 0  # rows from here on were added since, and have no priority yet

    @classmethod
    def arguments(cls, options: Any, config: Config, name: str) -> dict[str, Any]:
        """Return what the constructor is given for these options."""
        own = {key: getattr(options, key) for key in ("alpha", "beta", "smallest_priority")}
        return super().arguments(options, config, name) | own

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """Beta's."""
        return {"beta": self._beta_schedule}

    def set_schedules(self, now: Moment) -> None:
        """Move beta along its schedule."""
        self.beta = self._beta_schedule.at(now)

    def _allocate(self, row: Mapping[str, Any]) -> None:
        super()._allocate(row)
        self.tree = SumTree(self.capacity, self.ring.device)

    def clear(self) -> None:
        """Forget everything; memory and the largest priority are kept."""
        super().clear()
        self.tree.clear()
        self._ranked = self.ring.written

    def _random(self, n: int, generator: Generator) -> dict[str, Tensor]:
        if not self.size:
            raise IndexError(f"buffer '{self.name}' is empty: there is nothing to sample")
        return {"share": torch.rand(n, dtype=torch.float64, generator=generator, device=generator.device)}

    def _index(self, random: Mapping[str, Tensor]) -> Tensor:
        self._rank_new_rows()
        share = random["share"].to(self.ring.device)
        # One draw from each n-th of the total: the same odds, with less chance in it.
        n = share.shape[-1]
        amount = (share + torch.arange(n, dtype=torch.float64, device=share.device)) * (self.tree.total / n)
        return self.tree.find(amount.reshape(-1)).view(share.shape)

    def _more(self, batch: Batch, random: Mapping[str, Tensor]) -> Batch:
        value = self.tree.leaves[batch["index"]]
        # (size · P)^-beta over its largest: size and total cancel.
        weight = (value.amin(-1, keepdim=True) / value).pow(self.beta)
        return {"weight": weight.to(torch.float32)}

    def _rank_new_rows(self) -> None:
        """Give rows that were added since the largest priority so far: each is to be seen at least once."""
        ring = self.ring
        first = max(self._ranked, ring.begin)
        if first < ring.written:
            value = self._largest.pow(self.alpha)
            for slots in ring.slices(first, ring.written):
                self.tree.fill(slots.start * ring.num_envs, slots.stop * ring.num_envs, value)
        self._ranked = ring.written

    def write_back(self, index: Tensor, generation: Tensor, **columns: Tensor) -> None:
        """Set the priority of sampled transitions, (n,) or (count, n); those overwritten since are left alone.

        Of several batches the last one decides; within a batch, the largest.
        """
        if set(columns) != {"priority"}:
            raise TypeError(f"a prioritised replay is written back 'priority', not {', '.join(columns) or 'nothing'}")
        self._rank_new_rows()
        device = self.ring.device
        index, generation = (t.to(device).reshape(-1, t.shape[-1]) for t in (index, generation))
        given = columns["priority"].detach().to(device, torch.float64).abs().reshape(index.shape)
        priority = torch.nan_to_num(given, nan=0.0).clamp(max=LARGEST_PRIORITY) + self.smallest_priority
        is_same = self.ring.generation(index) == generation
        self._largest = torch.maximum(self._largest, torch.where(is_same, priority, 0.0).max())
        value = priority.pow(self.alpha)
        leaves = self.tree.leaves
        for batch, fresh, values in zip(index, is_same, value, strict=True):
            kept = torch.where(fresh, values, leaves.index_select(0, batch))
            leaves.scatter_reduce_(0, batch, kept, "amax", include_self=False)
        self.tree.update(index.reshape(-1))

    # ---- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the rows held, and their priorities, which change and are written whole."""
        self._rank_new_rows()
        ring = self.ring
        slots = ring.slices(ring.begin, ring.written) if ring.held else []
        values = [self.tree.leaves[slot.start * ring.num_envs : slot.stop * ring.num_envs] for slot in slots]
        held = values[0] if len(values) == 1 else torch.cat([self.tree.leaves[:0], *values])
        priorities = {"values": held, "alpha": self.alpha, "largest": self._largest}
        return super().state_dict() | {"priorities": priorities}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the rows that were saved, with their priorities."""
        super().load_state_dict(state)
        ring, saved = self.ring, state["priorities"]
        self.tree.clear()
        self._largest = saved["largest"].to(ring.device, torch.float64, copy=True)
        self._ranked = ring.written
        values = saved["values"][max(0, len(saved["values"]) - self.size) :].to(ring.device)
        if saved["alpha"] != self.alpha:
            values = values.pow(self.alpha / saved["alpha"]) if saved["alpha"] else torch.ones_like(values)
        for slots in ring.slices(ring.begin, ring.written) if ring.held else []:
            count = (slots.stop - slots.start) * ring.num_envs
            self.tree.fill(slots.start * ring.num_envs, slots.stop * ring.num_envs, values[:count])
            values = values[count:]
