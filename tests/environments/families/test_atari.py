"""Atari: ALE's vector class and our own game are one task, whose preprocessing, objects and states are what they claim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ale_py")
import ale_py
from ale_py import roms

from etude.config.schema import EnvironmentConfig
from etude.environments.atari.area_resize import AreaResize
from etude.environments.atari.mersenne_twister import MersenneTwister
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.make import make_environment
from etude.environments.rendering import Camera, frames_per_second, make_to_show
from etude.environments.vector import Step, VectorEnvironment
from etude.errors import EtudeError

SEED = 2**45 + 3


def make(name: str, *, exact: bool = False, num_envs: int = 1, limit: int | None = None, **kwargs: Any) -> VectorEnvironment:
    name = name if "-v" in name else f"ALE/{name}-v5"
    config = EnvironmentConfig(id=name, num_envs=num_envs, exact=exact, max_episode_steps=limit, kwargs=kwargs)
    return make_environment(config)


def play(environment: VectorEnvironment, steps: int, seed: int = 0) -> list[Step]:
    random = np.random.default_rng(seed)
    count = int(environment.single_action_space.n)  # type: ignore[attr-defined] # games have discrete actions
    acted = []
    for _ in range(steps):
        step = environment.step(torch.from_numpy(random.integers(0, count, environment.num_envs)))
        acted.append(Step(*(value.clone() for value in step[:5]), {}))  # type: ignore[union-attr] # all are tensors
    return acted


def assert_same(one: list[Step], other: list[Step]) -> None:
    for index, (a, b) in enumerate(zip(one, other, strict=True)):
        for name, x, y in zip(Step._fields, a[:5], b[:5], strict=False):
            assert torch.equal(x, y), (index, name)  # type: ignore[arg-type] # all are tensors


CASES: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "as it is": ("Breakout", 150, {}),
    "lives": ("Breakout", None, {"life_loss": True, "clip_rewards": True}),
    "colours": ("Seaquest", 20, {"grayscale": False, "size": [42, 40], "full_action_space": True}),
    "plain": ("Pong", 9, {"noop_max": 0, "fire_reset": False, "repeat_action_probability": 0, "stack": 1, "maxpool": False}),
    "whole factors": ("Qbert", 20, {"size": [105, 80], "frameskip": 3, "stack": 2}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_exact_game_gives_what_the_vector_class_gives_bit_for_bit(case: tuple[str, int | None, dict[str, Any]]) -> None:
    game, limit, kwargs = case
    vector, exact = (make(game, exact=is_exact, limit=limit, **kwargs) for is_exact in (False, True))
    assert (vector.snapshot, type(exact)) == ("restart", GymnasiumVector)
    assert vector.single_observation_space == exact.single_observation_space
    assert vector.single_action_space == exact.single_action_space
    steps = 160 if game == "Breakout" else 50
    for seed in (SEED, 12):  # the second time in consoles that have been played with
        assert torch.equal(vector.reset([seed])[0], exact.reset([seed])[0])  # type: ignore[arg-type] # both are tensors
        one, other = play(vector, steps), play(exact, steps)
        assert_same(one, other)
        assert sum(int(step.terminated.sum() + step.truncated.sum()) for step in one) > 0
    vector.close()


def test_copies_do_not_depend_on_each_other_or_on_threads() -> None:
    wide, narrow = make("Pong", num_envs=3, threads=2, limit=20), make("Pong", threads=1, limit=20)
    wide.reset([1, 2, 3])
    narrow.reset([3])
    actions = torch.randint(0, 6, (30, 3), generator=torch.Generator().manual_seed(0))
    for action in actions:
        many, one = wide.step(action), narrow.step(action[2:])
        assert all(torch.equal(a[2:], b) for a, b in zip(many[:5], one[:5], strict=True))  # type: ignore[index] # tensors


def test_the_vector_class_shows_what_a_plain_loop_over_the_emulator_shows() -> None:
    """Frame skip, pooling, stacking, rewards, cuts and final observations, on whole screens."""
    limit = 6
    settings = {"noop_max": 0, "fire_reset": False, "repeat_action_probability": 0.0, "size": [210, 160], "stack": 2}
    environment = make("Pong", limit=limit, **settings)
    emulator = emulator_of("pong", seed=5)
    observation, _ = environment.reset([5])
    frames = [np.zeros((210, 160), np.uint8), emulator.getScreenGrayscale()]
    assert np.array_equal(observation[0], frames)  # type: ignore[call-overload] # a tensor
    actions = [action.value for action in emulator.getMinimalActionSet()]
    for index, step in enumerate(play(environment, 4 * limit), 1):
        chosen = int(np.random.default_rng(0).integers(0, len(actions), (index, 1))[-1, 0])
        reward, last = 0, []
        for _ in range(4):
            reward += emulator.act(actions[chosen])
            last.append(emulator.getScreenGrayscale())
        cut = index % limit == 0
        # A step that is cut ends before its last frame is looked at: the one before, over the last of the step before that.
        seen = np.maximum(last[-2], frames[-1] if cut else last[-1])
        frames = [frames[-1], seen]
        assert np.array_equal(step.final_observation[0], frames)  # type: ignore[call-overload] # a tensor
        assert (step.reward.item(), step.truncated.item(), step.terminated.item()) == (reward, cut, False)
        if cut:
            emulator.reset_game()
            frames = [np.zeros((210, 160), np.uint8), emulator.getScreenGrayscale()]
        assert np.array_equal(step.observation[0], frames)  # type: ignore[call-overload] # a tensor


def emulator_of(game: str, seed: int) -> Any:
    emulator = ale_py.ALEInterface()
    emulator.setLoggerMode(ale_py.LoggerMode.Error)
    emulator.setInt("random_seed", seed)
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.loadROM(str(roms.get_rom_path(game)))
    emulator.reset_game()
    return emulator


@pytest.mark.parametrize("target", [(84, 84), (70, 40), (13, 159), (105, 80)])
def test_a_shrunk_picture_is_the_average_of_its_areas(target: tuple[int, int]) -> None:
    picture = np.random.default_rng(1).integers(0, 256, (210, 160), np.uint8)
    down, across = (weights(large, small) for large, small in zip(picture.shape, target, strict=True))
    exact = down @ picture.astype(np.float64) @ across.T
    assert np.abs(AreaResize((210, 160), target)(picture) - exact).max() <= 0.5 + 1e-3
    assert AreaResize((210, 160), (210, 160))(picture) is picture


def weights(large: int, small: int) -> np.ndarray:
    """How much of each cell lies in each area, as a share of the area. (small, large)"""
    edges = np.arange(small + 1)[:, None] * large / small
    cells = np.arange(large)
    overlap = np.minimum(cells + 1, edges[1:]) - np.maximum(cells, edges[:-1])
    return overlap.clip(0) * small / large


def test_the_twister_is_the_standard_one() -> None:
    twister = MersenneTwister()
    twister.seed(5489)  # the default seed, whose 10,000th number the C++ standard states
    assert [twister.word() for _ in range(10_000)][-1] == 4123659995
    draws = [twister.below(30) for _ in range(3000)]
    assert (min(draws), max(draws)) == (0, 29)
    assert max(draws.count(number) for number in range(30)) < 150


@pytest.mark.parametrize("kwargs", [{}, {"obs_type": "ram"}, {"obs_type": "objects"}, {"life_loss": True}])
def test_a_game_goes_on_from_a_saved_state_bit_for_bit(kwargs: dict[str, Any]) -> None:
    """Sticky actions are on: the button that sticks, both generators and half-shown frames come along."""
    first, second = (make("Breakout", exact=True, size=32, limit=50, **kwargs) for _ in range(2))
    first.reset([SEED])
    for pause in range(3):
        play(first, 11 + pause, seed=pause)
        state = first.state_dict()
        second.load_state_dict(state)  # first a console that has never been switched on, then one in another game
        assert_same(play(first, 50, seed=9), play(second, 50, seed=9))
        first.load_state_dict(state)


def test_a_game_that_ale_does_not_restore_exactly_is_not_called_exact() -> None:
    environment = make("Qbert", exact=True)
    environment.reset([1])
    assert (environment.snapshot, environment.state_dict()) == ("restart", {})


@pytest.mark.parametrize(
    ("kwargs", "shape", "dtype"),
    [
        ({}, (4, 84, 84), torch.uint8),
        ({"grayscale": False, "stack": 2, "size": [60, 50]}, (6, 60, 50), torch.uint8),
        ({"obs_type": "ram"}, (128,), torch.uint8),
        ({"obs_type": "objects"}, (6,), torch.float32),
    ],
)
def test_observations_have_the_documented_shape(kwargs: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    environment = make("Pong", **kwargs)
    observation, _ = environment.reset([SEED])
    assert isinstance(observation, torch.Tensor)
    assert (observation.shape, observation.dtype) == ((1, *shape), dtype)
    assert environment.single_observation_space.shape == shape


def test_a_step_is_not_overwritten_by_later_ones() -> None:
    environment = make("Pong", limit=3)
    environment.reset([SEED])
    step = environment.step(torch.tensor([2]))
    assert step.final_observation is step.observation
    kept = step.observation.clone()  # type: ignore[union-attr] # a tensor
    play(environment, 3)
    assert torch.equal(step.observation, kept)  # type: ignore[arg-type] # a tensor


def test_a_lost_life_ends_an_episode_and_not_the_game() -> None:
    environment = make("Breakout", life_loss=True)
    environment.reset([3])
    ends = [step for step in play(environment, 300) if step.terminated.any()]
    same = [torch.equal(step.observation, step.final_observation) for step in ends]  # type: ignore[arg-type] # tensors
    assert same[:4] == [True, True, True, True]
    assert same[4] is False  # the fifth life was the last


def test_rewards_are_the_games_own_unless_clipped() -> None:
    plain, clipped = (make("SpaceInvaders", clip_rewards=clip) for clip in (False, True))
    for environment in (plain, clipped):
        environment.reset([1])
    rewards = torch.stack([step.reward for step in play(plain, 100)])
    assert rewards.max() > 1
    assert torch.equal(torch.stack([step.reward for step in play(clipped, 100)]), rewards.sign())


def test_ids_of_version_4_have_no_sticky_actions() -> None:
    old, new = make("PongNoFrameskip-v4"), make("Pong", repeat_action_probability=0.0)
    sticky = make("Pong")
    for environment in (old, new, sticky):
        environment.reset([SEED])
    steps = play(old, 30)
    assert_same(steps, play(new, 30))
    assert not torch.equal(steps[-1].observation, play(sticky, 30)[-1].observation)  # type: ignore[arg-type] # tensors


def test_an_action_that_is_not_there_is_an_error_and_no_hang() -> None:
    environment = make("Pong")
    environment.reset([SEED])
    with pytest.raises(ValueError, match="has 6, counted from 0"):
        environment.step(torch.tensor([6]))


@pytest.mark.parametrize(
    ("game", "kwargs", "said"),
    [
        ("Pong", {"frame_skip": 2}, "environment.kwargs.frame_skip: unknown key; did you mean 'frameskip'"),
        ("Pong", {"frameskip": 0}, "frameskip=0: must be at least 1"),
        ("Pong", {"size": 200}, r"size=\[200, 200\]: screens are \[210, 160\]"),
        ("Pong", {"mode": 7}, "mode=7: pong has 0, 1"),
        ("Pong", {"game": "alien"}, "the game is in environment.id"),
        ("Alien", {"obs_type": "objects"}, "ALE/Alien-v5 has none; games with objects: Breakout, Pong"),
        ("Pong", {"obs_type": "pixels"}, "must be one of rgb, ram, objects"),
        ("Ponk", {}, "unknown environment 'ALE/Ponk-v5'; did you mean 'ALE/Pong-v5'"),
    ],
)
def test_a_slip_is_one_clear_line(game: str, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(EtudeError, match=said):
        make(game, **kwargs)


def test_what_the_vector_class_does_not_know_is_played_by_our_own() -> None:
    assert isinstance(make("Pong", difficulty=1), GymnasiumVector)


def test_the_raw_class_of_ale_is_still_there_under_its_modules_name() -> None:
    assert make("ale_py:ALE/Pong-v5").single_observation_space.shape == (210, 160, 3)


def test_a_game_can_be_seen_without_a_display() -> None:
    environment = make_to_show(EnvironmentConfig(id="ALE/Pong-v5"), "pictures")
    environment.reset([1])
    picture = Camera(environment, "ALE/Pong-v5").take()
    assert (picture.shape, picture.dtype) == ((210, 160, 3), np.uint8)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 2
    assert frames_per_second(environment) == 15
