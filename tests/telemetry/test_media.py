"""Videos and pictures become files of the run, whole or not there, and reach the sinks that can show them."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.errors import EtudeError
from etude.files.png import png_bytes
from etude.files.video import find_ffmpeg
from etude.telemetry.background import BackgroundSink
from etude.telemetry.media import FPS, Media, Medium, write_media
from etude.telemetry.sinks import SinkGroup
from etude.telemetry.tensorboard import TensorBoardSink
from etude.telemetry.wandb import WandbSink
from tests.videos import decode

ROW = {"env_steps": 64, "updates": 3, "train/loss": 0.5}
PICTURE = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
VIDEO = np.stack([np.full((16, 24, 3), 40 * t, np.uint8) for t in range(6)])


def pixels_of(png: bytes) -> np.ndarray:
    """What another program sees in it."""
    command = [find_ffmpeg(), "-v", "error", "-i", "-", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    seen = subprocess.run(command, input=png, capture_output=True, check=True).stdout
    return np.frombuffer(seen, np.uint8).reshape(PICTURE.shape)


def test_a_png_holds_the_pixels_that_went_in() -> None:
    assert np.array_equal(pixels_of(png_bytes(PICTURE)), PICTURE)
    grey = png_bytes(PICTURE[..., :1])
    assert np.array_equal(pixels_of(grey), np.repeat(PICTURE[..., :1], 3, -1))


def test_files_are_named_by_their_moment(tmp_path: Path) -> None:
    written = write_media(tmp_path / "videos", 64, {"open_loop": VIDEO, "latents": PICTURE})
    assert sorted(path.name for path in (tmp_path / "videos").iterdir()) == [
        "steps-0000000064-latents.png",
        "steps-0000000064-open_loop.mp4",
    ]
    shown = decode(written["open_loop"].path)
    assert shown.frames.shape == VIDEO.shape
    assert shown.fps == FPS
    assert np.abs(shown.frames.astype(int) - VIDEO).max() < 12
    assert np.array_equal(pixels_of(written["latents"].path.read_bytes()), PICTURE)


@pytest.mark.parametrize(
    ("name", "pixels", "reason"),
    [
        ("../escape", PICTURE, "the name must be of letters, digits, _ and -"),
        ("x", PICTURE.astype(np.float32), r"media 'x': float32 of shape \(5, 7, 3\), wanted uint8 of"),
        ("x", PICTURE[..., :2], r"wanted uint8"),
        ("x", VIDEO[:0], r"wanted uint8"),
    ],
)
def test_what_is_no_picture_is_refused_by_name(name: str, pixels: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(EtudeError, match=reason):
        write_media(tmp_path, 1, {name: pixels})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "videos").symlink_to("elsewhere")
    with pytest.raises(EtudeError, match="is a link"):
        write_media(tmp_path / "videos", 1, {"x": PICTURE})


def test_tensorboard_shows_pictures_and_videos_that_move(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sink = TensorBoardSink(tmp_path / "events")
    sink.write([ROW])
    sink.write_media(ROW, write_media(tmp_path, 64, {"open_loop": VIDEO, "latents": PICTURE}))
    sink.close()
    events = accumulator.EventAccumulator(str(tmp_path / "events")).Reload()
    (picture,), (video,) = events.Images("media/latents"), events.Images("media/open_loop")
    assert (picture.step, picture.width, picture.height) == (64, 7, 5)
    assert np.array_equal(pixels_of(picture.encoded_image_string), PICTURE)
    assert (video.width, video.height) == (24, 16)
    assert video.encoded_image_string.startswith(b"GIF89a")
    gif = tmp_path / "shown.gif"
    gif.write_bytes(video.encoded_image_string)
    assert len(decode(gif).frames) == len(VIDEO)


def test_weights_and_biases_gets_the_files_with_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[dict[str, Any], int]] = []
    module: Any = types.ModuleType("wandb")
    module.Video, module.Image = (lambda path: ("video", path)), (lambda path: ("image", path))
    module.init = lambda **_: types.SimpleNamespace(
        log=lambda row, step: logged.append((row, step)), define_metric=lambda *_, **__: None, finish=lambda: None
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    sink = WandbSink("p", None, [], "n", {}, tmp_path, rows_before=4)
    sink.write([ROW])
    sink.write_media(ROW, {"a": Medium(VIDEO, tmp_path / "a.mp4"), "b": Medium(PICTURE, tmp_path / "b.png")})
    assert logged == [
        (ROW, 4),
        ({"media/a": ("video", str(tmp_path / "a.mp4")), "media/b": ("image", str(tmp_path / "b.png"))}, 4),
    ]


class Plain:
    """Takes rows only."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def write(self, rows: Any) -> None:
        self.taken += rows

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Showing(Plain):
    def write_media(self, row: Any, media: Media) -> None:
        if "broken" in media:
            raise RuntimeError("no such format")
        self.taken.append(sorted(media))


def test_only_sinks_that_can_show_media_get_them_and_one_that_fails_is_switched_off() -> None:
    plain, showing, behind, alerts = Plain(), Showing(), Showing(), list[str]()
    group = SinkGroup([plain, showing, BackgroundSink(behind), BackgroundSink(Plain())], alerts.append)
    group.write_media(ROW, {"a": Medium(PICTURE, Path("a.png"))})
    group.write_media(ROW, {"broken": Medium(PICTURE, Path("a.png"))})
    group.write([ROW])
    group.close()
    assert plain.taken == [ROW]
    assert showing.taken == [["a"]]
    assert behind.taken[0] == ["a"]
    assert alerts[0] == "Showing failed and is off for the rest of this run: no such format"
