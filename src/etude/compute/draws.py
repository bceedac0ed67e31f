"""Random numbers as a function asks a generator for them, or as they were drawn for it before.

Compiled code can't read a generator. Whoever draws by the functions here, and by nothing else, can be compiled all the same:
what is asked for is noted once, drawn by the generator before each call, and handed out within. The numbers are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor


class Request(NamedTuple):
    """One tensor of random numbers."""

    law: str
    """The method of an empty tensor that fills it: uniform_, normal_, exponential_, random_."""
    shape: tuple[int, ...]
    arguments: tuple[float, ...] = ()
    dtype: torch.dtype = torch.float32

    def draw(self, generator: Generator) -> Tensor:
        """Return the next numbers of a generator, on its device."""
        if self.law == "random_":  # whose bits differ from randint's
            low, high = self.arguments
            return torch.randint(int(low), int(high), self.shape, generator=generator, device=generator.device)
        empty = torch.empty(self.shape, dtype=self.dtype, device=generator.device)
        return getattr(empty, self.law)(*self.arguments, generator=generator)


class Noting:
    """A generator that notes what it is asked for."""

    def __init__(self, generator: Generator) -> None:
        self.generator, self.device = generator, generator.device
        self.asked: list[Request] = []

    def numbers(self, request: Request) -> Tensor:
        """Return the next numbers."""
        self.asked.append(request)
        return request.draw(self.generator)


class Drawn:
    """Hands out what was drawn before, in order."""

    def __init__(self, numbers: Sequence[Tensor], device: torch.device) -> None:
        self._numbers, self._next, self.device = numbers, 0, device

    def numbers(self, request: Request) -> Tensor:
        """Return the next numbers."""
        self._next += 1
        return self._numbers[self._next - 1]


def uniform(shape: Sequence[int], low: float, high: float, generator: Generator) -> Tensor:
    """Return numbers between two bounds, on the generator's device."""
    return _numbers(Request("uniform_", tuple(shape), (low, high)), generator)


def normal(shape: Sequence[int], generator: Generator) -> Tensor:
    """Return standard normal numbers, on the generator's device."""
    return _numbers(Request("normal_", tuple(shape)), generator)


def normal_like(values: Tensor, generator: Generator) -> Tensor:
    """Return standard normal numbers, as many as values."""
    return _numbers(Request("normal_", tuple(values.shape), dtype=values.dtype), generator)


def exponential_like(values: Tensor, generator: Generator) -> Tensor:
    """Return numbers of the exponential law with mean 1, as many as values."""
    return _numbers(Request("exponential_", tuple(values.shape), dtype=values.dtype), generator)


def integers(low: int, high: int, shape: Sequence[int], generator: Generator) -> Tensor:
    """Return whole numbers from `low` to `high` - 1."""
    return _numbers(Request("random_", tuple(shape), (low, high), torch.int64), generator)


def _numbers(request: Request, generator: Any) -> Tensor:
    return generator.numbers(request) if isinstance(generator, Noting | Drawn) else request.draw(generator)
