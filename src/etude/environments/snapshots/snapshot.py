"""Captures a Gymnasium environment exactly, without pickle: every wrapper's plain data and every random generator.

An environment is exact when all of its attributes are plain data (numbers, text, arrays, containers of them, NumPy
generators) and no two of them share memory. If one is not (a physics engine, an open file), its state can't be known from
outside and nothing is claimed. An environment or wrapper with `state_dict` and `load_state_dict` of its own is taken at
its word. Gymnasium's own MuJoCo classes are known: their simulator is captured too. So are MiniGrid's, with their objects.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from etude.environments.native import mujoco_state
from etude.environments.snapshots import object_graph
from etude.environments.snapshots.plain_data import NotPlainError, Seen, decode, encode, encode_part

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
_MINIGRID = "minigrid"


def capture(env: gymnasium.Env[Any, Any]) -> list[Any]:
    """Return the state of every layer of `env`, outermost first; raises NotPlainError if it can't be known."""
    return capture_layers(layers(env))


def restore(env: gymnasium.Env[Any, Any], state: list[Any]) -> None:
    """Put `env` back where `capture` found it."""
    restore_layers(layers(env), state)


def capture_layers(some: Sequence[gymnasium.Env[Any, Any]], beside: gymnasium.Env[Any, Any] | None = None) -> list[Any]:
    """Return the state of these layers; `beside` is one that is not captured, but must not share its data with them."""
    seen = Seen()
    for name, value in vars(beside).items() if beside is not None else ():
        with suppress(NotPlainError):
            encode_part(value, name, seen)
    return [_capture_layer(layer, seen) for layer in some]


def restore_layers(some: Sequence[gymnasium.Env[Any, Any]], state: list[Any]) -> None:
    """Put these layers back where `capture_layers` found them."""
    if len(some) != len(state):
        raise ValueError(f"the saved environment has {len(state)} layers, this one {len(some)}")
    for layer, saved in zip(some, state, strict=True):
        if "own" in saved:
            layer.load_state_dict(decode(saved["own"]))  # type: ignore[attr-defined] # checked by capture
            continue
        if "objects" in saved:
            object_graph.restore(layer, _MINIGRID, saved["objects"], _FIXED | _DRAWN)
        if "mujoco" in saved:
            _restore_mujoco(layer, saved["mujoco"])
        for name, value in saved.get("attributes", {}).items():
            setattr(layer, name, decode(value))
        restore_generators(layer, saved)


def capture_generators(layer: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Return the random generators of one layer: its own and those of its spaces."""
    seen = Seen()
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


def _capture_layer(layer: gymnasium.Env[Any, Any], seen: Seen) -> dict[str, Any]:
    if all(callable(getattr(type(layer), name, None)) for name in ("state_dict", "load_state_dict")):
        return {"own": encode_part(layer.state_dict(), "state_dict()", Seen())}  # type: ignore[attr-defined] # just checked
    is_mujoco = type(layer).__module__.startswith(_MUJOCO)
    if _holds_objects(layer):
        objects = object_graph.capture(layer, _MINIGRID, _FIXED | _DRAWN)
        return {"objects": objects, "spaces": _capture_spaces(layer, seen)}
    saved: dict[str, Any] = {"mujoco": _capture_mujoco(layer, seen)} if is_mujoco else {}
    attributes = {}
    for name, value in vars(layer).items():
        if name in _FIXED or (is_mujoco and name in ("model", "data")):
            continue
        try:
            attributes[name] = encode_part(value, name, seen)
        except NotPlainError:
            if name not in _DRAWN:
                raise
    return {**saved, "attributes": attributes, "spaces": _capture_spaces(layer, seen)}


def _holds_objects(layer: gymnasium.Env[Any, Any]) -> bool:
    """MiniGrid's worlds, also those of one's own: a grid of objects that refer to each other."""
    is_world = any(f"{kind.__module__}.".startswith(f"{_MINIGRID}.") for kind in type(layer).__mro__)
    return is_world and not isinstance(layer, gymnasium.Wrapper)


def _capture_spaces(layer: gymnasium.Env[Any, Any], seen: Seen) -> dict[str, Any]:
    """An environment may draw from its own spaces. One space may have several names: that is no harm."""
    return {
        path: encode_part(space._np_random, path, seen)
        for path, space in _own_spaces(layer)
        if space._np_random is not None and seen.is_new(space)
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


def _capture_mujoco(env: Any, seen: Seen) -> dict[str, Any]:
    """Contacts and constraints are left out: in all of Gymnasium's classes every step makes them before anything reads them."""
    if env.data.nplugin:
        raise NotPlainError("data holds plugins")
    arrays = {name: value for name in dir(env.data) if isinstance(value := getattr(env.data, name), np.ndarray)}
    for name, array in arrays.items():
        seen.add(array, f"data.{name}")  # a wrapper that looks into the simulator's memory would lose sight of it
    fields = mujoco_state.fields_outside_arena(env.model, type(env.data))
    return {"model": _model_digest(env.model), **mujoco_state.capture(env.data, fields)}


def _restore_mujoco(env: Any, saved: dict[str, Any]) -> None:
    fields = mujoco_state.fields_outside_arena(env.model, type(env.data))
    mujoco_state.check(env.data, fields, saved)
    if saved["model"] != _model_digest(env.model):
        raise ValueError("the saved MuJoCo state is of another model: its file, or something that changes it, is not the same")
    mujoco_state.restore(env.data, fields, saved)


def _model_digest(model: Any) -> str:
    mujoco: Any = importlib.import_module("mujoco")  # an extra; its functions have no types
    data = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, data)
    return hashlib.blake2b(data.data, digest_size=16).hexdigest()
