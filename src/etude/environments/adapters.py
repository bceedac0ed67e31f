"""Environments of other interfaces as Gymnasium environments: the old gym, and dm_env.

Neither package is needed: what matters is which methods an object has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from etude.errors import UserError


class OldGymAdapter(gymnasium.Env[Any, Any]):
    """An environment of gym before 0.26: `reset()` returns an observation, `step()` four things, `seed()` seeds.

    Later ones, with five things and `reset(seed=...)`, are taken too. A `done` counts as termination unless
    `info["TimeLimit.truncated"]` says that it was a time limit.
    """

    def __init__(self, env: Any) -> None:
        self.old = env
        self.observation_space = gymnasium_space(env.observation_space)
        self.action_space = gymnasium_space(env.action_space)
        self.metadata = {"render_modes": [], **(getattr(env, "metadata", None) or {})}
        self._takes_seed = "seed" in _parameters(env.reset)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            # Some generators of old take 32 bits only.
            small = seed % 2**31
            if self._takes_seed:
                return _with_info(self.old.reset(seed=small))
            if callable(getattr(self.old, "seed", None)):
                self.old.seed(small)
        return _with_info(self.old.reset())

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        observation, reward, *ended, info = self.old.step(action)
        if len(ended) == 2:
            terminated, truncated = map(bool, ended)
        else:
            cut = bool(info.get("TimeLimit.truncated", False))
            terminated, truncated = bool(ended[0]) and not cut, bool(ended[0]) and cut
        return observation, float(reward), terminated, truncated, info

    def render(self) -> Any:
        """Return a picture, by either way of asking for one."""
        return self.old.render(mode="rgb_array") if "mode" in _parameters(self.old.render) else self.old.render()

    def close(self) -> None:
        """Close what is inside."""
        if callable(getattr(self.old, "close", None)):
            self.old.close()


class DmEnvAdapter(gymnasium.Env[Any, Any]):
    """A `dm_env.Environment`. These know no seeds: `make(seed)` returns one, and is called at every reset with a seed.

    An episode that ends with discount 0 was terminated, with any other it was truncated. Observations in nested dicts get
    one level: `arm/angle`.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make
        self.inner = make(0)
        self.observation_space = _space_of_spec(self.inner.observation_spec())
        self.action_space = _space_of_spec(self.inner.action_spec())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self.close()
            self.inner = self._make(seed)
        return _flat(self.inner.reset().observation, self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        result = self.inner.step(action)
        ended = bool(result.last())
        terminated = ended and result.discount == 0
        reward = 0.0 if result.reward is None else float(result.reward)
        return _flat(result.observation, self.observation_space), reward, terminated, ended and not terminated, {}

    def close(self) -> None:
        """Close what is inside."""
        self.inner.close()


def gymnasium_space(space: Any) -> gymnasium.Space[Any]:
    """Return a space of gym as Gymnasium's, by the name of its class; raises UserError for one that has no counterpart."""
    if isinstance(space, gymnasium.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        dtype = np.dtype(space.dtype)
        return spaces.Box(np.asarray(space.low, dtype), np.asarray(space.high, dtype), dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Dict":
        return spaces.Dict({name: gymnasium_space(part) for name, part in space.spaces.items()})
    if kind == "Tuple":
        return spaces.Tuple([gymnasium_space(part) for part in space.spaces])
    raise UserError(
        f"a space of gym called {kind} has no counterpart; give the environment another observation or action space"
    )


def _space_of_spec(spec: Any) -> gymnasium.Space[Any]:
    if isinstance(spec, Mapping):
        return spaces.Dict({name: _space_of_spec(part) for name, part in _flatten(spec).items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([_space_of_spec(part) for part in spec])
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    dtype = np.dtype(spec.dtype)
    if dtype.kind not in "fiub":
        raise UserError(f"a dm_env spec of {dtype} ({spec.name}) has no tensor; leave it out of the observation")
    low, high = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    if dtype.kind == "f":
        low, high = (-np.inf, np.inf) if low is None else (low, high)
    elif dtype.kind == "b":
        low, high = 0, 1
    elif low is None:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = (np.broadcast_to(np.asarray(bound), spec.shape).astype(dtype) for bound in (low, high))
    return spaces.Box(low, high, tuple(spec.shape), dtype.type)


def _flat(observation: Any, space: gymnasium.Space[Any]) -> Any:
    """Shape what was observed as the space says: one level, and arrays also for single numbers."""
    if isinstance(space, spaces.Dict):
        return {name: _flat(part, space[name]) for name, part in _flatten(observation).items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_flat(part, inner) for part, inner in zip(observation, space.spaces, strict=True))
    return int(observation) if isinstance(space, spaces.Discrete) else np.asarray(observation, space.dtype)


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, part in tree.items():
        flat |= _flatten(part, f"{prefix}{name}/") if isinstance(part, Mapping) else {f"{prefix}{name}": part}
    return flat


def _with_info(returned: Any) -> tuple[Any, dict[str, Any]]:
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return returned
    return returned, {}


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return {}
