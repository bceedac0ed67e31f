"""Two runs are the same when every logged number (time aside) and every saved value is, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from etude.telemetry.names import Row, deterministic_items

MISSING = "no such value"


@dataclass(frozen=True)
class Difference:
    """Where two runs first part: a key, what was stored and what came out again."""

    key: str
    stored: Any
    again: Any
    row: int | None = None
    """Counted from 1; None for a value of a checkpoint."""
    env_steps: int | None = None


@dataclass
class RowsCompared:
    """What a comparison of metric rows found."""

    rows: int = 0
    values: int = 0
    first: Difference | None = None
    differing_rows: int = 0
    differing_keys: set[str] = field(default_factory=set)


@dataclass
class StatesCompared:
    """What a comparison of two checkpoints found."""

    tensors: int = 0
    values: int = 0
    first: Difference | None = None
    differing_tensors: list[str] = field(default_factory=list)
    differing_values: list[str] = field(default_factory=list)


def compare_rows(stored: Sequence[Row], again: Sequence[Row]) -> RowsCompared:
    """Compare rows in order, all but ``time/`` and ``system/``; a row that only one of them has is a difference."""
    found = RowsCompared(rows=min(len(stored), len(again)))
    for number, (one, other) in enumerate(zip(stored, again, strict=False), start=1):
        differing = list(_differing_items(one, other, found))
        if not differing:
            continue
        found.differing_rows += 1
        found.differing_keys |= {key for key, _, _ in differing}
        if found.first is None:
            found.first = Difference(*differing[0], row=number, env_steps=int(one.get("env_steps", 0)))
    extra = abs(len(stored) - len(again))
    if extra:
        found.differing_rows += extra
        if found.first is None:
            number = found.rows + 1
            longer = stored if len(stored) > len(again) else again
            steps = int(longer[found.rows].get("env_steps", 0))
            sides = (steps, MISSING) if longer is stored else (MISSING, steps)
            found.first = Difference("env_steps", *sides, row=number, env_steps=steps)
    return found


def _differing_items(one: Row, other: Row, found: RowsCompared) -> Iterator[tuple[str, Any, Any]]:
    left, right = deterministic_items(one), deterministic_items(other)
    for key in [*left, *(key for key in right if key not in left)]:
        found.values += 1
        values = left.get(key, MISSING), right.get(key, MISSING)
        # Python writes a float in as many digits as tell it from every other one, so equal text is equal bits (NaN too).
        if repr(values[0]) != repr(values[1]):
            yield key, *values


def compare_states(stored: Any, again: Any) -> StatesCompared:
    """Compare the parts of two loaded checkpoints."""
    found = StatesCompared()
    for path, one, other in _leaves(stored, again, ""):
        if path == "shared.elapsed_s":  # the one value that is a time
            continue
        is_tensor = isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor)
        found.tensors += is_tensor
        found.values += not is_tensor
        if same_bits(one, other) if is_tensor else _same_value(one, other):
            continue
        (found.differing_tensors if is_tensor else found.differing_values).append(path)
        # A weight says more about where two runs part than a counter or a list that follows from it.
        if found.first is None or (is_tensor and len(found.differing_tensors) == 1):
            found.first = Difference(path, *(_shown(side, one, other) for side in (one, other)))
    return found


def same_bits(one: Any, other: Any) -> bool:
    """Whether two tensors are equal in type, shape and every bit."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    left, right = (side.detach().cpu().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for side in (one, other))
    return torch.equal(left, right)


def _same_value(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def _leaves(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _leaves(one.get(key, MISSING), other.get(key, MISSING), f"{path}.{key}" if path else str(key))
    elif isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _leaves(left, right, f"{path}[{index}]")
    else:
        yield path, one, other


def _shown(side: Any, one: Any, other: Any) -> Any:
    """A value as it can be printed; of a tensor, the first element that differs."""
    if not isinstance(side, torch.Tensor):
        return side if isinstance(side, int | float | str | bool) or side is None else repr(side)[:80]
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape):
        return f"{str(side.dtype).removeprefix('torch.')} {tuple(side.shape)}"
    left, right = (each.detach().cpu().reshape(-1) for each in (one, other))
    differing = [index for index, pair in enumerate(zip(left.tolist(), right.tolist(), strict=True)) if not _same_value(*pair)]
    return side.detach().cpu().reshape(-1)[differing[0]].item() if differing else str(side.dtype).removeprefix("torch.")
