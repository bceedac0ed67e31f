"""The collector writes what happened, in order, and says so where an environment can't be continued."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from etude.environments.gymnasium import GymnasiumVector
from etude.training import assembly
from etude.workflows.base import Phase
from tests.workflows.tiny_runs import copied, ppo_config, ppo_of, start

PHASE = Phase("train")


class Walk(gymnasium.Env[Any, Any]):
    """Says in every observation how old it is and which episode this is; holds something that can't be captured."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-np.inf, np.inf, (3,)), spaces.Discrete(2)
        self.engine, self.episode = object(), 0

    def _observe(self) -> Any:
        return np.array([self.age, self.episode, self.luck], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age, self.luck, self.episode = 0, self.np_random.random(), self.episode + 1
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.age += 1
        return self._observe(), float(action), self.age == 3, self.age == 5, {}


def walk(num_envs: int = 4) -> GymnasiumVector:
    return GymnasiumVector(Walk, num_envs)


def test_rows_hold_what_was_seen_done_and_led_to() -> None:
    run = start(ppo_config(rollout_steps=10, batch_size=20), walk(2))
    run.workflow.collect(PHASE, 10)
    columns = run.buffers["rollout"].columns
    age, final_age = columns["observation"][:, 0, 0].tolist(), columns["next_observation"][:, 0, 0].tolist()
    assert age == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert final_age == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
    assert columns["is_first"][:, 0].tolist() == [a == 0 for a in age]
    assert columns["terminated"][:, 0].tolist() == [a == 3 for a in final_age]
    assert not columns["truncated"].any()
    assert torch.equal(columns["reward"], columns["action"].float())
    assert columns["observation"][:, 0, 1].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]


def test_a_full_buffer_takes_no_step_too_many() -> None:
    run = start(ppo_config(rollout_steps=10, batch_size=20), walk(2))
    result = run.workflow.collect(PHASE, 25)
    assert (result.decisions, result.env_steps) == (20, 20)
    assert run.workflow.collect(PHASE, 5).is_empty


def test_an_environment_that_cannot_be_continued_begins_anew_and_says_so() -> None:
    config = ppo_config()
    run = start(config, walk())
    run.workflow.collect(PHASE, 5)
    saved = copied(run.state_dict())
    assert saved["rank/0"]["collector"]["environment"] == {}
    starts = []
    for index in (5, 6):
        resumed = assembly.build(config, environment=walk())
        (note,) = resumed.load_state_dict(saved)
        assert "can't be brought back" in note
        assert resumed.collector is not None
        resumed.workflow.collect(PHASE, 1)
        row = {key: value[index] for key, value in resumed.buffers["rollout"].columns.items()}
        assert row["is_first"].all()
        assert (row["observation"][:, 0] == 0).all()
        starts.append(row["observation"][:, 2].clone())
        saved = copied(resumed.state_dict())
    first = run.buffers["rollout"].columns["observation"][0, :, 2]
    # Each time other episodes than ever before: a resume is no way to see the same ones twice.
    assert len({*first.tolist(), *starts[0].tolist(), *starts[1].tolist()}) == 12


def test_no_value_crosses_from_new_episodes_to_those_that_could_not_be_continued() -> None:
    config = ppo_config(normalize_advantages="off", rollout_steps=8, batch_size=8)
    run = start(config, walk())
    run.workflow.collect(PHASE, 5)
    resumed = assembly.build(config, environment=walk())
    resumed.load_state_dict(copied(run.state_dict()))
    resumed.workflow.collect(PHASE, 3)
    workflow, columns = ppo_of(resumed), resumed.buffers["rollout"].columns
    before = workflow._prepare(columns)["advantages"].reshape(4, 8)
    columns["reward"][5:] += 100.0
    after = workflow._prepare(columns)["advantages"].reshape(4, 8)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_an_observation_crosses_to_another_device_once_and_where_an_episode_ended_twice(monkeypatch: Any) -> None:
    run = start(ppo_config(rollout_steps=10, batch_size=20), walk(2))
    collector: Any = run.collector
    collector._transfer.is_needed = True  # as if to the same memory under another name
    crossed = []
    monkeypatch.setattr(collector._transfer, "to_actor", lambda tensor: (crossed.append(tensor.ndim), tensor)[1])
    run.workflow.collect(PHASE, 10)
    ends = 3  # episodes have three steps
    assert crossed.count(2) == 1 + 10 + ends
    final_age = run.buffers["rollout"].columns["next_observation"][:, 0, 0].tolist()
    assert final_age == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
