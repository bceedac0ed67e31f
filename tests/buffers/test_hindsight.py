from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from etude.buffers.columns import leaves
from etude.buffers.hindsight import Hindsight
from etude.buffers.replay import ReplayBuffer
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.workers.vector import WorkerVector
from etude.errors import UserError

STRATEGIES = ("future", "final", "episode", "random")


def distance_reward(achieved: Tensor, desired: Tensor) -> Tensor:
    return -(achieved - desired).abs().sum(-1)


def make(
    rows: int, num_envs: int, *, strategy: Any = "future", ratio: float = 4.0, ends: Any = None, **options: Any
) -> ReplayBuffer:
    """`ends` says of goals that were reached and goals that were asked for whether that ends an episode."""
    settings = Hindsight(strategy, ratio, ends_on_success=ends is not None)
    buffer = ReplayBuffer(rows * num_envs, num_envs, hindsight=settings, **{"gamma": 0.9, **options})
    assert buffer.goals is not None
    buffer.goals.compute_reward, buffer.goals.compute_terminated = distance_reward, ends
    return buffer


def row(t: int, num_envs: int, ended: list[bool], is_first: list[bool]) -> dict[str, Any]:
    """Transition t of environment i reaches the goal 1000·t + i; what was asked for is -1."""
    mark = (1000.0 * t + torch.arange(num_envs))[:, None]
    asked = torch.full((num_envs, 1), -1.0)
    before = torch.where(torch.tensor(is_first)[:, None], mark - 0.5, mark - 1000)
    return {
        "observation": {"observation": mark, "achieved_goal": before, "desired_goal": asked},
        "is_first": torch.tensor(is_first),
        "action": mark.long()[:, 0],
        "reward": torch.full((num_envs,), 7.0),
        "terminated": torch.tensor(ended),
        "truncated": torch.zeros(num_envs, dtype=torch.bool),
        "next_observation": {"observation": mark + 1000, "achieved_goal": mark, "desired_goal": asked},
    }


class Episodes:
    """The slow truth: which transitions of which environment belong together."""

    def __init__(self, rows: int, num_envs: int) -> None:
        self.rows, self.num_envs = rows, num_envs
        self.steps: list[list[tuple[int, int]]] = [[] for _ in range(num_envs)]  # (t, episode)
        self.episode = [0] * num_envs
        self.starts = [True] * num_envs
        self.t = 0

    def next_row(self, fates: list[str]) -> dict[str, Any]:
        ended = [fate == "ends" for fate in fates]
        made = row(self.t, self.num_envs, ended, self.starts)
        for env, fate in enumerate(fates):
            if self.starts[env]:
                self.episode[env] += 1
            self.steps[env] = [*self.steps[env], (self.t, self.episode[env])][-self.rows :]
            self.starts[env] = fate != "goes on"  # "lost": the next begins without an end of this one
        self.t += 1
        return made

    def allowed(self, t: int, env: int, strategy: str) -> set[float]:
        """The goals that a transition may get."""
        episode = next(e for s, e in self.steps[env] if s == t)
        same = [s for s, e in self.steps[env] if e == episode]
        chosen = {"future": [s for s in same if s >= t], "final": same[-1:], "episode": same}.get(strategy)
        if chosen is not None:
            return {1000.0 * s + env for s in chosen}
        return {1000.0 * s + e for e in range(self.num_envs) for s, _ in self.steps[e]}


@given(
    num_envs=st.integers(1, 3),
    rows=st.integers(1, 8),
    strategy=st.sampled_from(STRATEGIES),
    fates=st.lists(st.lists(st.sampled_from(["goes on", "goes on", "ends", "lost"]), min_size=3, max_size=3), max_size=25),
    save_at=st.integers(0, 25),
    clear_at=st.integers(0, 40),
)
@settings(max_examples=150, deadline=None)
def test_goals_come_from_the_same_episode_as_the_strategy_says(
    num_envs: int, rows: int, strategy: Any, fates: list[list[str]], save_at: int, clear_at: int
) -> None:
    buffer, truth = make(rows, num_envs, strategy=strategy, ratio=1e9), Episodes(rows, num_envs)
    for t, each in enumerate(fates):
        buffer.add(truth.next_row(each[:num_envs]))
        if t == clear_at:
            buffer.clear()
            truth.steps, truth.starts = [[] for _ in range(num_envs)], [True] * num_envs
            continue
        if t == save_at:
            saved, buffer = buffer.state_dict(), make(rows, num_envs, strategy=strategy, ratio=1e9)
            buffer.load_state_dict(saved)
        batch = buffer.sample(40, Generator().manual_seed(t))
        assert batch["is_relabelled"].all()
        for mark, goal in zip(batch["action"].tolist(), batch["observation"]["desired_goal"][:, 0].tolist(), strict=True):
            assert goal in truth.allowed(mark // 1000, mark % 1000, strategy)


def filled(strategy: Any = "future", ratio: float = 4.0, **options: Any) -> ReplayBuffer:
    buffer, truth = make(50, 2, strategy=strategy, ratio=ratio, **options), Episodes(50, 2)
    for t in range(70):
        buffer.add(truth.next_row(["ends" if t % 10 == 9 else "goes on"] * 2))
    return buffer


@pytest.mark.parametrize("strategy", ["future", "episode", "random"])
def test_every_goal_allowed_is_as_likely(strategy: str) -> None:
    buffer = filled(strategy, ratio=1e9)
    batch = buffer.sample(200_000, Generator().manual_seed(0))
    chosen = batch["action"] == 45_000  # step 5 of the episode from 40 to 49
    goals = batch["observation"]["desired_goal"][chosen][:, 0]
    held = {"future": range(45, 50), "episode": range(40, 50)}.get(strategy)
    expected = [1000.0 * t for t in held] if held else sorted(1000.0 * t + e for t in range(20, 70) for e in range(2))
    assert sorted(goals.unique().tolist()) == expected
    counts = torch.tensor([(goals == goal).sum() for goal in expected]).double()
    mean = counts.sum() / len(expected)
    assert ((counts - mean).square() / mean).sum() < 2.5 * len(expected) + 20


def test_four_of_five_have_another_goal_and_the_reward_that_goes_with_it() -> None:
    batch = filled().sample(20_000, Generator().manual_seed(0))
    other = batch["is_relabelled"]
    assert other.float().mean() == pytest.approx(0.8, abs=0.01)
    goal, reached = batch["observation"]["desired_goal"], batch["next_observation"]["achieved_goal"]
    assert torch.equal(goal, batch["next_observation"]["desired_goal"])
    assert torch.equal(batch["reward"][other], distance_reward(reached, goal)[other])
    assert (batch["reward"][~other] == 7.0).all()
    assert (goal[~other] == -1).all()
    assert torch.equal(batch["observation"]["observation"][:, 0].long(), batch["action"]), "all else is as it was"
    assert torch.equal(batch["discount"], 0.9 * ~batch["terminated"])


def test_without_another_goal_everything_is_as_stored() -> None:
    batch = filled(ratio=0.0).sample(100, Generator().manual_seed(0))
    assert (batch["reward"] == 7.0).all()
    assert (batch["observation"]["desired_goal"] == -1).all()


def test_reaching_the_goal_ends_the_episode_where_the_task_says_so() -> None:
    def reached(achieved: Tensor, desired: Tensor) -> Tensor:
        return (achieved == desired).all(-1)

    batch = filled(ends=reached).sample(5000, Generator().manual_seed(0))
    other = batch["is_relabelled"]
    success = reached(batch["next_observation"]["achieved_goal"], batch["observation"]["desired_goal"])
    assert torch.equal(batch["terminated"][other], success[other])
    assert torch.equal(batch["terminated"][~other], batch["action"][~other] // 1000 % 10 == 9)
    assert torch.equal(batch["discount"] == 0, batch["terminated"])


def test_many_batches_at_once_are_the_batches_one_by_one() -> None:
    buffer, one, other = filled(), Generator().manual_seed(3), Generator().manual_seed(3)
    many = buffer.sample_many(3, 16, one)
    for k in range(3):
        single = buffer.sample(16, other)
        assert all(torch.equal(a[k], b) for a, b in zip(leaves(many), leaves(single), strict=True))


def test_only_the_columns_asked_for_come() -> None:
    batch = filled().sample(4, Generator().manual_seed(0), columns=("observation", "reward"))
    assert set(batch) == {"observation", "reward", "discount", "index", "generation", "is_relabelled"}


# ---- what it needs --------------------------------------------------------------------------------------------------


class Reach(gymnasium.Env[Any, Any]):
    """A point on a line that is to be at the goal."""

    def __init__(self) -> None:
        box = spaces.Box(-10, 10, (1,), np.float64)
        self.observation_space = spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self.action_space = spaces.Discrete(2)
        self.position = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = 0.0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self.position += 1.0 if action else -1.0
        seen = self._see()
        return seen, float(self.compute_reward(seen["achieved_goal"], seen["desired_goal"], {})), False, False, {}

    def _see(self) -> dict[str, Any]:
        here = np.array([self.position])
        return {"observation": here, "achieved_goal": here, "desired_goal": np.array([5.0])}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.abs(achieved_goal - desired_goal).sum(-1) > 0.5).astype(np.float64)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        return False


class Blind(Reach):
    compute_reward = None  # type: ignore[assignment] # a task that can't judge other goals

    def step(self, action: Any) -> Any:
        return self._see(), 0.0, False, False, {}


def test_the_tasks_own_reward_judges_whole_batches() -> None:
    environments = [GymnasiumVector(Reach, 2), WorkerVector(Reach, 2, workers=1, timeout_s=30)]
    achieved, desired = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [1.0], [3.2]])
    for environment in environments:
        buffer = ReplayBuffer(20, 2, hindsight=Hindsight())
        buffer.bind(environment)
        assert buffer.goals is not None
        assert buffer.goals.compute_reward is not None
        assert buffer.goals.compute_reward(achieved, desired).tolist() == [0.0, -1.0, 0.0]
        assert environment.compute_terminated is not None
        assert environment.compute_terminated(achieved, desired).tolist() == [False] * 3
        environment.close()


def test_a_task_without_goals_is_refused() -> None:
    environment = GymnasiumVector(lambda: gymnasium.make("CartPole-v1"), 2)
    with pytest.raises(UserError, match=r"buffers.replay: hindsight: observations have no 'observation'"):
        ReplayBuffer(20, 2, hindsight=Hindsight()).bind(environment)


def test_a_task_that_can_not_judge_other_goals_is_refused() -> None:
    with pytest.raises(UserError, match=r"the environment has no method compute_reward\(achieved_goal"):
        ReplayBuffer(20, 2, hindsight=Hindsight()).bind(GymnasiumVector(Blind, 2))


def test_what_hindsight_reads_is_not_left_out() -> None:
    with pytest.raises(UserError, match="'is_first' is needed for hindsight"):
        make(5, 2, leave_out=("is_first",))


def test_it_trains_from_the_config(tmp_path: Path) -> None:
    """With a workflow that only collects, the buffer fills and can be sampled as the workflow would."""
    from etude.config.compose import compose
    from etude.training import assembly

    gymnasium.register("Reach-v0", entry_point=lambda **_: Reach(), max_episode_steps=6)
    try:
        words = ["buffers.rollout.type=hindsight", "buffers.rollout.capacity=100", "environment.num_envs=2"]
        config = assembly.resolve(compose("Reach-v0:random", words=words).config)
        orchestrator = assembly.build(config)
    finally:
        del gymnasium.registry["Reach-v0"]
    collector, buffer = orchestrator.collector, orchestrator.buffers["rollout"]
    assert collector is not None
    collector.start(orchestrator.workflow.initial_state)
    collector.collect(orchestrator.workflow.explorer(), buffer, 20)
    batch = buffer.sample(300, Generator().manual_seed(0))
    success = (batch["observation"]["desired_goal"] - batch["next_observation"]["achieved_goal"]).abs()[:, 0] < 0.5
    assert torch.equal(batch["reward"] == 0, success)
    assert success.float().mean() > 0.15
    orchestrator.close()
