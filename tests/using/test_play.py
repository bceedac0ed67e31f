"""Played episodes: the policy as it was saved, the same episode for the same seed, with pictures or without."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etude
from etude.compute.random_streams import derive_seed
from etude.environments.native.classic import TASKS
from etude.environments.rendering import make_to_show
from etude.errors import EtudeError, UserError
from etude.orchestration.evaluator import evaluate_episodes
from etude.runs.run import Run
from etude.telemetry.paths_file import PathsFile, read_paths
from etude.using.play import PLAY_SEEDS, play, play_episodes, set_stage
from etude.using.stored_policy import open_policy
from tests.runs_compared import assert_same_state, forge_settings, train
from tests.videos import decode

TINY = ("training.total_steps=600", "algorithm.epochs=1", "evaluation.episodes=2")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("home")))
        yield tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(root: Path) -> Run:
    return train("CartPole-v1:ppo", root, *TINY)


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER", "MUJOCO_GL"):  # put back what playing sets
        monkeypatch.setenv(name, {"MUJOCO_GL": "egl"}.get(name, "dummy"))


def assert_same_path(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_a_path_holds_every_step(run: Run) -> None:
    (path,) = play(run, 1)
    steps = path["length"]
    assert path["observations"].shape == path["next_observations"].shape == (steps, 4)
    assert path["actions"].shape == path["rewards"].shape == path["terminated"].shape == path["truncated"].shape == (steps,)
    np.testing.assert_array_equal(path["observations"][1:], path["next_observations"][:-1])
    assert path["rewards"].sum() == path["return"] == steps
    assert path["terminated"][-1] or path["truncated"][-1]
    assert not (path["terminated"] | path["truncated"])[:-1].any()
    assert abs(path["next_observations"][-1][2]) > 0.2 or steps == 500  # where it fell, not where the next one begins


def test_an_episode_depends_on_its_seed_alone(run: Run, tmp_path: Path) -> None:
    """Not on the ones before it, nor on those beside it in a grid, nor on being recorded; in both ways of acting."""
    for mode in ("greedy", "sample"):
        several = play(run, 4, mode=mode, seed=3)
        assert [path["seed"] for path in several] == [3, 4, 5, 6]
        assert_same_path(several[2], play(run, 1, mode=mode, seed=5)[0])
        beside = play(run, 4, mode=mode, seed=3, video=tmp_path / "grid.mp4", grid=(2, 2), max_steps=500)
        for path in beside:
            assert_same_path(path, several[path["seed"] - 3])


def test_a_played_episode_is_one_that_evaluating_would_measure(run: Run) -> None:
    stored = open_policy(run, "last")
    environment = etude.make_environment("CartPole-v1", 1)
    for seed, path in enumerate(play(run, 3, checkpoint="last")):
        purpose = derive_seed(stored.config.experiment.seed, PLAY_SEEDS, seed)
        measured = evaluate_episodes(stored.build(environment), environment, 1, mode="greedy", seed=purpose)
        assert measured.returns.tolist() == [path["return"]]
        assert measured.lengths.tolist() == [path["length"]]


CONTINUOUS = ["Pendulum-v1"] + (["HalfCheetah-v5", "Hopper-v5"] if find_spec("mujoco") else [])
LANDER = ["LunarLander-v3"] if find_spec("Box2D") else []


@pytest.mark.parametrize("name", [*sorted(set(TASKS) - {"CartPole-v0"}), *CONTINUOUS[1:], *LANDER])
def test_what_is_shown_is_the_trajectory_of_the_native_environment(name: str, root: Path) -> None:
    run = train(f"{name}:random", root, "training.total_steps=64", "evaluation.every_steps=0")
    options = {"width": 32, "height": 24} if name in CONTINUOUS[1:] else None
    paths = []
    for show in ("nothing", "pictures"):
        stage = set_stage(run, show=show, render_options=options if show == "pictures" else None)
        played = play_episodes(stage.players, 2, root_seed=1, max_steps=15 if options else 200, keep_paths=True)
        paths.append([episode.path for episode in played])
        kind = type(stage.players[0].environment).__name__
        assert (kind == "GymnasiumVector") == (show == "pictures" or name in LANDER)
        stage.close()
    for native, shown in zip(*paths, strict=True):
        assert native is not None
        assert shown is not None
        assert_same_path(native, shown)


def test_a_video_has_the_first_state_and_one_frame_a_step_to_the_very_end(run: Run, tmp_path: Path) -> None:
    paths = play(run, 2, video=tmp_path / "two.mp4")
    shown = decode(tmp_path / "two.mp4")
    assert shown.frames.shape == (sum(path["length"] + 1 for path in paths), 400, 600, 3)
    assert shown.fps == 50
    first = shown.frames[: paths[0]["length"] + 1].astype(int)
    assert (np.abs(np.diff(first, axis=0)).max(axis=(1, 2, 3)) > 20).mean() > 0.5
    # The last picture is of the fallen pole, much like the one before it, and not of the next episode's first state.
    assert np.abs(first[-1] - first[-2]).mean() < np.abs(first[-1] - first[0]).mean()


def test_a_grid_holds_still_where_an_episode_is_over(run: Run, tmp_path: Path) -> None:
    paths = play(run, 2, mode="sample", seed=2, video=tmp_path / "grid.mp4", grid=(1, 2), max_steps=40)
    lengths = [path["length"] for path in paths]
    shown = decode(tmp_path / "grid.mp4").frames
    assert shown.shape[0] == max(lengths) + 1
    assert shown.shape[1:3] == (400, 1200)
    assert lengths[0] != lengths[1]
    left, right = shown[..., :600, :].astype(int), shown[..., 600:, :].astype(int)
    ended, lasting = (left, right) if lengths[0] < lengths[1] else (right, left)
    assert np.abs(ended[-1] - ended[-2]).max() < 20
    assert np.abs(lasting[-1] - lasting[-2]).max() > 20


@pytest.mark.parametrize("frames", [1, 37, 120])
def test_a_video_of_exactly_so_many_frames(frames: int, run: Run, tmp_path: Path) -> None:
    play(run, video=tmp_path / "some.mp4", record_length=frames, max_steps=30)
    assert len(decode(tmp_path / "some.mp4").frames) == frames


def test_a_limit_ends_an_episode_as_a_truncation(run: Run) -> None:
    (path,) = play(run, 1, max_steps=3)
    assert path["length"] == 3
    assert path["ending"] == "max steps"
    assert path["truncated"].tolist() == [False, False, True]
    assert not path["terminated"].any()


def test_the_best_checkpoint_is_played_and_the_last_where_there_is_none(run: Run, root: Path) -> None:
    assert set_stage(run).policy.checkpoint.is_best
    unmeasured = train("CartPole-v1:ppo", root, *TINY, "evaluation.every_steps=0")
    assert set_stage(unmeasured).policy.checkpoint.name == unmeasured.checkpoints().find("last").name


def test_statistics_of_normalisers_are_played_as_they_were_saved(root: Path) -> None:
    words = (*TINY, "algorithm.rollout_steps=32", "algorithm.batch_size=64")
    run = train("Pendulum-v1:ppo", root, *words, "environment.normalize_observations=rolling")
    before = run.checkpoints().find("last").load(["policy"])["policy"]
    (path,) = play(run, 1, checkpoint="last", max_steps=50)
    stage = set_stage(run, "last")
    for _ in play_episodes(stage.players, 1, root_seed=0, max_steps=50):
        assert_same_state(dict(stage.players[0].policy.state_dict()), before)
    (again,) = play(run, 1, checkpoint="last", max_steps=50)
    assert_same_path(path, again)
    plain = train("Pendulum-v1:ppo", root, *words, "environment.normalize_observations=off")
    assert not np.array_equal(play(plain, 1, checkpoint="last", max_steps=50)[0]["actions"], path["actions"])


def test_paths_are_written_without_pickle_and_read_back(run: Run, tmp_path: Path) -> None:
    paths = play(run, 2)
    paths.append({"observations": {"a": np.arange(3), "b": np.zeros((2, 2))}, "return": 1.5, "ending": "cut"})
    with PathsFile(tmp_path / "deep" / "paths.npz") as file:
        for path in paths:
            file.add(path)
        assert not (tmp_path / "deep" / "paths.npz").exists()
    for one, other in zip(read_paths(tmp_path / "deep" / "paths.npz"), paths, strict=True):
        assert one.keys() == other.keys()
        np.testing.assert_equal(one, other)
    with np.load(tmp_path / "deep" / "paths.npz", allow_pickle=False) as stored:
        assert stored["000/rewards"].shape == (paths[0]["length"],)
    with pytest.raises(RuntimeError), PathsFile(tmp_path / "other.npz"):
        raise RuntimeError("stopped")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_environments_that_draw_nothing_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.config.schema import EnvironmentConfig

    with pytest.raises(UserError, match=r"render options {'width': 3}: CartPole-v1 got an unexpected keyword argument 'width'"):
        make_to_show(EnvironmentConfig(id="CartPole-v1"), "pictures", options={"width": 3})
    import gymnasium

    class Blind(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register("Blind-v0", Blind)
    try:
        with pytest.raises(EtudeError, match=r"Blind-v0 can't be drawn: it takes no render_mode"):
            make_to_show(EnvironmentConfig(id="Blind-v0"), "pictures")
    finally:
        del gymnasium.registry["Blind-v0"]


@pytest.mark.skipif(find_spec("mujoco") is None, reason="needs MuJoCo")
def test_a_failing_opengl_names_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.config.schema import EnvironmentConfig

    monkeypatch.setenv("MUJOCO_GL", "no-such-backend")
    with pytest.raises(EtudeError, match=r"MUJOCO_GL=no-such-backend .*MUJOCO_GL=egl \(apt install .*MUJOCO_GL=osmesa"):
        make_to_show(EnvironmentConfig(id="HalfCheetah-v5"), "pictures")


def test_wrong_requests_from_python(run: Run, tmp_path: Path) -> None:
    for wrong in ({"episodes": 0}, {"max_steps": 0}, {"record_length": 5}, {"grid": (2, 2)}):
        with pytest.raises(UserError):
            play(run, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="can't both be kept"):
        play(run, 3, record_length=5, video=tmp_path / "a.mp4")


def test_a_run_of_a_device_that_is_not_here_acts_on_the_cpu_and_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = run.resolved_path.read_text()
    try:
        forge_settings(run, text.replace("device: cpu", "device: cuda:77"))
        stored = open_policy(run, "last")
        assert stored.config.experiment.device == "cpu"
        assert "trained on cuda:77, which is not here" in (stored.note or "")
        with pytest.raises(UserError, match="cuda:78"):
            open_policy(run, "last", device="cuda:78")
    finally:
        forge_settings(run, text)
