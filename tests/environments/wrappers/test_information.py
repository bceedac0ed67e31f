"""What may be asked of any environment, and videos of its episodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude.config.schema import EnvironmentConfig
from etude.config.validate import Validator
from etude.environments import information as info
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from tests.videos import decode

KINDS: dict[str, dict[str, Any]] = {
    "native": {},
    "gymnasium": {"backend": "gymnasium"},
    "workers": {"workers": 1},
    "wrapped": {"wrappers": ["stack"]},
    "wrapped workers": {"workers": 1, "wrappers": ["stack", {"id": "frame_skip", "skip": 2}, "history"]},
}


def config(**settings: Any) -> EnvironmentConfig:
    return Validator().build(EnvironmentConfig, {"id": "CartPole-v1", "num_envs": 2, **settings}, "environment")


@pytest.fixture
def made() -> Iterator[Any]:
    environments: list[VectorEnvironment] = []

    def make(**settings: Any) -> VectorEnvironment:
        environments.append(make_environment(config(**settings), training=True))
        return environments[-1]

    yield make
    for environment in environments:
        environment.close()


@pytest.mark.usefixtures("nursery_stays")
@pytest.mark.parametrize("kind", KINDS)
def test_facts_are_known_through_every_kind_of_environment(kind: str, made: Any) -> None:
    environment = made(**KINDS[kind])
    assert info.return_threshold(environment) == 475
    assert info.max_episode_steps(config(**KINDS[kind])) == info.max_episode_steps(environment) == 500
    assert not info.shows_pictures(environment)
    assert environment.action_repeat == (2 if kind == "wrapped workers" else 1)


def test_limits_are_the_configs_or_the_registered_ones() -> None:
    assert info.max_episode_steps(config(max_episode_steps=7)) == 7
    assert info.max_episode_steps(config(id="MultiGoal-v0")) is not None
    assert info.max_episode_steps(config(id="Unknown-v0")) is None


def test_a_time_limit_among_the_wrappers_counts(made: Any) -> None:
    limited = {"wrappers": [{"id": "frame_skip", "skip": 2}, {"id": "time_limit", "steps": 20}]}
    assert info.max_episode_steps(config(**limited)) == 40, "in environment steps"
    assert info.max_episode_steps(made(**limited)) == 40
    assert info.max_episode_steps(made(wrappers=[{"id": "time_limit", "steps": 900}])) == 500
    assert info.max_episode_steps(made(max_episode_steps=7, wrappers=["stack"])) == 7


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.mark.usefixtures("headless")
def test_pictures_are_known_as_such_and_resume_exactly(made: Any) -> None:
    pixels = {"wrappers": ["pixel_observations", "grayscale", {"id": "resize", "size": [20, 30]}], "num_envs": 1}
    environment = made(**pixels)
    assert info.shows_pictures(environment)
    environment.reset([1])
    assert environment.snapshot == "exact"
    environment.step(torch.tensor([1]))
    saved, ahead = environment.state_dict(), environment.step(torch.tensor([1])).observation.clone()
    other = made(**pixels)
    other.reset([2])
    other.load_state_dict(saved)
    assert torch.equal(other.step(torch.tensor([1])).observation, ahead)


@pytest.mark.usefixtures("headless")
def test_a_recorder_takes_a_frame_for_each_reset_and_step(tmp_path: Path) -> None:
    environment = etude.make_environment("CartPole-v1", 2, render_mode="rgb_array", wrappers=[{"id": "stack"}])
    with info.recorder(environment, tmp_path / "seen.mp4", fps=10) as recorded:
        recorded.reset([1, 2])
        for _ in range(12):
            recorded.step(torch.ones(2, dtype=torch.int64))
        assert recorded.single_observation_space == environment.single_observation_space
    video = decode(tmp_path / "seen.mp4")
    assert (len(video.frames), video.fps) == (13, 10)
    environment.close()


@pytest.mark.usefixtures("headless")
def test_episodes_of_the_first_copy_become_videos(tmp_path: Path, made: Any) -> None:
    video = {"id": "video", "folder": str(tmp_path), "every": 2, "length": 5, "fps": 20}
    environment = made(wrappers=[video], max_episode_steps=8)
    environment.reset([1, 2])
    assert environment.snapshot == "exact"
    for step in range(20):
        environment.step(torch.full((2,), step % 2))
    environment.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert [name[:14] for name in files] == ["episode-000001", "episode-000003"]
    decoded = decode(tmp_path / files[0])
    assert (len(decoded.frames), decoded.fps) == (5, 20)


@pytest.mark.usefixtures("headless")
def test_an_episode_that_ends_is_a_whole_video_and_a_restored_one_goes_on_counting(tmp_path: Path, made: Any) -> None:
    environment = made(wrappers=[{"id": "video", "folder": str(tmp_path)}], max_episode_steps=4, num_envs=1)
    environment.reset([1])
    for step in range(6):
        environment.step(torch.tensor([step % 2]))
    state = environment.state_dict()
    environment.load_state_dict(state)
    environment.step(torch.tensor([0]))
    for step in range(4):
        environment.step(torch.tensor([step % 2]))
    environment.close()
    first, third = sorted(tmp_path.iterdir())
    assert first.name.startswith("episode-000001")
    assert len(decode(first).frames) == 5
    # The second was interrupted, and so has no video of its own.
    assert third.name.startswith("episode-000003")


def test_evaluation_records_nothing(tmp_path: Path) -> None:
    environment = make_environment(config(wrappers=[{"id": "video", "folder": str(tmp_path)}]))
    environment.reset([1, 2])
    environment.step(torch.tensor([0, 1]))
    assert not list(tmp_path.iterdir())
