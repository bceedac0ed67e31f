"""Episodes made by hand, and datasets of them."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from etude.datasets.dataset import Dataset
from etude.datasets.episode import Episode
from etude.datasets.manifest import Manifest, Origin
from etude.datasets.places import folder_of
from etude.datasets.writer import writing
from etude.environments.space_data import to_data

SEEN: gymnasium.Space = spaces.Box(-10.0, 10.0, (3,))
DONE: gymnasium.Space = spaces.Box(-1.0, 1.0, (2,))

PENDULUM: tuple[gymnasium.Space, gymnasium.Space] = (
    spaces.Box(np.array([-1, -1, -8.0], np.float32), np.array([1, 1, 8.0], np.float32)),
    spaces.Box(-2.0, 2.0, (1,)),
)
CARTS: tuple[gymnasium.Space, gymnasium.Space] = (spaces.Box(-5.0, 5.0, (4,)), spaces.Discrete(2))
LEARN_FROM_DATA = ("bc", "diffusion_policy", "iql", "td3_bc")
"""Algorithms that do nothing without a dataset."""


def write_lines(root: Path) -> None:
    """Demonstrations of a line, `carts` and `pendulum`: the action follows from the first number that is seen."""
    generator = torch.Generator().manual_seed(0)
    for name, (observation, action) in {"carts": CARTS, "pendulum": PENDULUM}.items():
        with writing(folder_of(name, root), manifest(observation, action)) as writer:
            for number in range(6):
                seen = torch.rand(21, *(observation.shape or ()), generator=generator) * 2 - 1
                done = (seen[:-1, 0] > 0).long() if name == "carts" else seen[:-1, :1] * 1.5
                writer.add(Episode(seen, done, torch.rand(20, generator=generator), terminated=number % 2 == 0))


def episode(steps: int, seed: int = 0, *, terminated: bool = True, observation: gymnasium.Space = SEEN) -> Episode:
    generator = torch.Generator().manual_seed(seed)

    def seen(space: gymnasium.Space) -> torch.Tensor:
        values = torch.rand(steps + 1, *(space.shape or ()), generator=generator)
        return (values * 255).to(torch.uint8) if space.dtype == "uint8" else values

    whole = {name: seen(part) for name, part in observation.spaces.items()} if isinstance(observation, spaces.Dict) else None
    action = torch.rand(steps, 2, generator=generator) * 2 - 1
    reward = torch.rand(steps, generator=generator)
    return Episode(seen(observation) if whole is None else whole, action, reward, terminated, seed)


def manifest(observation: gymnasium.Space = SEEN, action: gymnasium.Space = DONE, **origin: object) -> Manifest:
    return Manifest(to_data(observation), to_data(action), Origin(**origin), {"id": "Task-v0"})  # type: ignore[arg-type]


def write(root: Path, name: str = "some/data", *lengths: int, observation: gymnasium.Space = SEEN) -> Dataset:
    with writing(folder_of(name, root), manifest(observation)) as writer:
        for seed, steps in enumerate(lengths or (5, 3, 7)):
            writer.add(episode(steps, seed, terminated=seed % 2 == 0, observation=observation))
    return Dataset.open(name, root)


def seen(episode: Episode) -> torch.Tensor:
    assert isinstance(episode.observation, torch.Tensor)
    return episode.observation


def same(ours: Episode, theirs: Episode) -> bool:
    seen, other = (each if isinstance(each, dict) else {"": each} for each in (ours.observation, theirs.observation))
    return (
        set(seen) == set(other)
        and all(torch.equal(seen[name], other[name]) for name in seen)
        and torch.equal(ours.action, theirs.action)
        and torch.equal(ours.reward, theirs.reward)
        and ours.terminated == theirs.terminated
    )
