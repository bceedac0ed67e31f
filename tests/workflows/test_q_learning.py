"""What tabular Q-learning promises: its rule by hand, its spaces, its schedule, and a lake that is crossed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces

from etude.config.compose import compose
from etude.config.schema import Config
from etude.environments.gymnasium import GymnasiumVector
from etude.errors import UserError
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.workflows.base import Phase
from etude.workflows.q_learning import QLearning
from tests.runs_compared import train


def config(*words: str) -> Config:
    return assembly.resolve(
        compose("FrozenLake-v1:q_learning", words=["evaluation.every_steps=0", "experiment.device=cpu", *words]).config
    )


def table_of(*words: str, states: Any = None, actions: Any = None) -> QLearning:
    workflow = assembly.build_workflow(config(*words), states or spaces.Discrete(3), actions or spaces.Discrete(2))
    assert isinstance(workflow, QLearning)
    return workflow


def transition(here: int, action: int, reward: float, there: int, *, terminated: bool = False, truncated: bool = False) -> Any:
    values = {
        "observation": here, "action": action, "reward": reward, "next_observation": there,
        "terminated": terminated, "truncated": truncated,
    }  # fmt: skip
    return {key: torch.tensor([[value]]) for key, value in values.items()}


def test_the_rule_by_hand() -> None:
    workflow = table_of("algorithm.learning_rate=0.5", "algorithm.gamma=0.9", "algorithm.initial_value=2")
    assert workflow.learn(transition(0, 1, 1.0, 2))["td_error"] == pytest.approx(1 + 0.9 * 2 - 2)
    assert float(workflow.table[0, 1]) == pytest.approx(2 + 0.5 * 0.8)
    workflow.learn(transition(1, 0, 5.0, 2, terminated=True))
    assert float(workflow.table[1, 0]) == pytest.approx(3.5), "after an end nothing follows"
    workflow.learn(transition(1, 1, 5.0, 2, truncated=True))
    assert float(workflow.table[1, 1]) == pytest.approx(2 + 0.5 * (5 + 0.9 * 2 - 2), abs=1e-6), "after a time limit it does"
    assert workflow.values(torch.tensor([0, 1])).tolist() == pytest.approx([2.4, 4.4])


def test_several_transitions_are_taken_in_one_after_the_other() -> None:
    both = table_of("algorithm.learning_rate=1", "algorithm.gamma=1")
    one, other = transition(0, 0, 1.0, 1), transition(2, 1, 1.0, 0)
    both.learn({key: torch.cat([one[key], other[key]], 1) for key in one})
    assert float(both.table[2, 1]) == 2.0, "the second sees what the first has changed"


def test_spaces_that_do_not_begin_at_zero() -> None:
    workflow = table_of(states=spaces.Discrete(3, start=5), actions=spaces.Discrete(2, start=7))
    workflow.learn(transition(5, 1, 1.0, 7))
    first = torch.ones(3, dtype=torch.bool)
    acted = workflow.act(torch.tensor([5, 6, 7]), None, first, mode="greedy", generator=torch.Generator())
    assert acted.action.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("states", "actions", "says"),
    [
        (spaces.Box(-1, 1, (2,)), spaces.Discrete(2), "observations must be Discrete, not Box; try ppo"),
        (spaces.Discrete(3), spaces.Box(-1, 1, (2,)), "actions must be Discrete, not Box; try ppo"),
        (spaces.Discrete(10**9), spaces.Discrete(4), "4,000,000,000 entries, more than 100,000,000"),
    ],
)
def test_what_has_no_table_is_refused_in_one_line(states: Any, actions: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        table_of(states=states, actions=actions)


def test_it_explores_by_its_schedule_and_breaks_ties_at_random() -> None:
    workflow = table_of("algorithm.epsilon={start: 0.5, end: 0}", states=spaces.Discrete(2), actions=spaces.Discrete(4))
    workflow.table[1, 2] = 1.0
    here = torch.ones(20_000, dtype=torch.int64)

    def taken(observation: torch.Tensor, mode: Any) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        action = workflow.act(observation, None, observation == 0, mode=mode, generator=generator).action
        return torch.bincount(action, minlength=4) / len(action)

    torch.testing.assert_close(taken(here, "explore"), torch.tensor([0.125, 0.125, 0.625, 0.125]), rtol=0, atol=0.01)
    torch.testing.assert_close(taken(here * 0, "explore"), torch.full((4,), 0.25), rtol=0, atol=0.01)
    for mode in ("greedy", "sample"):
        assert taken(here, mode).tolist() == [0, 0, 1, 0]
        assert taken(here * 0, mode).tolist() == [1, 0, 0, 0]
    workflow.set_schedules(Phase("train", env_steps=100, total_steps=100))
    assert taken(here, "explore").tolist() == [0, 0, 1, 0]
    assert workflow.hyper_parameters()["epsilon"] == 0


def test_it_learns_from_one_environment_unless_told_otherwise() -> None:
    assert config().environment.num_envs == 1
    assert compose("Blackjack-v1:ppo").config.environment.num_envs == 8
    assert config("environment.num_envs=3").environment.num_envs == 3


class Ints(gymnasium.Env[Any, Any]):
    """Shows whole numbers."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 3, {}

    def step(self, action: Any) -> Any:
        return 2, 0.0, False, False, {}


def test_observations_arrive_as_whole_numbers() -> None:
    observation, _ = GymnasiumVector(Ints, 2).reset([0, 1])
    assert isinstance(observation, torch.Tensor)
    assert observation.dtype == torch.int64
    assert observation.tolist() == [3, 3]


def test_a_lake_that_is_not_slippery_is_crossed_within_10_000_steps(tmp_path: Path) -> None:
    words = ("environment.kwargs.is_slippery=false", "training.total_steps=10000", "evaluation.every_steps=10000")
    run = train("FrozenLake-v1:q_learning", tmp_path, *words, "checkpoint.every_steps=0")
    assert read_rows(run.metrics_path)[-1]["eval/return_mean"] == 1.0
