"""--auto-resume, and beginning with another run's networks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from etude.cli import run as etude
from etude.errors import UserError
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import assert_same_run, resume, stopped_after, train

SMALL = ("training.total_steps=2000", "algorithm.epochs=1", "evaluation.episodes=2")
WORDS = ["train", "CartPole-v1:ppo", *SMALL, "-q"]


def _runs(root: Path) -> list[Run]:
    return Run.list(root)


def test_auto_resume_starts_then_goes_on_then_has_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "--auto-resume", "--runs", str(tmp_path)]
    with stopped_after(3):
        assert etude(words) == 130
    assert etude(words) == 0
    (run,) = _runs(tmp_path)
    assert run.status == "finished"
    capsys.readouterr()
    assert etude(words) == 0
    assert "is finished already" in capsys.readouterr().err
    assert len(_runs(tmp_path)) == 1
    assert_same_run(train("CartPole-v1:ppo", tmp_path / "whole", *SMALL), run)


def test_auto_resume_takes_no_run_with_other_settings(tmp_path: Path) -> None:
    with stopped_after(2):
        etude([*WORDS, "--runs", str(tmp_path)])
    for other in (["--seed", "2"], ["algorithm.gamma=0.9"], ["--name", "mine"], ["--group", "ours"]):
        assert etude([*WORDS, "--runs", str(tmp_path), "--auto-resume", *other]) == 0
    assert sorted(run.status for run in _runs(tmp_path)) == ["finished"] * 4 + ["interrupted"]


def test_auto_resume_begins_anew_when_the_earlier_run_never_saved(tmp_path: Path) -> None:
    with stopped_after(2):
        etude([*WORDS, "--runs", str(tmp_path)])
    (lost,) = _runs(tmp_path)
    for path in lost.checkpoints_path.iterdir():
        os.rename(path, tmp_path / f"away-{path.name}")
    assert etude([*WORDS, "--runs", str(tmp_path), "--auto-resume"]) == 0
    assert len(_runs(tmp_path)) == 2


def test_a_run_begins_with_anothers_networks_and_its_own_optimiser(tmp_path: Path) -> None:
    teacher = train("CartPole-v1:ppo", tmp_path, *SMALL)
    taught = teacher.checkpoints().find("last").load()["shared"]["workflow"]
    words = (*SMALL, f"experiment.init_from={teacher.id}", "experiment.seed=5")
    student = train("CartPole-v1:ppo", tmp_path, *words, "checkpoint.keep=100")
    begun = student.checkpoints().find("0").load()["shared"]["workflow"]
    for role in ("actor", "critic"):
        assert all(torch.equal(begun[role][name], value) for name, value in taught[role].items())
    assert begun["optimizer"]["state"] != taught["optimizer"]["state"]
    assert student.record["initial_weights"]
    # Where it began is part of what a run is: the same again, stopped on the way.
    with stopped_after(3):
        again = train(
            "CartPole-v1:ppo", tmp_path / "again", *SMALL, f"experiment.init_from={teacher.path}", "experiment.seed=5"
        )
    resume(again)
    assert_same_run(student, again)


def test_networks_that_do_not_fit_are_named(tmp_path: Path) -> None:
    teacher = train("CartPole-v1:ppo", tmp_path, *SMALL)
    with pytest.raises(
        UserError, match=r"actor.layers.0.weight is \[32, 4\] here and is \[64, 4\] in .*; the networks must have"
    ):
        train("CartPole-v1:ppo", tmp_path, *SMALL, f"experiment.init_from={teacher.id}", "network.actor.hidden_dims=[32,32]")
    with pytest.raises(UserError, match="checkpoint '777' not found"):
        train("CartPole-v1:ppo", tmp_path, *SMALL, f"experiment.init_from='{teacher.id}:777'")
    assert len(Run.list(tmp_path)) == 1


def test_tensorboard_has_one_stream_over_a_stop_a_crash_and_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = (*SMALL, "logging.tensorboard=true", "logging.every_steps=256", "checkpoint.every_steps=512")
    with stopped_after(3):
        run = train("CartPole-v1:ppo", tmp_path, *words)
    resume(run, checkpoint="512")
    events = EventAccumulator(str(run.logs / "tensorboard"), purge_orphaned_data=True)
    events.Reload()
    curve = [(event.step, event.value) for event in events.Scalars("train/loss")]
    logged = [row for row in read_rows(run.metrics_path) if "train/loss" in row]
    rows = [(row["env_steps"], pytest.approx(row["train/loss"])) for row in logged]
    assert curve == rows


def test_iterations_are_a_total_that_a_resume_continues_to(tmp_path: Path) -> None:
    words = ["train", "CartPole-v1:ppo", "algorithm.epochs=1", "--iterations", "6", "--runs", str(tmp_path), "-q"]
    with stopped_after(2):
        etude(words)
    (run,) = _runs(tmp_path)
    resume(run)
    assert run.summary["counters"]["cycles"] == 6
    assert run.summary["counters"]["env_steps"] == 6 * 8 * 32
    resume(run, "training.iterations=8")
    assert run.summary["counters"]["cycles"] == 8
