"""The processes that train one run together. By default there is one, and then nothing here computes, copies or waits.

Settings count for each process: `environment.num_envs` copies and `algorithm.batch_size` rows. What is learnt from is the
union of what the ranks hold, in their order. A loss is a mean over rows and every rank has as many, so the union's gradient is
the mean of theirs; moments are merged by their counts. Every rank calls the same things in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from etude.compute.wire import mark_stored, packed, segments_of, unpacked, unpacked_with_segments
from etude.errors import EtudeError, UserError

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


class RankLostError(EtudeError):
    """Another process of the world is gone, and this one can't go on without it."""

    exit_code = 75  # so that who watches over the ranks can tell it from the one that failed


class World:
    """Which of how many processes this is, and what they say to each other."""

    def __init__(self, group: ProcessGroup | None = None, *, on_host: bool = False) -> None:
        """`on_host`: what is said goes through memory of the host, as where two ranks share a GPU."""
        self._group, self._on_host = group, on_host
        self.rank, self.size = (0, 1) if group is None else (group.rank(), group.size())

    @property
    def is_first(self) -> bool:
        """Whether this process saves, logs and evaluates."""
        return self.rank == 0

    # ---- tensors ------------------------------------------------------------------------------------------------------------

    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors averaged over the ranks: one message for all of them."""
        if self.size == 1:
            return [*tensors]
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])  # in the widest of their precisions
        parts = self._summed(flat).div_(self.size).split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def sum(self, tensor: Tensor) -> Tensor:
        """Return a tensor summed over the ranks; gradients flow through it to all of them."""
        return tensor if self.size == 1 else _Sum.apply(tensor, self)  # type: ignore[no-any-return] # torch says nothing of it

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return which of some flags are set in one process or more."""
        if self.size == 1:
            return flags
        found = self._summed(torch.tensor(flags, dtype=torch.int32))
        return tuple((found > 0).tolist())

    def gather(self, tensor: Tensor) -> Tensor:
        """Return every rank's tensor, (size, ...): what order statistics need, such as quantiles of returns."""
        if self.size == 1:
            return tensor.unsqueeze(0)
        own = self._spoken(tensor.detach()).contiguous()
        found = [torch.empty_like(own) for _ in range(self.size)]
        with _all_here():
            dist.all_gather(found, own, group=self._group)
        return torch.stack(found).to(tensor.device)

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Make tensors what they are in the first process."""
        for tensor in tensors if self.size > 1 else ():
            told = self._spoken(tensor.detach())
            with _all_here():
                dist.broadcast(told, group=self._group, group_src=0)
            if told.device != tensor.device:
                tensor.detach().copy_(told)

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

    def _summed(self, tensor: Tensor) -> Tensor:
        """Return a new tensor's sum over the ranks; it may be written to."""
        told = self._spoken(tensor)
        with _all_here():
            dist.all_reduce(told, group=self._group)
        return told.to(tensor.device)

    def _spoken(self, tensor: Tensor) -> Tensor:
        return tensor.to("cpu") if self._on_host else tensor

    # ---- anything else: nested dicts and lists of tensors and plain values --------------------------------------------------

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what the first process makes; it is made there alone."""
        if self.size == 1:
            return make()
        data = packed(make()) if self.is_first else b""
        length = torch.tensor([len(data)])
        self._tell(length)
        told = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(int(length), dtype=torch.uint8)
        self._tell(told)
        return unpacked(told.numpy().data)

    def gather_plain(self, own: Any) -> list[Any]:
        """Return what every process has, in the order of ranks."""
        if self.size == 1:
            return [own]
        data = torch.frombuffer(bytearray(packed(own)), dtype=torch.uint8)
        lengths = self.gather(torch.tensor([len(data)])).flatten()
        room = torch.zeros(int(lengths.max()), dtype=torch.uint8)
        room[: len(data)] = data
        return [unpacked(each[:length].numpy().data) for each, length in zip(self.gather(room), lengths, strict=True)]

    def mean_of_named(self, own: dict[str, float]) -> dict[str, float]:
        """Return numbers by name, each averaged over the ranks that have it."""
        if self.size == 1:
            return own
        found = self.gather_plain(own)
        having = {name: [each[name] for each in found if name in each] for each in found for name in each}
        return {name: sum(values) / len(values) for name, values in having.items()}

    def wait(self) -> None:
        """Wait until every process is here; one that is gone is an error."""
        self.any(False)

    def _tell(self, tensor: Tensor) -> None:
        with _all_here():
            dist.broadcast(tensor, group=self._group, group_src=0)

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

    def write_together(self, parts: dict[str, Any], write: Callable[[dict[str, Any]], T]) -> T:
        """Let the first process write a checkpoint's parts, the others' own among them; returns what that returns.

        Rows that are in files already are not sent again: whose they are is told in which.
        """
        if self.size == 1:
            return write(parts)
        own = parts.get(self.part)
        if own is None:  # the policy alone
            return self.from_first(lambda: write(parts))
        told = torch.frombuffer(bytearray(b"" if self.is_first else packed(own)) or bytearray(1), dtype=torch.uint8)
        sizes = self.gather(torch.tensor([len(told)])).flatten().tolist()
        if not self.is_first:
            with _all_here():
                dist.send(told, group=self._group, group_dst=0)
            result, stored = self.from_first(lambda: (write(parts), []))  # made there alone
            mark_stored(segments_of(own), stored[self.rank - 1])
            return result
        segments = []
        for rank in range(1, self.size):
            told = torch.empty(sizes[rank], dtype=torch.uint8)
            with _all_here():
                dist.recv(told, group=self._group, group_src=rank)
            parts[f"rank/{rank}"], theirs = unpacked_with_segments(told.numpy().data)
            segments.append(theirs)

        def written() -> tuple[T, list[Any]]:
            result = write(parts)
            return result, [[vars(segment.stored) for segment in theirs if segment.stored] for theirs in segments]

        return self.from_first(written)[0]

    def __deepcopy__(self, memo: Any) -> World:
        return self  # a copy of a network is in the same world


ALONE = World()
"""One process."""


@contextmanager
def _all_here() -> Iterator[None]:
    """Within, a connection that broke says that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        words = ("connection", "gloo/transport", "nccl", "timed out", "socket", "peer")
        if isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words):
            raise RankLostError("another rank ended, and this one can't go on without it") from error
        raise


class _Sum(torch.autograd.Function):
    """Each rank's loss depends on every rank's term, so each term's gradient is the sum of what all ranks find."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, world: World) -> Tensor:
        ctx.world = world
        return world._summed(tensor.detach().clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.world._summed(gradients[0].clone()), None
