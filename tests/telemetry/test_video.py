"""Videos: every frame arrives, browsers can play them, and half a file is never seen."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.errors import EtudeError, UserError
from etude.files import video as module
from etude.files.video import VideoWriter, as_rgb, find_ffmpeg, grid
from etude.telemetry.recorder import Recorder
from tests.videos import decode


def frame(index: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A white bar that moves to the right over grey."""
    picture = np.full((height, width, 3), 60, np.uint8)
    picture[:, 2 * index : 2 * index + 8] = 255
    return picture


@pytest.mark.parametrize("name", ["a.mp4", "a.gif", "A.MP4"])
@pytest.mark.parametrize(("height", "width"), [(48, 64), (47, 63)])
def test_every_frame_comes_back_at_its_place(name: str, height: int, width: int, tmp_path: Path) -> None:
    with VideoWriter(tmp_path / name, fps=25) as video:
        for index in range(12):
            video.add(frame(index, height, width))
    shown = decode(tmp_path / name)
    assert shown.frames.shape == (12, 48, 64, 3)  # odd sizes get one line more
    assert shown.fps == pytest.approx(25)
    for index, picture in enumerate(shown.frames):
        error = np.abs(picture[:height, :width].astype(int) - frame(index, height, width)).mean()
        assert error < 6
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_identical_frames_are_kept_too(tmp_path: Path) -> None:
    for name in ("still.mp4", "still.gif"):
        with VideoWriter(tmp_path / name, fps=10) as video:
            for _ in range(7):
                video.add(frame(3))
        assert len(decode(tmp_path / name).frames) == 7


def test_an_mp4_is_what_browsers_play(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.mp4", fps=50) as video:
        video.add(frame(0))
    told = subprocess.run([find_ffmpeg(), "-i", str(tmp_path / "a.mp4")], capture_output=True, text=True, check=False).stderr
    assert "h264" in told
    assert "yuv420p" in told
    data = (tmp_path / "a.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")  # the index first: it plays while it loads


def test_nothing_appears_before_the_end_or_after_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "a.mp4"
    file.write_bytes(b"an older one")
    with pytest.raises(RuntimeError), VideoWriter(file, fps=10) as video:  # noqa: PT012
        video.add(frame(0))
        assert file.read_bytes() == b"an older one"
        raise RuntimeError("the renderer broke")
    assert file.read_bytes() == b"an older one"
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    with VideoWriter(tmp_path / "empty.mp4", fps=10):
        pass
    assert not (tmp_path / "empty.mp4").exists()


def test_an_encoder_that_fails_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MP4", ("-c:v", "no-such-codec", "-f", "mp4"))

    def record() -> None:
        with VideoWriter(tmp_path / "a.mp4", fps=10) as video:
            for index in range(2000):
                video.add(frame(index % 20))

    with pytest.raises(EtudeError, match=r"a.mp4: ffmpeg failed: .*"):
        record()
    assert not any(tmp_path.iterdir())


def test_frames_go_to_the_encoder_one_by_one(tmp_path: Path) -> None:
    import tracemalloc

    picture = np.zeros((400, 600, 3), np.uint8)
    tracemalloc.start()
    with VideoWriter(tmp_path / "a.mp4", fps=50) as video:
        for _ in range(60):
            video.add(picture)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * picture.nbytes


@pytest.mark.parametrize(
    ("name", "fps", "said"), [("a.avi", 10, "must end in .mp4 or .gif"), ("a", 10, "must end"), ("a.mp4", 0, "fps=0")]
)
def test_a_wrong_request_is_one_line(name: str, fps: float, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        VideoWriter(tmp_path / name, fps=fps)


def test_a_frame_of_another_size_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EtudeError, match="frame 1 is 32 × 48, the first 64 × 48"), VideoWriter(tmp_path / "a.mp4", 10) as video:  # noqa: PT012
        video.add(frame(0))
        video.add(frame(0, width=32))


def test_without_an_encoder_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'etude\[video\]'"):
        find_ffmpeg()
    monkeypatch.setattr(module.shutil, "which", lambda name: "/somewhere/ffmpeg")
    assert find_ffmpeg() == "/somewhere/ffmpeg"


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 1), (4, 6, 3), (4, 6, 4)])
def test_grey_and_transparent_pictures_become_rgb(shape: tuple[int, ...]) -> None:
    assert as_rgb(np.full(shape, 9, np.uint8)).shape == (4, 6, 3)


@pytest.mark.parametrize("picture", [np.zeros((4, 6, 3)), np.zeros((4, 6, 2), np.uint8), np.zeros(4, np.uint8), None])
def test_what_is_no_picture_is_refused(picture: Any) -> None:
    with pytest.raises(EtudeError, match="not a picture"):
        as_rgb(picture)


def test_a_grid_is_filled_row_by_row_with_margins_and_gaps() -> None:
    small, large = np.full((2, 3, 3), 1, np.uint8), np.full((4, 4, 3), 2, np.uint8)
    sheet = grid([small, large, None, small], 2, 2)
    assert sheet.shape == (8, 8, 3)
    assert (sheet[:2, :3] == 1).all()
    assert sheet[3, 3].tolist() == [0, 0, 0]
    assert (sheet[:4, 4:] == 2).all()
    assert (sheet[4:, :4] == 0).all()
    assert (sheet[4:6, 4:7] == 1).all()
    with pytest.raises(ValueError, match="5 pictures for 2 × 2 places"):
        grid([small] * 5, 2, 2)


def test_a_recorder_writes_a_file_an_episode_into_a_folder(tmp_path: Path) -> None:
    with Recorder(tmp_path / "folder", fps=10) as recorder:
        for number in (1, 2):
            recorder.begin(number)
            for index in range(3 * number):
                recorder.add([frame(index)])
            recorder.end()
            assert len(recorder.files) == number  # whole already
    assert [len(decode(file).frames) for file in recorder.files] == [3, 6]
    assert [file.name for file in recorder.files] == ["episode-001.mp4", "episode-002.mp4"]


def test_a_recorder_stops_at_its_length(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a.mp4", fps=10, length=5) as recorder:
        recorder.begin(1)
        for index in range(9):
            recorder.add([frame(index)])
        assert recorder.is_full
    assert len(decode(tmp_path / "a.mp4").frames) == 5


def test_a_folder_can_hold_neither_a_grid_nor_a_number_of_frames(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="grid need one file"):
        Recorder(tmp_path, fps=10, rows=2)
    with pytest.raises(UserError, match="number of frames needs one file"):
        Recorder(tmp_path, fps=10, length=3)
