"""A robot is driven: events change what it is asked for within the task's ranges, and it moves as it is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.acting.policy import ActResult
from etude.cli import run as command
from etude.config.robots import CommandConfig, ResetConfig
from etude.errors import UserError
from etude.orchestration.player import Player
from etude.robots.driving.driving import Ask, Driver, Event, EventSource, Press, ScriptedEvents, Stick, read_events
from etude.runs.run import Run
from etude.using.drive import Drive
from etude.using.play import Episode, Stage, play_episodes
from tests.robots.robots import robots
from tests.runs_compared import train
from tests.videos import decode

RANGES = CommandConfig(forward=(-0.5, 1.0), sideways=(-0.4, 0.4), turn=(-1.2, 1.2))


def driven_by(*keys: str) -> tuple[float, float, float]:
    driver = Driver(RANGES)
    for key in keys:
        assert driver.take(Press(key)) == "go on"
    return driver.command


def test_keys_change_the_command_in_steps_and_within_the_tasks_ranges() -> None:
    assert driven_by() == (0.0, 0.0, 0.0)
    assert driven_by("w") == (0.25, 0.0, 0.0)
    assert driven_by(*"wwwwww") == (1.0, 0.0, 0.0)
    assert driven_by(*"ssssss") == (-0.5, 0.0, 0.0)
    assert driven_by("a", "q", "q") == (0.0, 0.1, 0.6)
    assert driven_by("d", "e", "e", "e", "e", "e") == (0.0, -0.1, -1.2)
    assert driven_by("a", "a", "a", "d", "d", "d") == (0.0, 0.0, 0.0)  # exactly: anything else would ask to move
    assert driven_by("up", "left") == driven_by("w", "q")
    assert driven_by("w", "q", "space") == (0.0, 0.0, 0.0)


def test_sticks_are_shares_of_the_ranges_and_their_middle_is_standing() -> None:
    driver = Driver(RANGES)
    driver.take(Stick(1.0, -0.5, 0.25))
    assert driver.command == (1.0, -0.2, 0.3)
    driver.take(Stick(-1.0, 0.0, 0.0))
    assert driver.command == (-0.5, 0.0, 0.0)
    driver.take(Stick(0.0, 0.0, 0.0))
    assert driver.command == (0.0, 0.0, 0.0)


def test_a_task_that_always_walks_can_be_asked_to_stand_all_the_same() -> None:
    driver = Driver(CommandConfig(forward=(0.5, 1.5)))
    driver.take(Press("w"))
    assert driver.command[0] == 0.5
    driver.take(Ask((9.0, 9.0, 9.0)))
    assert driver.command == (1.5, 0.5, 1.0)
    driver.take(Press("space"))
    assert driver.command == (0.0, 0.0, 0.0)


class RollAsAsked:
    """Turns a ball's motors by the command that it sees: the drive's 8 rad/s carry a ball of 0.2 m at 1.6 m/s."""

    def initial_state(self, n: int) -> None:
        return None

    def act(self, observation: Any, state: Any, is_first: Any, *, mode: str, generator: Any) -> ActResult:
        return ActResult(torch.stack([observation[:, 0] / 1.6, torch.zeros(1)], 1), None, {})


def ball(seconds: float = 1000.0) -> Stage:
    settings: dict[str, Any] = {
        "model": "ball", "observations": {"actor": {"command": {}}}, "rewards": {"alive": 1.0}, "terminations": {},
        "reset": ResetConfig(yaw=0.0, velocity=0.0, joints=0.0),
    }  # fmt: skip
    environment = robots(1, steps=round(seconds / 0.02), **settings)
    policy: Any = RollAsAsked()
    unknown: Any = None
    return Stage(unknown, "greedy", [Player(policy, environment, mode="greedy")], 50.0)


def drive(stage: Stage, source: EventSource | None) -> tuple[Drive, list[Episode]]:
    driven = Drive(stage, source)
    hooks: dict[str, Any] = {"before_step": driven.before_step, "on_step": driven.on_step}
    episodes = [*play_episodes(stage.players, None, root_seed=0, **hooks)]
    driven.close()
    return driven, episodes


def test_the_robot_moves_as_a_stream_of_events_asks() -> None:
    events = [(1.0, "w"), (1.0, "w"), (5.0, "space"), (8.0, "s"), (12.0, "x")]
    driven, episodes = drive(ball(), ScriptedEvents([(second, Press(key)) for second, key in events]))
    assert [stretch.command for stretch in driven.stretches] == [(0, 0, 0), (0.5, 0, 0), (0, 0, 0), (-0.25, 0, 0)]
    assert [(stretch.begin, stretch.end) for stretch in driven.stretches] == [(0, 1), (1, 5), (5, 8), (8, 12)]
    stood, ahead, _, back = (stretch.velocity[0] for stretch in driven.stretches)
    assert abs(stood) < 0.05
    assert 0.3 < ahead < 0.6
    assert -0.35 < back < -0.1
    assert [(episode.length, episode.ending) for episode in episodes] == [(600, "cut")]


def test_r_begins_again_and_the_command_stays() -> None:
    presses = [(0.0, Press("w")), (1.0, Press("r")), (2.0, Press("x"))]
    driven, episodes = drive(ball(), ScriptedEvents(presses))
    assert [(episode.number, episode.length, episode.ending) for episode in episodes] == [(1, 50, "cut"), (2, 50, "cut")]
    assert [stretch.command for stretch in driven.stretches] == [(0.25, 0, 0)]


def test_any_source_of_events_will_do_and_nobody_at_all_leaves_the_tasks_commands() -> None:
    class Impatient(EventSource):
        is_live = False

        def poll(self, second: float) -> Sequence[Event]:
            return [Ask((0.3, 0.0, 0.0)), Press("x")] if second >= 0.1 else []

    stage = ball()
    assert drive(stage, Impatient())[1][0].length == 5
    (robot,) = (player.environment.base for player in stage.players)
    assert robot.commands.fixed is None  # type: ignore[attr-defined] # a robot's, free again
    assert Drive(stage, None).before_step() == "go on"
    assert robot.commands.fixed is None  # type: ignore[attr-defined]


# ---- from the command line ---------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> str:
    path = folder / "events.yaml"
    path.write_text(text)
    return str(path)


def test_a_run_is_driven_from_a_file_beyond_its_time_limit(
    trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = written(tmp_path, "[{time: 0.1, key: w}, {time: 0.2, command: [0, 9, 0]}, {time: 1.6, key: X}]")
    assert command(["play", str(trained.path), "--events", events, "--render", "none", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [stretch["command"] for stretch in report["driven"]] == [[0, 0, 0], [0.25, 0, 0], [0, 0.5, 0]]
    assert sum(episode["length"] for episode in report["episodes"]) == 80  # the task's own episodes last 40
    assert "truncated" not in {episode["ending"] for episode in report["episodes"]}


def test_a_driven_robot_is_recorded_from_where_one_likes(trained: Run, tmp_path: Path) -> None:
    events = written(tmp_path, '[{"time": 0, "key": "w"}, {"time": 9, "key": "esc"}]')
    video = tmp_path / "driven.mp4"
    options = '{"camera": "behind", "distance": 2, "width": 160, "height": 128}'
    words = ["--events", events, "--video", str(video), "--record-length", "6", "--render-options", options]
    assert command(["play", str(trained.path), *words]) == 0
    assert decode(video).frames.shape == (6, 128, 160, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{time: 0, key: w}]", "must end with {time: ..., key: x}"),
        ("[]", "must be a list of events"),
        ("{time: 0}", "must be a list of events"),
        ("[{time: 0, key: spce}]", "event 1: key=spce: unknown key; did you mean 'space'?"),
        ("[{time: soon, key: w}]", "event 1: time=soon: must be a number of seconds"),
        ("[{time: 0, key: w}, {time: 1}]", "event 2: must be {time, key} or {time, command"),
        ("[{time: 0, key: w, speed: 2}]", "event 1: unknown option 'speed'"),
        ("[{time: 0, command: [1, 2]}]", "event 1: command=[1, 2]: must be three numbers"),
        ("[{time: 0", "can't be read"),
    ],
)
def test_a_wrong_file_of_events_is_one_line(
    text: str, said: str, trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--render", "none", "--events", written(tmp_path, text)]
    assert command(["play", str(trained.path), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len([line for line in error.splitlines() if line.startswith("etude: ")]) == 1


def test_what_can_not_be_driven_says_so(
    trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    run = train("CartPole-v1:random", tmp_path, "training.total_steps=8", "evaluation.every_steps=0")
    assert command(["play", str(run.path), "--drive", "keyboard"]) == 2
    assert "--drive keyboard is for robots" in capsys.readouterr().err
    robot = ["play", str(trained.path), "--render", "none"]
    assert command([*robot, "--drive", "joystick", "--events", "some.yaml"]) == 2
    assert "choose one" in capsys.readouterr().err
    with (tmp_path / "no terminal").open("w+") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert command([*robot, "--drive", "keyboard"]) == 2
    assert "needs a window or a terminal" in capsys.readouterr().err


def test_time_of_events_needs_no_order() -> None:
    source = read_events([{"time": 2, "key": "x"}, {"time": 1, "key": "w"}], "here")
    assert source.poll(0.99) == []
    assert source.poll(5.0) == [Press("w"), Press("x")]
    with pytest.raises(UserError, match="here: must be a list"):
        read_events(None, "here")
