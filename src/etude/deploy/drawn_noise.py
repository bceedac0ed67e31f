"""The random numbers of a decision as a file's inputs: noted where a policy draws them, and given in their place.

Files have no generators of ours, and those of runtimes can't be compared. What a policy draws for N rows is laid out as (N, K)
numbers of each kind, normal and uniform, in the order in which they are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from etude.errors import UserError

NORMAL, UNIFORM = "normal", "uniform"
_KINDS = {"normal_": NORMAL, "randn": NORMAL, "randn_like": NORMAL, "uniform_": UNIFORM, "rand": UNIFORM, "rand_like": UNIFORM}
_OTHERS = {"randint", "random_", "randperm", "multinomial", "bernoulli", "bernoulli_", "exponential_", "cauchy_"}


class Draw(NamedTuple):
    """One draw: its kind, and its shape with the dimension that grows with the rows (None: all rows share it)."""

    kind: str
    shape: tuple[int, ...]
    """For one row."""
    dim: int | None

    @property
    def width(self) -> int:
        """Numbers for each row."""
        return math.prod(self.shape)


class Noting(TorchFunctionMode):
    """Within, notes what is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[str, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Let it be drawn."""
        result, kind = func(*args, **(kwargs or {})), _kind(func)
        if kind is not None:
            self.drawn.append((kind, result.clone()))
        return result


class Giving(TorchFunctionMode):
    """Within, what would be drawn is taken from given numbers (N, K) of each kind."""

    def __init__(self, draws: Sequence[Draw], given: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._left, self._given = list(draws), dict(given)
        self._taken = dict.fromkeys(given, 0)

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Give numbers in place of a draw, and leave everything else alone."""
        if getattr(func, "__name__", "") == "cumprod":
            return _unrolled(*args, **(kwargs or {}))
        if _kind(func) is None:
            return func(*args, **(kwargs or {}))
        value = self._next()
        return args[0].copy_(value) if func.__name__.endswith("_") else value

    def _next(self) -> Tensor:
        draw = self._left.pop(0)
        first = self._taken[draw.kind]
        self._taken[draw.kind] += draw.width
        numbers = self._given[draw.kind][:, first : first + draw.width]
        if draw.dim is None:
            return numbers[0].reshape(draw.shape)
        per_row = draw.shape[draw.dim]
        others = [size for dim, size in enumerate(draw.shape) if dim != draw.dim]
        return numbers.reshape(numbers.shape[0] * per_row, *others).movedim(0, draw.dim)


def find_draws(act: Callable[[int], object]) -> list[Draw]:
    """Return what a decision draws, by letting it be taken for two numbers of rows."""
    few, more = (_noted(act, rows) for rows in (2, 3))
    if [kind for kind, _ in few] != [kind for kind, _ in more]:
        raise UserError("this policy can't be exported: what it draws at random depends on what it sees")
    return [_draw(kind, one.shape, other.shape) for (kind, one), (_, other) in zip(few, more, strict=True)]


def _noted(act: Callable[[int], object], rows: int) -> list[tuple[str, Tensor]]:
    with Noting() as noting:
        act(rows)
    return noting.drawn


def _draw(kind: str, two: torch.Size, three: torch.Size) -> Draw:
    grown = [dim for dim, (one, other) in enumerate(zip(two, three, strict=True)) if one != other]
    if not grown:
        return Draw(kind, tuple(two), None)
    (dim,) = grown
    return Draw(kind, (*two[:dim], two[dim] // 2, *two[dim + 1 :]), dim)


def widths(draws: Sequence[Draw]) -> dict[str, int]:
    """Return how many numbers of each kind a row needs."""
    found: dict[str, int] = {}
    for draw in draws:
        found[draw.kind] = found.get(draw.kind, 0) + draw.width
    return found


def laid_out(draws: Sequence[Draw], drawn: Sequence[tuple[str, Tensor]], rows: int) -> dict[str, Tensor]:
    """Return what was drawn for so many rows as inputs (N, K)."""
    parts: dict[str, list[Tensor]] = {}
    for draw, (kind, value) in zip(draws, drawn, strict=True):
        flat = value.reshape(1, -1).expand(rows, -1) if draw.dim is None else value.movedim(draw.dim, 0).reshape(rows, -1)
        parts.setdefault(kind, []).append(flat)
    return {kind: torch.cat(each, 1).contiguous() for kind, each in parts.items()}


def _unrolled(value: Tensor, dim: int) -> Tensor:
    """A running product as products, which every format knows."""
    parts = list(value.unbind(dim))
    for index in range(1, len(parts)):
        parts[index] = parts[index - 1] * parts[index]
    return torch.stack(parts, dim)


def _kind(func: Any) -> str | None:
    name = getattr(func, "__name__", "")
    if name in _OTHERS:
        drawn = f"it draws by torch's {name.rstrip('_')}"
        raise UserError(f"this policy can't be exported: {drawn}; normal and uniform numbers can be inputs")
    return _KINDS.get(name)
