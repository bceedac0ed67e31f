"""Ground to walk on: tiles of several kinds in rows that get harder, made from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from etude.config.robots import TerrainConfig
from etude.errors import UserError, did_you_mean

Heights = np.ndarray
PLATFORM = 1.0
"""Metres of the flat place in the middle of a tile, where a robot begins, to either side."""
BORDER = 4.0
"""Metres of flat ground around all tiles."""
MOST_HEIGHTS = 20_000_000
"""Of all tiles."""
DEEP = 1.0
"""Metres down into a gap, or between stepping stones."""


@dataclass(frozen=True)
class Tile:
    """A square of heights to be made: how many cells a side, how long one is, and how hard it is, 0 to 1."""

    cells: int
    cell: float
    difficulty: float
    generator: np.random.Generator

    def distance(self) -> Heights:
        """Metres of every cell from the middle, by the larger of the two coordinates."""
        axis = np.abs((np.arange(self.cells) + 0.5 - self.cells / 2) * self.cell)
        return np.maximum(axis[:, None], axis[None, :])

    def from_edge(self, heights: Heights) -> Heights:
        """Return the heights with the tile's edge at 0, where its neighbours' are: who has crossed it meets no cliff."""
        return heights - heights[0, 0]

    def with_platform(self, heights: Heights) -> Heights:
        """Return the heights with a flat place in the middle, as high as the ground there is on average."""
        middle = self.distance() < PLATFORM
        return np.where(middle, heights[middle].mean(), heights)


def flat(tile: Tile) -> Heights:
    """Level ground"""
    return np.zeros((tile.cells, tile.cells))


def slope(tile: Tile) -> Heights:
    """A pyramid or a bowl whose sides rise by up to 0.4"""
    side = tile.generator.choice([-1.0, 1.0])
    return tile.from_edge(-side * 0.4 * tile.difficulty * np.maximum(tile.distance() - PLATFORM, 0))


def rough(tile: Tile) -> Heights:
    """Bumps of up to 8 cm to either side, 20 cm apart"""
    size = 0.01 + 0.07 * tile.difficulty
    coarse = max(1, round(0.2 / tile.cell))
    few = tile.generator.uniform(-size, size, (math.ceil(tile.cells / coarse),) * 2)
    return tile.with_platform(np.kron(few, np.ones((coarse, coarse)))[: tile.cells, : tile.cells])


def _stairs(tile: Tile, direction: float) -> Heights:
    rise, run = 0.03 + 0.15 * tile.difficulty, 0.3
    steps = np.ceil(np.maximum(tile.distance() - PLATFORM, 0) / run)
    return tile.from_edge(direction * rise * steps)


def stairs_up(tile: Tile) -> Heights:
    """Steps of up to 18 cm, upward from the middle"""
    return _stairs(tile, 1.0)


def stairs_down(tile: Tile) -> Heights:
    """Steps of up to 18 cm, downward from the middle"""
    return _stairs(tile, -1.0)


def discrete(tile: Tile) -> Heights:
    """Forty blocks and holes of up to 15 cm"""
    heights, tall = np.zeros((tile.cells, tile.cells)), 0.03 + 0.12 * tile.difficulty
    for _ in range(40):
        width, length = (max(1, round(metres / tile.cell)) for metres in tile.generator.uniform(0.4, 1.2, 2))
        row, column = tile.generator.integers(0, tile.cells, 2)
        heights[row : row + width, column : column + length] = tile.generator.choice([-tall, -tall / 2, tall / 2, tall])
    return np.where(tile.distance() < PLATFORM, 0.0, heights)


def stepping_stones(tile: Tile) -> Heights:
    """Stones of 0.8 to 0.3 m with up to 0.2 m of nothing between them"""
    stone, gap = 0.8 - 0.5 * tile.difficulty, 0.04 + 0.16 * tile.difficulty
    period = max(2, round((stone + gap) / tile.cell))
    solid = max(1, round(stone / tile.cell))
    on = (np.arange(tile.cells) % period) < solid
    heights = np.where(on[:, None] & on[None, :], 0.0, -DEEP)
    return np.where(tile.distance() < PLATFORM, 0.0, heights)


def gap(tile: Tile) -> Heights:
    """A ditch of up to 0.6 m around the middle"""
    wide, distance = 0.05 + 0.55 * tile.difficulty, tile.distance()
    return np.where((distance > PLATFORM) & (distance <= PLATFORM + wide), -DEEP, 0.0)


def pit(tile: Tile) -> Heights:
    """A hollow of up to 0.3 m to climb out of"""
    return np.where(tile.distance() < PLATFORM * 1.5, -(0.02 + 0.28 * tile.difficulty), 0.0)


KINDS: dict[str, Callable[[Tile], Heights]] = {
    kind.__name__: kind for kind in (flat, slope, rough, stairs_up, stairs_down, discrete, stepping_stones, gap, pit)
}


class Terrain:
    """All tiles side by side: heights, where robots begin, and how high the ground is anywhere."""

    def __init__(self, config: TerrainConfig, device: torch.device) -> None:
        self.config = config
        shares = _shares(config)
        names = [*shares]
        # Column c is of the kind in whose share its middle lies.
        edges = np.cumsum([shares[name] for name in names]) / sum(shares.values())
        places = (np.arange(config.columns) + 0.5) / config.columns
        self.column_kinds = [names[int(np.searchsorted(edges, place))] for place in places]
        cells, border = round(config.tile / config.cell), round(BORDER / config.cell)
        shape = (config.levels * cells + 2 * border, config.columns * cells + 2 * border)
        _check_size(config, shape)
        _check_columns(config, shares, self.column_kinds)
        heights = np.zeros(shape)
        for level in range(config.levels):
            for column, kind in enumerate(self.column_kinds):
                generator = np.random.default_rng([config.seed, level, column])
                difficulty = (level + 1) / config.levels
                rows = slice(border + level * cells, border + (level + 1) * cells)
                columns = slice(border + column * cells, border + (column + 1) * cells)
                heights[rows, columns] = KINDS[kind](Tile(cells, config.cell, difficulty, generator))
        self.heights = heights  # (along x, along y)
        extent = np.array(heights.shape) * config.cell
        self.low = -extent / 2
        """Where the first height's cell begins, in x and y."""
        self.half_extent = extent / 2
        self._grid = torch.as_tensor(heights, dtype=torch.float32, device=device)
        self._limit = torch.as_tensor(self.half_extent - 1.0, dtype=torch.float32, device=device)
        self._low = torch.as_tensor(self.low, dtype=torch.float32, device=device)
        level, column = np.meshgrid(np.arange(config.levels), np.arange(config.columns), indexing="ij")
        middles = self.low + border * config.cell + (np.stack([level, column], -1) + 0.5) * config.tile
        self.origins = torch.as_tensor(middles, dtype=torch.float32, device=device)
        """The middle of each tile, (levels, columns, 2)."""

    def height(self, points: Tensor) -> Tensor:
        """Return the ground's height at points (..., 2), between heights in proportion to how near each is."""
        place = (points - self._low) / self.config.cell - 0.5
        rows, columns = self._grid.shape
        x = place[..., 0].clamp(0, rows - 1.001)
        y = place[..., 1].clamp(0, columns - 1.001)
        x0, y0 = x.floor().long(), y.floor().long()
        fx, fy = x - x0, y - y0
        flat_grid = self._grid.view(-1)

        def at(i: Tensor, j: Tensor) -> Tensor:
            return flat_grid[i * columns + j]

        lower = at(x0, y0) * (1 - fy) + at(x0, y0 + 1) * fy
        upper = at(x0 + 1, y0) * (1 - fy) + at(x0 + 1, y0 + 1) * fy
        return lower * (1 - fx) + upper * fx

    def is_outside(self, points: Tensor) -> Tensor:
        """Whether points (..., 2) are beyond the tiles, within a metre of the ground's edge."""
        return (points.abs() > self._limit).any(-1)


def _check_size(config: TerrainConfig, shape: tuple[int, int]) -> None:
    where = "environment.robot.terrain"
    if abs(config.tile / config.cell - round(config.tile / config.cell)) > 1e-6:
        raise UserError(f"{where}.cell={config.cell:g}: tile, {config.tile:g}, must be a multiple of it")
    if shape[0] * shape[1] > MOST_HEIGHTS:
        raise UserError(
            f"{where}.cell={config.cell:g}: {shape[0]:,} by {shape[1]:,} heights are more than {MOST_HEIGHTS:,}: raise it, or "
            "have fewer levels, columns or smaller tiles"
        )


def _check_columns(config: TerrainConfig, shares: Mapping[str, float], kinds: Sequence[str]) -> None:
    without = next((name for name in shares if name not in kinds), None)
    if without is not None:
        raise UserError(
            f"environment.robot.terrain.columns={config.columns}: too few for a column of '{without}', whose share is "
            f"{shares[without] / sum(shares.values()):.0%}; a share of 0 takes a kind out"
        )


def _shares(config: TerrainConfig) -> dict[str, float]:
    if config.cell > config.tile:
        raise UserError(f"environment.robot.terrain.cell={config.cell:g}: must be at most tile, {config.tile:g}")
    where = "environment.robot.terrain.kinds"
    for name, share in config.kinds.items():
        if name not in KINDS:
            near = did_you_mean(name, KINDS) or f" (there are {', '.join(KINDS)})"
            raise UserError(f"{where}.{name}: unknown kind of ground{near}")
        if share < 0:
            raise UserError(f"{where}.{name}={share:g}: must be at least 0")
    shares = {name: share for name, share in config.kinds.items() if share > 0}
    if not shares:
        raise UserError(f"{where}: at least one kind needs a share above 0")
    return shares


class Levels:
    """Which tile each robot is on."""

    def __init__(self, terrain: Terrain, count: int, generator: torch.Generator, *, training: bool) -> None:
        config = terrain.config
        self.terrain, self._generator = terrain, generator
        self._moves = training and config.curriculum
        device = terrain.origins.device
        self.column = torch.arange(count, device=device) % config.columns
        self.level = torch.zeros(count, dtype=torch.int64, device=device)
        self._first = config.first_levels if self._moves else config.levels
        self._held: int | None = None

    def hold(self, kind: str, level: int) -> None:
        """From the next start on, keep all robots on this level of this kind of ground, as a tester wants them."""
        columns = [number for number, name in enumerate(self.terrain.column_kinds) if name == kind]
        spread = torch.tensor(columns, device=self.column.device).repeat(len(self.column) // len(columns) + 1)
        self.column.copy_(spread[: len(self.column)])
        self._held = level

    def start(self) -> None:
        """Spread robots over the first levels; over all of them where there is no curriculum."""
        if self._held is not None:
            self.level.fill_(self._held)
            return
        count = min(self._first, self.terrain.config.levels)
        drawn = torch.randint(count, self.level.shape, generator=self._generator, device=self.level.device)
        self.level.copy_(drawn)

    @property
    def origin(self) -> Tensor:
        """Where each robot begins, (N, 2)."""
        return self.terrain.origins[self.level, self.column]

    def judge(self, position: Tensor, asked: Tensor) -> Tensor:
        """Return 1 for who has walked off its tile, −1 for who has not got half as far as its commands led, m. (N,)"""
        walked = (position - self.origin).norm(dim=-1)
        harder = walked > self.terrain.config.tile / 2
        easier = (walked < 0.5 * asked) & ~harder
        return harder.long() - easier.long()

    def move(self, which: Tensor, change: Tensor) -> None:
        """Change the levels of robots `which` (N,) by 1, 0 or −1, (N,)."""
        levels = self.terrain.config.levels
        anywhere = torch.randint(levels, self.level.shape, generator=self._generator, device=self.level.device)
        if not self._moves:
            return
        level = (self.level + change.long().clamp(-1, 1)).clamp(min=0)
        level = torch.where(level >= levels, anywhere, level)  # who has walked the hardest one walks any
        self.level.copy_(torch.where(which, level, self.level))
