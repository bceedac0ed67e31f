"""Videos of the episodes that training lives through: `environment.wrappers: [{id: video, every: 100}]`."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium

from etude.config.constraints import PositiveFloat, PositiveInt
from etude.environments.rendering import DEFAULT_FPS, draw
from etude.environments.wrappers.options import WrapperConfig
from etude.errors import EtudeError
from etude.files.video import VideoWriter, find_ffmpeg

_recording: dict[Path, weakref.ref[RecordEpisodes]] = {}
"""Who records into a folder: of many copies in a process, the first."""


@dataclass(frozen=True)
class RecordEpisodesConfig(WrapperConfig):
    """Which episodes, and where to."""

    id: str = "video"
    folder: str = "videos"
    """Where the files go, seen from where training was started: episode-000001-1234.mp4, with the number of the process."""
    every: PositiveInt = 1
    """Record the first episode, and then every n-th."""
    length: PositiveInt | None = None
    """The most frames of a video. Default: the whole episode."""
    fps: PositiveFloat | None = None
    """Frames per second. Default: the task's own."""
    training_only: bool = True
    """Evaluate and play without it."""


class RecordEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records episodes of the first copy in each process. Frames go to the file one by one; none is kept."""

    Config = RecordEpisodesConfig
    needs_pictures: ClassVar[bool] = True

    def __init__(self, env: gymnasium.Env[Any, Any], config: RecordEpisodesConfig) -> None:
        super().__init__(env)
        find_ffmpeg()  # what is missing is said before the run begins
        if env.render_mode != "rgb_array":
            raise EtudeError(f"video: the task draws no pictures (render_mode is {env.render_mode})")
        self._config = config
        self._fps = config.fps or float(env.metadata.get("render_fps") or DEFAULT_FPS)
        self._folder = Path(config.folder).absolute()
        self._episodes = 0
        self._video: VideoWriter | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode, and perhaps a video of it."""
        self._finish()
        result = self.env.reset(seed=seed, options=options)
        if self._episodes % self._config.every == 0 and self._is_first():
            name = f"episode-{self._episodes + 1:06d}-{os.getpid()}.mp4"
            self._video = VideoWriter(self._folder / name, self._fps)
            self._add_frame()
        self._episodes += 1
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and take a picture."""
        result = self.env.step(action)
        if self._video is not None:
            self._add_frame()
            if result[2] or result[3]:
                self._finish()
        return result

    def close(self) -> None:
        """Finish the video that is being made."""
        self._finish()
        if self._is_first():
            _recording.pop(self._folder, None)
        super().close()

    def state_dict(self) -> dict[str, Any]:
        """Return how many episodes began; a video that was being made ends where the process did."""
        return {"episodes": self._episodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting."""
        if self._video is not None:
            self._video.discard()
        self._video, self._episodes = None, state["episodes"]

    def _add_frame(self) -> None:
        assert self._video is not None
        self._video.add(draw(self.env))
        if self._video.frames == self._config.length:
            self._finish()

    def _finish(self) -> None:
        video, self._video = self._video, None
        if video is not None:
            video.close()

    def _is_first(self) -> bool:
        first = _recording.get(self._folder)
        if first is None or first() is None:
            _recording[self._folder] = weakref.ref(self)
            return True
        return first() is self
