"""What PPO promises beyond its loss: time limits, action spaces, masks, statistics and exact continuation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.compute.trees import map_tree
from etude.config.schedules import Schedule
from etude.environments.gymnasium import GymnasiumVector
from etude.errors import UserError
from etude.orchestration.evaluator import evaluate_episodes
from etude.runs.checkpoint import CheckpointStore
from etude.training import assembly
from etude.workflows.base import Phase
from tests.runs_compared import assert_same_state
from tests.workflows.tiny_runs import Counting, copied, learner, ppo_config, ppo_of, start, state_of

PHASE = Phase("train")


# ---- time limits ----------------------------------------------------------------------------------------------------


def learnt_values(*, terminates: bool, length: int, shows_age: bool) -> torch.Tensor:
    config = ppo_config(
        num_envs=8, hidden=(16,), rollout_steps=16, batch_size=64, epochs=8, gamma=0.9, learning_rate=Schedule.constant(1e-2)
    )
    run = start(config, Counting(8, length, terminates=terminates, shows_age=shows_age))
    for _ in range(60):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
    ages = torch.eye(length + 1)[:length] if shows_age else torch.eye(length + 1)[:1]
    with torch.no_grad():
        return ppo_of(run).critic(ages)[:, 0]


@pytest.mark.parametrize("length", [1, 4, 30])
def test_a_time_limit_is_bootstrapped(length: int) -> None:
    """A reward of 1 for ever is worth 1/(1-γ), however often the episode is cut."""
    values = learnt_values(terminates=False, length=length, shows_age=False)
    torch.testing.assert_close(values, torch.full_like(values, 1 / (1 - 0.9)), rtol=0.05, atol=0)


def test_a_termination_is_not_bootstrapped() -> None:
    values = learnt_values(terminates=True, length=4, shows_age=True)
    expected = torch.tensor([(1 - 0.9**left) / (1 - 0.9) for left in (4, 3, 2, 1)])
    torch.testing.assert_close(values, expected, rtol=0.05, atol=0)


# ---- spaces and masks -----------------------------------------------------------------------------------------------


class Masked(gymnasium.Env[Any, Any]):
    """Some actions are forbidden, others at every step; a forbidden one is an error."""

    def __init__(self, action_space: Any, mask_size: int, mask_dtype: Any = np.int8) -> None:
        self.action_space = action_space
        low, high = np.zeros(mask_size, mask_dtype), np.ones(mask_size, mask_dtype)
        self.observation_space = spaces.Dict(
            {
                "position": spaces.Box(-10, 10, (2,)),
                "room": spaces.Discrete(3),
                "action_mask": spaces.Box(low, high, dtype=mask_dtype),
            }
        )

    def _observe(self) -> dict[str, Any]:
        sizes = [int(self.action_space.n)] if isinstance(self.action_space, spaces.Discrete) else self.action_space.nvec
        parts = []
        for size in sizes:
            part = self.np_random.random(size) < 0.4
            part[self.np_random.integers(size)] = True
            parts.append(part)
        self.mask = parts
        mask = np.concatenate(parts).astype(self.observation_space["action_mask"].dtype)
        room = int(self.np_random.integers(3))
        return {"position": self.np_random.normal(size=2).astype(np.float32), "room": room, "action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        for choice, allowed in zip(np.atleast_1d(action), self.mask, strict=True):
            assert allowed[choice], f"{action} is forbidden"
        self.age += 1
        return self._observe(), float(np.sum(action)), self.age == 9, False, {}


@pytest.mark.parametrize("mode", ["off", "rolling", "static"])
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
@pytest.mark.parametrize(
    ("space", "size"), [(spaces.Discrete(5), 5), (spaces.MultiDiscrete([2, 3]), 5)], ids=["one", "several"]
)
def test_forbidden_actions_are_never_taken_and_never_learnt_about(mode: str, dtype: Any, space: Any, size: int) -> None:
    environment = GymnasiumVector(lambda: Masked(space, size, dtype), 4)
    run = start(ppo_config(env={"normalize_observations": mode}), environment)
    for _ in range(3):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
        row = run.workflow.metrics.drain()
        assert all(np.isfinite(value) for value in row.values())
        # What was learnt is the policy that acted: masks and all, its ratios begin at 1.
        assert row["train/approx_kl"] < 0.05
    assert all(torch.isfinite(p).all() for p in ppo_of(run).actor.parameters())
    result = evaluate_episodes(run.workflow.policy(), environment, 8, mode="greedy", seed=0)
    assert len(result.returns) == 8


class Any1(gymnasium.Env[Any, Any]):
    """Observes whatever its space says; ends now and then."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        ends = self.np_random.random(2) < 0.05
        return self.observation_space.sample(), float(self.np_random.normal()), bool(ends[0]), bool(ends[1]), {}


BOX = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS = {
    "vector": BOX,
    "picture": spaces.Box(0, 255, (6, 6, 3), np.uint8),
    "dict": spaces.Dict({"a": BOX, "b": spaces.Discrete(4), "c": spaces.MultiBinary(2), "d": spaces.MultiDiscrete([2, 3])}),
    "tuple": spaces.Tuple((spaces.Discrete(3), BOX)),
    "scalar": spaces.Box(-1, 1, (), np.float32),
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=2),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "grid": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "multi-binary": spaces.MultiBinary(3),
    "box": spaces.Box(-2, 5, (2,), np.float32),
    "double box": spaces.Box(-2, 5, (2, 2), np.float64),
    "unbounded box": spaces.Box(-np.inf, np.inf, (2,), np.float32),
}


@pytest.mark.parametrize(
    ("observation", "action"), [*((name, "discrete") for name in OBSERVATIONS), *(("dict", name) for name in ACTIONS)]
)
def test_every_pair_of_spaces_trains(observation: str, action: str) -> None:
    environment = GymnasiumVector(lambda: Any1(OBSERVATIONS[observation], ACTIONS[action]), 4)
    run = start(ppo_config(env={"normalize_observations": "rolling", "normalize_rewards": True}), environment)
    before = copied(dict(ppo_of(run).actor.state_dict()))
    for _ in range(3):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
    after = ppo_of(run).actor.state_dict()
    assert all(torch.isfinite(value).all() for value in after.values())
    assert any(not torch.equal(before[name], value) for name, value in after.items())
    assert all(np.isfinite(value) for value in run.workflow.metrics.drain().values())


def test_what_cannot_be_masked_is_refused_before_anything_runs() -> None:
    observation = spaces.Dict({"x": BOX, "action_mask": spaces.MultiBinary(2)})
    with pytest.raises(UserError, match="continuous actions can't be masked"):
        learner(ppo_config(), observation, spaces.Box(-1, 1, (2,)))


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "static"])
def test_ratios_begin_at_one_unless_statistics_move(mode: str) -> None:
    run = start(ppo_config("Pendulum-v1", env={"normalize_observations": mode}))
    for _ in range(3):
        run.workflow.collect(PHASE, 16)
        batch = ppo_of(run)._prepare(run.buffers["rollout"].columns)
        with torch.no_grad():
            now = ppo_of(run).head(ppo_of(run).actor(batch["observation"])).log_prob(batch["sample"])
        torch.testing.assert_close(now, batch["log_prob"], rtol=0, atol=1e-5)
        run.workflow.update(PHASE, 1)


def test_a_rollout_is_learnt_from_with_the_statistics_that_it_is_part_of() -> None:
    """Ratios are against the policy that really acted, under the statistics of before (measured: it learns best so)."""
    run = start(ppo_config("Pendulum-v1", env={"normalize_observations": "rolling"}))
    run.workflow.collect(PHASE, 16)
    acted = run.buffers["rollout"].columns["log_prob"].clone()
    batch = ppo_of(run)._prepare(run.buffers["rollout"].columns)
    assert torch.equal(batch["log_prob"].reshape(4, 16).T, acted)
    torch.testing.assert_close(batch["observation"].mean(0), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(batch["observation"].std(0, correction=0), torch.ones(3), rtol=0, atol=1e-3)


def test_every_observation_enters_the_statistics_once() -> None:
    run = start(ppo_config("Pendulum-v1", env={"normalize_observations": "rolling"}))
    seen = []
    for _ in range(3):
        run.workflow.collect(PHASE, 16)
        seen.append(run.buffers["rollout"].columns["observation"].reshape(-1, 3).clone())
        run.workflow.update(PHASE, 1)
    (moments,) = ppo_of(run).normalizer.parts
    everything = torch.cat(seen).double()
    torch.testing.assert_close(moments.mean, everything.mean(0), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(moments.var, everything.var(0, correction=0), rtol=1e-6, atol=1e-9)
    assert moments.count == len(everything)


def test_acting_and_evaluating_leave_the_statistics_alone() -> None:
    run = start(ppo_config(env={"normalize_observations": "rolling", "normalize_rewards": True}))
    run.workflow.collect(PHASE, 16)
    run.workflow.update(PHASE, 1)
    before = copied(run.workflow.state_dict())
    assert run.collector is not None
    evaluate_episodes(run.workflow.policy(), run.collector.environment, 5, mode="sample", seed=3)
    assert_same_state(run.workflow.state_dict(), before)


@pytest.mark.parametrize(("mode", "kept"), [("off", True), ("rolling", True), ("static", False)])
def test_reward_normalisation_is_ignored_with_static_observations(mode: str, kept: bool) -> None:
    run = start(ppo_config(env={"normalize_observations": mode, "normalize_rewards": True}))
    assert (ppo_of(run).reward_normalizer is not None) == kept


def test_normalised_rewards_are_what_is_learnt_from_and_raw_ones_what_is_reported() -> None:
    environment = Counting(4, 5, terminates=True, shows_age=True)
    run = start(ppo_config(env={"normalize_rewards": True}), environment)
    run.workflow.collect(PHASE, 16)
    batch = ppo_of(run)._prepare(run.buffers["rollout"].columns)
    normalizer = ppo_of(run).reward_normalizer
    assert normalizer is not None
    assert float(normalizer(torch.ones(()))) == pytest.approx(float(normalizer.moments.var) ** -0.5, rel=1e-4)
    assert float(batch["returns"].max()) < 5.0
    assert run.collector is not None
    assert run.collector.episodes.read()["collect/return_mean"] == pytest.approx(5.0, abs=1.5)
    assert (run.buffers["rollout"].columns["reward"] == 1.0).all()


# ---- continuation ---------------------------------------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "Pendulum-v1": {"env": {"normalize_observations": "rolling", "normalize_rewards": True}},
    "Blackjack-v1": {"target_kl": 0.01},
    "MountainCarContinuous-v0": {"adaptive_kl": 0.01, "env": {"normalize_observations": "static"}},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_loaded_run_acts_and_learns_on_identically(name: str, tmp_path: Path) -> None:
    config = ppo_config(name, **RUNS[name])
    run = start(config)
    for _ in range(2):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
    run.workflow.collect(PHASE, 7)  # amid a rollout
    store = CheckpointStore(tmp_path, keep=1)
    policy_state = run.workflow.policy().state_dict()
    parts = {"policy": policy_state, **run.state_dict()}
    saved = store.save(parts, counters={"env_steps": 0, "updates": 0}, metadata={}).load()

    fresh = assembly.build(config)  # nothing started: everything comes from the checkpoint
    assert fresh.load_state_dict(saved) == []
    assert_same_state(state_of(fresh), state_of(run))

    assert run.collector is not None
    observation = run.buffers["rollout"].columns["observation"]
    probe = map_tree(lambda t: t[0], observation)
    assert fresh.collector is not None
    policies = [run.workflow.policy(), fresh.workflow.policy()]
    policies.append(assembly.build_policy(config, saved["policy"], fresh.collector.environment))  # type: ignore[arg-type]
    first = torch.ones(4, dtype=torch.bool)
    for mode in ("greedy", "sample"):
        acts = [p.act(probe, None, first, mode=mode, generator=torch.Generator().manual_seed(5)) for p in policies]  # type: ignore[arg-type]
        assert all(torch.equal(act.action, acts[0].action) for act in acts)
        assert all(torch.equal(act.extras["log_prob"], acts[0].extras["log_prob"]) for act in acts)

    for one in (run, fresh):
        # The global generators are part of a run; two runs in one process share them.
        one.streams.load_state_dict(copied(saved["rank/0"])["streams"])  # type: ignore[index]
        one.workflow.collect(PHASE, 9)
        one.workflow.update(PHASE, 1)
        one.workflow.collect(PHASE, 16)
    assert_same_state(state_of(fresh), state_of(run))
    assert fresh.workflow.metrics.drain() == run.workflow.metrics.drain()


def test_a_loaded_policy_is_evaluated_as_it_was_in_training() -> None:
    config = ppo_config("Pendulum-v1", env={"normalize_observations": "rolling"})
    run = start(config)
    for _ in range(3):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
    environment = assembly.make_environment(config.environment, num_envs=2)
    during = evaluate_episodes(run.workflow.policy(), environment, 4, mode="sample", seed=9)
    policy = assembly.build_policy(config, copied(run.workflow.policy().state_dict()), environment)
    after = evaluate_episodes(policy, environment, 4, mode="sample", seed=9)
    assert after.returns.tolist() == during.returns.tolist()


def test_learning_learns() -> None:
    """A bandit in disguise: the right action pays; a few hundred steps suffice."""

    class Bandit(Any1):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:1], float(action == 2), False, self.np_random.random() < 0.1, {}

    environment = GymnasiumVector(lambda: Bandit(BOX, spaces.Discrete(3)), 4)
    run = start(ppo_config(learning_rate=Schedule.constant(1e-2), gamma=0.0), environment)
    for _ in range(40):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
    result = run.workflow.act(
        torch.randn(50, 3), None, torch.ones(50, dtype=torch.bool), mode="greedy", generator=torch.Generator()
    )
    assert (result.action == 2).all()
