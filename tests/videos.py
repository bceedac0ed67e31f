"""Reading a video back, frame by frame."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from etude.files.video import find_ffmpeg


@dataclass(frozen=True)
class Decoded:
    frames: np.ndarray  # (T, H, W, 3)
    fps: float


def decode(path: Path) -> Decoded:
    told = subprocess.run([find_ffmpeg(), "-i", str(path)], capture_output=True, text=True, check=False).stderr
    (line,) = [line for line in told.splitlines() if "Video:" in line]
    width, height = map(int, re.search(r", (\d+)x(\d+)", line).groups())  # type: ignore[union-attr]
    (fps,) = re.search(r"([\d.]+) fps", line).groups()  # type: ignore[union-attr]
    raw = subprocess.run(
        [find_ffmpeg(), "-v", "error", "-i", str(path), "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True,
        check=True,
    ).stdout
    return Decoded(np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3), float(fps))
