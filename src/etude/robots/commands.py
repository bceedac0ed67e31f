"""What robots are asked for, redrawn now and then, and the clock of their gait."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from etude.config.robots import CommandConfig, Range
from etude.robots.goals import Goals
from etude.robots.rotations import from_yaw, rotate, wrap
from etude.robots.state import State
from etude.robots.terms.table import own_values

FOLLOWED_WIDTH = 0.5
"""m/s and rad/s off a command at which it counts as followed by exp(−1)."""


class Commands:
    """Draws commands for all robots at once; nothing in it asks the device for a number.

    With levels, each robot's ranges begin near 0 and grow as it follows what it is asked for.
    """

    def __init__(self, config: CommandConfig, state: State, generator: Generator, *, training: bool = False) -> None:
        self.config, self._generator, count = config, generator, state.count
        self.fixed: Tensor | None = None
        """A command for every robot in place of drawn ones, (N, 3) or (3,): what testers and players write."""
        state.goal = config.goal
        self.goals = None if config.goal == "velocity" else Goals(config, state)
        """Where commands are no velocities."""
        self.fixed_phase: float | Tensor | None = None
        """Where the gait's clock of episodes that begin stands, in place of a place that is drawn: robots then walk in step."""
        self._left = state.memory.command_left
        self.has_levels = training and config.levels > 1
        self._sums_ways = state.terrain is not None
        device = generator.device
        self._sideways_or_turn = torch.tensor([False, True, True], device=device)
        self.level = torch.zeros(count, dtype=torch.int64, device=device)
        """From 0 to levels − 1, where it counts. (N,)"""
        self._followed = torch.zeros(count, device=device)
        """How well commands were followed in the episode so far, a sum over the steps of it that asked to move."""
        self._asked_steps = torch.zeros(count, device=device)
        where = "environment.robot.commands"
        self._own = own_values(config.own, f"{where}.own", state, (count, 3)) if config.own else None
        promotes = config.promote and self.has_levels
        self._own_promotion = own_values(config.promote, f"{where}.promote", state, (count,)) if promotes else None

    def ask(self, command: Tensor | None) -> None:
        """Ask every robot for this in place of what is drawn, (N, 3) or (3,); None: draw again.

        A goal is seen from where each robot is at its next step, and asked for again from where its next episode begins.
        """
        if self.goals is None:
            self.fixed = command
        else:
            self.goals.asked = command
            self._left.zero_()

    def watch(self, state: State) -> None:
        """Take in what robots did in this step, before they are paid for it."""
        if self.goals is not None:
            self.goals.watch(state)

    def start(self) -> None:
        """Begin a run on the lowest level."""
        for tensor in (self.level, self._followed, self._asked_steps):
            tensor.zero_()

    def end(self, state: State, which: Tensor) -> None:
        """Judge the episodes of robots `which` (N,) as they end."""
        if self.has_levels:
            self._move_levels(state, which)

    def begin(self, state: State, which: Tensor) -> None:
        """Draw commands and a place in the gait's clock for episodes that begin."""
        self._draw(state, which)
        memory = state.memory
        start = torch.rand(state.count, generator=self._generator, device=state.device)
        if self.fixed_phase is not None:
            start = torch.as_tensor(self.fixed_phase, dtype=start.dtype, device=start.device).expand_as(start)
        memory.phase.copy_(torch.where(which, start, memory.phase))

    def step(self, state: State) -> None:
        """Let time pass: the clock runs, commands that have lasted are replaced, headings are steered to."""
        memory, config = state.memory, self.config
        if self._sums_ways:
            self._add_way(state)
        if self.has_levels:
            self._note_how_followed(state)
        memory.phase.add_(config.gait_hz * state.dt).remainder_(1.0)
        memory.command_left.sub_(state.dt)
        self._draw(state, memory.command_left <= 0)
        if config.heading > 0:
            low, high = self._bounds(config.turn)
            turn = (config.heading_stiffness * wrap(memory.heading - state.yaw)).clamp(low, high)  # type: ignore[arg-type] # both of a kind
            steered = memory.follows_heading & state.is_asked_to_move
            memory.command[:, 2] = torch.where(steered, turn, memory.command[:, 2])
        self._replace(state)

    @staticmethod
    def _add_way(state: State) -> None:
        """Add the way that this step's command asked for; a robot that is asked to walk in a circle is to get nowhere."""
        ahead = torch.cat([state.memory.command[:, :2], torch.zeros_like(state.memory.command[:, :1])], 1)
        state.memory.asked_way.add_(rotate(from_yaw(state.yaw), ahead)[:, :2], alpha=state.dt)

    def _replace(self, state: State) -> None:
        """Put what testers, players or a function of the user's ask for in the place of what was drawn."""
        command = state.memory.command
        if self.fixed is not None:
            command.copy_(self.fixed.expand_as(command))
        elif self._own is not None:
            command.copy_(self._own(state))
        elif self.goals is not None:
            command.copy_(self.goals.command(state))

    def _draw(self, state: State, which: Tensor) -> None:
        """Give the robots `which` (N,) new commands. All numbers are drawn for all, so that no choice moves the stream."""
        config, memory, count = self.config, state.memory, state.count
        u = torch.rand((8, count), generator=self._generator, device=state.device)
        drawn = [self._within(bounds, u[i]) for i, bounds in enumerate((config.forward, config.sideways, config.turn))]
        command = torch.stack(drawn, 1)
        straight = (u[3] < config.straight)[:, None]
        command = torch.where(straight & self._sideways_or_turn, 0.0, command)
        slow = (command[:, :2].norm(dim=-1) < config.smallest) & (command[:, 2].abs() < config.smallest)
        command = torch.where(((u[4] < config.standing) | slow)[:, None], 0.0, command)
        heading = (u[5] * 2 - 1) * torch.pi
        low, high = config.every_s
        memory.command.copy_(torch.where(which[:, None], command, memory.command))
        memory.heading.copy_(torch.where(which, heading, memory.heading))
        memory.follows_heading.copy_(torch.where(which, u[6] < config.heading, memory.follows_heading))
        memory.command_left.copy_(torch.where(which, low + (high - low) * u[7], memory.command_left))
        if self.goals is not None:
            self.goals.draw(state, which, u, self._within)
            if self.goals.asked is not None:  # until something else is asked for
                memory.command_left.masked_fill_(which, torch.inf)
        self._replace(state)
        state.refresh_command()

    def _within(self, bounds: Range, u: Tensor) -> Tensor:
        low, high = self._bounds(bounds)
        return low + (high - low) * u

    def _bounds(self, bounds: Range) -> tuple[Tensor | float, Tensor | float]:
        """Return the range that each robot's level allows, (N,) and (N,): it grows from what is nearest to 0."""
        if not self.has_levels:
            return bounds
        share = (self.level + 1) / self.config.levels
        low, high = bounds
        middle = min(max(0.0, low), high)
        return middle + (low - middle) * share, middle + (high - middle) * share

    # ---- levels ---------------------------------------------------------------------------------------------------------

    def _note_how_followed(self, state: State) -> None:
        """exp(−e² / width²), the mean of walking and turning, in [0, 1]"""
        command, width = state.memory.command, FOLLOWED_WIDTH
        walk = (state.base_linear_velocity[:, :2] - command[:, :2]).square().sum(-1)
        turn = (state.base_angular_velocity[:, 2] - command[:, 2]).square()
        followed = 0.5 * ((-walk / width**2).exp() + (-turn / width**2).exp())
        asked = state.is_asked_to_move
        self._followed.add_(torch.where(asked, followed, 0.0))
        self._asked_steps.add_(asked)

    def _move_levels(self, state: State, which: Tensor) -> None:
        """Judge the episodes that end, of robots `which` (N,); one that was never asked to move says nothing."""
        config, asked = self.config, self._asked_steps > 0
        followed = self._followed / self._asked_steps.clamp(min=1)
        up = asked & ~state.fell & (followed > config.level_up)
        down = asked & (followed < config.level_down)
        change = up.long() - down.long()
        if self._own_promotion is not None:
            change = self._own_promotion(state).long().clamp(-1, 1) * asked
        level = (self.level + change).clamp(0, config.levels - 1)
        self.level.copy_(torch.where(which, level, self.level))
        for tensor in (self._followed, self._asked_steps):
            tensor.masked_fill_(which, 0.0)

    def info(self) -> dict[str, Tensor]:
        """Return what is to be logged, (N,) each."""
        return {"command_level": self.level.float()} if self.has_levels else {}

    def state_dict(self) -> dict[str, Any]:
        """Return levels and how the episodes under way have gone; nothing where there are no levels."""
        return {name: tensor.clone() for name, tensor in self._levels().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state; one of a run that had no levels begins on the lowest."""
        for name, tensor in self._levels().items():
            if name in state:
                tensor.copy_(state[name])

    def _levels(self) -> dict[str, Tensor]:
        everything = {"level": self.level, "followed": self._followed, "asked_steps": self._asked_steps}
        return everything if self.has_levels else {}
