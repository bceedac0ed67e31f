"""One way to open a policy: of a run, by its name, by a path to a checkpoint, and from a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import etude
from etude.errors import UserError
from etude.runs.run import Run
from etude.using.stored_policy import OpenPolicy, PolicyInFile, StoredPolicy, open_policy
from tests.runs_compared import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("CartPole-v1:ppo", tmp_path_factory.mktemp("runs"), "training.total_steps=2048")


def actions(stored: OpenPolicy) -> torch.Tensor:
    policy, environment = stored.with_environment(3)
    observation, _ = environment.reset([1, 2, 3])
    first, generator = torch.ones(3, dtype=torch.bool), torch.Generator().manual_seed(4)
    taken = policy.act(observation, policy.initial_state(3), first, mode="sample", generator=generator)
    environment.close()
    return taken.extras["log_prob"]


def test_a_run_its_name_its_checkpoint_and_a_file_hold_the_same_policy(run: Run, tmp_path: Path) -> None:
    file = etude.save_component(open_policy(run).with_environment()[0], tmp_path / "policy.safetensors")
    last = run.checkpoints().find("last").path
    opened = [open_policy(run), open_policy("@last", root=run.path.parent), open_policy(last), open_policy(str(file))]
    assert [type(each) for each in opened] == [StoredPolicy] * 3 + [PolicyInFile]
    assert [each.name for each in opened] == [run.id] * 3 + ["policy.safetensors"]
    assert {each.modes("auto") for each in opened} == {("greedy",)}
    for other in opened[1:]:
        assert torch.equal(actions(other), actions(opened[0]))


def test_a_file_is_evaluated_and_played_like_a_run(run: Run, tmp_path: Path) -> None:
    file = etude.save_component(open_policy(run).with_environment()[0], tmp_path / "policy.safetensors")
    assert etude.evaluate(file, 2).returns.tolist() == etude.evaluate(run, 2).returns.tolist()
    (ours,), (theirs,) = etude.play(file, 1), etude.play(run, 1, checkpoint="last")
    assert ours["return"] == theirs["return"]


def test_a_file_made_for_other_spaces_than_its_environment_has_is_refused(tmp_path: Path) -> None:
    words = ("environment.wrappers=[{id: stack, count: 2}]", "training.total_steps=64")
    stacked = etude.train("CartPole-v1:random", *words, runs=tmp_path / "runs")
    file = etude.save_component(stacked.policy()[0], tmp_path / "stacked.safetensors")
    with pytest.raises(UserError, match=r"stacked.safetensors: was made for observations of .*, and those of CartPole-v1"):
        open_policy(file).with_environment()


def test_a_run_without_evaluations_has_no_best_to_prefer(tmp_path: Path) -> None:
    bare = train("CartPole-v1:random", tmp_path, "training.total_steps=64", "evaluation.every_steps=0")
    assert open_policy(bare, prefer="best").checkpoint.name == open_policy(bare).checkpoint.name
