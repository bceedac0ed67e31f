"""A student learns to do what its teacher does, from what it sees itself, in one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etude.cli import run as command
from etude.errors import ConfigError
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import assert_same_run, resume, stopped_after, train

SEEN = (
    "environment.robot.observations={actor: {gravity: {}, height_scan: {}}, critic: {gravity: {}}, "
    "student: {gravity: {}, history: 3}}"
)
WORDS = (
    *("environment.num_envs=8", "environment.max_episode_steps=40", "algorithm.rollout_steps=8", "algorithm.distil_from=0.5"),
    *("environment.robot.terrain={levels: 2, columns: 10}", "evaluation.episodes=2", "experiment.compile=off", SEEN),
    *("training.total_steps=512", "evaluation.every_steps=0"),
)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("quadruped-climb:ppo_student", tmp_path_factory.mktemp("student"), *WORDS)


def test_it_learns_in_both_phases_and_resumes_exactly_in_the_second(taught: Run, tmp_path: Path) -> None:
    rows = [row for row in read_rows(taught.metrics_path) if "train/student_error" in row]
    assert [("train/policy_loss" in row) for row in rows] == [True] * 4 + [False] * 4  # taught, and then on its own
    with stopped_after(5):
        run = train("quadruped-climb:ppo_student", tmp_path, *WORDS)
    resume(run)
    assert_same_run(run, taught)


def test_what_leaves_the_lab_sees_what_the_student_sees_alone(taught: Run, tmp_path: Path) -> None:
    assert command(["export", str(taught.path), "--out", str(tmp_path / "student")]) == 0
    said = next((tmp_path / "student").rglob("metadata.json")).read_text()
    assert '"student"' in said
    assert "height_scan" not in said


def test_the_student_comes_to_do_what_a_teacher_does_who_sees_the_same(tmp_path: Path) -> None:
    same = "environment.robot.observations={actor: {gravity: {}, height_scan: false}, student: {gravity: {}, history: 1}}"
    words = [word for word in WORDS if not word.startswith("training.total_steps")]
    run = train(
        "quadruped-climb:ppo_student", tmp_path, *words, same, "training.total_steps=6_400", "algorithm.distil_from=0.1"
    )
    errors = [row["train/student_error"] for row in read_rows(run.metrics_path) if "train/student_error" in row]
    assert np.mean(errors[-10:]) < 0.75 * errors[0], errors


def test_networks_that_remember_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ppo_student: learns without networks that remember"):
        train("quadruped-climb:ppo_student", tmp_path, *WORDS, "network.student.type=gru")
