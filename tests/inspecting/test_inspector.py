"""Recorded episodes: the same as a scripted rollout, values and advantages included; and futures that branch off them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.components.critics import with_action
from etude.components.returns import generalized_advantages
from etude.errors import EtudeError, UserError
from etude.inspecting.inspector import Inspector
from etude.inspecting.recording import Recording, same_future
from etude.runs.run import Run
from etude.using.play import play
from etude.using.stored_policy import open_policy
from tests.inspecting.conftest import Trained


def opened(run: Run, **options: Any) -> Inspector:
    return Inspector.open(run, **{"pictures": False, **options})


def workflow_of(run: Run) -> Any:
    stored = open_policy(run, "last")
    _, environment = stored.with_environment(1)
    return stored.workflow(environment)


def assert_is_the_played_episode(recording: Recording, path: dict[str, Any]) -> None:
    np.testing.assert_array_equal(np.stack([step.observation for step in recording.steps]), path["observations"])  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.stack([step.action for step in recording.steps]), path["actions"])
    np.testing.assert_array_equal([step.reward for step in recording.steps], path["rewards"])
    assert recording.ending == path["ending"]


def advantages_by_hand(workflow: Any, path: dict[str, Any], gae_lambda: float) -> tuple[torch.Tensor, torch.Tensor]:
    values, following = (workflow.values(torch.as_tensor(path[name])) for name in ("observations", "next_observations"))
    rewards, terminated = torch.as_tensor(path["rewards"]).float(), torch.as_tensor(path["terminated"])
    columns = (part.unsqueeze(-1) for part in (rewards, values, following, terminated, terminated))
    return values, generalized_advantages(*columns, workflow.settings.gamma, gae_lambda)[:, 0]


@pytest.mark.parametrize("mode", ["greedy", "sample"])
@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_the_table_is_that_of_a_scripted_rollout(trained: Trained, spec: str, mode: Any) -> None:
    run = trained(spec)
    recording = opened(run, mode=mode).record(3, max_steps=60)
    (path,) = play(run, 1, checkpoint="last", mode=mode, seed=3, max_steps=60)
    assert_is_the_played_episode(recording, path)
    workflow, columns = workflow_of(run), recording.columns()
    values, advantages = advantages_by_hand(workflow, path, getattr(workflow.settings, "gae_lambda", 0.95))
    np.testing.assert_allclose(columns.values, values, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type] # all have values
    np.testing.assert_allclose(columns.advantages, advantages, rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]
    rewards, gamma = path["rewards"], workflow.settings.gamma
    expected = [sum(gamma**k * reward for k, reward in enumerate(rewards[t:])) for t in range(len(rewards))]
    np.testing.assert_allclose(columns.mc_returns, expected, rtol=1e-6)
    np.testing.assert_allclose(columns.returns, np.cumsum(rewards), rtol=1e-6)


def test_probabilities_are_the_policys(trained: Trained) -> None:
    run = trained("CartPole-v1:ppo")
    recording = opened(run, mode="sample").record(0, max_steps=10)
    workflow = workflow_of(run)
    for step in recording.steps:
        seen = workflow.normalizer(torch.as_tensor(step.observation).unsqueeze(0))
        np.testing.assert_allclose(step.insight.probabilities, workflow.actor(seen).softmax(-1)[0].detach(), rtol=1e-5)  # type: ignore[arg-type]


def test_q_values_are_the_networks(trained: Trained) -> None:
    dqn, sac = trained("CartPole-v1:dqn"), trained("Pendulum-v1:sac")
    q, critic = workflow_of(dqn), workflow_of(sac)
    for step in opened(dqn).record(0, max_steps=10).steps:
        expected = q._policy.values(torch.as_tensor(step.observation).unsqueeze(0))[0] / q.settings.reward_scale
        np.testing.assert_allclose(step.insight.q_values, expected, rtol=1e-5)  # type: ignore[arg-type]
        assert step.insight.q_taken == pytest.approx(float(expected[int(step.action)]), rel=1e-5)
    for step in opened(sac, mode="sample").record(0, max_steps=10).steps:
        seen, action = (torch.as_tensor(each).unsqueeze(0) for each in (step.observation, step.action / 2))
        expected = critic.critic(with_action(critic.normalizer(seen), action)).amin(0).item() / critic.settings.reward_scale
        assert step.insight.q_taken == pytest.approx(expected, rel=1e-4)


def test_a_checkpoint_of_the_policy_alone_says_so_in_one_line(trained: Trained) -> None:
    run = trained("CartPole-v1:ppo", "training.total_steps=64", "evaluation.every_steps=32", "checkpoint.every_steps=0")
    (alone, *_) = [saved for saved in run.checkpoints().list() if saved.kind == "policy"]
    inspector = opened(run, checkpoint=alone.name)
    recording = inspector.record(0, max_steps=5)
    assert recording.steps[0].insight.probabilities is not None
    assert recording.columns().values is None
    assert recording.columns().advantages is None
    (said,) = [line for line in inspector.notes if "values" in line]
    assert "holds the policy alone" in said


def test_a_critic_of_other_rewards_says_so_in_one_line(trained: Trained) -> None:
    run = trained("CartPole-v1:ppo", "environment.wrappers=[{id: reward_scale, factor: 0.1}]")
    (said,) = [line for line in opened(run).notes if "reward_scale" in line]
    assert "values and advantages" in said
    assert not [line for line in opened(trained("CartPole-v1:ppo")).notes if "rewards" in line]


FAMILIES: list[Any] = ["CartPole-v1:ppo", "Pendulum-v1:sac", "FrozenLake-v1:q_learning"]
FAMILIES += ["HalfCheetah-v5:ppo"] if find_spec("mujoco") else []
FAMILIES += [pytest.param("quadruped-flat:ppo", marks=pytest.mark.slow)] if find_spec("mujoco") else []
FAMILIES += ["LunarLander-v3:ppo"] if find_spec("Box2D") else []
FAMILIES += ["MiniGrid-DoorKey-5x5-v0:ppo"] if find_spec("minigrid") else []


@pytest.mark.parametrize("spec", FAMILIES)
def test_the_same_future_comes_again_bit_for_bit(trained: Trained, spec: str) -> None:
    """Also from a branch, whose past is another recording's; with sampled actions, whose random numbers are part of a place."""
    inspector = opened(trained(spec), mode="sample")
    recording = inspector.record(1, max_steps=50)
    step = max(1, len(recording.steps) * 2 // 3)
    future = inspector.branch(recording, step, max_steps=50)
    assert same_future(recording.steps, future.steps)
    assert [each.insight.value for each in future.steps] == [each.insight.value for each in recording.steps]
    assert (future.ending, future.final_value) == (recording.ending, recording.final_value)
    again = inspector.branch(future, step // 2, max_steps=50)
    assert same_future(recording.steps, again.steps)
    inspector.close()


def test_what_a_policy_remembers_is_part_of_a_branch(trained: Trained) -> None:
    words = ("network.actor.type=lstm", "network.critic.type=lstm", "algorithm.batch_size=8")
    inspector = opened(trained("CartPole-v1:ppo", *words), mode="sample")
    recording = inspector.record(2, max_steps=60)
    future = inspector.branch(recording, len(recording.steps) // 2, max_steps=60)
    assert same_future(recording.steps, future.steps)
    assert [step.insight.value for step in future.steps] == [step.insight.value for step in recording.steps]


def test_another_action_leads_elsewhere(trained: Trained) -> None:
    inspector = opened(trained("CartPole-v1:ppo"))
    recording = inspector.record(0, max_steps=200)
    step = len(recording.steps) // 2
    other = 1 - int(recording.steps[step].action)
    future = inspector.branch(recording, step, action=other, max_steps=200)
    assert same_future(recording.steps[:step], future.steps[:step])
    assert future.steps[step].is_forced
    assert int(future.steps[step].action) == other
    assert int(future.steps[step].chosen) == int(recording.steps[step].action)
    assert not same_future(recording.steps[step + 1 :], future.steps[step + 1 :])
    # A branch of a branch lives through the forced action again.
    again = inspector.branch(future, len(future.steps) - 1, max_steps=200)
    assert same_future(future.steps, again.steps)


def test_another_checkpoint_goes_on_as_it_would_have(trained: Trained) -> None:
    """The same weights by another way are the same future; others may differ from the branch on, and only there."""
    run = trained("CartPole-v1:ppo", "training.total_steps=96", "checkpoint.every_steps=32")
    first, *_, last = [saved.name for saved in run.checkpoints().list()]
    inspector = opened(run, mode="sample")
    recording = inspector.record(0, max_steps=100)
    same = inspector.branch(recording, 5, by=open_policy(run, last), max_steps=100)
    assert same_future(recording.steps, same.steps)
    other = inspector.branch(recording, 5, by=open_policy(run, first), max_steps=100)
    assert same_future(recording.steps[:5], other.steps[:5])
    assert [step.insight.value for step in other.steps[5:8]] != [step.insight.value for step in recording.steps[5:8]]
    assert first in other.performer.name


def test_a_policy_with_memory_that_takes_over_has_followed_the_episode(trained: Trained) -> None:
    run = trained("CartPole-v1:ppo", "network.actor.type=lstm", "network.critic.type=lstm", "algorithm.batch_size=8")
    inspector = opened(run, mode="greedy")
    recording = inspector.record(2, max_steps=60)
    future = inspector.branch(recording, len(recording.steps) // 2, by=open_policy(run, "last"), max_steps=60)
    assert same_future(recording.steps, future.steps)
    assert [step.insight.value for step in future.steps] == [step.insight.value for step in recording.steps]


def test_a_policy_of_another_environment_is_refused(trained: Trained) -> None:
    inspector = opened(trained("CartPole-v1:ppo"))
    recording = inspector.record(0, max_steps=5)
    with pytest.raises(UserError, match=r"was trained in Pendulum-v1, and this episode is of CartPole-v1"):
        inspector.branch(recording, 1, by=open_policy(trained("Pendulum-v1:sac"), "last"))


UNKNOWN_STATE = """
import gymnasium, numpy as np

class Threaded(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.engine = iter(range(20))
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, next(self.engine) >= 9, False, {}

gymnasium.register("Threaded-v0", Threaded)
"""


def test_an_environment_whose_state_is_unknown_refuses_to_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Trained
) -> None:
    (tmp_path / "threaded_task.py").write_text(UNKNOWN_STATE)
    monkeypatch.syspath_prepend(tmp_path)
    inspector = opened(trained("threaded_task:Threaded-v0:ppo"))
    recording = inspector.record(0)
    assert len(recording.steps) == 10
    with pytest.raises(UserError, match=r"Threaded-v0: its state can't be saved \(its snapshot is 'restart'\)"):
        inspector.branch(recording, 3)


@pytest.mark.parametrize("action", [2, -1, 0.5, "left", [0, 1], None, float("nan")])
def test_actions_that_are_none_are_refused(trained: Trained, action: Any) -> None:
    inspector = opened(trained("CartPole-v1:ppo"))
    with pytest.raises(UserError, match="action"):
        inspector.read_action(action)


def test_an_episode_goes_on_where_it_was_cut(trained: Trained) -> None:
    inspector = opened(trained("CartPole-v1:ppo"), mode="sample")
    whole = inspector.record(0, max_steps=30)
    cut = inspector.record(0, max_steps=7)
    assert cut.ending == "max steps"
    inspector.go_on(cut, max_steps=30)
    assert same_future(whole.steps, cut.steps)
    assert cut.ending == whole.ending


def test_recording_stops_when_asked_and_when_memory_is_full(trained: Trained) -> None:
    run = trained("CartPole-v1:ppo")
    stopped = opened(run).record(0, wants_more=lambda done: done < 4)
    assert (len(stopped.steps), stopped.ending) == (4, "stopped")
    full = opened(run, most_bytes=2000).record(0)
    assert full.ending == "memory full"
    assert 0 < len(full.steps) < 10


@pytest.mark.usefixtures("no_display")
def test_every_step_has_its_picture(trained: Trained) -> None:
    inspector = opened(trained("CartPole-v1:ppo"), pictures=True)
    recording = inspector.record(0, max_steps=6)
    assert len(recording.frames) == len(recording.steps) + 1
    assert all(frame.startswith(b"\x89PNG") for frame in recording.frames)
    future = inspector.branch(recording, 3, max_steps=6)
    assert future.frames == recording.frames
    inspector.close()


def test_a_forged_checkpoint_name_is_one_line(trained: Trained) -> None:
    with pytest.raises(EtudeError, match="not found"):
        opened(trained("CartPole-v1:ppo"), checkpoint="999999")
