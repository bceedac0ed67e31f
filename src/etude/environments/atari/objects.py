"""Where things are in a game, read from the console's memory: what a screen shows, in a few numbers.

Positions are those of the upper left corner of a thing on ALE's screen, divided by its width and height. A ball that is not in
play lies at 0, 0. `dx` and `dy` are what the ball moved since the step before, in the same units, and 0 where it was not in
play. Each number was found by comparing memory with pixels, and a test still does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_WIDTH, _HEIGHT = 160, 210
Position = tuple[float, float]


@dataclass(frozen=True)
class ObjectLayout:
    """How one game's memory becomes numbers."""

    names: tuple[str, ...]
    """What each number is."""
    still: Callable[[np.ndarray], list[float]]
    """The numbers before the ball's: paddles. (128,) bytes"""
    ball: Callable[[np.ndarray], Position | None]
    """Where the ball is, or None if it is not in play."""
    rest: Callable[[np.ndarray], np.ndarray]
    """The numbers after the ball's."""

    @property
    def low(self) -> np.ndarray:
        """The least that each number can be."""
        return np.array([-1 if name.startswith("ball d") else 0 for name in self.names], np.float32)

    def read(self, memory: np.ndarray, last_ball: Position | None) -> tuple[np.ndarray, Position | None]:
        """Return the numbers, and where the ball is, to be given to the next call."""
        ball = self.ball(memory)
        moved = (ball[0] - last_ball[0], ball[1] - last_ball[1]) if ball and last_ball else (0.0, 0.0)
        first = [*self.still(memory), *(ball or (0.0, 0.0)), *moved]
        return np.concatenate([np.array(first, np.float32), self.rest(memory)]), ball


def _x(pixel: int) -> float:
    return min(max(pixel / _WIDTH, 0.0), 1.0)


def _y(pixel: int) -> float:
    return min(max(pixel / _HEIGHT, 0.0), 1.0)


_BALL = ("ball x", "ball y", "ball dx", "ball dy")
_NOTHING = np.zeros(0, np.float32)


def _pong_paddles(memory: np.ndarray) -> list[float]:
    return [_y(int(memory[51]) - 13), _y(int(memory[50]) - 15)]


def _pong_ball(memory: np.ndarray) -> Position | None:
    return (_x(int(memory[49]) - 49), _y(int(memory[54]) - 14)) if memory[54] else None


def _breakout_paddle(memory: np.ndarray) -> list[float]:
    return [_x(int(memory[72]) - 47)]


def _breakout_ball(memory: np.ndarray) -> Position | None:
    return (_x(int(memory[99]) - 49), _y(int(memory[101]) + 9)) if memory[101] else None


_ROWS, _COLUMNS = 6, 18


def _brick_bits() -> tuple[np.ndarray, np.ndarray]:
    """Return the byte and the bit of each brick, rows from the top, columns from the left.

    The playfield registers lie in groups of six bytes, one per row from the bottom, and a brick is two bits wide. They count
    from the left or from the right, as the console's hardware shifts them out:

        columns   0   1-4   5-8   9-10   11-14   15-17
        group     5    4     3     2       1       0
        bits      6   7→0   0→7   4→7     7→0     0→5
    """
    groups = [5, *[4] * 4, *[3] * 4, *[2] * 2, *[1] * 4, *[0] * 3]
    bits = [6, 7, 5, 3, 1, 0, 2, 4, 6, 4, 6, 7, 5, 3, 1, 0, 2, 4]
    rows = np.arange(_ROWS)[:, None]
    return 6 * np.array(groups) + (_ROWS - 1 - rows), np.broadcast_to(np.array(bits), (_ROWS, _COLUMNS))


_BRICK_BYTES, _BRICK_BITS = _brick_bits()


def _bricks(memory: np.ndarray) -> np.ndarray:
    return ((memory[_BRICK_BYTES] >> _BRICK_BITS) & 1).astype(np.float32).ravel()


def _no_rest(_: np.ndarray) -> np.ndarray:
    return _NOTHING


OBJECTS = {
    "pong": ObjectLayout(("player y", "enemy y", *_BALL), _pong_paddles, _pong_ball, _no_rest),
    "breakout": ObjectLayout(
        ("paddle x", *_BALL, *(f"brick {row + 1}.{column + 1}" for row in range(_ROWS) for column in range(_COLUMNS))),
        _breakout_paddle,
        _breakout_ball,
        _bricks,
    ),
}
"""Games whose objects are known, by ALE's name."""
