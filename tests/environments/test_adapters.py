"""Environments of other interfaces behave as Gymnasium's do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from etude.environments.adapters import DmEnvAdapter, OldGymAdapter, gymnasium_space
from etude.environments.check.check import Checker
from etude.environments.gymnasium import GymnasiumVector
from etude.errors import UserError


class Box:
    """Stands in for a space of the old gym."""

    low, high, dtype = np.zeros(1), np.ones(1), np.dtype(np.float32)


class Discrete:
    n = 2


class Old:
    """Counts to ten, or until action 1; the tenth step is its time limit."""

    observation_space, action_space = Box(), Discrete()

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def reset(self) -> Any:
        self.count = 0
        return self.generator.random(1).astype(np.float32)

    def step(self, action: int) -> Any:
        self.count += 1
        cut = self.count == 10
        info = {"TimeLimit.truncated": cut and action == 0} if cut else {}
        return self.generator.random(1).astype(np.float32), 1, cut or action == 1, info


class Middle(Old):
    """gym 0.26: between the two."""

    def reset(self, *, seed: int | None = None) -> Any:
        if seed is not None:
            self.seed(seed)
        return super().reset(), {"new": True}

    def step(self, action: int) -> Any:
        observation, reward, done, info = super().step(action)
        return observation, reward, done, False, info


@pytest.mark.parametrize("old", [Old, Middle])
def test_an_old_environment_passes_the_checks(old: type[Old]) -> None:
    remarks = Checker(lambda: OldGymAdapter(old()), steps=100).run()
    assert not [each for each in remarks if each.level == "wrong"], remarks


def test_a_time_limit_of_the_old_kind_is_a_truncation() -> None:
    env = OldGymAdapter(Old())
    env.reset(seed=1)
    assert [env.step(0)[2:4] for _ in range(10)] == [(False, False)] * 9 + [(False, True)]
    env.reset()
    assert env.step(1)[2:4] == (True, False)


def test_old_spaces_are_translated_or_refused_by_name() -> None:
    assert gymnasium_space(Box()) == spaces.Box(0, 1, (1,), np.float32)
    together = type("Dict", (), {"spaces": {"a": Box(), "b": Discrete()}})()
    assert gymnasium_space(together) == spaces.Dict({"a": spaces.Box(0, 1, (1,), np.float32), "b": spaces.Discrete(2)})
    with pytest.raises(UserError, match="called Graph"):
        gymnasium_space(type("Graph", (), {})())


class Catch:
    """As a dm_env.Environment: three steps; whether they end for good is drawn."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def observation_spec(self) -> Any:
        angle = SimpleNamespace(name="angle", shape=(), dtype=np.float64)
        board = SimpleNamespace(name="board", shape=(2, 2), dtype=np.int32, minimum=0, maximum=np.array([[1, 1], [9, 9]]))
        return {"arm": {"angle": angle}, "board": board}

    def action_spec(self) -> Any:
        return SimpleNamespace(name="action", shape=(), dtype=np.int32, num_values=3)

    def reset(self) -> Any:
        self.count, self.dies = 0, bool(self.generator.integers(2))
        return self._step(None, None)

    def step(self, action: int) -> Any:
        self.count += 1
        return self._step(1.0, 0.0 if self.dies and self.count == 3 else 1.0)

    def close(self) -> None:
        pass

    def _step(self, reward: Any, discount: Any) -> Any:
        observation = {"arm": {"angle": self.generator.normal()}, "board": np.ones((2, 2), np.int32)}
        ended = self.count == 3
        return SimpleNamespace(reward=reward, discount=discount, observation=observation, last=lambda: ended)


def test_a_dm_env_passes_the_checks() -> None:
    remarks = Checker(lambda: DmEnvAdapter(Catch), steps=100).run()
    assert not [each for each in remarks if each.level == "wrong"], remarks


def test_the_discount_says_whether_a_dm_env_terminated() -> None:
    env = DmEnvAdapter(Catch)
    ends = set()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        assert observation["arm/angle"].shape == ()
        assert [env.step(0)[2:4] for _ in range(2)] == [(False, False)] * 2
        _, reward, *ended, _ = env.step(0)
        assert reward == 1.0
        assert env.inner.dies == ended[0]
        ends.add(tuple(ended))
    assert ends == {(True, False), (False, True)}


@pytest.mark.parametrize("make", [lambda: OldGymAdapter(Old()), lambda: DmEnvAdapter(Catch)], ids=["old gym", "dm_env"])
def test_adapted_environments_step_as_a_vector(make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
    import torch

    environments = [GymnasiumVector(make, 2) for _ in range(2)]
    for environment in environments:
        environment.reset([3, 4])
    for _ in range(12):
        one, two = (environment.step(torch.tensor([0, 0])) for environment in environments)
        assert torch.equal(one.reward, two.reward)
        assert torch.equal(one.truncated, two.truncated)


def test_a_real_dm_env_works() -> None:
    pytest.importorskip("dm_env")
    suite = pytest.importorskip("dm_control.suite")
    env = DmEnvAdapter(lambda seed: suite.load("cartpole", "balance", task_kwargs={"random": seed}))
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert env.observation_space.contains(env.step(env.action_space.sample())[0])
