"""Transforms: wrappers written once, for a batch of copies; one environment is a batch of one.

A transform changes what passes between a task and its learner (actions on the way in, observations and rewards on the way
out) and never when an episode ends. So it can stand around a vector environment of any kind, on any device, and inside a
single copy, with the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor

from etude.compute.trees import at, map_tree
from etude.environments.snapshots import snapshot
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import Observation, Step
from etude.errors import UserError


class Transform:
    """One change of actions, observations or rewards, for N copies at once. What a subclass does not define stays as it is.

    A step calls, in this order: `action`; the task; `observe` with the final observation of every copy; `reward`; and for the
    copies that ended, `begin` with the first observations of their next episodes.
    """

    remembers: ClassVar[tuple[str, ...]] = ()
    """The attributes that are state: tensors, dicts of them, or plain data with NumPy arrays and generators. Tensors are
    replaced, never written into: whoever was given one may still hold it. If `begin` changes them they have a row for each
    copy."""

    observation_space: gymnasium.Space[Any]
    """What the learner sees; in `prepare`, at first what the task shows."""
    action_space: gymnasium.Space[Any]
    """What the learner does; in `prepare`, at first what the task takes."""
    num_envs: int
    device: torch.device
    config: Any
    """Its settings, where it has a `Config`."""
    place: int = 0
    """Where it stands among an environment's wrappers, so that two of a kind draw different random numbers."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    def bind(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], num_envs: int, device: torch.device
    ) -> None:
        """Learn what is to be wrapped."""
        if isinstance(observation_space, spaces.Tuple):
            observation_space = spaces.Dict(leaf_spaces(observation_space))
        self.observation_space, self.action_space = observation_space, action_space
        self.num_envs, self.device = num_envs, device
        cls = type(self)
        self._changes_view, self._changes_reward = cls.observe is not Transform.observe, cls.reward is not Transform.reward
        self._hears_of_ends = self._changes_view or cls.begin is not Transform.begin
        self.prepare()

    def prepare(self) -> None:
        """Check the spaces and set those that the learner sees; raise UserError where they do not suit."""

    def seed(self, seeds: Sequence[int]) -> None:
        """Begin random streams anew, that of copy i from `seeds[i]`."""

    def begin(self, observation: Observation, copies: Tensor) -> Observation:
        """Take the first observations (K, ...) of new episodes in these copies (K,) and return what is seen of them."""
        return observation

    def action(self, action: Tensor) -> Tensor:
        """Return what the task is to do, (N, ...)."""
        return action

    def observe(self, observation: Observation) -> Observation:
        """Take what every copy shows after one step, (N, ...), and return what is seen of it."""
        return observation

    def reward(self, reward: Tensor, observation: Observation, terminated: Tensor) -> Tensor:
        """Return the reward (N,) of a step to `observation`, as the task showed it."""
        return reward

    def relabel(self, reward: Tensor) -> Tensor | None:
        """Return rewards that were computed for other goals as this would have changed them; None if that can't be known."""
        return reward if type(self).reward is Transform.reward else None

    def step(self, step: Step, ended: Tensor | None) -> Step:
        """Pass one vector step on to the learner; `ended` are the copies (K,) whose episodes ended, None where none did."""
        inner_final, reward = step.final_observation, step.reward
        final = self.observe(inner_final) if self._changes_view else inner_final
        if self._changes_reward:
            reward = self.reward(reward, inner_final, step.terminated)
        if ended is None:
            return step._replace(observation=final, reward=reward, final_observation=final)
        seen = step.observation
        if self._hears_of_ends:
            first = self.begin(at(seen, ended), ended)
            seen = _put(seen, inner_final, final, ended, first)
        return step._replace(observation=seen, reward=reward, final_observation=final)

    def step_on_device(self, step: Step, ended: Tensor, everyone: Tensor) -> Step:
        """The same without asking a device which copies `ended` (N,): all begin anew, and those that did not end forget it.

        `everyone` are the copies (N,). An accelerator that is never asked need never wait.
        """
        inner_final, reward, seen = step.final_observation, step.reward, step.observation
        final = self.observe(inner_final) if self._changes_view else inner_final
        if self._changes_reward:
            reward = self.reward(reward, inner_final, step.terminated)
        if self._hears_of_ends:
            before = {name: getattr(self, name) for name in self.remembers}
            first = self.begin(seen, everyone)
            for name, value in before.items():
                if _is_tensors(value):
                    setattr(self, name, _choose(ended, getattr(self, name), value))
            seen = seen if final is inner_final else _choose(ended, first, final)
        return step._replace(observation=seen, reward=reward, final_observation=final)

    def state_dict(self) -> dict[str, Any]:
        """Return what it remembers."""
        values = {name: getattr(self, name) for name in self.remembers}
        return {name: value if _is_tensors(value) else snapshot.encode(value) for name, value in values.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember what was saved."""
        for name in self.remembers:
            is_tensors = _is_tensors(getattr(self, name))
            setattr(self, name, self._moved(state[name]) if is_tensors else snapshot.decode(state[name]))

    def _moved(self, value: Observation) -> Observation:
        return map_tree(lambda tensor: tensor.to(self.device, copy=True), value)


class PartTransform(Transform):
    """Changes one tensor of an observation: the only one, or that under a key of a Dict observation."""

    wants: ClassVar[str] = "a box of numbers"
    """What that tensor must be, in words."""

    def __init__(self, key: str | None = None) -> None:
        super().__init__()
        self._key = key

    def suits(self, space: gymnasium.Space[Any]) -> bool:
        """Whether a part of an observation can be changed by this."""
        return isinstance(space, spaces.Box)

    def prepare_part(self, space: Any) -> gymnasium.Space[Any]:
        """Return the space of the part afterwards."""
        return space

    def begin_part(self, value: Tensor, copies: Tensor) -> Tensor:
        """`begin`, of the part alone."""
        return self.observe_part(value)

    def observe_part(self, value: Tensor) -> Tensor:
        """`observe`, of the part alone."""
        return value

    def prepare(self) -> None:
        """Find the part."""
        leaves = leaf_spaces(self.observation_space)
        if "" in leaves:
            if self._key is not None:
                raise UserError(f"key={self._key}: observations are {_brief(self.observation_space)}, which has no keys")
            if not self.suits(leaves[""]):
                raise UserError(f"needs {self.wants}, and observations are {_brief(self.observation_space)}")
            self.observation_space = self.prepare_part(leaves[""])
            return
        suitable = [key for key, space in leaves.items() if self.suits(space)]
        if self._key is None and len(suitable) != 1:
            known = ", ".join(suitable or leaves)
            raise UserError(f"needs {self.wants}; which part of the observation is meant? set key, one of {known}")
        key = self._key if self._key is not None else suitable[0]
        if key not in suitable:
            reason = f"is {_brief(leaves[key])}, and this needs {self.wants}" if key in leaves else "is no part of it"
            raise UserError(f"key={key}: {reason} (the observation has {', '.join(leaves)})")
        self._key = key
        self.observation_space = spaces.Dict({**leaves, key: self.prepare_part(leaves[key])})

    def begin(self, observation: Observation, copies: Tensor) -> Observation:
        """Change the part."""
        if isinstance(observation, dict):
            return {**observation, self._name: self.begin_part(observation[self._name], copies)}
        return self.begin_part(observation, copies)

    def observe(self, observation: Observation) -> Observation:
        """Change the part."""
        if isinstance(observation, dict):
            return {**observation, self._name: self.observe_part(observation[self._name])}
        return self.observe_part(observation)

    @property
    def _name(self) -> str:
        assert self._key is not None, "a Dict observation has keys"
        return self._key


def _is_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, dict) and all(isinstance(part, Tensor) for part in value.values()))


def _brief(space: gymnasium.Space[Any]) -> str:
    """A space in a few words: the bounds of a large box would fill pages."""
    if isinstance(space, spaces.Box):
        return f"a box of shape {space.shape} and type {space.dtype}"
    return str(space)


def _choose(which: Tensor, one: Observation, other: Observation) -> Observation:
    """Return rows of `one` where `which` (N,), of `other` elsewhere."""

    def choose(one: Tensor, other: Tensor) -> Tensor:
        return one if one is other else torch.where(which.view(-1, *[1] * (one.ndim - 1)), one, other)

    return map_tree(choose, one, other)


def _put(after: Observation, inner_final: Observation, final: Observation, rows: Tensor, first: Observation) -> Observation:
    """Return what is seen next: `final`, with `first` in the rows that began anew; what was not changed is not copied."""
    if isinstance(final, dict):
        assert isinstance(first, dict)
        before = inner_final if isinstance(inner_final, dict) else {}
        now = after if isinstance(after, dict) else {}
        return {
            key: now[key] if value is before.get(key) else value.index_copy(0, rows, first[key]) for key, value in final.items()
        }
    assert not isinstance(first, dict)
    return after if final is inner_final else final.index_copy(0, rows, first)
