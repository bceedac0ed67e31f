"""What an update computes: losses, the parameters that each changes, and what follows.

    batch ─→ stage 1: loss, gradient, clip, step ─→ stage 2 (sees stage 1's new weights) ─→ … ─→ after: target networks

How it runs, eager, compiled or captured, is the business of `etude.learning.execute`, and no loss can tell.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from etude.compute.trees import at, first_leaf, joined, map_tree

Batch = Mapping[str, Any]
"""Columns of transitions (B, ...)."""
Metrics = Mapping[str, Tensor]
_NOTHING: Mapping[str, Any] = {}


class Out(NamedTuple):
    """What a loss may return where (loss, metrics) is not enough."""

    loss: Tensor
    metrics: Metrics = _NOTHING
    carry: Mapping[str, Any] = _NOTHING
    """For the later stages of this update: trees of tensors, batch first. They come without gradients."""
    state: Mapping[str, Tensor] = _NOTHING
    """What the stage's own tensors become, such as a running scale. They stay as they are where the step is skipped."""
    per_row: Mapping[str, Tensor] = _NOTHING
    """A value for each row (B, ...), for the source of batches: such as how wrong it was, or what a column of it becomes."""


class Said(NamedTuple):
    """What a loss in NumPy says; the gradient is written where it belongs."""

    loss: float
    metrics: Mapping[str, float]
    per_row: Mapping[str, np.ndarray[Any, Any]] = {}


class WrittenLoss(NamedTuple):
    """The same loss with its gradient written out in NumPy, for networks that are plain MLPs on a CPU."""

    networks: Mapping[str, nn.Module]
    """All that it reads."""
    make: Callable[[Mapping[str, Any], Mapping[Tensor, np.ndarray[Any, Any]]], Callable[..., Said]]
    """From the networks' twins (`WrittenMLP`, `WrittenCritics`), and the places of parameters' gradients, to the loss of a
    batch, which is given `noise` too where the torch one takes it."""
    parameters: Sequence[nn.Parameter] = ()
    """What it writes gradients of besides the networks'."""


class Beforehand(NamedTuple):
    """What a loss needs of networks that only `after` changes: computed for several updates in one larger pass."""

    reads: tuple[str, ...]
    compute: Callable[[Batch], Mapping[str, Tensor]]
    """From these columns to more columns, which the loss then finds in its batch."""


@dataclass(frozen=True)
class Stage:
    """One loss and the optimiser of the parameters that it changes."""

    name: str
    """Metrics are called after it: train/<name>_loss, train/<name>_grad_norm; train/loss where it is empty."""
    loss: Callable[..., tuple[Tensor, Metrics] | Out]
    """loss(batch) -> loss, metrics. It may take `carry` (what earlier stages hand on), `state` (the stage's own tensors) and
    `noise` (its random numbers) too, by these names, and return an `Out`."""
    optimizer: Optimizer
    max_grad_norm: float | None = None
    clips_groups: bool = False
    """Clip the gradient of each of the optimiser's groups by itself, and not of all together."""
    every: int = 1
    """Takes part in every n-th update."""
    accumulate: int = 1
    """Compute the gradient in this many pieces of the batch, for memory's sake, and take one step."""
    prepare: Callable[[Batch], Batch] | None = None
    """What needs the batch whole, before it is cut into pieces: statistics of it."""
    beforehand: Beforehand | None = None
    decide: Callable[[Metrics], None] | None = None
    """Runs between loss and step, on the device: may write to the update's `skip`, or to a learning rate."""
    after_step: Sequence[Callable[[], None]] = ()
    """Change this stage's parameters in place after its step, such as a projection; the next stage sees it."""
    state: Mapping[str, Tensor] = field(default_factory=dict)
    written: WrittenLoss | None = None
    """The loss once more, in NumPy, if it has been written out."""

    def mapped(self, function: Callable[[Any], Any]) -> Stage:
        """Return the same stage with every function in it replaced by what `function` makes of it."""
        early = self.beforehand
        return replace(
            self,
            loss=function(self.loss),
            prepare=function(self.prepare),
            decide=function(self.decide),
            beforehand=None if early is None else early._replace(compute=function(early.compute)),
            after_step=[function(follow) for follow in self.after_step],
            written=None if self.written is None else self.written._replace(make=function(self.written.make)),
        )

    def takes(self) -> frozenset[str]:
        """Return which of carry, state and noise the loss takes."""
        return frozenset(inspect.signature(self.loss).parameters) & {"carry", "state", "noise"}

    def pieces(self, batch: Batch, carry: Mapping[str, Any]) -> list[tuple[float, Batch, Mapping[str, Any]]]:
        """Return the batch in the pieces that a gradient is computed in, each with its share of the whole.

        A loss is a mean over rows, so the shares of its pieces add up to it.
        """
        batch = batch if self.prepare is None else self.prepare(batch)
        size = 1 if self.accumulate == 1 else len(first_leaf(batch))
        if size == 1:
            return [(1.0, batch, carry)]
        bounds = [size * k // self.accumulate for k in range(self.accumulate + 1)]
        cuts = [slice(begin, end) for begin, end in pairwise(bounds) if end > begin]
        return [((cut.stop - cut.start) / size, at(batch, cut), at(carry, cut)) for cut in cuts]

    def named(self, out: Out, norms: Metrics) -> dict[str, Tensor]:
        """Return what is logged of a step; `norms` has the whole gradient's under no name."""
        prefix = f"train/{self.name}_" if self.name else "train/"
        of_groups = {f"{prefix}grad_norm_{group}".removesuffix("_"): norm for group, norm in norms.items()}
        return {f"{prefix}loss": out.loss, **out.metrics, **of_groups}


class After(Protocol):
    """What follows an update, such as target networks."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """Everything that it changes."""
        ...

    def __call__(self) -> None:
        """Change them, in place."""
        ...


@dataclass(frozen=True)
class Update:
    """Stages in order, and what follows them."""

    stages: Sequence[Stage]
    after: After | None = None
    after_every: int = 1
    skip: Tensor | None = None
    """A number on the device: while it is 1, steps leave everything as it is."""
    skip_lasts: bool = False
    """Whether `skip` stays 1 for the rest of a call; where the host can see that for free, nothing more is computed then."""
    is_eager: bool = False
    """Whether it can only be run one operation after the other: its losses ask the device for numbers, or shapes vary."""
    is_compilable: bool = True
    """Whether compiling it whole takes seconds, not minutes; of what is not, regions are compiled, and it is still captured."""
    skip_non_finite: bool = False
    """Leave out, and count, steps whose gradient is NaN or infinite."""


def as_out(said: tuple[Tensor, Metrics] | Out) -> Out:
    """Return what a loss has returned, in its long form."""
    return said if isinstance(said, Out) else Out(*said)


def detached(out: Out) -> Out:
    """Return the same numbers without the way to their gradients."""
    return Out(*(map_tree(Tensor.detach, part) for part in out))


def mean_of(parts: Sequence[tuple[float, Out]]) -> Out:
    """Return what a loss says of a batch from what it said of its pieces, each with its share."""
    if len(parts) == 1:
        return parts[0][1]
    shares, outs = [share for share, _ in parts], [out for _, out in parts]

    def weighed(*values: Tensor) -> Tensor:
        return torch.stack([share * value for share, value in zip(shares, values, strict=True)]).sum(0)

    return Out(
        loss=weighed(*(out.loss for out in outs)),
        metrics=map_tree(weighed, *(dict(out.metrics) for out in outs)),
        carry=joined([dict(out.carry) for out in outs]),
        state=outs[-1].state,  # each piece has gone on from the one before
        per_row=joined([dict(out.per_row) for out in outs]),
    )
