"""Wrappers that work inside a copy: how actions last, and how episodes begin and end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.environments.gymnasium import GymnasiumVector
from etude.environments.vector import VectorEnvironment
from etude.environments.wrappers.build import Wrappers
from etude.errors import EtudeError, UserError
from tests.environments.wrappers.tasks import actions, around, assert_same, config_of, copied, live


class Game(gymnasium.Env[Any, Any]):
    """Three lives of four steps each; an observation tells the step, the life and the last action."""

    observation_space = spaces.Box(0, 100, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, lives: int = 3) -> None:
        self.lives, self.life, self.time, self.action = lives, 0, 0, 0

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "LEFT", "FIRE", "RIGHT"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.life, self.time, self.action = 0, 0, 0
        return self._observe(), {"lives": self.lives}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time, self.action = self.time + 1, int(action)
        self.life = self.time // 4
        return self._observe(), float(self.time), self.life >= self.lives, False, {"lives": self.lives - self.life}

    def _observe(self) -> Any:
        return np.array([self.time, self.life, self.action], np.float32)


def game(*wrappers: dict[str, Any], num_envs: int = 2, lives: int = 3, training: bool = True) -> VectorEnvironment:
    stack = Wrappers(config_of(*wrappers).wrappers, training=training)
    return stack.wrap_vector(GymnasiumVector(lambda: stack.wrap_copy(Game(lives)), num_envs))


def acted(environment: VectorEnvironment, *chosen: int) -> list[tuple[list[float], float, bool, bool]]:
    """What the first copy did: where each step led, its reward and its ends."""
    seen = []
    for action in chosen:
        step = environment.step(torch.full((environment.num_envs,), action))
        assert isinstance(step.final_observation, torch.Tensor)
        ends = bool(step.terminated[0]), bool(step.truncated[0])
        seen.append((step.final_observation[0].tolist(), float(step.reward[0]), *ends))
    return seen


def test_frame_skip_repeats_adds_up_stops_at_the_end_and_counts_environment_steps() -> None:
    environment = game({"id": "frame_skip", "skip": 5})
    environment.reset([1, 2])
    assert environment.action_repeat == 5
    assert acted(environment, 1, 2, 3) == [
        ([5, 1, 1], 1 + 2 + 3 + 4 + 5, False, False),
        ([10, 2, 2], 6 + 7 + 8 + 9 + 10, False, False),
        ([12, 3, 3], 11 + 12, True, False),
    ]
    assert game({"id": "frame_skip", "skip": 2}, {"id": "FrameSkip", "skip": 3}).action_repeat == 6


def test_max_pool_shows_the_larger_of_the_last_two_frames() -> None:
    class Blinking(Game):
        def _observe(self) -> Any:
            return np.array([self.time % 2 * 10, self.time, 0], np.float32)

    stack = Wrappers(config_of({"id": "frame_skip", "skip": 4, "max_pool": True}).wrappers, training=True)
    env = stack.wrap_copy(Blinking(lives=2))
    env.reset(seed=1)
    assert env.step(0)[0].tolist() == [10, 4, 0]
    assert env.step(0)[0].tolist() == [10, 8, 0]


def test_a_life_is_an_episode_for_the_learner_and_the_game_goes_on() -> None:
    environment = game({"id": "life_loss"})
    environment.reset([1, 2])
    led = acted(environment, *[1] * 12)
    ends = [place for place, (*_, terminated, _) in enumerate(led) if terminated]
    # 4 steps; then the step that begins the next life is not the learner's, so 3 remain; then a new game.
    assert ends == [3, 6, 9]
    assert [led[place][0][0] for place in ends] == [4, 8, 12]
    assert led[10][0][0] == 1
    whole = game({"id": "life_loss"}, training=False)
    whole.reset([1, 2])
    assert [end for *_, end, _ in acted(whole, *[1] * 12)] == [False] * 11 + [True]


def test_life_loss_without_lives_says_what_it_needs() -> None:
    with pytest.raises(UserError, match="needs a task with lives"):
        around("cartpole", {"id": "life_loss"}).reset([1, 2, 3])


def test_idle_starts_are_random_within_bounds_and_reproducible() -> None:
    def starts(seed: int) -> list[float]:
        environment = game({"id": "noop_start", "maximum": 3}, num_envs=40)
        observation, _ = environment.reset(range(seed, seed + 40))
        assert isinstance(observation, torch.Tensor)
        return observation[:, 0].tolist()

    assert set(starts(0)) == {1, 2, 3}
    assert starts(0) == starts(0)
    assert starts(0) != starts(100)


def test_an_idle_start_outlives_an_episode() -> None:
    environment = game({"id": "noop_start", "maximum": 30}, num_envs=20, lives=1)
    observation, _ = environment.reset(range(20))
    assert isinstance(observation, torch.Tensor)
    assert observation[:, 0].max() < 4


def test_fire_is_pressed_first() -> None:
    environment = game({"id": "fire_reset"})
    assert copied(environment.reset([1, 2])[0])[""].tolist() == [[1, 0, 2]] * 2
    environment = game({"id": "fire_reset", "action": 3})
    assert copied(environment.reset([1, 2])[0])[""].tolist() == [[1, 0, 3]] * 2
    with pytest.raises(UserError, match=r"wrappers\[0\] \(fire_reset\): this task has no FIRE action .*set action"):
        around("cartpole", {"id": "fire_reset"})
    with pytest.raises(UserError, match="action=9: this task has the actions 0 to 3"):
        game({"id": "noop_start", "action": 9})
    with pytest.raises(UserError, match="needs discrete actions"):
        around("sensors", {"id": "noop_start"})


def test_sticky_actions_repeat_as_often_as_asked_but_never_the_first() -> None:
    environment = game({"id": "sticky_actions", "probability": 0.25}, num_envs=50, lives=1)
    environment.reset(range(50))
    chosen = actions(environment, 200)
    repeated, possible, last = 0, 0, None
    for number, action in enumerate(chosen):
        step = environment.step(action)
        assert isinstance(step.final_observation, torch.Tensor)
        done = step.final_observation[:, 2].long()
        if number % 4 == 0:
            assert torch.equal(done, action)
        else:
            assert last is not None
            differs = action != last
            assert ((done == action) | (done == last)).all()
            possible += int(differs.sum())
            repeated += int((done != action)[differs].sum())
        last = done
    assert 0.23 < repeated / possible < 0.27


def test_a_time_limit_counts_decisions_and_truncates() -> None:
    environment = game({"id": "frame_skip", "skip": 2}, {"id": "time_limit", "steps": 3})
    environment.reset([1, 2])
    led = acted(environment, *[0] * 6)
    assert [truncated for *_, truncated in led] == [False, False, True] * 2
    assert not any(terminated for *_, terminated, _ in led)


CHAIN = [
    {"id": "noop_start", "maximum": 3},
    {"id": "sticky_actions"},
    {"id": "frame_skip", "skip": 2},
    {"id": "life_loss"},
    {"id": "noise", "std": 0.5},
    {"id": "time_limit", "steps": 4},
    {"id": "stack", "count": 2},
]


def test_the_whole_chain_is_saved_exactly() -> None:
    environment = game(*CHAIN, num_envs=3)
    environment.reset([1, 2, 3])
    acts = actions(environment, 60)
    live(environment, acts[:17])
    saved = environment.state_dict()
    ahead = live(environment, acts[17:])
    other = game(*CHAIN, num_envs=3)
    other.reset([7, 8, 9])
    live(other, acts[30:35])
    other.load_state_dict(saved)
    assert (environment.snapshot, other.snapshot) == ("exact", "exact")
    assert_same(ahead, live(other, acts[17:]))


class Doom(Game):
    """Says how it goes in info, as VizDoom's classes do."""

    def _facts(self) -> dict[str, Any]:
        return {"game_variables": {"HEALTH": 100 - 10 * self.time, "KILLCOUNT": self.life}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation, self._facts()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {} if terminated else self._facts()


def test_doom_pays_for_changes_of_its_variables() -> None:
    weights = {"KILLCOUNT": 5.0, "HEALTH": 0.1, "AMMO2": 1.0}
    stack = Wrappers(config_of({"id": "VizDoom_RewardShaper", "weights": weights}).wrappers, training=True)
    env = stack.wrap_copy(Doom())
    env.reset(seed=1)
    for time in range(1, 13):
        *_, terminated, _, info = (step := env.step(0))
        shaping = 0 if terminated else -1 + (5 if time % 4 == 0 else 0)
        assert step[1] == pytest.approx(time + shaping)
        assert info["raw_reward"] == time
        assert terminated == (time == 12)
    with pytest.raises(UserError, match=r"the task has none of AMMO2; its variables: HEALTH, KILLCOUNT"):
        Wrappers(config_of({"id": "vizdoom_shaping", "weights": {"AMMO2": 1}}).wrappers, training=True).wrap_copy(
            Doom()
        ).reset()


def test_pictures_become_observations_and_keep_the_state_if_asked() -> None:
    class Drawn(Game):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 # as Gymnasium has it
        render_mode = "rgb_array"

        def render(self) -> Any:
            return np.full((6, 8, 3), self.time, np.uint8)

    def wrapped(**options: Any) -> gymnasium.Env[Any, Any]:
        return Wrappers(config_of({"id": "pixel_observations", **options}).wrappers, training=True).wrap_copy(Drawn())

    env = wrapped()
    assert env.observation_space == spaces.Box(0, 255, (6, 8, 3), np.uint8)
    assert (env.reset(seed=1)[0] == 0).all()
    assert (env.step(0)[0] == 1).all()
    both = wrapped(keep_state=True)
    both.reset(seed=1)
    observation = both.step(3)[0]
    assert both.observation_space.contains(observation)
    assert observation["observation"].tolist() == [1, 0, 3]
    with pytest.raises(EtudeError, match="draws no pictures"):
        game({"id": "pixel_observations"})
