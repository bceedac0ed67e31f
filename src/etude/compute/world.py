"""The processes that train one run together. By default there is one, and then nothing here computes, copies or waits.

Settings count for each process: `environment.num_envs` copies and `algorithm.batch_size` rows. What is learnt from is the
union of what the ranks hold, in their order. A loss is a mean over rows and every rank has as many, so the union's gradient is
the mean of theirs; moments are merged by their counts. Every rank calls the same things in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from etude.errors import UserError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")


class Moments(NamedTuple):
    """How many there are of something, their mean and their variance (with 1/n)."""

    rows: Tensor | int
    mean: Tensor
    var: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Moments:
        """Return those of values (B, ...), over B."""
        mean = values.mean(0)
        return cls(len(values), mean, (values - mean).square().mean(0))


class World:
    """Which of how many processes this is, and what they say to each other."""

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self._group = group
        self.rank, self.size = (0, 1) if group is None else (group.rank(), group.size())

    @property
    def is_first(self) -> bool:
        """Whether this process saves, logs and evaluates."""
        return self.rank == 0

    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors averaged over the ranks: one message for all of them."""
        if self.size == 1:
            return [*tensors]
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])  # in the widest of their precisions
        dist.all_reduce(flat, group=self._group)
        parts = flat.div_(self.size).split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def sum(self, tensor: Tensor) -> Tensor:
        """Return a tensor summed over the ranks; gradients flow through it to all of them."""
        return tensor if self.size == 1 else _Sum.apply(tensor, self._group)  # type: ignore[no-any-return] # torch says nothing of it

    def gather(self, tensor: Tensor) -> Tensor:
        """Return every rank's tensor, (size, ...): what order statistics need, such as quantiles of returns."""
        if self.size == 1:
            return tensor.unsqueeze(0)
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(found, tensor.detach().contiguous(), group=self._group)
        return torch.stack(found)

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Make tensors what they are in the first process."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor.detach(), group=self._group, group_src=0)

    def merged(self, own: Moments) -> Moments:
        """Return the moments of all ranks' values together (Chan et al. 1979)."""
        if self.size == 1:
            return own
        mean = own.mean.double()
        packed = torch.stack([torch.as_tensor(own.rows, device=mean.device).expand(mean.shape), mean, own.var.double()])
        counts, means, variances = self.gather(packed).unbind(1)
        total = counts.sum(0)
        mean = (counts * means).sum(0) / total
        var = (counts * (variances + (means - mean).square())).sum(0) / total
        return Moments(total.flatten()[0], mean, var)

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what the first process makes; it is made there alone."""
        if self.size == 1:
            return make()
        said: list[Any] = [make() if self.is_first else None]
        dist.broadcast_object_list(said, group=self._group, group_src=0)
        return said[0]

    # ---- checkpoints: `shared` once, `rank/k` of each ---------------------------------------------------------------------

    @property
    def part(self) -> str:
        """The part of a checkpoint that is this process's own."""
        return f"rank/{self.rank}"

    def own_part(self, parts: Mapping[str, Any]) -> Any:
        """Return it from a checkpoint; one that another number of processes saved is refused."""
        saved = sum(name.startswith("rank/") for name in parts)
        if saved != self.size:
            raise UserError(
                f"this checkpoint was saved by {saved} processes, and this run has {self.size}; resume it with {saved}"
            )
        return parts[self.part]

    def with_parts_of_all(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Return, in the first process, a checkpoint's parts with those that are the others' own."""
        if self.size == 1:
            return parts
        others: list[Any] | None = [None] * self.size if self.is_first else None
        dist.gather_object(None if self.is_first else parts[self.part], others, group=self._group, group_dst=0)
        return {**parts, **{f"rank/{rank}": other for rank, other in enumerate(others or ()) if rank}}

    def __deepcopy__(self, memo: Any) -> World:
        return self  # a copy of a network is in the same world


ALONE = World()
"""One process."""


class _Sum(torch.autograd.Function):
    """Each rank's loss depends on every rank's term, so each term's gradient is the sum of what all ranks find."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group, total = group, tensor.detach().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        total = gradients[0].clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None
