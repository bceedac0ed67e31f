"""`etude play` and `etude evaluate` as a user meets them, on a machine without a display."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from etude.cli import run as etude
from etude.runs.evaluations import append_evaluations, read_evaluations
from etude.runs.run import Run
from etude.telemetry.paths_file import read_paths
from tests.runs_compared import assert_same_state, state, train
from tests.videos import decode

TINY = ("training.total_steps=600", "algorithm.epochs=1", "evaluation.episodes=2")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("home")))
        folder = tmp_path_factory.mktemp("runs")
        train("CartPole-v1:ppo", folder, *TINY)
        yield folder


@pytest.fixture(autouse=True)
def no_display(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETUDE_RUNS", str(root))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.setenv(name, "dummy")
    monkeypatch.setenv("MUJOCO_GL", "egl")


def test_a_line_an_episode_and_a_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["play", "@last", "--seed", "7"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert "checkpoint" in lines[1]
    assert "(best)" in lines[1]
    assert [line.split()[-1] for line in lines[2:7]] == ["7", "8", "9", "10", "11"]
    assert all(" terminated " in line or " truncated " in line for line in lines[2:7])
    returns = [float(line.split()[3]) for line in lines[2:7]]
    assert lines[7].startswith(f"mean return {np.mean(returns):.2f} ± ")
    assert "no display: playing without pictures; --video FILE.mp4 records them\n" in shown.err


def test_json_holds_every_episode_and_nothing_else_is_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["play", "@last", "--num-rollouts", "2", "--max-path-length", "4", "--json", "--video", "a.mp4"]
    assert etude([*command, "--checkpoint", "last", "--mode", "sample"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [episode["length"] for episode in report["episodes"]] == [4, 4]
    assert report["episodes"][0] == {
        "episode": 1, "seed": 0, "return": 4.0, "length": 4, "terminated": False, "truncated": True, "ending": "max steps",
    }  # fmt: skip
    assert report["return_mean"] == 4.0
    assert report["mode"] == "sample"
    assert report["env_steps"] == 600
    assert report["videos"] == ["a.mp4"]
    assert len(decode(tmp_path / "a.mp4").frames) == 10


def test_a_seed_printed_plays_its_episode_again(capsys: pytest.CaptureFixture[str]) -> None:
    etude(["play", "@last", "--json", "--mode", "sample"])
    several = json.loads(capsys.readouterr().out)["episodes"]
    etude(["play", "@last", "--json", "--mode", "sample", "--episodes", "1", "--seed", "3"])
    (alone,) = json.loads(capsys.readouterr().out)["episodes"]
    assert {**alone, "episode": 4} == several[3]


def test_videos_go_where_they_are_sent(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["play", "@last", "--episodes", "2", "--max-steps", "3", "--video", "here"]) == 0
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["episode-001.mp4", "episode-002.mp4"]
    assert etude(["play", "@last", "--record-length", "25", "--max-steps", "10", "--grid", "2x1", "--fps", "12"]) == 0
    (file,) = (root / "@last" / "videos").glob("play-*-seed-0.mp4")  # no name given: in the run
    shown = decode(file)
    assert shown.frames.shape == (25, 800, 600, 3)
    assert shown.fps == 12
    told = capsys.readouterr()
    assert "wrote " in told.err
    assert " cut " in told.out
    file.unlink()


def test_every_step_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["play", "@last", "--episodes", "3", "--paths", "paths.npz", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    paths = read_paths(tmp_path / "paths.npz")
    assert [path["length"] for path in paths] == [episode["length"] for episode in report["episodes"]]


def test_step_by_step_waits_tells_and_can_be_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert etude(["play", "@last", "--step-by-step"]) == 2
    assert "needs a terminal" in capsys.readouterr().err
    answers = iter(["", "", "", "q"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", lambda prompt: next(answers))
    assert etude(["play", "@last", "--step-by-step"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("observation")]
    assert len(told) == 3
    assert all(" action " in line and " reward 1" in line and " log_prob " in line for line in told)


def test_a_window_is_opened_where_there_is_a_display(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")  # and SDL draws into nothing
    from gymnasium.envs.classic_control import CartPoleEnv

    modes: list[str | None] = []
    original = CartPoleEnv.render
    monkeypatch.setattr(CartPoleEnv, "render", lambda self: (modes.append(self.render_mode), original(self))[1])
    assert etude(["play", "@last", "--episodes", "1", "--max-steps", "3", "--fps", "500"]) == 0
    assert modes
    assert set(modes) == {"human"}
    assert "no display" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--render-options", "{wid"], "--render-options {wid: line 1: not JSON"),
        (["--render-kwargs", "[1]"], "must be a JSON object"),
        (["--render-options", '{"width": 3}'], "CartPole-v1 got an unexpected keyword argument 'width'"),
        (["--video", "a.avi"], "must end in .mp4 or .gif"),
        (["--grid", "2"], "--grid 2: must be rows x columns"),
        (["--grid", "0x2"], "--grid 0x2"),
        (["--render", "none", "--video", "a.mp4"], "choose one"),
        (["--render", "none", "--record-length", "5"], "are of a video"),
        (["--record-length", "5", "--episodes", "3"], "--episodes 3 and --record-length 5: choose one"),
        (["--episodes", "0"], "--episodes 0: must be at least 1"),
        (["--paths", "a.txt"], "must end in .npz"),
        (["--checkpoint", "77"], "checkpoint '77' not found"),
        (["--mode", "both"], "Invalid value"),
    ],
)
def test_a_slip_is_one_clear_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["play", "@last", *words]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("etude: ")]
    assert said in line


def test_an_interrupted_recording_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.orchestration.player import Player

    original, calls = Player.step, []

    def step(self: Player) -> object:
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(Player, "step", step)
    assert etude(["play", "@last", "--video", "a.mp4", "--paths", "p.npz"]) == 130
    assert not any(tmp_path.iterdir())


# ---- evaluate -------------------------------------------------------------------------------------------------------


def test_every_evaluation_is_noted_in_the_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.resolve("@last", root)
    (run.logs / "evaluations.jsonl").unlink(missing_ok=True)
    assert etude(["evaluate", "@last", "--episodes", "4", "--mode", "both", "--seed", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert etude(["evaluate", "@last", "--episodes", "1", "--checkpoint", "best"]) == 0
    first, second, third = read_evaluations(run.logs)
    assert [first["mode"], second["mode"]] == ["greedy", "sample"]
    assert first["returns"] == report["modes"]["greedy"]["returns"]
    assert first["checkpoint"] == run.checkpoints().find("last").name
    assert first["seed"] == 2
    assert third["return_ci95"] is None
    assert third["checkpoint"] == run.checkpoints().find("best").name
    assert first["version"] == 1
    low, high = first["return_ci95"]
    assert low <= first["return_mean"] <= high


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    append_evaluations(tmp_path, [{"seed": 1, "return_mean": float("nan")}])
    with (tmp_path / "evaluations.jsonl").open("ab") as file:
        file.write(b'{"version": 1, "se')
    append_evaluations(tmp_path, [{"seed": 2}, {"seed": 3}])
    assert [record["seed"] for record in read_evaluations(tmp_path)] == [1, 2, 3]
    assert read_evaluations(tmp_path)[0]["return_mean"] is None
    assert read_evaluations(tmp_path / "nowhere") == []


def test_a_run_that_can_not_be_written_is_still_measured(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("etude.using.evaluate.append_evaluations", refuse)
    assert etude(["evaluate", "@last", "--episodes", "2"]) == 0
    shown = capsys.readouterr()
    assert "2 episodes" in shown.out
    assert "not noted there: Permission denied" in shown.err


def test_a_ladder_measures_every_kept_checkpoint_on_the_same_episodes(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert etude(["evaluate", "@last", "--ladder", "--episodes", "3", "--out", "ladder.json"]) == 0
    text = capsys.readouterr().out
    report = json.loads((tmp_path / "ladder.json").read_text())
    kept = Run.resolve("@last", root).checkpoints().list()
    steps = [rung["env_steps"] for rung in report["checkpoints"]]
    assert steps == sorted({saved.counters["env_steps"] for saved in kept})
    assert len(steps) > 2
    assert text.count("checkpoint ") == len(steps)
    assert sum(rung["is_best"] for rung in report["checkpoints"]) == 1
    assert etude(["evaluate", "@last", "--checkpoint", "all", "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report
    assert etude(["evaluate", "@last", "--ladder", "--checkpoint", "best"]) == 2


def test_evaluating_and_playing_leave_the_saved_run_as_it_was(root: Path) -> None:
    run = Run.resolve("@last", root)
    before = state(run)
    files = {path: path.read_bytes() for path in run.checkpoints_path.rglob("*") if path.is_file()}
    etude(["evaluate", "@last", "--episodes", "2", "--json"])
    etude(["play", "@last", "--episodes", "1", "--json"])
    assert_same_state(state(run), before)
    assert files == {path: path.read_bytes() for path in run.checkpoints_path.rglob("*") if path.is_file()}


def test_a_path_to_a_checkpoint_names_it_from_python_too(root: Path) -> None:
    import etude as library

    run = Run.resolve("@last", root)
    first = run.checkpoints().list()[0]
    by_path = library.evaluate(str(first.path), 3)
    assert by_path.returns.tolist() == library.evaluate(run, 3, checkpoint=first.name).returns.tolist()
    assert read_evaluations(run.logs)[-1]["checkpoint"] == first.name
    assert library.play(str(first.path), 1)[0]["length"] == library.play(run, 1, checkpoint=first.name)[0]["length"]
