"""Videos: frames go to ffmpeg one by one, and the file appears when it is whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from etude.errors import EtudeError, UserError

FORMATS = (".mp4", ".gif")
_GIF_FPS = 50.0  # delays are whole hundredths of a second, and viewers slow down what is faster
_CLOSING_S = 120.0
# One palette a frame: a common one would mean keeping every frame until the last has come.
_GIF = ("-filter_complex", "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1", "-loop", "0", "-f", "gif")
# yuv420p and the index in front are what browsers play, and play before the whole file is there.
_MP4 = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4")


def check_format(path: Path) -> None:
    """Refuse a file whose format can't be written, by its ending."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"video {path}: the name must end in {' or '.join(FORMATS)}")


class VideoWriter:
    """Writes an .mp4 or .gif while frames come in: `with VideoWriter(path, fps=50) as video: video.add(frame)`.

    Nothing but the frame at hand is kept in memory. If the block is left by an exception, or without a frame, there is no
    file, and an older one of that name stays.
    """

    def __init__(self, path: Path | str, fps: float) -> None:
        self.path = Path(path)
        check_format(self.path)
        if not fps > 0:
            raise UserError(f"video {self.path}: fps={fps:g} must be more than 0")
        self.fps = min(fps, _GIF_FPS) if self.path.suffix.lower() == ".gif" else fps
        self.frames = 0
        self._program = find_ffmpeg()
        self._shape: tuple[int, ...] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.tmp")

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def add(self, frame: Any) -> None:
        """Append a picture: (H, W, 3) bytes, or grey, or with transparency; all of one size."""
        picture = as_rgb(frame)
        if self._process is None:
            self._shape = picture.shape
            self._process = self._start(*_even(picture).shape[:2])
        elif picture.shape != self._shape:
            raise EtudeError(
                f"video {self.path}: frame {self.frames} is {_size(picture.shape)}, the first {_size(self._shape)}"
            )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(np.ascontiguousarray(_even(picture)).data)
        except BrokenPipeError:
            self._process.wait()
            raise self._failure() from None
        self.frames += 1

    def close(self) -> None:
        """Finish the file and put it in its place; without a frame there is none."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            if process.wait(_CLOSING_S):
                raise self._failure()
            with self._temporary.open("rb") as file:
                os.fsync(file.fileno())
            self._temporary.replace(self.path)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            self._forget()

    def discard(self) -> None:
        """Give up: no file."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.communicate()
            self._forget()

    def _start(self, height: int, width: int) -> subprocess.Popen[bytes]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._temporary.touch()
        except OSError as error:
            raise UserError(f"video {self.path}: {error.strerror or error}") from None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 # lives as long as the process; a pipe could fill and block it
        given = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-", "-an")
        made = _GIF if self.path.suffix.lower() == ".gif" else _MP4
        return subprocess.Popen(
            [self._program, "-v", "error", "-y", *given, "-threads", "1", *made, str(self._temporary.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,  # a Ctrl-C is for us to handle
        )

    def _failure(self) -> EtudeError:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return EtudeError(f"video {self.path}: ffmpeg failed: {lines[-1] if lines else 'it said nothing'}")

    def _forget(self) -> None:
        self._said.close()
        self._temporary.unlink(missing_ok=True)


def find_ffmpeg() -> str:
    """Return the program that encodes: the one that comes with imageio-ffmpeg, else the system's."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        program = shutil.which("ffmpeg")
    if program is None:
        raise UserError("videos need a package that is not installed: pip install 'etude[video]'")
    return program


def as_rgb(frame: Any) -> np.ndarray:
    """Return a picture as (H, W, 3) bytes; grey ones are repeated, transparency is left out."""
    picture = np.asarray(frame)
    if picture.ndim == 2:
        picture = picture[..., None]
    if picture.ndim != 3 or picture.shape[-1] not in (1, 3, 4) or 0 in picture.shape or picture.dtype != np.uint8:
        raise EtudeError(f"not a picture: {picture.dtype} of shape {picture.shape}, wanted uint8 of (height, width, 3)")
    return np.repeat(picture, 3, axis=-1) if picture.shape[-1] == 1 else picture[..., :3]


def grid(pictures: Sequence[np.ndarray | None], rows: int, columns: int) -> np.ndarray:
    """Return pictures side by side, row by row; smaller ones get a margin, missing ones are black."""
    if len(pictures) > rows * columns:
        raise ValueError(f"{len(pictures)} pictures for {rows} × {columns} places")
    shown = [None if picture is None else as_rgb(picture) for picture in pictures]
    height = max((picture.shape[0] for picture in shown if picture is not None), default=0)
    width = max((picture.shape[1] for picture in shown if picture is not None), default=0)
    sheet = np.zeros((rows * height, columns * width, 3), np.uint8)
    for index, picture in enumerate(shown):
        if picture is not None:
            top, left = index // columns * height, index % columns * width
            sheet[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return sheet


def _even(picture: np.ndarray) -> np.ndarray:
    """Colours have half the resolution in yuv420p, which needs even sizes: an odd one gets its last line twice."""
    down, right = picture.shape[0] % 2, picture.shape[1] % 2
    return np.pad(picture, ((0, down), (0, right), (0, 0)), mode="edge") if down or right else picture


def _size(shape: tuple[int, ...] | None) -> str:
    return f"{shape[1]} × {shape[0]}" if shape else "empty"
