"""Gymnasium environments in this process, as one vector environment."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from etude.compute.random_streams import derive_seed
from etude.environments.failures import NOT_THEIRS, check_observation, failure, refuse_none
from etude.environments.goals import goal_functions
from etude.environments.snapshots import snapshot
from etude.environments.snapshots.rewind import EpisodeLog, is_rewindable, renew_world
from etude.environments.spaces import action_spec, first_value, observation_specs, to_gymnasium
from etude.environments.step_buffers import BufferPair, StepBuffers
from etude.environments.vector import RAW_REWARD, Observation, Step, VectorEnvironment
from etude.errors import EnvironmentFailureError


class GymnasiumVector(VectorEnvironment):
    """Steps each copy in turn. On few cores this beats worker processes by far for environments of microseconds."""

    device = torch.device("cpu")

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int, *, first_copy: int = 0) -> None:
        self.num_envs = num_envs
        self._first_copy = first_copy  # how the first one is called where these are some of many
        self.copy_at_work: int | None = None
        """The copy that is being reset, stepped or restored, for whoever reports its failure."""
        self.on_end: Callable[[int], None] | None = None
        """Called with a copy whose episode has ended, before the next one begins: the last chance to look at it."""
        self._envs: list[gymnasium.Env[Any, Any]] = []
        for self.copy_at_work in range(num_envs):
            with self._failures_reported("making it"):
                self._envs.append(_with_own_spaces(make()))
        self.copy_at_work, first = None, self._envs[0]
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.return_threshold = first.spec.reward_threshold if first.spec else None
        self.action_repeat = _action_repeat(first)
        self.has_raw_reward = any(getattr(layer, "changes_reward", False) for layer in snapshot.layers(first)[:-1])
        """Whether a wrapper inside the copies changes rewards, and says in its info what they were."""
        self.compute_reward, self.compute_terminated = goal_functions(first)
        action_spec(first.action_space)  # refuses what no tensor can act in
        self._specs = observation_specs(first.observation_space)
        self._offset = first_value(first.action_space)
        self.buffers = BufferPair.zeros(num_envs, self._specs)
        self._is_dict = "" not in self._specs
        self._shapes = {name: spec.shape for name, spec in self._specs.items()}
        self._shape = self._shapes.get("")
        self._logs = [EpisodeLog(env) for env in self._envs] if is_rewindable(first) else []

    @property
    def copies(self) -> Sequence[gymnasium.Env[Any, Any]]:
        """The Gymnasium environments, in order."""
        return self._envs

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        buffers = self.buffers.next()
        for index, seed in zip(range(self.num_envs), seeds, strict=True):
            self.copy_at_work = index
            _seed_spaces(self._envs[index], seed)
            self._begin(index, buffers.arrays, seed)
        self.copy_at_work = None
        if self._is_plain():
            self.snapshot, self._logs = "exact", []
        else:
            self.snapshot = "rewind" if self._logs else "restart"
        return buffers.observation, {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        buffers = self.buffers.next()
        arrays, logs = buffers.arrays, self._logs
        actions = to_gymnasium(action, self.single_action_space, self._offset)
        try:
            for index, (env, one) in enumerate(zip(self._envs, actions, strict=True)):
                self.copy_at_work = index
                if logs:
                    logs[index].act(one)
                observation, reward, terminated, truncated, info = env.step(one)
                if reward is None or terminated is None or truncated is None:
                    refuse_none(reward=reward, terminated=terminated, truncated=truncated)
                if terminated or truncated:
                    self._write(buffers.finals, index, observation)
                    if self.on_end is not None:
                        self.on_end(index)
                    self._begin(index, arrays)
                else:
                    if logs:
                        logs[index].observe(observation)
                    self._write(arrays, index, observation)
                buffers.reward[index] = reward
                if self.has_raw_reward:
                    buffers.raw_reward[index] = info.get(RAW_REWARD, reward)
                buffers.terminated[index] = terminated
                buffers.truncated[index] = truncated
        except NOT_THEIRS:
            raise
        except BaseException as error:
            raise self._failure(error, "step") from error
        self.copy_at_work = None
        return buffers.as_step(complete_finals(buffers), with_raw_reward=self.has_raw_reward)

    def render(self) -> Any:
        """Return a picture of the first copy."""
        with self._failures_reported("render"):
            return self._envs[0].render()

    def close(self) -> None:
        """Close every copy, also where one fails to."""
        with ExitStack() as stack:
            for index, env in enumerate(self._envs):
                stack.enter_context(self._failures_reported("close", index))
                stack.callback(env.close)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every copy, or nothing where it can't be known."""
        if self.snapshot == "exact":
            try:
                return {"envs": [snapshot.capture(env) for env in self._envs]}
            except snapshot.NotPlainError:  # it was plain when the first episode began, and has grown something else since
                self.snapshot = "restart"
        return {"rewind": [log.state_dict() for log in self._logs]} if self.snapshot == "rewind" else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        (kind, copies), *_ = state.items()
        for index, saved in zip(range(self.num_envs), copies, strict=True):
            self.load_copy(index, kind, saved)

    def load_copy(self, index: int, kind: str, saved: Any) -> None:
        """Continue one copy; `kind` is the key of `state_dict` that `saved` comes from."""
        self.copy_at_work = index
        if kind in ("rewind", "replay"):  # the latter in older checkpoints
            self._logs = self._logs or [EpisodeLog(env) for env in self._envs]
            with self._failures_reported("rewinding its episode"):
                self._logs[index].load_state_dict(saved)
            self.snapshot = "rewind"
        else:
            snapshot.restore(self._envs[index], saved)
            self.snapshot, self._logs = "exact", []
        self.copy_at_work = None

    def _begin(self, index: int, arrays: dict[str, np.ndarray], seed: int | None = None) -> None:
        """Begin the next episode of a copy and write its first observation."""
        env = self._envs[index]
        renew_world(env)
        if self._logs:
            try:
                self._logs[index].begin(seed)
            except snapshot.NotPlainError:  # a wrapper has grown something that is not plain
                self.snapshot, self._logs = "restart", []
        try:
            observation, _ = env.reset(seed=seed)
            self._write(arrays, index, observation)
        except NOT_THEIRS:
            raise
        except BaseException as error:
            raise self._failure(error, "reset") from error
        if self._logs:
            self._logs[index].observe(observation)

    def _write(self, arrays: dict[str, np.ndarray], index: int, observation: Any) -> None:
        if not self._is_dict:
            if observation.__class__ is not np.ndarray or observation.shape != self._shape:
                check_observation(observation, self._shapes[""])
            arrays[""][index] = observation
            return
        for name, array in arrays.items():
            part = observation[name] if isinstance(observation, dict) else observation[int(name)]
            if part.__class__ is not np.ndarray or part.shape != self._shapes[name]:
                check_observation(part, self._shapes[name], name)
            array[index] = part

    @contextmanager
    def _failures_reported(self, doing: str, index: int | None = None) -> Iterator[None]:
        try:
            yield
        except NOT_THEIRS:
            raise
        except BaseException as error:
            raise self._failure(error, doing, index) from error

    def _failure(self, error: BaseException, doing: str, index: int | None = None) -> EnvironmentFailureError:
        index = self.copy_at_work if index is None else index
        known = index is not None and index < len(self._envs)
        method = getattr(self._envs[index].unwrapped, doing, None) if known else None  # type: ignore[index] # known
        return failure(error, copy=None if index is None else self._first_copy + index, doing=doing, method=method)

    def _is_plain(self) -> bool:
        try:
            snapshot.capture(self._envs[0])
        except snapshot.NotPlainError:
            return False
        return True


def complete_finals(buffers: StepBuffers) -> Observation:
    """Return where the transitions led, filling in the copies that did not end; only what ended was written so far."""
    ended = np.flatnonzero(buffers.terminated | buffers.truncated)
    if not ended.size:
        return buffers.observation
    for name, final in buffers.finals.items():
        ends = final[ended]
        final[:] = buffers.arrays[name]
        final[ended] = ends
    return buffers.final_observation


def _with_own_spaces(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Spaces declared on a class have one generator for all copies, those that evaluate included."""
    base = env.unwrapped
    for name in ("action_space", "observation_space"):
        space = getattr(type(base), name, None)
        if name not in vars(base) and isinstance(space, gymnasium.Space):
            setattr(base, name, copy.deepcopy(space))
    return env


def _action_repeat(env: gymnasium.Env[Any, Any]) -> int:
    """Wrappers that repeat actions say so in an attribute; how often a simulator steps by itself is its own affair."""
    wrappers = snapshot.layers(env)[:-1]
    return math.prod(int(vars(wrapper).get("action_repeat", 1)) for wrapper in wrappers)


def _seed_spaces(env: gymnasium.Env[Any, Any], seed: int) -> None:
    """Environments may draw from their own spaces, which begin with a random seed and are not reached by `reset`."""
    for layer in snapshot.layers(env):
        for name in ("action_space", "observation_space"):
            getattr(layer, name).seed(derive_seed(seed, name))
