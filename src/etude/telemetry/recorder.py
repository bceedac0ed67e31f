"""Where the pictures of an episode go: to one file, or to one file an episode in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from etude.errors import UserError
from etude.files.video import FORMATS, VideoWriter, find_ffmpeg, grid


class Recorder:
    """Writes what several environments show, side by side in `rows` and `columns`, up to `length` frames.

    A target that ends in .mp4 or .gif is the file. Another one is a folder, with a file for each episode. As a context
    manager it finishes the file, or leaves none behind where something failed.
    """

    def __init__(self, target: Path | str, *, fps: float, rows: int = 1, columns: int = 1, length: int | None = None) -> None:
        self.target = Path(target)
        self.rows, self.columns, self.fps, self.length = rows, columns, fps, length
        self.frames = 0
        self.files: list[Path] = []
        """What has been written, whole."""
        self._writer: VideoWriter | None = None
        self._is_folder = self.target.is_dir() or not self.target.suffix
        find_ffmpeg()  # before anything is played
        if not self._is_folder:
            VideoWriter(self.target, fps)
        elif rows * columns > 1:
            raise UserError(f"video {self.target}: several environments in a grid need one file, .mp4 or .gif, not a folder")
        elif length is not None:
            raise UserError(f"video {self.target}: a number of frames needs one file, {' or '.join(FORMATS)}, not a folder")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        writer = self._writer
        if kind is None:
            self._finish()
        elif writer is not None:
            writer.discard()

    @property
    def is_full(self) -> bool:
        """Whether it has all the frames that it was to have."""
        return self.length is not None and self.frames >= self.length

    def begin(self, number: int) -> None:
        """Episode `number`, or several from it on, begins."""
        if self._writer is None:
            file = self.target / f"episode-{number:03d}.mp4" if self._is_folder else self.target
            self._writer = VideoWriter(file, self.fps)

    def add(self, pictures: Sequence[np.ndarray | None]) -> None:
        """Append one frame, made of what each environment shows."""
        assert self._writer is not None, "begin() comes first"
        if not self.is_full:
            single = pictures[0] if self.rows * self.columns == 1 else None
            self._writer.add(grid(pictures, self.rows, self.columns) if single is None else single)
            self.frames += 1

    def end(self) -> None:
        """The episodes that began last are over."""
        if self._is_folder:
            self._finish()

    def _finish(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            if writer.frames:
                self.files.append(writer.path)
