"""The small tasks: their rules, the same trajectories as Gymnasium's one copy, and exact snapshots."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from etude.config.schema import EnvironmentConfig
from etude.environments import small
from etude.environments.make import make_environment
from etude.environments.small.multi_goal import GOALS
from etude.environments.small.point_reach import PointReachVector
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from tests.environments.test_conformance import assert_row, copied, same

IDS = sorted(small.NATIVE)
N, SEEDS = 3, [11, 12, 13]


def make(name: str, num_envs: int = N, **options: Any) -> VectorEnvironment:
    return make_environment(EnvironmentConfig(id=name, num_envs=num_envs, **options))


def actions(space: Any, steps: int, num_envs: int = N) -> list[torch.Tensor]:
    random = np.random.default_rng(0)
    if isinstance(space, spaces.Discrete):
        return list(torch.from_numpy(random.integers(0, int(space.n), (steps, num_envs))))
    return list(torch.from_numpy(random.uniform(-1, 1, (steps, num_envs, *space.shape)).astype(np.float32)))


# ---- all of them ----------------------------------------------------------------------------------------------------


def test_there_is_something_to_test() -> None:
    assert {"CartPoleNoVelocity-v0", "MemoryCorridor-v0", "Bandit-v0", "PointReach-v0", "MultiGoal-v0"} <= set(IDS)


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_to_complain_about(name: str) -> None:
    check_env(gymnasium.make(name).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", IDS)
def test_many_copies_at_once_are_gymnasiums_one_by_one(name: str) -> None:
    limit = 12
    environment = make(name, max_episode_steps=limit)
    plain = [gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True) for _ in SEEDS]
    observation, _ = environment.reset(SEEDS)
    for i, (env, seed) in enumerate(zip(plain, SEEDS, strict=True)):
        assert_same_row(observation, i, env.reset(seed=seed)[0])
    ends = 0
    for action in actions(environment.single_action_space, 100):
        step = environment.step(action)
        assert step.final_observation is step.observation or (step.terminated | step.truncated).any()
        for i, env in enumerate(plain):
            after, reward, terminated, truncated, info = env.step(action[i].item() if action.ndim == 1 else action[i].numpy())
            assert step.reward[i] == np.float32(reward)
            assert (bool(step.terminated[i]), bool(step.truncated[i])) == (terminated, truncated)
            assert {key: value[i].item() for key, value in step.info.items()} == info
            assert_same_row(step.final_observation, i, after)
            if terminated or truncated:
                after, _ = env.reset()
                ends += 1
            assert_same_row(step.observation, i, after)
    assert ends >= N * (100 // (limit + 1))


def assert_same_row(observation: Any, index: int, expected: Any) -> None:
    if isinstance(expected, dict):
        assert expected.keys() == observation.keys()
        for key, value in expected.items():
            assert_row(observation[key], index, value)
    else:
        assert_row(observation, index, expected)


@pytest.mark.parametrize("backend", ["auto", "gymnasium"])
@pytest.mark.parametrize("name", IDS)
def test_a_snapshot_taken_anywhere_continues_to_the_same_end(name: str, backend: Any) -> None:
    environment = make(name, backend=backend)
    environment.reset(SEEDS)
    assert environment.snapshot == "exact"
    taken = actions(environment.single_action_space, 60)
    for action in taken[:17]:
        environment.step(action)
    saved = environment.state_dict()
    expected = [(copied(step.observation), step.reward.clone()) for step in map(environment.step, taken[17:])]
    other = make(name, backend=backend)
    other.reset([1, 2, 3])
    other.load_state_dict(saved)
    for action, (observation, reward) in zip(taken[17:], expected, strict=True):
        step = other.step(action)
        assert torch.equal(step.reward, reward)
        assert same(step.observation, observation if len(observation) > 1 else next(iter(observation.values())))


@pytest.mark.parametrize("name", IDS)
def test_the_native_tasks_take_no_argument_that_gymnasiums_do_not(name: str) -> None:
    for backend in ("auto", "gymnasium"):
        with pytest.raises(UserError, match=rf"environment.kwargs={{'widht': 3}}: {name} .*widht"):
            make(name, backend=backend, kwargs={"widht": 3})  # type: ignore[arg-type]


# ---- each of them ---------------------------------------------------------------------------------------------------


def test_cartpole_without_velocities_is_cartpole() -> None:
    whole, part = make("CartPole-v1"), make("CartPoleNoVelocity-v0")
    one, other = whole.reset(SEEDS)[0], part.reset(SEEDS)[0]
    for action in actions(whole.single_action_space, 100):
        assert isinstance(one, torch.Tensor)
        assert isinstance(other, torch.Tensor)
        assert torch.equal(one[:, ::2], other)
        step, seen = whole.step(action), part.step(action)
        assert torch.equal(step.terminated, seen.terminated)
        one, other = step.observation, seen.observation
    assert part.single_observation_space.shape == (2,)
    assert part.return_threshold == 475


@pytest.mark.parametrize("length", [1, 4])
def test_the_corridor_pays_for_what_was_seen_at_its_start(length: int) -> None:
    environment = make("MemoryCorridor-v0", 64, kwargs={"length": length})
    observation = environment.reset(range(64))[0]
    assert isinstance(observation, torch.Tensor)
    cue = observation[:, 0].clone()
    assert set(cue.tolist()) == {-1.0, 1.0}
    for t in range(length):
        assert observation[:, 1].tolist() == [0.0] * 64
        step = environment.step(torch.full((64,), t % 2))
        assert not step.reward.any()
        assert not step.terminated.any()
        observation = step.observation
        assert isinstance(observation, torch.Tensor)
        assert not observation[:, 0].any(), "the cue is gone"
    assert observation[:, 1].tolist() == [1.0] * 64, "the junction is marked"
    turn = (torch.arange(64) % 2) == 0
    step = environment.step(torch.where(turn, cue > 0, cue < 0).long())
    assert step.reward.tolist() == [1.0 if right else -1.0 for right in turn.tolist()]
    assert step.terminated.all()


def test_whoever_does_not_remember_earns_nothing_in_the_corridor() -> None:
    environment = make("MemoryCorridor-v0", 500, kwargs={"length": 2})
    environment.reset(range(500))
    earned = [environment.step(torch.ones(500, dtype=torch.int64)).reward.clone() for _ in range(30)]
    assert abs(float(torch.stack(earned).sum()) / (500 * 10)) < 0.05


@pytest.mark.parametrize(("name", "low", "high"), [("Bandit-v0", 0.0, 10.0), ("Bandit/Bernoulli-v0", 0.05, 0.95)])
def test_each_arm_pays_what_it_should_on_average(name: str, low: float, high: float) -> None:
    environment = make(name, 4000)
    observation = environment.reset(range(4000))[0]
    assert isinstance(observation, torch.Tensor)
    assert observation.shape == (4000, 10)
    assert not observation.any()
    for arm, mean in enumerate(np.linspace(low, high, 10)):
        step = environment.step(torch.full((4000,), arm))
        assert float(step.reward.mean()) == pytest.approx(mean, abs=0.06)
        if name == "Bandit-v0":
            assert float(step.reward.std()) == pytest.approx(1.0, abs=0.05)
        assert step.terminated.all()
        assert step.info["optimal"].all() == (arm == 9)


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"n_arms": 1}, "n_arms=1: must be at least 2"),
        ({"means": [1, 2]}, "means must be 10 numbers"),
        ({"stds": [1, 2]}, "stds must be 10 numbers"),
        ({"episode_length": 0}, "episode_length=0: must be at least 1"),
        ({"rewards": "poisson"}, "rewards=poisson: must be gaussian or bernoulli"),
        ({"rewards": "bernoulli", "n_arms": 2, "means": [0.5, 3]}, "are probabilities"),
    ],
)
def test_a_bandit_that_cannot_be_is_refused(kwargs: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make("Bandit-v0", kwargs=kwargs)


def test_a_bandit_of_ones_own() -> None:
    environment = make("Bandit-v0", 2, kwargs={"n_arms": 2, "means": [3, 7], "stds": [0, 0], "episode_length": 2})
    environment.reset([1, 2])
    step = environment.step(torch.tensor([0, 1]))
    assert (step.reward.tolist(), step.terminated.tolist()) == ([3.0, 7.0], [False, False])
    assert environment.step(torch.tensor([1, 0])).terminated.all()


def test_the_point_moves_is_stopped_by_walls_and_is_paid_at_its_goal() -> None:
    environment = make("PointReach-v0", 200)
    assert isinstance(environment, PointReachVector)
    observation = environment.reset(range(200))[0]
    assert isinstance(observation, dict)
    for t in range(50):
        way = (observation["desired_goal"] - observation["achieved_goal"]) / 0.1
        step = environment.step(way.clamp(-1, 1))
        final = step.final_observation
        assert isinstance(final, dict)
        assert torch.equal(final["observation"], final["achieved_goal"])
        assert torch.equal(step.reward, environment.compute_reward(final["achieved_goal"], final["desired_goal"]))
        assert torch.equal(step.info["success"], step.reward == 0)
        assert not step.terminated.any()
        assert step.truncated.all() == (t == 49)
        observation = step.observation
        assert isinstance(observation, dict)
    assert step.info["success"].all()
    environment.reset(range(200))
    for _ in range(25):
        step = environment.step(torch.ones(200, 2))
    assert isinstance(step.observation, dict)
    assert (step.observation["observation"] == 1).all()


def test_a_reward_can_be_asked_for_any_goals_in_any_batch() -> None:
    env: Any = gymnasium.make("PointReach-v0").unwrapped
    achieved, desired = np.zeros((4, 5, 2)), np.zeros((4, 5, 2))
    desired[1, 2] = [0.0, 0.051]
    desired[3, 4] = [0.0, 0.049]
    rewards = env.compute_reward(achieved, desired, [{}] * 4)
    assert rewards.shape == (4, 5)
    assert rewards.sum() == -1
    assert rewards[1, 2] == -1
    tensors = env.compute_reward(torch.from_numpy(achieved), torch.from_numpy(desired))
    assert np.array_equal(tensors.numpy(), rewards)


def test_the_point_among_goals_follows_its_formula() -> None:
    environment = make("MultiGoal-v0", 100)
    observation = environment.reset(range(100))[0]
    assert isinstance(observation, torch.Tensor)
    assert float(observation.std()) == pytest.approx(0.1, abs=0.02)
    before = observation.double()
    move = torch.rand(100, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    step = environment.step(move)
    after = (before + move).clamp(-7, 7)
    nearest = (after[:, None] - torch.from_numpy(GOALS)).square().sum(-1).min(1).values
    expected = -30 * move.double().square().sum(-1) - nearest
    torch.testing.assert_close(step.reward.double(), expected, rtol=1e-5, atol=1e-4)
    assert not step.terminated.any()
    for t in range(1, 30):
        step = environment.step(torch.zeros(100, 2))
        assert step.truncated.all() == (t == 29)


def test_arriving_at_any_of_the_four_goals_pays_ten_and_ends_it() -> None:
    environment = make("MultiGoal-v0", 4)
    environment.reset([*SEEDS, 14])
    ways = torch.from_numpy(GOALS).float() / 5
    for share in (1.0, 1.0, 1.0, 0.7):
        assert not environment.step(share * ways).terminated.any()
    step = environment.step(ways)
    assert step.terminated.all()
    assert step.info["goal"].tolist() == [0, 1, 2, 3]
    final = step.final_observation
    assert isinstance(final, torch.Tensor)
    distance = (final - torch.from_numpy(GOALS).float()).square().sum(-1)
    torch.testing.assert_close(step.reward, -30.0 - distance + 10.0, rtol=0, atol=1e-4)
