"""Etude as a Trainable: whatever a scheduler does with it, trials go on to the bit, in checkpoints without pickle."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from etude.errors import MissingPackageError, UserError
from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.runs_compared import assert_same_run, train
from tests.tuning import ray_double

WORDS = ["training.total_steps=768", "algorithm.epochs=1", "evaluation.episodes=2", "evaluation.every_steps=256"]
RATE = {"algorithm.learning_rate": 0.001}


@pytest.fixture
def trainable(monkeypatch: pytest.MonkeyPatch) -> Any:
    ray_double.install(monkeypatch, [{"CPU": 1.0}])
    monkeypatch.delitem(sys.modules, "etude.tuning.ray_trainable", raising=False)
    yield importlib.import_module("etude.tuning.ray_trainable").EtudeTrainable
    sys.modules.pop("etude.tuning.ray_trainable", None)


def to_the_end(trial: Any) -> Run:
    while not trial.step()["done"]:
        pass
    return trial._experiment.run


def test_trials_that_are_paused_moved_or_copied_go_on_to_the_bit(trainable: Any, tmp_path: Path) -> None:
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *WORDS, "algorithm.learning_rate=0.001")
    config = {"spec": "CartPole-v1:ppo", "words": WORDS, "runs": str(tmp_path / "runs"), **RATE}
    trial = trainable(config, trial_id="a")
    first = trial.step()
    assert (first["env_steps"], first["timesteps_total"], first["done"]) == (256, 256, False)
    assert "eval/return_mean" in first
    trial.save_checkpoint(str(tmp_path / "one"))
    trial.cleanup()

    # Paused: the same trial goes on with its own run.
    again = trainable(config, trial_id="a")
    again.load_checkpoint(str(tmp_path / "one"))
    again.step()
    assert len(find_runs(tmp_path / "runs")) == 1
    # Moved back: its run has gone on since, and what was saved goes on as another.
    moved = trainable(config, trial_id="a")
    moved.load_checkpoint(str(tmp_path / "one"))
    # Copied by a scheduler, into a trial that had begun something else.
    copy = trainable({**config, "algorithm.learning_rate": 0.01}, trial_id="b")
    assert copy.reset_config(config)
    copy.load_checkpoint(str(tmp_path / "one"))
    runs = [to_the_end(each) for each in (again, moved, copy)]
    assert len({run.id for run in runs}) == 3
    assert [run.record["group"] for run in runs] == ["tune/a", "tune/a", "tune/b"]
    for run in runs:
        assert_same_run(run, whole)
    saved = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert {path.suffix for path in saved if "checkpoints" in path.parts} <= {".json", ".safetensors"}
    assert not any(path.suffix in (".pkl", ".pickle", ".pt", ".pth") for path in saved)


def test_a_copy_takes_on_the_settings_that_the_scheduler_gives_it(trainable: Any, tmp_path: Path) -> None:
    config = {"spec": "CartPole-v1:ppo", "words": WORDS, "runs": str(tmp_path / "runs"), **RATE}
    trial = trainable(config, trial_id="a")
    trial.step()
    trial.save_checkpoint(str(tmp_path / "one"))
    trial.cleanup()
    copy = trainable({**config, "algorithm.learning_rate": 0.002}, trial_id="b")
    copy.load_checkpoint(str(tmp_path / "one"))
    assert copy.step()["hp/learning_rate"] == pytest.approx(0.002)
    copy.cleanup()
    assert (copy._root / find_runs(tmp_path / "runs", group="tune/b")[0].id / "logs" / "changes.jsonl").exists()


def test_wrong_configs_are_one_line(trainable: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="learning_rate: a setting has a dotted name"):
        trainable({"spec": "CartPole-v1:ppo", "learning_rate": 1.0}, trial_id="a")
    trial = trainable({"spec": "CartPole-v1:ppo"}, trial_id="a")
    with pytest.raises(UserError, match="nothing to save"):
        trial.save_checkpoint(str(tmp_path))
    with pytest.raises(UserError, match="is a folder"):
        trial.load_checkpoint({"weights": 1})


def test_without_ray_it_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.tune", None)
    monkeypatch.delitem(sys.modules, "etude.tuning.ray_trainable", raising=False)
    with pytest.raises(MissingPackageError, match=r"pip install 'etude\[raytune\]'"):
        importlib.import_module("etude.tuning.ray_trainable")
