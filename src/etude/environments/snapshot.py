"""Captures a Gymnasium environment exactly, without pickle: every wrapper's plain data and every random generator.

An environment is exact when all of its attributes are plain data (numbers, text, arrays, containers of them, NumPy
generators). If one is not (a physics engine, an open file), its state can't be known from outside and nothing is claimed.
An environment or wrapper with `state_dict` and `load_state_dict` of its own is taken at its word.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch

# Fixed at construction, or drawn for people to look at: no part of a task's state.
_IGNORED = frozenset(
    [
        "env",
        "spec",
        "metadata",
        "action_space",
        "observation_space",
        "_action_space",
        "_observation_space",
        "_metadata",
        "_cached_spec",
        "_saved_kwargs",
        "render_mode",
        "screen",
        "clock",
        "surf",
        "window",
        "window_surface",
        "window_size",
        "isopen",
        "viewer",
        "cell_size",
        "_shape",
    ]
)
_TENSOR_DTYPES = frozenset(["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])


class NotPlain(Exception):
    """An attribute holds something whose state can't be captured."""


def capture(env: gymnasium.Env[Any, Any]) -> list[Any]:
    """Return the state of every layer of `env`, outermost first; raises NotPlain if it can't be known."""
    return [_capture_layer(layer) for layer in _layers(env)]


def restore(env: gymnasium.Env[Any, Any], state: list[Any]) -> None:
    """Put `env` back where `capture` found it."""
    layers = _layers(env)
    if len(layers) != len(state):
        raise ValueError(f"the saved environment has {len(state)} layers, this one {len(layers)}")
    for layer, saved in zip(layers, state, strict=True):
        if "own" in saved:
            layer.load_state_dict(saved["own"])  # type: ignore[attr-defined] # checked by capture
            continue
        for name, value in saved["attributes"].items():
            setattr(layer, name, _decode(value))
        for name, value in saved["spaces"].items():
            getattr(layer, name)._np_random = _decode(value)


def _layers(env: gymnasium.Env[Any, Any]) -> list[gymnasium.Env[Any, Any]]:
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _capture_layer(layer: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    own = getattr(layer, "state_dict", None)
    if callable(own) and "state_dict" in dir(type(layer)):
        return {"own": own()}
    seen: set[int] = set()
    attributes = {name: _encode(value, name, seen) for name, value in vars(layer).items() if name not in _IGNORED}
    spaces = {}
    for name in ("action_space", "observation_space"):
        space = vars(layer).get(name)
        # An environment may draw from its own spaces; their generators exist only once they have been used.
        if isinstance(space, gymnasium.Space) and space._np_random is not None:
            spaces[name] = _encode(space._np_random, name, seen)
    return {"attributes": attributes, "spaces": spaces}


def _encode(value: Any, path: str, seen: set[int]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return {"$scalar": _encode(np.asarray(value), path, set())}
    if isinstance(value, np.ndarray | list | dict):
        # Two names for one array would come back as two arrays: such an environment is not exact.
        if id(value) in seen:
            raise NotPlain(f"{path} shares its data with another attribute")
        seen.add(id(value))
    if isinstance(value, np.ndarray):
        if value.dtype.name in _TENSOR_DTYPES:
            return torch.from_numpy(value.copy())
        if value.dtype.hasobject:
            raise NotPlain(f"{path} is an array of objects")
        return {"$array": [value.dtype.str, list(value.shape), value.tobytes().hex()]}
    if isinstance(value, np.random.Generator):
        return {"$generator": value.bit_generator.state}
    if type(value) is tuple:
        return tuple(_encode(item, path, seen) for item in value)
    if type(value) is list:
        return [_encode(item, path, seen) for item in value]
    if type(value) is dict:
        return {
            "$dict": [[_encode(key, path, seen), _encode(item, f"{path}.{key}", seen)] for key, item in value.items()]
        }
    raise NotPlain(f"{path} is a {type(value).__name__}")


def _decode(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.numpy().copy()
    if isinstance(value, tuple):
        return tuple(_decode(item) for item in value)
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$scalar" in value:
        return _decode(value["$scalar"])[()]
    if "$array" in value:
        dtype, shape, data = value["$array"]
        return np.frombuffer(bytes.fromhex(data), dtype=dtype).reshape(shape).copy()
    if "$generator" in value:
        saved = value["$generator"]
        kinds = {"PCG64": np.random.PCG64, "PCG64DXSM": np.random.PCG64DXSM, "MT19937": np.random.MT19937,
                 "Philox": np.random.Philox, "SFC64": np.random.SFC64}  # fmt: skip
        bits = kinds[saved["bit_generator"]]()
        bits.state = saved
        return np.random.Generator(bits)
    return {_decode(key): _decode(item) for key, item in value["$dict"]}
