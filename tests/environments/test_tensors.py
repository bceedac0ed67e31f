"""Tasks as torch tensors: Gymnasium's rules, games against slow loops, exact state, and nothing asked of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from etude.config.registry import load_object
from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.environments.tensors import Advanced, TensorTask, register_task
from etude.environments.tensors.arcade import BrickWall, FruitFall, RoadCrossing
from etude.environments.tensors.registered import ARCADE, TASKS
from etude.environments.tensors.vector import TensorVector
from etude.errors import UserError
from tests.capture_double import no_host_reads
from tests.environments.slow_games import SLOW_GAMES
from tests.runs_compared import assert_resumes

CLASSIC = [name for name, place in TASKS.items() if isinstance(place, str) and "classic" in place]
COUNT = 5
SPREAD = {
    "CartPole": (2.5, 2.0, 0.22, 2.0),
    "Pendulum": (9.0, 8.0),
    "MountainCar": (0.6, 0.07),
    "Acrobot": (3.1, 3.1, 12.0, 28.0),
}
"""How far from 0 the states are drawn: some of them at the edge of what a task allows."""


def made(name: str, count: int = COUNT, **options: Any) -> TensorVector:
    vector = make_environment(EnvironmentConfig(id=name, num_envs=count, backend="torch", **options))
    assert isinstance(vector, TensorVector)
    return vector


def actions(vector: TensorVector, steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    space = vector.single_action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return [torch.randint(int(space.n), (vector.num_envs,), generator=generator) for _ in range(steps)]
    return [torch.empty(vector.num_envs, 1).uniform_(-2.5, 2.5, generator=generator) for _ in range(steps)]


@pytest.mark.parametrize("name", CLASSIC)
def test_a_step_goes_where_gymnasium_goes_from_the_same_state(name: str) -> None:
    task: TensorTask = load_object(str(TASKS[name]))()
    theirs: Any = gymnasium.make(name, disable_env_checker=True).unwrapped
    theirs.reset(seed=0)
    generator = np.random.default_rng(1)
    high = SPREAD[name.partition("-")[0]]
    states = generator.uniform(-np.array(high), high, (200, len(high)))
    ends = 0
    for state in states:
        action = theirs.action_space.sample()
        theirs.state = tuple(state) if name.startswith(("CartPole", "Mountain")) else state.copy()
        if name.startswith("CartPole"):
            theirs.steps_beyond_terminated = None
        seen, reward, terminated, _, _ = theirs.step(action)
        moved, mine, ended = task.advance(
            {"state": torch.from_numpy(state)[None]}, torch.as_tensor(action)[None], torch.Generator()
        )
        np.testing.assert_allclose(moved["state"][0].numpy(), np.array(theirs.state), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(task.observe(moved)[0].numpy(), seen, rtol=1e-6, atol=1e-6)  # type: ignore[index]
        assert float(mine) == pytest.approx(float(reward), rel=1e-6, abs=1e-6)
        assert bool(ended) == bool(terminated)
        ends += bool(terminated)
    assert ends > 0 or name == "Pendulum-v1"


@pytest.mark.parametrize("game", [BrickWall, RoadCrossing, FruitFall])
def test_a_game_is_what_a_slow_loop_makes_of_its_rules(game: type[Any]) -> None:
    task, slow = game(), SLOW_GAMES[game]
    generator, drawing = torch.Generator().manual_seed(3), torch.Generator().manual_seed(0)
    state = task.begin(20, generator)
    rewards = torch.zeros(20)
    for _ in range(300):
        action = torch.randint(3, (20,), generator=drawing)
        before, at = {name: value.clone() for name, value in state.items()}, generator.get_state()
        state, reward, terminated = task.advance(state, action, generator)
        chance = torch.Generator()
        chance.set_state(at)
        expected = slow(before, action.tolist(), chance)
        for name, value in expected.items():
            told = {**state, "reward": reward, "terminated": terminated}[name]
            assert told.tolist() == value, name
        assert task.observe(state).abs().max() <= 1
        rewards += reward
        fresh = task.begin(20, generator)
        ended = terminated[:, None]
        state = {name: torch.where(ended if v.ndim == 2 else ended[:, 0], fresh[name], v) for name, v in state.items()}
    assert rewards.abs().max() > 0


@pytest.mark.parametrize("name", [*CLASSIC, *ARCADE])
def test_state_goes_through_a_checkpoint_to_the_bit_and_nothing_is_asked_of_the_host(name: str) -> None:
    one, other = made(name), made(name)
    one.reset(range(COUNT))
    plan = actions(one, 40)
    with no_host_reads():
        for action in plan[:20]:
            one.step(action)
    other.load_state_dict(one.state_dict())
    for action in plan[20:]:
        mine, theirs = one.step(action), other.step(action)
        for part, copy in zip(mine[:5], theirs[:5], strict=True):
            assert torch.equal(part, copy)


def test_an_episode_is_cut_at_its_limit_and_where_it_led_is_told() -> None:
    vector = made("Pendulum-v1", max_episode_steps=3)
    begun, _ = vector.reset(range(COUNT))
    for number in (1, 2, 3, 1):
        step = vector.step(torch.zeros(COUNT, 1))
        assert step.truncated.tolist() == [number == 3] * COUNT
        assert torch.equal(step.final_observation, step.observation) == (number != 3)  # type: ignore[arg-type]
    assert not torch.equal(begun, step.observation)  # type: ignore[arg-type]


def test_equal_seeds_are_equal_runs_and_others_are_not() -> None:
    first, again, other = (made("CartPole-v1").reset(seeds)[0] for seeds in ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6]))
    assert torch.equal(first, again)  # type: ignore[arg-type]
    assert not torch.equal(first, other)  # type: ignore[arg-type]


def test_a_run_on_tensors_that_is_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    small = ("environment.num_envs=8", "algorithm.rollout_steps=16", "algorithm.batch_size=64", "training.total_steps=768")
    assert_resumes("BrickWall-v0:ppo", tmp_path, *small, "environment.max_episode_steps=20", after=3)


class Walk(TensorTask):
    """Somebody's own: go right for 1, left for nothing, and end at 3."""

    max_episode_steps = 50

    def __init__(self, step: float = 1.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-100, 100, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._step = step

    def begin(self, count: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"at": torch.zeros(count, device=generator.device)}

    def advance(self, state: Any, action: torch.Tensor, generator: torch.Generator) -> Advanced:
        at = state["at"] + self._step * (2 * action - 1)
        return Advanced({"at": at}, action.float(), at >= 3)

    def observe(self, state: Any) -> torch.Tensor:
        return state["at"][:, None]


register_task("Walk-v0", Walk)


def test_somebodys_own_task_is_chosen_by_its_name() -> None:
    vector = make_environment(EnvironmentConfig(id="tests.environments.test_tensors:Walk-v0", num_envs=2, kwargs={"step": 1.5}))
    assert isinstance(vector, TensorVector)
    assert vector.max_episode_steps == 50
    vector.reset([0, 1])
    vector.step(torch.tensor([1, 0]))
    step = vector.step(torch.tensor([1, 0]))
    assert step.terminated.tolist() == [True, False]
    assert step.final_observation.flatten().tolist() == [3.0, -3.0]  # type: ignore[union-attr]
    assert step.observation.flatten().tolist() == [0.0, -3.0]  # type: ignore[union-attr]
    one = gymnasium.make("Walk-v0")
    one.reset(seed=0)
    assert one.step(1)[1] == 1.0


class Wrong(Walk):
    def observe(self, state: Any) -> torch.Tensor:
        return state["at"]


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"Wrong\.observe: the observation is \(2,\) .* \(2, 1\) of torch.float32"):
        TensorVector(Wrong(), 2)
    with pytest.raises(UserError, match=r"environment\.backend=torch: FrozenLake-v1 is not written for tensors"):
        make_environment(EnvironmentConfig(id="FrozenLake-v1", backend="torch"))
    with pytest.raises(UserError, match=r"environment\.backend=torch: environment\.workers=2 needs copies"):
        make_environment(EnvironmentConfig(id="CartPole-v1", backend="torch", workers=2))
    with pytest.raises(UserError, match="registered already"):
        register_task("Walk-v0", Wrong)


@pytest.mark.parametrize("name", ARCADE)
def test_a_list_that_needs_no_torch_says_what_the_classes_say(name: str) -> None:
    from etude.config.registry import load_object
    from etude.environments.families import arcade

    task = load_object(ARCADE[name])
    assert (arcade.STEPS[name], arcade.THRESHOLDS.get(name)) == (task.max_episode_steps, task.return_threshold)
    assert gymnasium.make(name).observation_space == made(name).single_observation_space
