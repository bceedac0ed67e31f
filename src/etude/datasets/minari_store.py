"""Minari both ways: its datasets to ours, and ours to its."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from etude.datasets.dataset import Dataset
from etude.datasets.episode import Episode
from etude.datasets.foreign_files import check_hdf5
from etude.environments.spaces import leaf_spaces, observation_specs
from etude.errors import MissingPackageError, UserError
from etude.files.printable import one_line

PREFIX = "minari:"
"""What a Minari dataset is called on the command line: `minari:mujoco/hopper/expert-v0`."""


class MinariSource:
    """A Minari dataset on this machine."""

    def __init__(self, name: str) -> None:
        minari = _minari()
        root = Path(_storage().get_dataset_path(""))
        folder = root / name
        for part in (folder, *folder.parents):
            if part == root:
                break
            if ".." in part.parts or part.is_symlink():
                raise UserError(f"{PREFIX}{one_line(name)}: {part} is a link or leads elsewhere, which is never followed here")
        if not (folder / "data").is_dir():
            raise UserError(
                f"{PREFIX}{one_line(name)}: there is none in {root}; fetch it with `minari download {one_line(name)}`"
            )
        for file in sorted((folder / "data").glob("*.hdf5")):
            check_hdf5(file)
        try:
            self._dataset = _quietly(minari.load_dataset, name, download=False)
        except (ValueError, OSError, KeyError, TypeError) as error:
            raise UserError(f"{PREFIX}{name}: not readable ({one_line(str(error))})") from None
        self.observation_space: gymnasium.Space[Any] = self._dataset.spec.observation_space
        self.action_space: gymnasium.Space[Any] = self._dataset.spec.action_space

    @property
    def task(self) -> str:
        """The id of its environment; empty where it names none."""
        spec = self._dataset.spec.env_spec
        return "" if spec is None else str(spec.id)

    def episodes(self) -> Iterator[Episode]:
        """Yield its episodes; doubles become singles."""
        seen, acted = observation_specs(self.observation_space), observation_specs(self.action_space)[""]
        for found in self._dataset.iterate_episodes():
            parts = {name: _part(found.observations, name) for name in leaf_spaces(self.observation_space)}
            columns = {name: _tensor(part, seen[name].numpy_dtype) for name, part in parts.items()}
            yield Episode(
                columns[""] if set(columns) == {""} else columns,
                _tensor(found.actions, acted.numpy_dtype),
                _tensor(found.rewards, np.float32),
                bool(found.terminations[-1]),
            )


def write_minari(dataset: Dataset, name: str) -> None:
    """Write a dataset of ours as a Minari dataset of a new name."""
    minari = _minari()
    episode_buffer = importlib.import_module("minari.data_collector").EpisodeBuffer

    if Path(_storage().get_dataset_path(name)).exists():
        raise UserError(f"{PREFIX}{name}: is there already; choose another name")

    def buffer(index: int, episode: Episode) -> Any:
        count = len(episode)
        terminations, truncations = np.zeros(count, bool), np.zeros(count, bool)
        terminations[-1], truncations[-1] = episode.terminated, not episode.terminated
        seed = None if episode.seed < 0 else episode.seed
        return episode_buffer(
            id=index,
            seed=seed,
            observations=_theirs(episode.observation, dataset.observation_space),
            actions=episode.action.numpy().astype(dataset.action_space.dtype),
            rewards=episode.reward.double().numpy(),
            terminations=terminations,
            truncations=truncations,
        )

    origin = dataset.manifest.origin
    task = dataset.manifest.task
    known = task if task in gymnasium.registry else None
    buffers = [buffer(index, episode) for index, episode in enumerate(dataset.episodes())]
    try:
        _quietly(
            minari.create_dataset_from_buffers,
            name,
            buffers,
            env=known,
            observation_space=dataset.observation_space,
            action_space=dataset.action_space,
            algorithm_name=origin.algorithm or "",
            description=dataset.manifest.description or f"Written by Etude from {origin.kind} {origin.source}",
            author="",
            author_email="",
            code_permalink="",
        )
    except (ValueError, AssertionError) as error:
        raise UserError(f"{PREFIX}{name}: Minari does not take it ({one_line(str(error))})") from None


def _quietly(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call what warns of things that were left out on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def _theirs(observation: Any, space: gymnasium.Space[Any]) -> Any:
    if isinstance(observation, torch.Tensor):
        return observation.numpy().astype(space.dtype)
    parts = {name: observation[name].numpy().astype(part.dtype) for name, part in leaf_spaces(space).items()}
    return tuple(parts.values()) if isinstance(space, spaces.Tuple) else parts


def _part(observations: Any, name: str) -> Any:
    if not name:
        return observations
    return observations[int(name)] if isinstance(observations, tuple) else observations[name]


def _tensor(values: Any, dtype: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=dtype))


def _minari() -> Any:
    try:
        return importlib.import_module("minari")
    except ModuleNotFoundError:
        way_out = "install it with: pip install 'etude[datasets]'"
        raise MissingPackageError(f"Minari datasets need the package minari; {way_out}") from None


def _storage() -> Any:
    return importlib.import_module("minari.storage")
