"""A run in steps: however it is cut, saved, loaded or copied, it is the run that was never cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import etude
from etude.errors import UserError
from etude.runs.run import Run
from tests.runs_compared import assert_same_run, rows

PPO = (
    "CartPole-v1:ppo",
    "training.total_steps=2048",
    "algorithm.epochs=1",
    "evaluation.episodes=2",
    "evaluation.every_steps=512",
)
DQN = ("CartPole-v1:dqn", "training.total_steps=900", "evaluation.episodes=2", "evaluation.every_steps=300")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    root = tmp_path_factory.mktemp("whole")
    return {"ppo": etude.train(*PPO, runs=root), "dqn": etude.train(*DQN, runs=root)}


def finish(experiment: etude.Experiment) -> Run:
    while not experiment.has_ended:
        experiment.step()
    return experiment.run


def test_steps_end_at_evaluations_and_make_the_run_of_etude_train(tmp_path: Path, whole: dict[str, Run]) -> None:
    experiment = etude.Experiment(*PPO, runs=tmp_path)
    seen = []
    while not experiment.has_ended:
        seen.append(experiment.step())
        random.random()
        torch.rand(1)
    assert [row["env_steps"] for row in seen] == [512, 1024, 1536, 2048]
    assert all("eval/return_mean" in row for row in seen)
    assert experiment.run.status == "finished"
    assert_same_run(experiment.run, whole["ppo"])
    with pytest.raises(UserError, match="has ended"):
        experiment.step()


@pytest.mark.parametrize(("name", "words"), [("ppo", PPO), ("dqn", DQN)])
def test_a_copy_goes_on_to_the_bit_and_so_does_the_original(
    name: str, words: tuple[str, ...], tmp_path: Path, whole: dict[str, Run]
) -> None:
    experiment = etude.Experiment(*words, runs=tmp_path / "runs")
    experiment.step()
    torch.rand(3)
    experiment.save(tmp_path / "saved")
    copy = etude.Experiment.load(tmp_path / "saved", runs=tmp_path / "runs", group="copies")
    assert copy.run.id != experiment.run.id
    assert copy.run.record["cloned_from"]["run"] == experiment.run.id
    # In turns: neither notices the other.
    copy.step()
    original = finish(experiment)
    assert_same_run(finish(copy), whole[name])
    assert_same_run(original, whole[name])
    assert copy.run.record["group"] == "copies"


def test_a_copy_may_change_settings_and_says_so(tmp_path: Path) -> None:
    with etude.Experiment(*PPO, runs=tmp_path) as experiment:
        experiment.step()
        saved = experiment.save(tmp_path / "saved")
    assert experiment.run.status == "interrupted"
    assert not list(saved.rglob("*.pkl"))
    changed = etude.Experiment.load(tmp_path / "saved", "algorithm.learning_rate=0.01", runs=tmp_path)
    changed.step()
    changed.close()
    assert changed.run.status == "interrupted"
    assert etude.open_run(changed.run).config.algorithm.learning_rate.start == 0.01
    assert rows(changed.run)[0] == rows(experiment.run)[0]
    assert "learning_rate" in (changed.run.logs / "changes.jsonl").read_text()


def test_it_goes_on_with_its_own_run_and_steps_may_be_longer(tmp_path: Path, whole: dict[str, Run]) -> None:
    first = etude.Experiment(*PPO, runs=tmp_path, every_steps=1000)
    assert first.step()["env_steps"] == 1024
    first.close()
    again = etude.Experiment.resume(first.run)
    again.close()  # not a step: nothing is changed by it
    assert_same_run(finish(etude.Experiment.resume(first.run)), whole["ppo"])


def test_what_can_not_be_is_one_line(tmp_path: Path) -> None:
    experiment = etude.Experiment(*PPO, runs=tmp_path / "runs")
    with pytest.raises(UserError, match="save it after a step"):
        experiment.save(tmp_path / "saved")
    experiment.close()
    with pytest.raises(UserError, match="no saved run"):
        etude.Experiment.load(tmp_path, runs=tmp_path / "runs")
    with pytest.raises(UserError, match="every_steps=0"):
        etude.Experiment(*PPO, runs=tmp_path / "runs", every_steps=0)
