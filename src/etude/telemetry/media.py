"""Videos and pictures that an algorithm makes of what it learnt: files of the run, and what sinks show of them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from etude.errors import EtudeError
from etude.files.atomic import write_bytes_atomic
from etude.files.png import png_bytes
from etude.files.regular import own_folder
from etude.files.video import VideoWriter

FPS = 15.0
_NAME = re.compile(r"[A-Za-z0-9_-]+")


class Medium(NamedTuple):
    """A video or a picture."""

    pixels: np.ndarray
    """(T, H, W, 3) or (H, W, 3), bytes."""
    path: Path
    """The file: .mp4 or .png."""

    @property
    def is_video(self) -> bool:
        """Whether it moves."""
        return self.pixels.ndim == 4

    def encoded(self) -> bytes:
        """Return it as what a browser shows in place of a picture: PNG, or GIF if it moves."""
        if not self.is_video:
            return png_bytes(self.pixels)
        with tempfile.TemporaryDirectory() as folder:
            return _write_video(Path(folder, "video.gif"), self.pixels).read_bytes()


Media = Mapping[str, Medium]


def write_media(folder: Path, env_steps: int, media: Mapping[str, Any]) -> dict[str, Medium]:
    """Write videos and pictures, arrays by name, as files of a folder; named by their moment, and whole or not there."""
    written = {}
    for name, given in media.items():
        pixels = np.asarray(given)
        if not _NAME.fullmatch(name):
            raise EtudeError(f"media '{name}': the name must be of letters, digits, _ and -")
        if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
            raise EtudeError(
                f"media '{name}': {pixels.dtype} of shape {pixels.shape}, wanted uint8 of (T, height, width, 3) or (height, "
                "width, 3)"
            )
        file = own_folder(folder) / f"steps-{env_steps:010d}-{name}"
        if pixels.ndim == 4:
            path = _write_video(file.with_suffix(".mp4"), pixels)
        else:
            path = file.with_suffix(".png")
            write_bytes_atomic(path, png_bytes(pixels))
        written[name] = Medium(pixels, path)
    return written


def _write_video(path: Path, pixels: np.ndarray) -> Path:
    with VideoWriter(path, FPS) as video:
        for frame in pixels:
            video.add(frame)
    return path
