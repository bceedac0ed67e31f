"""Arcade-like tasks on a 10 × 10 grid, after the games of MinAtar (Young and Tian 2019), as tensors.

    BrickWall      a ball, a paddle and three rows of bricks, each worth 1; it ends with the ball lost, or the wall down
    RoadCrossing   eight lanes of traffic between the near side and the far one; a crossing is worth 1, a hit sends back
    FruitFall      what falls in the ten columns is worth 1 to catch, or -1; three lives

Observations are numbers between -1 and 1, not pictures.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.compute.draws import integers, uniform
from etude.environments.tensors.task import Advanced, State, TensorTask
from etude.environments.vector import Observation

SIZE = 10
LAST = SIZE - 1


class _Grid(TensorTask):
    """Actions: stay, one way, the other way."""

    def __init__(self, observation_size: int) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (observation_size,), np.float32)
        self.action_space = spaces.Discrete(3)

    def picture(self, state: State) -> Tensor:
        """Return the first copy as a grid of brightnesses, (10, 10)."""
        raise NotImplementedError

    def draw(self, state: State) -> Tensor:
        """The grid, 16 pixels a cell."""
        first = {name: value[:1].to("cpu") for name, value in state.items()}
        cells = (255 * self.picture(first)).to(torch.uint8)
        return cells.repeat_interleave(16, 0).repeat_interleave(16, 1)[:, :, None].expand(-1, -1, 3).contiguous()


class BrickWall(_Grid):
    """Keep a ball up with a paddle until the wall above is down; what hits the paddle's edge goes back where it came from."""

    max_episode_steps = 1000
    return_threshold = 28.0  # of 30 bricks

    def __init__(self) -> None:
        super().__init__(SIZE + SIZE + 4 + 3 * SIZE)

    def begin(self, count: int, generator: Generator) -> State:
        """The wall is whole, the paddle in the middle, and the ball comes down from the left or the right."""
        side = integers(0, 2, (count,), generator)
        return {
            "x": side * LAST,
            "y": torch.full_like(side, 3),
            "dx": 1 - 2 * side,
            "dy": torch.ones_like(side),
            "paddle": torch.full_like(side, 4),
            "struck": torch.zeros_like(side, dtype=torch.bool),
            "bricks": torch.ones((count, 3 * SIZE), dtype=torch.bool, device=side.device),
        }

    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """Move the paddle, then the ball by one cell along its diagonal.

        A ball that was inside the wall a step ago passes through bricks: `struck` is set until it is outside again.
        """
        paddle = (state["paddle"] + (action == 2).long() - (action == 1).long()).clamp(0, LAST)
        x, y, dx, dy = (state[name] for name in ("x", "y", "dx", "dy"))
        to_x, to_y = x + dx, y + dy
        dx = torch.where((to_x < 0) | (to_x > LAST), -dx, dx)
        to_x = to_x.clamp(0, LAST)

        at_top, at_bottom = to_y < 0, to_y == LAST
        place = ((to_y - 1).clamp(0, 2) * SIZE + to_x)[:, None]
        meets = state["bricks"].gather(1, place)[:, 0] & (to_y >= 1) & (to_y <= 3)
        breaks = meets & ~state["struck"]
        bricks = state["bricks"] & ~(one_hot(place[:, 0], 3 * SIZE) & breaks[:, None])

        caught, edge = at_bottom & (x == paddle), at_bottom & (x != paddle) & (to_x == paddle)
        lost = at_bottom & ~caught & ~edge
        back = at_top | breaks | caught | edge
        dy = torch.where(back, -dy, dy)
        dx = torch.where(edge, -dx, dx)
        to_y = torch.where(at_top, 0, torch.where(breaks | caught | edge, y, to_y))
        moved = {
            "x": to_x,
            "y": to_y,
            "dx": dx,
            "dy": dy,
            "paddle": paddle,
            "struck": meets,
            "bricks": bricks,
        }
        return Advanced(moved, breaks.float(), lost | ~bricks.any(1))

    def observe(self, state: State) -> Observation:
        """Where the ball is beside the paddle, in which column and how high it is and where it goes, and the bricks."""
        apart = (state["x"] - state["paddle"]).clamp(-5, 4) + 5
        numbers = torch.stack([2 * state["y"] / LAST - 1, state["dx"], state["dy"], state["struck"]], 1)
        return torch.cat([one_hot(apart, SIZE), one_hot(state["x"], SIZE), numbers, state["bricks"]], 1).float()

    def picture(self, state: State) -> Tensor:
        """Bricks grey, paddle and ball white."""
        grid = torch.zeros(SIZE, SIZE)
        grid[1:4] = 0.5 * state["bricks"][0].view(3, SIZE)
        grid[LAST, state["paddle"][0]] = 1.0
        grid[state["y"][0], state["x"][0]] = 1.0
        return grid


class RoadCrossing(_Grid):
    """Go up through eight lanes whose cars move by a cell every 1 to 5 steps, to the left or to the right."""

    max_episode_steps = 500

    def __init__(self) -> None:
        super().__init__(SIZE + 8 * SIZE + 8)

    def begin(self, count: int, generator: Generator) -> State:
        """At the near side; every lane has a car somewhere, a pace and a direction."""
        device = generator.device
        pace = integers(1, 6, (count, 8), generator)
        side = integers(0, 2, (count, 8), generator)
        return {
            "row": torch.full((count,), LAST, device=device),
            "rests": torch.zeros(count, dtype=torch.int64, device=device),
            "car": integers(0, SIZE, (count, 8), generator),
            "pace": pace * (2 * side - 1),
            "wait": pace.clone(),
        }

    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """Step up or down, at most every other step; then the cars move. The column is the fifth."""
        free = state["rests"] == 0
        row = (state["row"] + free * ((action == 2).long() - (action == 1).long())).clamp(0, LAST)
        rests = torch.where(free & (row != state["row"]), 1, (state["rests"] - 1).clamp(min=0))
        wait, pace = state["wait"] - 1, state["pace"]
        moves = wait == 0
        car = torch.remainder(state["car"] + moves * pace.sign(), SIZE)
        wait = torch.where(moves, pace.abs(), wait)
        lane = (row - 1).clamp(0, 7)[:, None]
        on_road = (row >= 1) & (row <= 8)
        hit = on_road & (car.gather(1, lane)[:, 0] == 4)
        across = row == 0
        row = torch.where(hit | across, LAST, row)
        moved = {"row": row, "rests": rests, "car": car, "pace": pace, "wait": wait}
        return Advanced(moved, across.float(), torch.zeros_like(hit))

    def observe(self, state: State) -> Observation:
        """The row, where each car is, and how fast it comes from which side."""
        cars = one_hot(state["car"], SIZE).flatten(1)
        return torch.cat([one_hot(state["row"], SIZE), cars, 1.0 / state["pace"]], 1).float()

    def picture(self, state: State) -> Tensor:
        """Cars grey, whoever crosses white."""
        grid = torch.zeros(SIZE, SIZE)
        grid[torch.arange(1, 9), state["car"][0]] = 0.5
        grid[state["row"][0], 4] = 1.0
        return grid


class FruitFall(_Grid):
    """Catch what is good and let the rest fall: one thing falls at a time in each of two places, a cell a step."""

    max_episode_steps = 500

    def __init__(self) -> None:
        super().__init__(SIZE + 2 * (2 * SIZE + 1) + 1)

    def begin(self, count: int, generator: Generator) -> State:
        """In the middle, with three lives; the second thing is half-way down."""
        column, good = _fruit(count, generator)
        half = torch.full_like(column[:, :1], SIZE // 2)
        return {
            "at": torch.full((count,), 4, device=column.device),
            "lives": torch.full((count,), 3, device=column.device),
            "column": column,
            "good": good,
            "row": torch.cat([torch.zeros_like(half), half], 1),
        }

    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """Move, then everything falls by a cell; what reaches the ground is caught or gone, and another one begins to fall."""
        at = (state["at"] + (action == 2).long() - (action == 1).long()).clamp(0, LAST)
        row, good = state["row"] + 1, state["good"]
        down = row == LAST
        caught = down & (state["column"] == at[:, None])
        bad = (down & good & ~caught) | (caught & ~good)
        lives = state["lives"] - bad.sum(1)
        column, kinds = _fruit(len(at), generator)
        moved = {
            "at": at,
            "lives": lives,
            "column": torch.where(down, column, state["column"]),
            "good": torch.where(down, kinds, good),
            "row": torch.where(down, 0, row),
        }
        return Advanced(moved, (caught & good).sum(1).float() - (caught & ~good).sum(1).float(), lives <= 0)

    def observe(self, state: State) -> Observation:
        """The column, the lives, and of each thing its column, its height and whether it is good."""
        things = [one_hot(state["column"], SIZE), one_hot(state["row"], SIZE), 2 * state["good"].long()[:, :, None] - 1]
        return torch.cat([one_hot(state["at"], SIZE), torch.cat(things, 2).flatten(1), state["lives"][:, None] / 3], 1).float()

    def picture(self, state: State) -> Tensor:
        """What is good is white, what is bad grey."""
        grid = torch.zeros(SIZE, SIZE)
        grid[LAST, state["at"][0]] = 1.0
        grid[state["row"][0], state["column"][0]] = 0.4 + 0.6 * state["good"][0]
        return grid


def _fruit(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return columns (N, 2) and which are good (N, 2): two of three are."""
    column = integers(0, SIZE, (count, 2), generator)
    return column, uniform((count, 2), 0.0, 1.0, generator) < 2 / 3


def one_hot(places: Tensor, size: int) -> Tensor:
    """(...) → (..., size), bool: by comparing, where torch's own writes zeros and scatters whole numbers of 8 bytes."""
    return places[..., None] == torch.arange(size, device=places.device)
