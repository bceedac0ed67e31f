"""Brax tasks as a vector environment: compiled once, resets included, and exact to resume, for a state is plain arrays."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.vector import Observation, Step, VectorEnvironment

EPISODE_STEPS = 1000
"""Steps after which an episode is cut, where nothing else is said: Brax's own number."""


class BraxVector(VectorEnvironment):
    """All copies in one call to JAX, on its default device; what it returns is copied into CPU tensors."""

    device = torch.device("cpu")
    snapshot = "exact"

    def __init__(self, task: str, num_envs: int, max_episode_steps: int | None = None, **options: Any) -> None:
        self._jax: Any = importlib.import_module("jax")
        self.num_envs = num_envs
        limit = max_episode_steps or EPISODE_STEPS
        observations, actions, self._begin, self._advance = _compiled(task, limit, json.dumps(options, sort_keys=True))
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (observations,), np.float32)
        self.single_action_space = spaces.Box(-1, 1, (actions,), np.float32)
        self._world: Any = None

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} copies")
        keys = np.stack([np.asarray(self._jax.random.PRNGKey(seed % 2**32)) for seed in seeds])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._world, observation = self._begin(keys)
        return _tensor(observation), {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        self._world, seen = self._advance(self._world, action.detach().cpu().numpy().astype(np.float32))
        observation, reward, terminated, truncated, final = map(_tensor, seen)
        ended = bool((terminated | truncated).any())
        return Step(observation, reward, terminated, truncated, final if ended else observation, {})

    def state_dict(self) -> dict[str, Any]:
        """Return every array of the worlds, keys and ages included."""
        leaves = self._jax.tree_util.tree_leaves(self._world)
        return {"arrays": [_storable(np.asarray(leaf)) for leaf in leaves]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        if self._world is None:
            self.reset([0] * self.num_envs)  # for the shape of a world
        leaves, tree = self._jax.tree_util.tree_flatten(self._world)
        saved = [tensor.numpy() for tensor in state["arrays"]]
        if [leaf.shape for leaf in leaves] != [array.shape for array in saved]:
            raise ValueError("the saved Brax state has other arrays than this one: another task, version or number of copies")
        restored = [self._jax.numpy.asarray(array.astype(leaf.dtype)) for leaf, array in zip(leaves, saved, strict=True)]
        self._world = self._jax.tree_util.tree_unflatten(tree, restored)


class BraxEnv(gymnasium.Env[Any, Any]):
    """One copy, for whoever wants Gymnasium's interface."""

    def __init__(self, task: str, render_mode: str | None = None, **options: Any) -> None:
        self._copy = BraxVector(task, 1, **options)
        self.observation_space, self.action_space = self._copy.single_observation_space, self._copy.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        observation, _ = self._copy.reset([int(self.np_random.integers(2**31))])
        assert isinstance(observation, Tensor)
        return observation[0].numpy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        step = self._copy.step(torch.as_tensor(np.asarray(action, np.float32))[None])
        assert isinstance(step.final_observation, Tensor)
        return step.final_observation[0].numpy(), float(step.reward), bool(step.terminated), bool(step.truncated), {}

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""
        return {"copy": [tensor.numpy() for tensor in self._copy.state_dict()["arrays"]], "generator": self.np_random}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._np_random = state["generator"]
        self._copy.load_state_dict({"arrays": [torch.from_numpy(np.asarray(array)) for array in state["copy"]]})


@lru_cache
def _compiled(name: str, limit: int, options: str) -> tuple[int, int, Callable[..., Any], Callable[..., Any]]:
    """Return (observation size, action size, begin, advance), the same for all vectors: compiling takes up to a minute.

    A world is (state, keys, ages): all that the next step depends on.
    """
    jax: Any = importlib.import_module("jax")
    envs: Any = importlib.import_module("brax.envs")
    jnp = jax.numpy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that Brax is no longer worked on
        task = envs.get_environment(name, **json.loads(options))

    def settled(tree: Any) -> Any:
        """Types as they will stay: a number that JAX still may widen would have the next step compiled anew."""
        return jax.tree_util.tree_map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), tree)

    def fresh(keys: Any) -> tuple[Any, Any]:
        """Begin with one half of each key and keep the other for the next episode."""
        pairs = jax.vmap(jax.random.split)(keys)
        return jax.vmap(task.reset)(pairs[:, 0]), pairs[:, 1]

    def begin(keys: Any) -> Any:
        state, keys = fresh(keys)
        return settled((state, keys, jnp.zeros(keys.shape[0], jnp.int32))), state.obs

    def advance(world: Any, action: Any) -> Any:
        state, keys, ages = world
        after, ages = jax.vmap(task.step)(state, action), ages + 1
        terminated = after.done > 0.5
        truncated = ~terminated & (ages >= limit)
        ended = terminated | truncated

        def choose(one: Any, other: Any) -> Any:
            return jnp.where(ended.reshape(-1, *[1] * (one.ndim - 1)), one, other)

        def with_resets() -> Any:
            new, later = fresh(keys)
            return jax.tree_util.tree_map(choose, (new, later, jnp.zeros_like(ages)), (after, keys, ages))

        # A reset costs as much as many steps: only where something ended.
        following = settled(jax.lax.cond(ended.any(), with_resets, lambda: (after, keys, ages)))
        return following, (following[0].obs, after.reward, terminated, truncated, after.obs)

    return int(task.observation_size), int(task.action_size), jax.jit(begin), jax.jit(advance)


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array))


def _storable(array: np.ndarray) -> Tensor:
    """PyTorch has no unsigned integers to speak of: random keys are kept in wider ones."""
    return torch.from_numpy(array.astype(np.int64) if array.dtype.kind == "u" else array.copy())
