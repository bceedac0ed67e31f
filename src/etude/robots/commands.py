"""Velocities that robots are asked for, redrawn now and then, and the clock of their gait."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from etude.config.robots import CommandConfig, Range
from etude.robots.rotations import wrap
from etude.robots.state import State


class Commands:
    """Draws commands for all robots at once; nothing in it asks the device for a number."""

    def __init__(self, config: CommandConfig, generator: Generator) -> None:
        self.config, self._generator = config, generator
        self.fixed: Tensor | None = None
        """A command for every robot in place of drawn ones, (N, 3) or (3,): what testers and players write."""

    def begin(self, state: State, which: Tensor) -> None:
        """Draw commands and a place in the gait's clock for episodes that begin."""
        self._draw(state, which)
        memory = state.memory
        start = torch.rand(state.count, generator=self._generator, device=state.device)
        memory.phase.copy_(torch.where(which, start, memory.phase))

    def step(self, state: State) -> None:
        """Let time pass: the clock runs, commands that have lasted are replaced, headings are steered to."""
        memory, config = state.memory, self.config
        memory.phase.add_(config.gait_hz * state.dt).remainder_(1.0)
        memory.command_left.sub_(state.dt)
        self._draw(state, memory.command_left <= 0)
        if config.heading > 0:
            low, high = config.turn
            turn = (config.heading_stiffness * wrap(memory.heading - state.yaw)).clamp(low, high)
            steered = memory.follows_heading & state.is_asked_to_move
            memory.command[:, 2] = torch.where(steered, turn, memory.command[:, 2])
        if self.fixed is not None:
            memory.command.copy_(self.fixed.expand_as(memory.command))

    def _draw(self, state: State, which: Tensor) -> None:
        """Give the robots `which` (N,) new commands. All numbers are drawn for all, so that no choice moves the stream."""
        config, memory, count = self.config, state.memory, state.count
        u = torch.rand((8, count), generator=self._generator, device=state.device)
        command = torch.stack([_within(config.forward, u[0]), _within(config.sideways, u[1]), _within(config.turn, u[2])], 1)
        straight = (u[3] < config.straight)[:, None]
        command = torch.where(straight, command * command.new_tensor([1.0, 0.0, 0.0]), command)
        slow = (command[:, :2].norm(dim=-1) < config.smallest) & (command[:, 2].abs() < config.smallest)
        command = torch.where(((u[4] < config.standing) | slow)[:, None], 0.0, command)
        heading = (u[5] * 2 - 1) * torch.pi
        memory.command.copy_(torch.where(which[:, None], command, memory.command))
        memory.heading.copy_(torch.where(which, heading, memory.heading))
        memory.follows_heading.copy_(torch.where(which, u[6] < config.heading, memory.follows_heading))
        memory.command_left.copy_(torch.where(which, _within(config.every_s, u[7]), memory.command_left))
        if self.fixed is not None:
            memory.command.copy_(self.fixed.expand_as(memory.command))
        state.refresh_command()


def _within(bounds: Range, u: Tensor) -> Tensor:
    low, high = bounds
    return low + (high - low) * u
