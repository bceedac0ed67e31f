"""Gymnasium spaces as plain data, and back, exactly.

    to_data(spaces.Box(-1, 1, (3,)))   {"type": "box", "shape": [3], "low": -1.0, "high": 1.0, "dtype": "float32"}
    to_data(spaces.Discrete(4))        {"type": "discrete", "n": 4, "start": 0, "dtype": "int64"}

A bound is one number where all entries have the same, else a flat list; the infinities are the words inf and -inf.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import gymnasium
import numpy as np
from gymnasium import spaces

from etude.config.schema import EnvironmentConfig
from etude.config.space_settings import Bound, PartSpace, Space
from etude.config.validate import Validator, field_types
from etude.environments.spaces import leaf_spaces
from etude.errors import ConfigError, UserError
from etude.files.printable import one_line

_DTYPES: tuple[str, ...] = get_args(get_args(field_types(PartSpace)["dtype"])[0])
_TYPES: dict[type[gymnasium.Space[Any]], str] = {
    spaces.Box: "box",
    spaces.Discrete: "discrete",
    spaces.MultiDiscrete: "multi_discrete",
    spaces.MultiBinary: "multi_binary",
    spaces.Dict: "dict",
    spaces.Tuple: "tuple",
}


def to_data(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """Return a space as mappings, lists, numbers and words, all of it said; UserError where Etude has no such space."""
    kind = _type_of(space)
    if isinstance(space, spaces.Dict):
        for name in space.spaces:
            if not isinstance(name, str):
                raise UserError(f"a part of {space} is called {name!r}; parts of spaces are named by text")
        return {"type": kind, "spaces": {name: _part_data(part) for name, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": kind, "spaces": [_part_data(part) for part in space.spaces]}
    return _part_data(space)


def from_data(data: Mapping[str, Any]) -> gymnasium.Space[Any]:
    """Return the space that `to_data` described; UserError with one line for each thing that is wrong or left out."""
    if not isinstance(data, Mapping):
        raise UserError(f"a space is a mapping with its type, such as {{type: discrete, n: 2}}, not a {type(data).__name__}")
    try:
        return build_space(Validator().build(Space, data, "space"))
    except (ValueError, TypeError, AssertionError, OverflowError) as error:  # what Gymnasium says of impossible ones
        raise UserError(f"space: {one_line(str(error))}") from None


def build_space(settings: PartSpace) -> gymnasium.Space[Any]:
    """Return the space that complete settings describe."""
    if settings.type in ("dict", "tuple"):
        parts = _said(settings, "spaces")
        if isinstance(parts, Mapping):
            # An ordered one: Gymnasium sorts the keys of a plain dict, and networks read parts in their order.
            return spaces.Dict(OrderedDict((name, build_space(part)) for name, part in parts.items()))
        return spaces.Tuple([build_space(part) for part in parts])
    if settings.type == "discrete":
        return spaces.Discrete(_said(settings, "n"), start=settings.start or 0, dtype=settings.dtype or "int64")  # type: ignore[arg-type] # start is one number here
    if settings.type == "multi_discrete":
        nvec = np.array(_said(settings, "nvec"), dtype=np.int64)
        shape = (len(nvec),) if settings.shape is None else settings.shape
        start = np.broadcast_to(np.array(settings.start or 0, dtype=np.int64), nvec.shape)
        return spaces.MultiDiscrete(nvec.reshape(shape), dtype=settings.dtype or "int64", start=start.reshape(shape))
    if settings.type == "multi_binary":
        shape = _said(settings, "shape")
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    return _box(settings)


def difference(settings: PartSpace, space: gymnasium.Space[Any]) -> str | None:
    """Return in what a space differs from what settings say of it, such as `shape [4], not [3]`; None where it fits."""
    return next(_differences(settings, space), None)


def check_spaces(config: EnvironmentConfig, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
    """Raise ConfigError where an environment's spaces are not what its config says of them in `environment.spec`."""
    problems = []
    for name, space in (("observation_space", observation), ("action_space", action)):
        said: Space | None = getattr(config.spec, name)
        differs = None if said is None else difference(said, space)
        if differs is not None:
            problems.append(f"environment.spec.{name}: {config.id} has another one: {differs}; correct it, or the environment")
    if problems:
        raise ConfigError(*problems)


def _differences(settings: PartSpace, space: gymnasium.Space[Any]) -> Iterator[str]:
    kind = _type_of(space)
    if kind != settings.type:
        yield f"a {kind}, not a {settings.type}"
        return
    found = to_data(space)
    parts = getattr(settings, "spaces", None)
    if parts is not None:
        ours = leaf_spaces(space)
        named = parts if isinstance(parts, Mapping) else {str(index): part for index, part in enumerate(parts)}
        if set(named) != set(ours):
            yield f"has the parts {', '.join(ours) or 'none'}, not {', '.join(named) or 'none'}"
            return
        for name, part in named.items():
            yield from (f"its part {name}: {said}" for said in _differences(part, ours[name]))
        return
    for name in ("shape", "n", "nvec", "start", "dtype"):
        said = getattr(settings, name)
        said = list(said) if isinstance(said, tuple) else said
        if said is not None and not _same(name, said, found[name]):
            yield f"{name} {found[name]}, not {said}"
            return
    for name in ("low", "high"):
        said = getattr(settings, name)
        if said is None:
            continue
        assert isinstance(space, spaces.Box)
        bound = np.asarray(getattr(space, name), dtype=np.float64).flatten()
        wanted = _numbers(said)
        if wanted.size not in (1, bound.size) or not np.allclose(bound, wanted, rtol=1e-6, atol=0):
            yield f"{name} {_shortened(found[name])}, not {_shortened(said)}"
            return


def _same(name: str, said: Any, found: Any) -> bool:
    if name == "start" and isinstance(found, list) and isinstance(said, int):
        return all(each == said for each in found)
    return said == found


def _shortened(value: Any) -> str:
    items = list(value) if isinstance(value, list | tuple) else None
    if items is None:
        return str(value)
    return str(items) if len(items) <= 8 else f"[{', '.join(map(str, items[:6]))}, … {len(items)} in all]"


def _part_data(space: gymnasium.Space[Any]) -> dict[str, Any]:
    kind = _type_of(space)
    if isinstance(space, spaces.Discrete):
        return {"type": kind, "n": int(space.n), "start": int(space.start), "dtype": _dtype(space)}
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = ([int(each) for each in values.flat] for values in (space.nvec, space.start))
        return {"type": kind, "shape": list(space.shape), "nvec": nvec, "start": start, "dtype": _dtype(space)}
    if isinstance(space, spaces.MultiBinary):
        return {"type": kind, "shape": list(space.shape)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"type": kind, "shape": list(space.shape), **bounds, "dtype": _dtype(space)}
    raise UserError(f"a {kind} within a Dict or Tuple has no form as data; one level of parts is what Etude reads")


def _type_of(space: gymnasium.Space[Any]) -> str:
    for cls, name in _TYPES.items():
        if isinstance(space, cls):
            return name
    raise UserError(f"a {type(space).__name__} space has no form as data; known are {', '.join(_TYPES.values())}")


def _dtype(space: gymnasium.Space[Any]) -> str:
    name = str(np.dtype(space.dtype))
    if name not in _DTYPES:
        raise UserError(f"a space of {name} has no form as data; known are {', '.join(_DTYPES)}")
    return name


def _bound(values: np.ndarray) -> Bound | list[Bound]:
    # By their bytes: 0.0 equals -0.0, and what is scaled by a bound would tell them apart.
    is_uniform = values.size > 0 and values.tobytes() == np.full_like(values, values.flat[0]).tobytes()
    return _number(values.flat[0]) if is_uniform else [_number(value) for value in values.flat]


def _number(value: Any) -> Bound:
    plain = value.item()
    if isinstance(plain, float) and not math.isfinite(plain):
        return "inf" if plain > 0 else "-inf"
    return int(plain) if isinstance(plain, bool) else plain


def _numbers(bound: Bound | tuple[Bound, ...]) -> np.ndarray:
    return np.array([float(each) for each in (bound if isinstance(bound, tuple) else (bound,))], dtype=np.float64)


def _box(settings: PartSpace) -> spaces.Box:
    shape, dtype = _said(settings, "shape"), np.dtype(settings.dtype or "float32")
    low, high = (_filled(_said(settings, name), shape, dtype, name) for name in ("low", "high"))
    if (low > high).any():
        raise UserError(f"space: a box of shape {list(shape)} has a lower bound above its upper one")
    return spaces.Box(low, high, shape, dtype=dtype.type)


def _filled(bound: Bound | tuple[Bound, ...], shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> np.ndarray:
    entries = bound if isinstance(bound, tuple) else (bound,)
    if isinstance(bound, tuple) and len(entries) != math.prod(shape):
        raise UserError(f"space: {name} has {len(entries)} entries, and a box of shape {list(shape)} has {math.prod(shape)}")
    try:
        with np.errstate(all="raise"):
            values = np.array([float(each) if isinstance(each, str) else each for each in entries], dtype=dtype)
    except (OverflowError, ValueError, FloatingPointError) as error:
        raise UserError(f"space: {name} of a box is no {dtype}: {error}") from None
    return values.reshape(shape) if isinstance(bound, tuple) else np.full(shape, values[0], dtype=dtype)


def _said(settings: PartSpace, name: str) -> Any:
    value = getattr(settings, name)
    if value is None:
        raise UserError(f"space.{name}: is needed for a {settings.type}")
    return value
