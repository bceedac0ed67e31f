"""How batches are made of what a store holds: `Held` reads it, a `View` says what is seen of it.

Everything here is a function of tensors, so that compiled and captured updates can contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from etude.buffers.base import Batch
from etude.buffers.store import AT, LEADS_TO

Reader = Callable[["Held", Tensor, int], Any]
"""Puts observations together from what is stored of them: those of transitions, or one step later."""


class Held:
    """What is held, by place: transition `row · N + environment`. Indices may have any shape, and what comes back has it."""

    def __init__(self, tensors: Mapping[str, Any], rows: int, num_envs: int, reader: Reader | None = None) -> None:
        self.columns: Mapping[str, Any] = tensors["columns"]
        """(rows · N, ...) each."""
        self.memory, self.written = tensors["memory"], tensors["written"]
        self.rows, self.num_envs, self._reader = rows, num_envs, reader

    def take(self, name: str, index: Tensor) -> Any:
        """Return a column of the transitions at `index` (...), as (..., *column)."""
        return take(self.columns[name], index)

    def ahead(self, index: Tensor, steps: Tensor | int) -> Tensor:
        """Return the places some steps later, or earlier; nothing says whether they are held."""
        return (index + steps * self.num_envs) % (self.rows * self.num_envs)

    def window(self, index: Tensor, length: int) -> Tensor:
        """Return the places of `length` steps in a row from each one on: (...) → (..., length)."""
        return self.ahead(index.unsqueeze(-1), torch.arange(length, device=index.device))

    def is_newest(self, index: Tensor) -> Tensor:
        """Whether no later step is held."""
        return index // self.num_envs == (self.written - 1) % self.rows

    def observation(self, index: Tensor) -> Any:
        """Return what was seen."""
        return self.remembered(AT, index) if self._reader is None else self._reader(self, index, 0)

    def next_observation(self, index: Tensor) -> Any:
        """Return where the transitions led."""
        return self.remembered(LEADS_TO, index) if self._reader is None else self._reader(self, index, 1)

    def remembered(self, where: str, index: Tensor, part: str | None = None) -> Any:
        """Return what lies in memory for transitions, as it was stored; of a Dict observation perhaps one part."""
        memory = self.memory["observation"]
        return take(memory if part is None else memory[part], take(self.columns[where], index))


def take(column: Any, index: Tensor) -> Any:
    """Return rows of a column, or of a dict of them, at an index of any shape."""
    if isinstance(column, Mapping):
        return {name: take(part, index) for name, part in column.items()}
    if index.ndim == 1:
        return column.index_select(0, index)
    return column.index_select(0, index.reshape(-1)).view(*index.shape, *column.shape[1:])


class Outlook(NamedTuple):
    """What follows each of a batch's transitions. All of the index's shape."""

    reward: Tensor
    """The discounted sum over the steps used."""
    discount: Tensor
    """What the value after the last step used counts: gamma to the number of steps, 0 where the task ended."""
    last: Tensor
    """Where the last step used lies."""
    terminated: Tensor
    """Whether the task ended there."""


class View:
    """What is seen of places that were drawn; derive from it for one of your own.

    Drawn numbers are (n,), one for each place; columns of a batch begin with the index's dimensions: (n,), or (n, L) where
    sequences are drawn.
    """

    reach: tuple[int, int] = (0, 0)
    """How many steps before and after a place must be held for it to be drawn."""
    draws: ClassVar[tuple[str, ...]] = ()
    """Names of random numbers that are drawn with each place, uniform in [0, 1)."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Columns that must be stored."""
    is_tensor_function: ClassVar[bool] = True
    """Whether it asks the host for nothing, so that compiled and captured updates may contain it."""
    bytes_each: ClassVar[int] = 0
    """What it stores with each transition."""

    def bind(self, environment: Any) -> None:
        """See the environment before there are any steps; raise UserError if that can't work."""

    def facts(
        self, held: Held, batch: Batch, rows: Tensor, reward: Tensor, terminated: Tensor, drawn: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the reward and end of the transitions at `rows` (steps, *index), which are used for those at the index."""
        return reward, terminated

    def __call__(self, held: Held, batch: Batch, drawn: Mapping[str, Tensor]) -> Batch:
        """Return the batch with columns changed or added. Write none of those given in place."""
        return batch


class Steps:
    """Sums rewards over up to `count` steps of the same episode. The one place where discounts are computed.

        t          t+1        t+2        t+3                  count = 3, no end on the way:
        o, a, r0 ─ o, a, r1 ─ o, a, r2 ─ next observation     reward = r0 + γ r1 + γ² r2,  discount = γ³
        o, a, r0 ─ o, a, r1 ┤ cut by a time limit             reward = r0 + γ r1,          discount = γ²
        o, a, r0 ─ o, a, r1 ■ terminated                      reward = r0 + γ r1,          discount = 0

    What stops earlier besides: the beginning of another episode (after a resume that could not continue this one, nothing
    says that it ended), and the newest step.
    """

    def __init__(self, count: int, gamma: float) -> None:
        self.count, self.gamma = count, gamma
        self._powers: Tensor | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that must be stored."""
        return ("reward", "terminated") if self.count == 1 else ("reward", "terminated", "truncated", "is_first")

    def prepare(self, device: torch.device) -> None:
        """Make what does not depend on a batch."""
        if self._powers is None and self.count > 1:
            self._powers = self.gamma ** torch.arange(self.count + 1, device=device, dtype=torch.float64)

    def __call__(
        self, held: Held, index: Tensor, facts: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None
    ) -> Outlook:
        """Look ahead from transitions at `index`; `facts` may see other rewards and ends than those stored."""
        if self.count == 1:
            reward, terminated = held.take("reward", index), held.take("terminated", index)
            if facts is not None:
                reward, terminated = (value[0] for value in facts(index[None], reward[None], terminated[None]))
            return Outlook(reward, terminated.logical_not().to(reward.dtype) * self.gamma, index, terminated)
        assert self._powers is not None, "prepare() comes first"
        offsets = torch.arange(self.count, device=index.device).view(-1, *[1] * index.ndim)
        window = held.ahead(index, offsets)  # (steps, n)
        rewards, terminated = held.take("reward", window), held.take("terminated", window)
        if facts is not None:
            rewards, terminated = facts(window, rewards, terminated)
        ended = terminated | held.take("truncated", window)
        goes_on = ~ended[:-1] & ~held.take("is_first", window)[1:] & ~held.is_newest(window[:-1])
        used = torch.cat([torch.ones_like(ended[:1]), goes_on]).cumprod(0)  # 1 while the step belongs to the sum
        taken = used.sum(0)
        last = (taken - 1)[None]
        powers = self._powers.to(rewards.dtype)
        reward = (rewards * used * powers[:-1].view(offsets.shape)).sum(0)
        over = terminated.gather(0, last)[0]
        return Outlook(reward, powers[taken] * ~over, window.gather(0, last)[0], over)
