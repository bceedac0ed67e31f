"""Every game that ALE has: the exact class equals the fast one, and goes on from its states, but for those that are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("ale_py")
from ale_py import roms

from etude.environments.atari.game import DRAW_AT_RESET, NOT_RESTORED, AtariGame
from etude.environments.atari.settings import AtariSettings
from etude.environments.atari.vector import AtariVector
from tests.environments.families.test_atari import play

FOR_SEVERAL_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}
GAMES = sorted(set(roms.get_all_rom_ids()) - FOR_SEVERAL_PLAYERS)
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("game", sorted(set(GAMES) - set(DRAW_AT_RESET)))
def test_the_exact_class_equals_the_fast_one(game: str) -> None:
    settings = AtariSettings(game, max_num_frames_per_episode=200)
    vector, exact = AtariVector(settings, 1), AtariGame(settings)
    observation, _ = vector.reset([7])
    assert np.array_equal(observation[0], exact.reset(seed=7)[0])  # type: ignore[call-overload] # a tensor
    random = np.random.default_rng(0)  # as `play` draws
    for step in play(vector, 120):
        after, reward, terminated, truncated, _ = exact.step(int(random.integers(0, exact.action_space.n, 1)[0]))  # type: ignore[attr-defined] # discrete
        assert np.array_equal(step.final_observation[0], after)  # type: ignore[call-overload] # a tensor
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated)
        if terminated or truncated:
            after, _ = exact.reset()
        assert np.array_equal(step.observation[0], after)  # type: ignore[call-overload] # a tensor


@pytest.mark.parametrize("game", sorted(set(GAMES) - set(NOT_RESTORED)))
def test_a_game_goes_on_from_its_states(game: str) -> None:
    settings = AtariSettings(game, max_num_frames_per_episode=300)
    first, second = AtariGame(settings), AtariGame(settings)
    first.reset(seed=5)
    random = np.random.default_rng(2)
    for pause in range(3):
        follow(first, random, 40 + pause)
        second.load_state_dict(first.state_dict())
        seed = int(random.integers(1000))
        assert follow(first, np.random.default_rng(seed), 90) == follow(second, np.random.default_rng(seed), 90)


def follow(game: AtariGame, random: np.random.Generator, steps: int) -> list[Any]:
    seen: list[Any] = []
    for _ in range(steps):
        observation, *rest, _ = game.step(int(random.integers(game.action_space.n)))  # type: ignore[attr-defined] # discrete
        seen += [observation.tobytes(), *rest]
        if any(rest[1:]):
            seen.append(game.reset()[0].tobytes())
    return seen
