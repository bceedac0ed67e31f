"""An environment that can't be captured is rebuilt from its actions, to the bit; where that is not sure, nothing is claimed."""

from __future__ import annotations

import random
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from etude.environments.gymnasium import GymnasiumVector
from etude.environments.snapshots.rewind import RewindError
from tests.environments.fresh_process import assert_goes_on_elsewhere
from tests.environments.test_conformance import actions
from tests.environments.test_snapshot import stored, trajectory

with warnings.catch_warnings():  # SWIG's types crash the interpreter where their warning is an error
    warnings.simplefilter("ignore")
    from gymnasium.envs.box2d import BipedalWalker, LunarLander

TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "LunarLander": ("LunarLander-v3", {}),
    "LunarLander in wind": ("LunarLander-v3", {"continuous": True, "enable_wind": True}),
    "LunarLanderContinuous": ("LunarLanderContinuous-v3", {}),
    "BipedalWalker": ("BipedalWalker-v3", {}),
    "BipedalWalkerHardcore": ("BipedalWalkerHardcore-v3", {}),
    "CarRacing": ("CarRacing-v3", {"domain_randomize": True}),
}


def make(task: str, limit: int = 60) -> GymnasiumVector:
    name, options = TASKS[task]
    return GymnasiumVector(lambda: gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True, **options), 2)


@pytest.mark.parametrize("task", TASKS)
def test_a_rebuilt_environment_goes_on_bit_for_bit(task: str) -> None:
    before, after, limit = (25, 15, 15) if task == "CarRacing" else (230, 300, 60)
    environment = make(task, limit)
    environment.reset([21, 22])
    assert environment.snapshot == "rewind"
    moves = actions(environment.single_action_space, before + after, num_envs=2, seed=5)
    trajectory(environment, moves[:before])
    state = stored(environment.state_dict())
    expected = trajectory(environment, moves[before:])
    fresh = make(task, limit)
    fresh.load_state_dict(state)
    assert fresh.snapshot == "rewind"
    assert repr(stored(fresh.state_dict())) == repr(state)
    assert trajectory(fresh, moves[before:]) == expected
    environment.load_state_dict(state)  # and back in time
    assert trajectory(environment, moves[before:]) == expected


def test_a_fresh_process_goes_on_bit_for_bit(tmp_path: Path) -> None:
    assert_goes_on_elsewhere(__name__, make, trajectory, ["LunarLander in wind", "BipedalWalker"], tmp_path)


def test_an_episode_of_a_walker_does_not_depend_on_those_before_it() -> None:
    """Gymnasium keeps one world for all episodes, and what is left in it shows in the last bits."""
    fresh, used = make("BipedalWalker", 40), make("BipedalWalker", 40)
    moves = actions(fresh.single_action_space, 300, num_envs=2)
    used.reset([1, 2])
    trajectory(used, moves)
    for environment in (fresh, used):
        environment.reset([3, 4])
    assert trajectory(fresh, moves) == trajectory(used, moves)


def test_saving_does_not_change_what_follows_and_is_not_changed_by_it() -> None:
    one, other = make("LunarLander"), make("LunarLander")
    moves = actions(one.single_action_space, 200, num_envs=2)
    for environment in (one, other):
        environment.reset([1, 2])
        trajectory(environment, moves[:50])
    state = one.state_dict()
    before = repr(stored(state))
    assert trajectory(one, moves[50:]) == trajectory(other, moves[50:])
    assert repr(stored(state)) == before


def test_actions_are_kept_for_one_episode_only() -> None:
    environment = make("LunarLander", 30)
    environment.reset([1, 2])
    for index, action in enumerate(actions(environment.single_action_space, 75, num_envs=2), 1):
        environment.step(action)
        for copy in environment.state_dict()["rewind"]:
            assert (0 if copy["actions"] is None else len(copy["actions"])) == index % 30


# ---- who may claim it -----------------------------------------------------------------------------------------------------


class Engine:
    """Stands for a simulator that nobody can look into."""

    def __init__(self) -> None:
        self.position = np.zeros(2)


class Opaque(gymnasium.Env[Any, Any]):
    """A random walk inside of an engine; says that it may be rewound."""

    rewindable = True
    observation_space = spaces.Dict({"place": spaces.Box(-99, 99, (2,), np.float32), "step": spaces.Discrete(1_000)})
    action_space = spaces.MultiDiscrete([3, 3], start=[1, 1])

    def __init__(self) -> None:
        self.steps = 0
        self.marks = np.zeros(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.engine = Engine()
        self.steps = 0
        return self.observe(), {}

    def observe(self) -> dict[str, Any]:
        return {"place": self.engine.position.astype(np.float32), "step": self.steps}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.engine.position += self.np_random.normal(size=2) * action + self.noise()
        action[:] = 99  # some do write into what they were given
        self.steps += 1
        return self.observe(), 1.0, False, False, {}

    def noise(self) -> float:
        return 0.0


def opaque(kind: Any = Opaque, wrap: Any = lambda env: env, limit: int | None = 20) -> GymnasiumVector:
    def make() -> gymnasium.Env[Any, Any]:
        env = wrap(kind())
        return env if limit is None else TimeLimit(env, limit)

    return GymnasiumVector(make, 2)


def steps(count: int) -> list[torch.Tensor]:
    return list(torch.from_numpy(np.random.default_rng(1).integers(0, 3, (count, 2, 2))))


def assert_goes_on(environment: GymnasiumVector, fresh: GymnasiumVector) -> None:
    environment.reset([1, 2])
    assert environment.snapshot == "rewind"
    trajectory(environment, steps(47))
    fresh.load_state_dict(stored(environment.state_dict()))
    assert trajectory(fresh, steps(60)) == trajectory(environment, steps(60))


def test_an_environment_that_says_so_is_rewound() -> None:
    assert_goes_on(opaque(), opaque())


def test_what_wrappers_carry_from_one_episode_to_the_next_is_kept() -> None:
    class Counts(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Pays more in each episode."""

        episodes = 0

        def reset(self, **options: Any) -> Any:
            self.episodes += 1
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, float(reward) * self.episodes, *rest

    assert_goes_on(opaque(wrap=Counts), opaque(wrap=Counts))


def claims(environment: GymnasiumVector) -> str:
    environment.reset([1, 2])
    assert bool(environment.state_dict()) == (environment.snapshot != "restart")
    return environment.snapshot


class Shy(Opaque):
    rewindable = False


class Queue(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.last = deque([0.0])


class Peek(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.peek = env.marks


class OwnLander(LunarLander):
    """What it overrides, nobody knows."""


def test_nothing_is_claimed_that_is_not_sure() -> None:
    assert claims(opaque(Shy)) == "restart", "it does not say so"
    assert claims(opaque(limit=None)) == "restart", "without an end, the list of actions has none"
    assert claims(opaque(wrap=Queue)) == "restart", "a wrapper that can't be captured"
    assert claims(opaque(wrap=Peek)) == "restart", "a wrapper that looks into the environment's memory"
    assert claims(opaque(OwnLander)) == "restart", "a class of the user's own"
    assert claims(opaque(LunarLander, limit=None)) == "restart"
    assert claims(opaque(BipedalWalker)) == "rewind"


def test_an_environment_that_can_be_captured_is_captured() -> None:
    class Plain(Opaque):
        def reset(self, **options: Any) -> Any:
            super().reset(**options)
            self.engine: Any = None
            return {"place": np.zeros(2, np.float32), "step": 0}, {}

    assert claims(opaque(Plain)) == "exact"


def test_a_wrapper_that_grows_something_else_ends_the_claim_and_not_the_run() -> None:
    class Grows(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            self.luck = random.Random(1)
            return super().step(action)

    environment = opaque(wrap=Grows)
    assert claims(environment) == "rewind"
    trajectory(environment, steps(50))
    assert environment.snapshot == "restart"
    assert environment.state_dict() == {}


# ---- a claim that was wrong -----------------------------------------------------------------------------------------------


def test_a_false_claim_is_found_out() -> None:
    class Liar(Opaque):
        def noise(self) -> float:
            return random.random()

    environment, fresh = opaque(Liar), opaque(Liar)
    environment.reset([1, 2])
    trajectory(environment, steps(5))
    state = environment.state_dict()
    with pytest.raises(RewindError, match="5 steps taken again did not lead to where"):
        fresh.load_state_dict(state)


def test_a_draw_too_many_is_found_out_even_if_nothing_shows_yet() -> None:
    class Draws(Opaque):
        extra = 0

        def noise(self) -> float:
            self.np_random.random(Draws.extra)
            return 0.0

    environment, fresh = opaque(Draws), opaque(Draws)
    environment.reset([1, 2])
    trajectory(environment, steps(1))
    state = environment.state_dict()
    Draws.extra = 1
    with pytest.raises(RewindError):
        fresh.load_state_dict(state)


def test_an_episode_that_ends_early_is_found_out() -> None:
    environment, fresh = opaque(limit=20), opaque(limit=20)
    environment.reset([1, 2])
    trajectory(environment, steps(9))
    state = environment.state_dict()
    for copy in state["rewind"]:
        copy["wrappers"][0]["attributes"]["_max_episode_steps"] = 4
    with pytest.raises(RewindError, match="ended after 4 of 9 steps"):
        fresh.load_state_dict(state)
