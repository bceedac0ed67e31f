"""Videos while training: there when due, of the length asked for, and training can't notice them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etude.errors import ConfigError, UserError
from etude.runs.run import Run
from tests.runs_compared import resume, rows, state, stopped_after, train
from tests.videos import decode

SMALL = ("training.total_steps=3000", "algorithm.epochs=1", "evaluation.episodes=2", "logging.every_steps=256")


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.setenv(name, "dummy")
    monkeypatch.setenv("MUJOCO_GL", "egl")


def video(**options: object) -> str:
    return "training.callbacks=[{" + ", ".join(f"{key}: {value}" for key, value in {"type": "video", **options}.items()) + "}]"


def names(run: Run) -> list[str]:
    return sorted(path.name for path in run.videos.iterdir())


@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1"])
def test_training_is_the_same_with_videos_and_without(name: str, tmp_path: Path) -> None:
    words = (*SMALL, "environment.num_envs=8", "algorithm.rollout_steps=32", "algorithm.batch_size=64")
    plain = train(f"{name}:ppo", tmp_path, *words)
    filmed = train(f"{name}:ppo", tmp_path, *words, video(every_steps=1000, length=5))
    assert len(names(filmed)) == 3
    assert rows(filmed) == rows(plain)
    with_videos, without = state(filmed), state(plain)
    assert len(with_videos["shared"].pop("callbacks")) == 1
    assert without["shared"].pop("callbacks") == []
    from tests.runs_compared import assert_same_state

    assert_same_state(with_videos, without)


def test_videos_are_named_by_their_moment_and_show_exactly_what_was_asked(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *SMALL, video(every_steps=1000, length=12, fps=20))
    assert names(run) == ["steps-0000001024.mp4", "steps-0000002048.mp4", "steps-0000003000.mp4"]
    for name in names(run):
        shown = decode(run.videos / name)
        assert shown.frames.shape == (12, 400, 600, 3)
        assert shown.fps == 20
        assert np.abs(np.diff(shown.frames.astype(int), axis=0)).max() > 20


def test_by_default_one_whole_episode_after_each_evaluation(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *SMALL, "evaluation.every_steps=1500", video())
    assert names(run) == ["steps-0000001536.mp4", "steps-0000003000.mp4"]


def test_a_resumed_run_makes_the_videos_of_one_that_was_never_stopped(tmp_path: Path) -> None:
    words = (*SMALL, video(every_steps=1000, length=3))
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *words)
    with stopped_after(5):
        halved = train("CartPole-v1:ppo", tmp_path / "halved", *words)
    assert names(halved) == ["steps-0000001024.mp4"]
    resume(halved)
    assert names(halved) == names(whole)
    for name in names(whole):
        assert np.array_equal(decode(whole.videos / name).frames, decode(halved.videos / name).frames)


def test_a_failing_renderer_is_a_line_in_the_log_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.classic_control import CartPoleEnv

    calls = []

    def broken(self: object) -> None:
        calls.append(1)
        raise ZeroDivisionError("the driver is gone")

    monkeypatch.setattr(CartPoleEnv, "render", broken)
    run = train("CartPole-v1:ppo", tmp_path, *SMALL, video(every_steps=500))
    assert run.status == "finished"
    log = run.log_path.read_text()
    cause = "the environment raised in render: ZeroDivisionError: the driver is gone"
    assert log.count(f"no videos from 512 environment steps on: CartPole-v1 can't be drawn: {cause} (") == 1
    assert log.count("the driver is gone") == 1, "one line, one cause"
    assert len(calls) == 1  # once is enough
    assert names(run) == []


def test_wrong_options_are_errors_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, said in (
        ({"lenght": 5}, "did you mean 'length'"),
        ({"length": 0}, "must be at least 1"),
        ({"length": 5, "episodes": 1}, "can't both be kept"),
    ):
        with pytest.raises(ConfigError, match=said):
            train("CartPole-v1:ppo", tmp_path, *SMALL, video(**options))
    monkeypatch.setattr("etude.files.video.find_ffmpeg", _missing)
    with pytest.raises(UserError, match=r"etude\[video\]"):
        train("CartPole-v1:ppo", tmp_path, *SMALL, video())
    assert not any(tmp_path.iterdir())


def _missing() -> str:
    raise UserError("videos need a package that is not installed: pip install 'etude[video]'")
