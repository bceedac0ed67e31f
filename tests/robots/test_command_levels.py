"""Commands that grow with what a robot can do: level by level, robot by robot, in training alone, and kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from etude.config.robots import CommandConfig
from etude.robots.commands import Commands
from tests.robots.robots import actions, rest, robots

CONFIG = CommandConfig(forward=(0.4, 1.2), sideways=(-0.4, 0.8), turn=(-1.0, 1.0), standing=0.0, smallest=0.0, levels=4)


class Moment(SimpleNamespace):
    """As much of a state as commands look at."""

    def __init__(self, count: int) -> None:
        tensors = {name: torch.zeros(count) for name in ("phase", "command_left", "heading")}
        memory = SimpleNamespace(**tensors, command=torch.zeros(count, 3), follows_heading=torch.zeros(count, dtype=torch.bool))
        super().__init__(memory=memory, count=count, device=torch.device("cpu"), dt=0.02, yaw=torch.zeros(count), terrain=None)
        self.fell = torch.zeros(count, dtype=torch.bool)
        self.off = torch.zeros(count)

    @property
    def is_asked_to_move(self) -> torch.Tensor:
        return self.memory.command.abs().sum(-1) > 0

    @property
    def base_linear_velocity(self) -> torch.Tensor:
        return torch.cat([self.memory.command[:, :2] + self.off[:, None], torch.zeros(self.count, 1)], 1)

    @property
    def base_angular_velocity(self) -> torch.Tensor:
        return torch.cat([torch.zeros(self.count, 2), self.memory.command[:, 2:] + self.off[:, None]], 1)

    def refresh_command(self) -> None:
        pass


def episode(commands: Commands, state: Any, steps: int = 20) -> None:
    for _ in range(steps):
        commands.step(state)
    everyone = torch.ones(state.count, dtype=torch.bool)
    commands.end(state, everyone)
    commands.begin(state, everyone)


def made(count: int, *, training: bool = True, config: CommandConfig = CONFIG) -> tuple[Commands, Any]:
    state: Any = Moment(count)
    commands = Commands(config, state, torch.Generator().manual_seed(0), training=training)
    commands.start()
    commands.begin(state, torch.ones(count, dtype=torch.bool))
    return commands, state


def within(command: torch.Tensor, share: float) -> bool:
    low = torch.tensor([0.4, -0.4 * share, -1.0 * share])
    high = torch.tensor([0.4 + 0.8 * share, 0.8 * share, 1.0 * share])
    near_the_edges = bool((command.amax(0) > high - 0.15).all()) and bool((command.amin(0) < low + 0.15).all())
    return near_the_edges and bool(((command >= low - 1e-6) & (command <= high + 1e-6)).all())


def test_ranges_grow_from_what_is_nearest_to_nothing_as_commands_are_followed() -> None:
    commands, state = made(500)
    for level in range(6):
        assert commands.level.tolist() == [min(level, 3)] * 500
        assert within(state.memory.command, min(level + 1, 4) / 4), level
        episode(commands, state)


def test_each_robot_has_a_level_of_its_own() -> None:
    """One follows, one follows badly, one follows and falls, and one does middling well."""
    commands, state = made(4)
    commands.level.fill_(1)
    state.off = torch.tensor([0.0, 1.0, 0.0, 0.3])
    state.fell = torch.tensor([False, False, True, False])
    episode(commands, state)
    assert commands.level.tolist() == [2, 0, 1, 1]
    episode(commands, state)
    assert commands.level.tolist() == [3, 0, 1, 1]


def test_who_was_never_asked_to_move_stays_where_it_is() -> None:
    commands, state = made(3)
    commands.fixed = torch.zeros(3)
    commands.begin(state, torch.ones(3, dtype=torch.bool))
    episode(commands, state)
    assert commands.level.tolist() == [0, 0, 0]


def test_evaluations_ask_for_everything_at_once_and_so_does_training_by_default() -> None:
    evaluated, state = made(500, training=False)
    assert within(state.memory.command, 1.0)
    assert evaluated.info() == {}
    assert CommandConfig().levels == 1
    assert made(2, config=CommandConfig())[0].info() == {}


def test_levels_are_told_and_are_part_of_the_robots_state() -> None:
    def build() -> Any:
        return robots(
            8,
            training=True,
            steps=10,
            commands=CommandConfig(levels=5, level_up=0.05, level_down=0.0, standing=0.0, smallest=0.0),
        )

    whole, other = build(), build()
    rest(whole, 25)
    assert float(whole.step(actions(whole)).info["command_level"].max()) > 0
    saved = whole.state_dict()
    expected = [whole.step(actions(whole, seed)) for seed in range(30)]
    other.load_state_dict(saved)
    again = [other.step(actions(other, seed)) for seed in range(30)]
    for one, two in zip(expected, again, strict=True):
        assert torch.equal(one.observation, two.observation)
        assert torch.equal(one.info["command_level"], two.info["command_level"])
    whole.reset(range(8))
    assert whole.commands.level.tolist() == [0] * 8


def test_a_run_that_had_no_levels_can_go_on_with_some() -> None:
    plain, grown = robots(4, training=True), robots(4, training=True, commands=CommandConfig(levels=3))
    grown.commands.level.fill_(0)
    grown.load_state_dict(plain.state_dict())
    assert grown.commands.level.tolist() == [0, 0, 0, 0]
    rest(grown, 3)
