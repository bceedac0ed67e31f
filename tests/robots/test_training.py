"""Robots train, resume, are tried and drawn like any other task."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from etude.cli import run as command
from etude.config.compose import compose
from etude.robots.trial import SCRIPTS, constant, read_scripts, run_trial
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from tests.robots.conftest import SMALL
from tests.robots.robots import robots
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.videos import decode
from tools.reference import robots as reference


def test_a_stopped_and_resumed_run_is_the_run_that_was_not(tmp_path: Path, trained: Run) -> None:
    with stopped_after(2):
        run = train("quadruped-flat:ppo", tmp_path, *SMALL)
    resume(run)
    assert_same_run(run, trained)


def test_each_reward_term_is_logged_as_it_is_and_as_it_counts(trained: Run) -> None:
    rows = list(read_rows(trained.metrics_path))
    terms = compose("quadruped-flat:ppo").config.environment.robot.rewards  # type: ignore[union-attr]
    assert {f"collect/reward/{name}" for name in terms} <= set(rows[-1])
    assert rows[-1]["collect/unstable"] == 0.0
    for name, entry in terms.items():
        weight = entry["weight"] if isinstance(entry, dict) else entry
        raw, scaled = (rows[-1][f"collect/{kind}/{name}"] for kind in ("reward_raw", "reward"))
        assert raw * weight * 0.02 == pytest.approx(scaled), name  # a step lasts 20 ms


def test_the_actor_does_not_see_what_only_the_critic_may() -> None:
    config = assembly.resolve(compose("quadruped-flat:ppo", words=["environment.num_envs=2", "experiment.device=cpu"]).config)
    orchestrator = assembly.build(config)
    assert orchestrator.collector is not None
    space = orchestrator.collector.environment.single_observation_space
    workflow = orchestrator.workflow
    seen = {name: torch.randn(2, *part.shape) for name, part in space.spaces.items()}  # type: ignore[attr-defined]
    told = {**seen, "critic": seen["critic"] + 1}
    assert torch.equal(workflow.actor(seen), workflow.actor(told))  # type: ignore[attr-defined]
    assert not torch.equal(workflow.critic(seen), workflow.critic(told))  # type: ignore[attr-defined]


def test_trials_are_measured_printed_and_kept(trained: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--robots", "2", "--seconds", "0.6", "--only", "stand,forward"]
    assert command(["trials", str(trained.path), *words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [trial["name"] for trial in report["trials"]] == ["stand", "forward"]
    assert report["trials"][1]["command"] == pytest.approx([0.8, 0.0, 0.0])
    folder = trained.logs / "trials"
    assert json.loads((folder / "trials.json").read_text())["trials"] == report["trials"]
    rows = list(csv.DictReader((folder / "forward-velocity.csv").read_text().splitlines()))
    assert len(rows) == 30
    assert float(rows[-1]["second"]) == pytest.approx(0.6)
    assert (folder / "trials.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "forwards"], "--only forwards: no such trial; did you mean 'forward'"),
        (["--robots", "0"], "--robots 0: must be at least 1"),
        (["--seconds", "0"], "--seconds 0: must be above 0"),
        (["--seconds", "9"], "--seconds 9: an episode of quadruped-flat lasts 0.8 s"),
        (["--scripts", "none.yaml"], "--scripts none.yaml: can't be read"),
    ],
)
def test_a_wrong_request_for_trials_is_one_line(
    words: list[str], said: str, trained: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["trials", str(trained.path), *words]) == 2
    assert said in capsys.readouterr().err


def test_trials_are_for_robots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("CartPole-v1:random", tmp_path, "training.total_steps=8", "evaluation.every_steps=0")
    assert command(["trials", str(run.path)]) == 2
    assert "CartPole-v1, which is no robot's task" in capsys.readouterr().err


def test_a_robot_that_holds_its_pose_stands_and_a_push_moves_it() -> None:
    environment = robots(3, terminations={"tilt": {}})

    def still(observation: object, is_first: torch.Tensor) -> torch.Tensor:
        return torch.zeros(3, 12)

    calm, pushed = (run_trial(environment, still, constant("x", push=push), seconds=2.0, seed=1) for push in (0.0, 2.0))
    assert (calm.falls, calm.robots) == (0, 3)
    assert calm.speed < 0.05
    assert calm.stance > 0.99
    assert abs(float(pushed.series["velocity"][:, 1].max())) > 0.5 > abs(float(calm.series["velocity"][:, 1].max()))


def test_scripts_change_with_time_and_bad_ones_are_refused() -> None:
    mixed = next(script for script in SCRIPTS if script.name == "mixed")
    assert (mixed.at(0.0), mixed.at(3.9), mixed.at(7.0)) == ((0.5, 0.0, 0.0), (0.5, 0.2, 0.5), (0.0, 0.0, 0.0))
    with pytest.raises(Exception, match=r"script 1: unknown key 'comands'"):
        read_scripts([{"name": "x", "comands": []}])
    with pytest.raises(Exception, match=r"the first at second 0"):
        read_scripts([{"name": "x", "commands": [[1, 0, 0, 0]]}])


def test_a_video_of_a_robot_has_as_many_frames_as_asked(trained: Run, tmp_path: Path) -> None:
    video = tmp_path / "walk.mp4"
    assert command(["play", str(trained.path), "--video", str(video), "--record-length", "12"]) == 0
    assert len(decode(video).frames) == 12


def test_the_documented_terms_are_those_there_are() -> None:
    page = Path(__file__).parents[2] / "docs" / "robots.md"
    assert reference.refresh(page.read_text()) == page.read_text(), "run `make docs`"
