"""Objects that are read from the console's memory are where the screen shows them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ale_py")

from etude.environments.atari.game import AtariGame
from etude.environments.atari.objects import OBJECTS
from etude.environments.atari.settings import AtariSettings

WIDTH, HEIGHT = 160, 210
PONG_FIELD = slice(34, 194)
BALL, PLAYER, ENEMY = (236, 236, 236), (92, 186, 92), (213, 130, 74)
BRICKS = [(200, 72, 72), (198, 108, 58), (180, 122, 48), (162, 162, 42), (72, 160, 72), (66, 72, 200)]


def new_game(name: str) -> AtariGame:
    game = AtariGame(AtariSettings(name, obs_type="objects", frameskip=1), "rgb_array")
    game.reset(seed=4)
    return game


def corner(screen: np.ndarray, colour: tuple[int, int, int], height: int) -> tuple[int, int] | None:
    """Left and upper edge of a thing of this colour, or None where less than its height is to be seen."""
    rows, columns = np.nonzero((screen == colour).all(-1))
    return (int(columns.min()), int(rows.min())) if len(rows) and rows.max() - rows.min() + 1 == height else None


def test_pongs_paddles_and_ball_are_where_the_screen_shows_them() -> None:
    game, random = new_game("pong"), np.random.default_rng(0)
    errors: dict[str, list[float]] = {"player": [], "enemy": [], "x": [], "y": []}
    move = 0
    for index in range(900):
        move = int(random.integers(6)) if index % 9 == 0 else move
        numbers = game.step(move)[0]
        screen = game.render()[PONG_FIELD]
        top = PONG_FIELD.start
        seen = {
            name: corner(screen, *look)
            for name, look in (("player", (PLAYER, 16)), ("enemy", (ENEMY, 16)), ("ball", (BALL, 4)))
        }
        for name, number in (("player", numbers[0]), ("enemy", numbers[1])):
            place = seen[name]
            if place is not None:
                errors[name].append(number * HEIGHT - (place[1] + top))
        if (place := seen["ball"]) is not None:
            errors["x"].append(numbers[2] * WIDTH - place[0])
            errors["y"].append(numbers[3] * HEIGHT - (place[1] + top))
    for name, found in errors.items():
        assert len(found) > 300, name
        # Memory is a frame ahead of what is drawn now and then: a paddle is then some lines away, a ball one or two.
        assert np.mean(np.abs(found) < 1.5) > 0.85, name
        assert np.abs(np.median(found)) < 0.5, name


def test_pongs_ball_moves_by_the_difference_of_its_places_and_rests_when_it_is_out() -> None:
    game = new_game("pong")
    track = np.array([game.step(0)[0][2:] for _ in range(500)])
    in_play = np.asarray((track[:, :2] > 0).all(1))
    assert 0.2 < in_play.mean() < 1
    assert not track[~in_play].any()
    both = in_play[1:] & in_play[:-1]
    assert np.allclose(track[1:, 2:][both], np.diff(track[:, :2], axis=0)[both], atol=1e-6)
    assert not track[1:, 2:][~both].any()


def test_breakouts_paddle_ball_and_bricks_are_where_the_screen_shows_them() -> None:
    """A paddle that follows the ball knocks out bricks of several rows; from then on each one is compared."""
    game, random = new_game("breakout"), np.random.default_rng(3)
    numbers, _ = game.reset()
    errors: dict[str, list[float]] = {"paddle": [], "x": [], "y": []}
    gone = np.zeros((6, 18), bool)
    aim = 0
    for index in range(2400):
        aim = int(random.integers(-7, 8)) if index % 120 == 0 else aim
        off = (numbers[1] - numbers[0]) * WIDTH - 6 + aim
        numbers, _, over, _, _ = game.step(1 if index % 30 == 0 or not numbers[2] else 2 if off > 3 else 3 if off < -3 else 0)
        if over:
            numbers, _ = game.reset()
            continue
        screen = game.render()
        if (place := corner(screen[189:193, 8:152], BRICKS[0], 4)) is not None:
            errors["paddle"].append(numbers[0] * WIDTH - (place[0] + 8))
        if (place := corner(screen[95:185, 8:152], BRICKS[0], 4)) is not None:
            errors["x"].append(numbers[1] * WIDTH - (place[0] + 8))
            errors["y"].append(numbers[2] * HEIGHT - (place[1] + 95))
        if numbers[2] * HEIGHT > 100:  # the ball, which has the colour of the first row, is not among the bricks
            there = numbers[5:].reshape(6, 18) > 0
            shown = [[(screen[60 + 6 * row, 12 + 8 * column] == BRICKS[row]).all() for column in range(18)] for row in range(6)]
            assert np.array_equal(there, shown)
            gone |= ~there
    for name, found in errors.items():
        assert len(found) > 300, name
        assert np.mean(np.abs(found) < 0.5) > 0.85, name
    assert gone.sum() > 12
    assert gone.any(1).sum() >= 3


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_numbers_have_names_and_stay_within_their_bounds(name: str) -> None:
    game = new_game(name)
    assert game.observation_space.shape == (len(OBJECTS[name].names),)
    for index in range(60):
        assert game.observation_space.contains(game.step(index % 4)[0])
