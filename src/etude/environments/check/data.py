"""What an environment returned beside what it said it would return, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from etude.environments.spaces import leaf_spaces


def mismatch(observation: Any, space: gymnasium.Space[Any]) -> Iterator[str]:
    """Yield how an observation is not of its space, part by part; nothing where it is."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield from _leaf_mismatch(observation, space, "it")
        return
    wanted = leaf_spaces(space)
    kind = dict if isinstance(space, spaces.Dict) else tuple
    if not isinstance(observation, kind):
        yield f"it is a {type(observation).__name__}, the space is a {type(space).__name__}: return a {kind.__name__}"
        return
    given = parts(observation)
    yield from (f"'{name}' is in the space and not in the observation" for name in wanted if name not in given)
    yield from (f"'{name}' is in the observation and not in the space" for name in given if name not in wanted)
    for name in wanted.keys() & given.keys():
        yield from _leaf_mismatch(given[name], wanted[name], f"'{name}'")


def parts(observation: Any) -> dict[str, Any]:
    """Return the parts of an observation by name; a single one has the empty name."""
    if isinstance(observation, dict):
        return {str(name): part for name, part in observation.items()}
    if isinstance(observation, tuple):
        return {str(index): part for index, part in enumerate(observation)}
    return {"": observation}


def differing(first: Any, second: Any) -> str | None:
    """Return which part of two observations differs, or None where none does."""
    one, two = parts(first), parts(second)
    for name in one.keys() | two.keys():
        if name not in one or name not in two or not _same(one[name], two[name]):
            return f"'{name}'" if name else "the observation"
    return None


def reward_problem(reward: Any) -> str | None:
    """Return why a reward is not a number, or None."""
    if isinstance(reward, np.ndarray) and reward.shape:
        return f"it is an array of shape {reward.shape}: return one number, such as float(reward[0])"
    try:
        value = float(reward)
    except (TypeError, ValueError):
        return f"it is {_a(reward)}: return a float"
    return None if math.isfinite(value) else f"it is {value}: a policy that learns from it becomes NaN too"


def range_problem(rewards: Any, allowed: tuple[float | None, float | None] | None) -> str | None:
    """Return which of some rewards is outside of what `environment.spec.reward_range` says, or None."""
    low, high = allowed or (None, None)
    values = np.asarray(rewards, dtype=np.float64).reshape(-1)
    for bound, found, side in ((low, values.min(), "below"), (high, values.max(), "above")):
        # Rewards are held in single precision; a range is written in decimals.
        if bound is not None and not np.isclose(found, bound, rtol=1e-6) and (found < bound) == (side == "below"):
            return f"it is {side} {bound:g}, as {found:g} is: correct environment.spec.reward_range, or the reward"
    return None


def is_flag(value: Any) -> bool:
    """Whether `terminated` or `truncated` is a truth value."""
    return isinstance(value, bool | np.bool_) or (
        isinstance(value, np.ndarray) and value.shape == () and value.dtype == np.bool_
    )


def copied(observation: Any) -> Any:
    """Return an observation that later steps can't change."""
    if isinstance(observation, dict):
        return {name: copied(part) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(copied(part) for part in observation)
    return np.array(observation)


def _leaf_mismatch(value: Any, space: gymnasium.Space[Any], name: str) -> Iterator[str]:
    if isinstance(space, spaces.Discrete):
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            yield f"{name} is {_a(value)}, the space is {space}: return an int"
        elif not space.contains(value):
            yield f"{name} is {value}, outside of {space}"
        return
    if not isinstance(value, np.ndarray | np.generic):
        yield f"{name} is {_a(value)}: return a NumPy array of {space.dtype}"
        return
    array = np.asarray(value)
    if array.shape != space.shape:
        yield f"{name} has the shape {array.shape}, the space says {space.shape}"
        return
    if not np.can_cast(array.dtype, np.dtype(space.dtype), "same_kind"):
        yield f"{name} is of {array.dtype}, the space says {space.dtype}: return .astype(np.{space.dtype})"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        yield f"{name} has NaN or infinite entries"
    elif isinstance(space, spaces.Box):
        outside = (array < space.low) | (array > space.high)
        if outside.any():
            where = tuple(int(index) for index in np.argwhere(outside)[0])
            low, high = np.asarray(space.low)[where], np.asarray(space.high)[where]
            at = f"[{', '.join(map(str, where))}]" if where else ""
            yield f"{name}{at} is {array[where]:g}, outside of its bounds {low:g} to {high:g}: widen the space, or clip"
    elif not space.contains(value):
        yield f"{name} is {value}, outside of {space}"


def _same(first: Any, second: Any) -> bool:
    one, two = np.asarray(first), np.asarray(second)
    return one.shape == two.shape and bool(np.array_equal(one, two, equal_nan=one.dtype.kind == "f" and two.dtype.kind == "f"))


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
