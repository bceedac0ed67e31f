"""What a dataset holds, in numbers and as a picture."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.datasets.dataset import Dataset
from etude.datasets.episode import ACTION, LENGTH, OBSERVATION, OF_EPISODES, REWARD, TERMINATED
from etude.datasets.manifest import DatasetError, spread
from etude.errors import MissingPackageError

SHOWN = 8
"""Frames of the first episode in a picture."""


def summary(dataset: Dataset) -> dict[str, Any]:
    """Return what the manifest alone says: episodes, steps, bytes and returns."""
    manifest = dataset.manifest
    return {
        "episodes": manifest.episodes,
        "steps": manifest.steps,
        "bytes": manifest.nbytes,
        "environment": manifest.task,
        "return": spread(manifest.returns),
    }


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Return mean, spread and range of every column, a segment at a time; every file is held to its hash."""
    moments: dict[str, _Moments] = {}
    lengths: list[int] = []
    terminated = 0
    for segment in dataset.manifest.segments:
        with dataset.open_segment(segment) as file:
            lengths += file.read(LENGTH).tolist()
            terminated += int(file.read(TERMINATED).sum())
            for name in file.columns:
                if name not in OF_EPISODES:
                    moments.setdefault(name, _Moments()).add(file.read(name))
    if not lengths:
        raise DatasetError(f"{dataset.folder}: has no episode yet")
    columns = {name: each.told() for name, each in moments.items()}
    actions = columns[ACTION]
    space = dataset.action_space
    if isinstance(space, spaces.Discrete):
        actions["counts"] = moments[ACTION].counts(int(space.start), int(space.n))
    return {
        **summary(dataset),
        "length": spread([float(length) for length in lengths]),
        "terminated": terminated,
        "columns": columns,
    }


class _Moments:
    """Mean, spread and range of a column's entries, dimension by dimension where these are few."""

    def __init__(self) -> None:
        self._count, self._mean, self._m2 = 0, torch.zeros(()), torch.zeros(())
        self._low, self._high = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        self._seen: dict[int, int] = {}

    def add(self, column: Tensor) -> None:
        flat = column.reshape(len(column), -1).double()
        if flat.shape[1] > 64:  # pictures: all pixels together
            flat = flat.reshape(-1, 1)
        if column.ndim == 1 and not column.is_floating_point():
            for value, count in zip(*(part.tolist() for part in column.unique(return_counts=True)), strict=True):
                self._seen[int(value)] = self._seen.get(int(value), 0) + count
        count, mean = len(flat), flat.mean(0)
        total, delta = self._count + count, mean - self._mean
        self._m2 = self._m2 + (flat - mean).square().sum(0) + delta.square() * (self._count * count / total)
        self._mean = self._mean + delta * (count / total)
        self._low, self._high = torch.minimum(self._low, flat.amin(0)), torch.maximum(self._high, flat.amax(0))
        self._count = total

    def told(self) -> dict[str, Any]:
        return {
            "mean": self._mean.tolist(),
            "std": (self._m2 / max(1, self._count)).sqrt().tolist(),
            "min": self._low.tolist(),
            "max": self._high.tolist(),
        }

    def counts(self, start: int, n: int) -> list[int]:
        return [self._seen.get(start + index, 0) for index in range(n)]


def picture(dataset: Dataset) -> bytes:
    """Return a PNG: returns, lengths and actions as histograms, and frames of the first episode where they are pictures."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise MissingPackageError("pictures need matplotlib; install it with: pip install 'etude[plots]'") from None
    columns = dataset.load()
    frames = _frames(dataset)
    figure = Figure(figsize=(12, 3.2 if frames is None else 5.2), layout="constrained")
    grid = figure.add_gridspec(1 if frames is None else 2, 4)
    drawn = {
        "return of an episode": np.array(dataset.manifest.returns),
        "steps of an episode": columns[LENGTH].numpy(),
        "reward of a step": columns[REWARD].numpy(),
        "actions": columns[ACTION].flatten().numpy(),
    }
    for position, (label, values) in enumerate(drawn.items()):
        axes = figure.add_subplot(grid[0, position])
        axes.hist(values, bins=40, color="#3b6ea5")
        axes.set_xlabel(label)
    if frames is not None:
        inner = grid[1, :].subgridspec(1, len(frames))
        for position, frame in enumerate(frames):
            axes = figure.add_subplot(inner[0, position])
            axes.imshow(frame)
            axes.set_axis_off()
    task = dataset.manifest.task or dataset.folder.name
    figure.suptitle(f"{task} · {len(dataset)} episodes · {dataset.manifest.steps:,} steps")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def _frames(dataset: Dataset) -> list[np.ndarray] | None:
    """Return frames (H, W, 3) of the first episode, evenly spread; None where nothing in it is a picture."""
    first = next(dataset.episodes())
    parts = first.observation if isinstance(first.observation, dict) else {OBSERVATION: first.observation}
    for part in parts.values():
        if part.dtype is torch.uint8 and part.ndim == 4:
            channels_first = part.shape[1] < part.shape[-1]
            seen = part.movedim(1, -1) if channels_first else part
            seen = seen[..., :3] if seen.shape[-1] >= 3 else seen[..., -1:].expand(*seen.shape[:-1], 3)
            index = torch.linspace(0, len(seen) - 1, min(SHOWN, len(seen))).long()
            return [frame.numpy() for frame in seen[index]]
    return None
