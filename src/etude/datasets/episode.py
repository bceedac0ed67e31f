"""One whole episode, and many of them as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import Tensor

from etude.environments.spaces import observation_specs
from etude.environments.vector import Observation
from etude.errors import UserError

OBSERVATION, ACTION, REWARD = "observation", "action", "reward"
LENGTH, TERMINATED, SEED = "length", "terminated", "seed"
OF_EPISODES = (LENGTH, TERMINATED, SEED)
"""Columns with a row for each episode."""


@dataclass(frozen=True)
class Episode:
    """What was seen, done and paid, from the reset to the end."""

    observation: Observation
    """(T + 1, ...): the last one is where the episode ended."""
    action: Tensor
    """(T, ...): what the environment was given."""
    reward: Tensor
    """(T,)"""
    terminated: bool
    """Whether the task ended it; otherwise a time limit cut it, and the value of what would follow still counts."""
    seed: int = -1
    """What the environment was reset with, where that is known."""

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def total(self) -> float:
        """What it earned."""
        return float(self.reward.double().sum())


def parts_of(observation: Observation) -> dict[str, Tensor]:
    """Return an observation's tensors by the names of their columns."""
    if isinstance(observation, Tensor):
        return {OBSERVATION: observation}
    return {f"{OBSERVATION}.{name}": part for name, part in observation.items()}


def whole(columns: Mapping[str, Tensor]) -> Observation:
    """Return the observation that columns hold: the inverse of `parts_of`."""
    if OBSERVATION in columns:
        return columns[OBSERVATION]
    dot = f"{OBSERVATION}."
    return {name.removeprefix(dot): column for name, column in columns.items() if name.startswith(dot)}


def columns_of(episodes: Sequence[Episode]) -> dict[str, Tensor]:
    """Return episodes one after the other: observations have a row more each than actions and rewards."""
    parts = [parts_of(episode.observation) for episode in episodes]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    columns[ACTION] = torch.cat([episode.action for episode in episodes])
    columns[REWARD] = torch.cat([episode.reward.float() for episode in episodes])
    columns[LENGTH] = torch.tensor([len(episode) for episode in episodes])
    columns[TERMINATED] = torch.tensor([episode.terminated for episode in episodes])
    columns[SEED] = torch.tensor([episode.seed for episode in episodes], dtype=torch.int64)
    return columns


class Shapes:
    """What the columns of a dataset are, by its spaces: what others wrote is held to it."""

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        seen = observation_specs(observation_space)
        self.columns = {
            f"{OBSERVATION}.{name}" if name else OBSERVATION: (spec.shape, spec.dtype) for name, spec in seen.items()
        }
        acted = observation_specs(action_space)
        if set(acted) != {""}:
            raise UserError(f"actions of several parts ({action_space}) are not stored")
        self.columns[ACTION] = (acted[""].shape, acted[""].dtype)
        self.columns[REWARD] = ((), torch.float32)

    def problem(self, columns: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str | None:
        """Return in what columns, (shape of a row, type) by name, differ from what the spaces say; None where they don't."""
        names = {name for name in columns if name not in OF_EPISODES}
        if names != set(self.columns):
            return f"has the columns {', '.join(sorted(names))}, and its spaces say {', '.join(sorted(self.columns))}"
        for name, (shape, dtype) in self.columns.items():
            if columns[name] != (shape, dtype):
                found_shape, found_type = columns[name]
                return (
                    f"column {name} has rows {list(found_shape)} of {found_type}, and its space says {list(shape)} of {dtype}"
                )
        return None

    def check(self, episode: Episode) -> None:
        """Raise UserError unless an episode has the rows that it must have."""
        columns = {**parts_of(episode.observation), ACTION: episode.action, REWARD: episode.reward}
        count = len(episode)
        if not count:
            raise UserError("an episode has at least one step")
        for name, column in columns.items():
            rows = count + 1 if name.startswith(OBSERVATION) else count
            if len(column) != rows:
                raise UserError(f"an episode of {count} steps has {len(column)} rows of {name}, not {rows}")
        told = self.problem({name: (tuple(column.shape[1:]), column.dtype) for name, column in columns.items()})
        if told is not None:
            raise UserError(f"an episode {told}")
        for name, column in columns.items():
            if column.is_floating_point() and not torch.isfinite(column).all():
                raise UserError(f"an episode of {count} steps has a NaN or an infinity in {name}")
