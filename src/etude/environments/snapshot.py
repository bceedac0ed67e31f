"""Captures a Gymnasium environment exactly, without pickle: every wrapper's plain data and every random generator.

An environment is exact when all of its attributes are plain data (numbers, text, arrays, containers of them, NumPy
generators) and no two of them share memory. If one is not (a physics engine, an open file), its state can't be known from
outside and nothing is claimed. An environment or wrapper with `state_dict` and `load_state_dict` of its own is taken at
its word. Gymnasium's own MuJoCo classes are known: their simulator is captured too.
"""

from __future__ import annotations

import bisect
import hashlib
import importlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.lib import array_utils

# Fixed at construction: no part of a task's state.
_FIXED = frozenset(
    [
        "env",
        "spec",
        "metadata",
        "render_mode",
        "action_space",
        "observation_space",
        "_action_space",
        "_observation_space",
        "_metadata",
        "_cached_spec",
        "_saved_kwargs",
    ]
)
# Drawn for people to look at, where it is not plain data; a `clock` that counts steps is state like any other.
_DRAWN = frozenset(["screen", "clock", "surf", "window", "window_surface", "viewer", "mujoco_renderer"])
_SPACES = ("action_space", "observation_space", "_action_space", "_observation_space")  # of a wrapper, the latter
_MUJOCO = "gymnasium.envs.mujoco."
# Of the numbers in MjData, those that say how current its arrays are; the others count what lies in its arena.
_MUJOCO_NUMBERS = (
    *("time", "flg_energypos", "flg_energyvel", "flg_subtreevel", "flg_rnepost"),
    *("ntree_awake", "nbody_awake", "nparent_awake", "nv_awake"),
)
_TENSOR_DTYPES = frozenset(["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])
_BIT_GENERATORS = {
    kind.__name__: kind for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


class NotPlainError(Exception):
    """An attribute holds something whose state can't be captured."""


def capture(env: gymnasium.Env[Any, Any]) -> list[Any]:
    """Return the state of every layer of `env`, outermost first; raises NotPlainError if it can't be known."""
    return capture_layers(layers(env))


def restore(env: gymnasium.Env[Any, Any], state: list[Any]) -> None:
    """Put `env` back where `capture` found it."""
    restore_layers(layers(env), state)


def capture_layers(some: Sequence[gymnasium.Env[Any, Any]], beside: gymnasium.Env[Any, Any] | None = None) -> list[Any]:
    """Return the state of these layers; `beside` is one that is not captured, but must not share its data with them."""
    seen = _Seen()
    for name, value in vars(beside).items() if beside is not None else ():
        with suppress(NotPlainError):
            _encode(value, name, seen)
    return [_capture_layer(layer, seen) for layer in some]


def restore_layers(some: Sequence[gymnasium.Env[Any, Any]], state: list[Any]) -> None:
    """Put these layers back where `capture_layers` found them."""
    if len(some) != len(state):
        raise ValueError(f"the saved environment has {len(state)} layers, this one {len(some)}")
    for layer, saved in zip(some, state, strict=True):
        if "own" in saved:
            layer.load_state_dict(decode(saved["own"]))  # type: ignore[attr-defined] # checked by capture
            continue
        if "mujoco" in saved:
            _restore_mujoco(layer, saved["mujoco"])
        for name, value in saved["attributes"].items():
            setattr(layer, name, decode(value))
        restore_generators(layer, saved)


def capture_generators(layer: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Return the random generators of one layer: its own and those of its spaces."""
    seen = _Seen()
    return {"own_generator": encode(vars(layer).get("_np_random")), "spaces": _capture_spaces(layer, seen)}


def restore_generators(layer: gymnasium.Env[Any, Any], saved: dict[str, Any]) -> None:
    """Put generators back where they were."""
    if saved.get("own_generator") is not None:
        layer._np_random = decode(saved["own_generator"])
    for path, space in _own_spaces(layer):
        if path in saved["spaces"]:
            space._np_random = decode(saved["spaces"][path])


def layers(env: gymnasium.Env[Any, Any]) -> list[gymnasium.Env[Any, Any]]:
    """Return the wrappers of `env`, outermost first, and last the environment itself."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


class _Seen:
    """What has been captured already: two names for one array would come back as two arrays."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._starts: list[int] = []  # of the memory seen so far; stretches never overlap
        self._ends: list[int] = []

    def is_new_space(self, space: gymnasium.Space[Any]) -> bool:
        new = id(space) not in self._ids
        self._ids.add(id(space))
        return new

    def add(self, value: Any, path: str) -> None:
        shared = id(value) in self._ids
        self._ids.add(id(value))
        low, high = _memory(value)
        if high > low:
            place = bisect.bisect_right(self._starts, low)
            before = place > 0 and self._ends[place - 1] > low
            after = place < len(self._starts) and self._starts[place] < high
            shared = shared or before or after
            self._starts.insert(place, low)
            self._ends.insert(place, high)
        if shared:
            raise NotPlainError(f"{path} shares its data with another attribute")


def _memory(value: Any) -> tuple[int, int]:
    if isinstance(value, np.ndarray):
        return array_utils.byte_bounds(value) if value.size else (0, 0)
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    return 0, 0


def _capture_layer(layer: gymnasium.Env[Any, Any], seen: _Seen) -> dict[str, Any]:
    if all(callable(getattr(type(layer), name, None)) for name in ("state_dict", "load_state_dict")):
        return {"own": _encode(layer.state_dict(), "state_dict()", _Seen())}  # type: ignore[attr-defined] # just checked
    is_mujoco = type(layer).__module__.startswith(_MUJOCO)
    saved: dict[str, Any] = {"mujoco": _capture_mujoco(layer, seen)} if is_mujoco else {}
    attributes = {}
    for name, value in vars(layer).items():
        if name in _FIXED or (is_mujoco and name in ("model", "data")):
            continue
        try:
            attributes[name] = _encode(value, name, seen)
        except NotPlainError:
            if name not in _DRAWN:
                raise
    return {**saved, "attributes": attributes, "spaces": _capture_spaces(layer, seen)}


def _capture_spaces(layer: gymnasium.Env[Any, Any], seen: _Seen) -> dict[str, Any]:
    """An environment may draw from its own spaces. One space may have several names: that is no harm."""
    return {
        path: _encode(space._np_random, path, seen)
        for path, space in _own_spaces(layer)
        if space._np_random is not None and seen.is_new_space(space)
    }


def _own_spaces(layer: gymnasium.Env[Any, Any]) -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    for name in _SPACES:
        space = vars(layer).get(name)
        if isinstance(space, gymnasium.Space):
            yield from _with_parts(name, space)


def _with_parts(path: str, space: gymnasium.Space[Any]) -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    yield path, space
    parts: list[tuple[Any, gymnasium.Space[Any]]] = []
    if isinstance(space, spaces.Dict):
        parts = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
    for name, part in parts:
        yield from _with_parts(f"{path}.{name}", part)


def _capture_mujoco(env: Any, seen: _Seen) -> dict[str, Any]:
    """The integration state alone is not exact: Ant and Humanoid read positions and forces that the last step left behind.

    So all arrays of MjData are kept, but for those in its arena (contacts, constraints): every step makes these anew from
    the others before anything reads them, in all of Gymnasium's classes.
    """
    if env.data.nplugin:
        raise NotPlainError("data holds plugins")
    arrays = {name: value for name in dir(env.data) if isinstance(value := getattr(env.data, name), np.ndarray)}
    for name, array in arrays.items():
        seen.add(array, f"data.{name}")  # a wrapper that looks into the simulator's memory would lose sight of it
    names = _outside_arena(env)
    values: dict[str, list[np.ndarray]] = {}
    for name in names:
        values.setdefault(arrays[name].dtype.name, []).append(arrays[name].ravel())
    return {
        "model": _model_digest(env.model),
        "arrays": " ".join(f"{name}:{arrays[name].size}" for name in names),
        "values": {dtype: torch.from_numpy(np.concatenate(parts)) for dtype, parts in values.items()},
        "numbers": {name: getattr(env.data, name) for name in _MUJOCO_NUMBERS},
    }


def _restore_mujoco(env: Any, saved: dict[str, Any]) -> None:
    """Write into the MjData that is there: the model, the renderer and named views refer to it."""
    arrays = {name: getattr(env.data, name) for name in _outside_arena(env)}
    if saved["arrays"] != " ".join(f"{name}:{array.size}" for name, array in arrays.items()):
        raise ValueError("the saved MuJoCo state has other arrays than this one: it is of another model or version of MuJoCo")
    if saved["model"] != _model_digest(env.model):
        raise ValueError("the saved MuJoCo state is of another model: its file, or something that changes it, is not the same")
    offsets = dict.fromkeys(saved["values"], 0)
    for array in arrays.values():
        dtype = array.dtype.name
        begin, offsets[dtype] = offsets[dtype], offsets[dtype] + array.size
        array[...] = saved["values"][dtype][begin : offsets[dtype]].numpy().reshape(array.shape)
    for name, number in saved["numbers"].items():
        setattr(env.data, name, number)


def _outside_arena(env: Any) -> list[str]:
    """In a new MjData the arena is empty, and so is every array in it."""
    new = type(env.data)(env.model)
    return [name for name in dir(new) if isinstance(value := getattr(new, name), np.ndarray) and value.size]


def _model_digest(model: Any) -> str:
    mujoco: Any = importlib.import_module("mujoco")  # an extra; its functions have no types
    data = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, data)
    return hashlib.blake2b(data.data, digest_size=16).hexdigest()


def encode(value: Any) -> Any:
    """Return plain data as tensors and JSON values; raises NotPlainError where it is not plain."""
    return _encode(value, type(value).__name__, _Seen())


def _encode(value: Any, path: str, seen: _Seen) -> Any:
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, np.generic):
        return {"$scalar": _encode(np.asarray(value), path, _Seen())}
    if type(value) is tuple:
        return tuple(_encode(item, path, seen) for item in value)
    seen.add(value, path)
    if type(value) is np.ndarray:
        return _encode_array(value, path)
    if type(value) is np.random.Generator:
        state = value.bit_generator.state
        if state["bit_generator"] not in _BIT_GENERATORS:
            raise NotPlainError(f"{path} draws from a {state['bit_generator']}")
        return {"$generator": _encode(state, path, _Seen())}
    if type(value) is torch.Tensor and value.device.type == "cpu" and not value.requires_grad:
        return {"$torch": value.clone()}
    if type(value) is list:
        return [_encode(item, path, seen) for item in value]
    if type(value) is dict:
        pairs = [[_encode(key, path, seen), _encode(item, f"{path}.{key}", seen)] for key, item in value.items()]
        return {"$dict": pairs}
    raise NotPlainError(f"{path} is a {type(value).__name__}")


def _encode_array(value: np.ndarray, path: str) -> Any:
    if value.dtype.hasobject or value.dtype.names:
        raise NotPlainError(f"{path} is an array of {'objects' if value.dtype.hasobject else 'records'}")
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        # Sums run along memory: another layout may differ in the last bit.
        return {"$transposed": _encode_array(value.T, path)}
    if value.dtype.name in _TENSOR_DTYPES and value.dtype.isnative:
        return torch.from_numpy(value.copy())
    return {"$array": [value.dtype.str, list(value.shape), value.tobytes().hex()]}


def decode(value: Any) -> Any:
    """Return what `encode` was given."""
    if isinstance(value, torch.Tensor):
        return value.numpy().copy()
    if isinstance(value, tuple):
        return tuple(decode(item) for item in value)
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag, content = next(iter(value.items()))
    if tag == "$scalar":
        return decode(content)[()]
    if tag == "$torch":
        return content.clone()
    if tag == "$transposed":
        return decode(content).T
    if tag == "$array":
        dtype, shape, data = content
        return np.frombuffer(bytes.fromhex(data), dtype=dtype).reshape(shape).copy()
    if tag == "$generator":
        state = decode(content)
        bits = _BIT_GENERATORS[state["bit_generator"]]()
        bits.state = state
        return np.random.Generator(bits)
    return {decode(key): decode(item) for key, item in content}
