"""What one may ask of any environment, be it copies in this process or in workers, native, or wrapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from torch import Tensor

from etude.config.schema import EnvironmentConfig
from etude.environments.episode_limit import episode_limit
from etude.environments.rendering import Camera, frames_per_second
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.environments.wrappers.batched import TransformedVector
from etude.files.video import VideoWriter


def return_threshold(environment: VectorEnvironment) -> float | None:
    """Return the mean return at which the task counts as solved, or None where nobody said."""
    return environment.return_threshold


def max_episode_steps(environment: VectorEnvironment | EnvironmentConfig) -> int | None:
    """Return after how many environment steps an episode is cut, by the task or a wrapper; None where it is not."""
    if isinstance(environment, EnvironmentConfig):
        return episode_limit(environment)
    return environment.base.max_episode_steps


def shows_pictures(environment: VectorEnvironment) -> bool:
    """Whether a part of an observation is a picture."""
    return any(is_picture(space) for space in leaf_spaces(environment.single_observation_space).values())


def is_picture(space: gymnasium.Space[object]) -> bool:
    """Whether a space holds pictures: bytes with a height, a width and perhaps channels."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


@contextmanager
def recorder(environment: VectorEnvironment, path: Path | str, *, fps: float | None = None) -> Iterator[VectorEnvironment]:
    """Lend an environment that records its first copy into a video, a frame for each reset and step, until the block ends.

    The environment must have been made with `render_mode="rgb_array"`.
    """
    with VideoWriter(path, fps or frames_per_second(environment)) as video:
        yield _Recorded(environment, video)


class _Recorded(TransformedVector):
    """Passes everything on, and takes pictures."""

    def __init__(self, inner: VectorEnvironment, video: VideoWriter) -> None:
        super().__init__(inner, ())
        self._video = video
        self._camera = Camera(inner, "this environment")

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        result = super().reset(seeds)
        self._video.add(self._camera.take())
        return result

    def step(self, action: Tensor) -> Step:
        step = super().step(action)
        ended = bool(step.terminated[0] | step.truncated[0])
        picture = self._camera.take_after_step(ended=ended)
        self._video.add(self._camera.take() if picture is None else picture)
        return step
