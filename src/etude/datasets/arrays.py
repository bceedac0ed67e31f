"""Flat arrays of many episodes, as D4RL has them, to episodes and back.

    observations (S, ...)   actions (S, ...)   rewards (S,)   terminals (S,)   timeouts (S,)   next_observations (S, ...)

A step ends an episode where `terminals` or `timeouts` says so, or where the next row does not begin with what the step led to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from etude.datasets.episode import Episode, parts_of
from etude.environments.spaces import observation_specs
from etude.errors import UserError

OBSERVATIONS, NEXT_OBSERVATIONS = "observations", "next_observations"
_ALIASES = {
    "observations": ("observations", "obs", "observation", "states"),
    "next_observations": ("next_observations", "next_obs", "next_observation", "next_states"),
    "actions": ("actions", "action", "acts"),
    "rewards": ("rewards", "reward"),
    "terminals": ("terminals", "terminations", "terminated", "dones", "done"),
    "timeouts": ("timeouts", "truncations", "truncated"),
}


def known_names() -> set[str]:
    """Return every name under which such a file may have an array that is read."""
    return {name for names in _ALIASES.values() for name in names}


@dataclass(frozen=True)
class FlatArrays:
    """The arrays of such a file; observations of several parts by name, of one under the empty name."""

    observations: dict[str, np.ndarray]
    actions: np.ndarray
    rewards: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray | None
    next_observations: dict[str, np.ndarray] | None

    @classmethod
    def of(cls, found: Mapping[str, np.ndarray], where: str) -> FlatArrays:
        """Take what is known from named arrays: `observations`, or `observations/KEY` where there are several parts."""

        def parts(kind: str) -> dict[str, np.ndarray]:
            for name in _ALIASES[kind]:
                if name in found:
                    return {"": found[name]}
                inside = {key.partition("/")[2]: value for key, value in found.items() if key.startswith(f"{name}/")}
                if inside:
                    return inside
            return {}

        named = {kind: parts(kind) for kind in _ALIASES}
        for kind in ("observations", "actions", "rewards", "terminals"):
            if not named[kind]:
                listed = ", ".join(sorted(found)[:12]) or "nothing"
                raise UserError(f"{where}: has no '{kind}'; it has {listed}")
        rewards = named["rewards"][""].reshape(-1)
        count = len(rewards)
        for kind, arrays in named.items():
            for key, array in arrays.items():
                if len(array) != count:
                    raise UserError(f"{where}: {kind}{key and '/' + key} has {len(array)} rows, and rewards {count}")
        return cls(
            named["observations"],
            named["actions"].get("", np.empty(0)),
            rewards.astype(np.float32),
            named["terminals"][""].reshape(-1).astype(bool),
            named["timeouts"][""].reshape(-1).astype(bool) if named["timeouts"] else None,
            named["next_observations"] or None,
        )

    def guessed_spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
        """Return the spaces that fit these arrays, where no environment says them."""
        parts = {name: _space(array, bounded=False) for name, array in self.observations.items()}
        observation = parts[""] if set(parts) == {""} else spaces.Dict(parts)
        return observation, _space(self.actions, bounded=True)

    def episodes(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> Iterator[tuple[Episode, bool]]:
        """Yield episodes, and whether one lost its last step because nothing says where that led."""
        specs, after = observation_specs(observation_space), self.next_observations
        seen = {name: _cast(array, specs, name) for name, array in self.observations.items()}
        led = None if after is None else {name: _cast(array, specs, name) for name, array in after.items()}
        actions, rewards = _cast(self.actions, observation_specs(action_space), ""), torch.from_numpy(self.rewards)
        first = 0
        for end in self._ends():
            terminated = bool(self.terminals[end])
            drops = led is None and not terminated
            stop = end if drops else end + 1
            if stop > first:
                observation = {}
                for name, column in seen.items():
                    last = column[end : end + 1] if led is None else led[name][end : end + 1]
                    observation[name] = torch.cat([column[first:stop], last])
                whole = observation[""] if set(observation) == {""} else observation
                yield Episode(whole, actions[first:stop].clone(), rewards[first:stop].clone(), terminated), drops
            first = end + 1

    def _ends(self) -> list[int]:
        ends = self.terminals.copy() if self.timeouts is None else self.terminals | self.timeouts
        if self.next_observations is not None and len(ends) > 1:
            for name, array in self.observations.items():
                follows = (array[1:] == self.next_observations[name][:-1]).reshape(len(array) - 1, -1).all(1)
                ends[:-1] |= ~follows
        if len(ends):
            ends[-1] = True
        return np.flatnonzero(ends).tolist()


def flattened(episodes: Iterator[Episode]) -> dict[str, np.ndarray]:
    """Return episodes as such arrays, with `next_observations`, so that nothing is lost."""
    gathered: dict[str, list[np.ndarray]] = {}
    for episode in episodes:
        count = len(episode)
        ends = np.zeros(count, bool)
        ends[-1] = True
        rows = {"actions": episode.action.numpy(), "rewards": episode.reward.numpy()}
        rows |= {"terminals": ends & episode.terminated, "timeouts": ends & (not episode.terminated)}
        for column, part in parts_of(episode.observation).items():
            key = column.partition(".")[2]
            slash = f"/{key}" if key else ""
            rows |= {f"{OBSERVATIONS}{slash}": part[:-1].numpy(), f"{NEXT_OBSERVATIONS}{slash}": part[1:].numpy()}
        for name, array in rows.items():
            gathered.setdefault(name, []).append(array)
    return {name: np.concatenate(arrays) for name, arrays in gathered.items()}


def _cast(array: np.ndarray, specs: Mapping[str, Any], name: str) -> torch.Tensor:
    """Return an array in the shape and type that a space says, where that loses nothing but precision."""
    if name not in specs:
        raise UserError(f"the observations have a part '{name}', and the environment's have {', '.join(specs)}")
    spec, label = specs[name], f"part '{name}'" if name else "array"
    shaped = array.reshape(len(array), *spec.shape) if array[0:1].size == np.prod(spec.shape, dtype=int) else array
    if shaped.shape[1:] != spec.shape:
        raise UserError(f"an {label} has rows of shape {list(array.shape[1:])}, and the space says {list(spec.shape)}")
    wanted = spec.numpy_dtype
    if array.dtype.kind == "f" and np.dtype(wanted).kind in "iu" and not (array == np.round(array)).all():
        raise UserError(f"an {label} has fractions, and the space says {wanted}")
    return torch.from_numpy(np.ascontiguousarray(shaped, dtype=wanted))


def _space(array: np.ndarray, *, bounded: bool) -> gymnasium.Space[Any]:
    shape = array.shape[1:]
    if array.dtype.kind in "iu" and bounded and not shape:
        return spaces.Discrete(int(array.max(initial=0)) + 1)
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, shape, np.uint8)
    if not bounded:
        return spaces.Box(-np.inf, np.inf, shape, np.float32)
    reach = np.maximum(1.0, np.abs(array).max(axis=0)).astype(np.float32)
    return spaces.Box(-reach, reach, shape, np.float32)
