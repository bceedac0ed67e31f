"""The random numbers of an update, by name.

A loss asks for them where it uses them; the same name is the same numbers throughout an update. Eager and captured updates
draw when asked. Compiled code can't read a generator, so its numbers are drawn before it is called: in the same order, one
update at a time, so that they are the same numbers however an update runs and however many are taken at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor


class Request(NamedTuple):
    """One tensor of random numbers."""

    shape: tuple[int, ...]
    bounds: tuple[float, float] | None
    """Uniform between these; None: standard normal."""

    def draw(self, generator: Generator) -> Tensor:
        """Return the next numbers of a generator, on its device."""
        empty = torch.empty(self.shape, device=generator.device)
        return empty.normal_(generator=generator) if self.bounds is None else empty.uniform_(*self.bounds, generator=generator)


class Noise:
    """What a loss is given as `noise`."""

    def __init__(self, generator: Generator | None = None, drawn: Mapping[str, Tensor] | None = None) -> None:
        self._generator, self._drawn, self._piece = generator, dict(drawn or {}), ""
        self.requests: dict[str, Request] = {}
        """What was asked for, in order."""

    def of_piece(self, number: int) -> Noise:
        """Return the noise of one of the pieces that a batch is cut into: its names are its own."""
        piece = Noise(self._generator)
        piece._drawn, piece.requests, piece._piece = self._drawn, self.requests, f"{number}/"
        return piece

    def normal(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return standard normal numbers."""
        return self._numbers(name, Request(tuple(shape), None))

    def uniform(self, name: str, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return numbers that are uniform in [low, high)."""
        return self._numbers(name, Request(tuple(shape), (low, high)))

    def _numbers(self, name: str, request: Request) -> Tensor:
        name = f"{self._piece}{name}"
        if name not in self._drawn:
            assert self._generator is not None, f"noise '{name}' was not asked for when this update was first run"
            self._drawn[name] = request.draw(self._generator)
        self.requests.setdefault(name, request)
        return self._drawn[name]
