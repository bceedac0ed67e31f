"""A robot as it is viewed: it moves on and on, may be paused and begun again, and is asked by its task or by somebody."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import torch

from etude.robots.driving.driving import Driver, Event
from etude.robots.environment import RobotVector
from etude.robots.state import State
from etude.viewing.marks import Marker, Marks, Velocity, velocity_of
from etude.viewing.performers import Performer

_mujoco: Any = mujoco
HISTORY_S = 10.0
"""How far back a plot of velocities goes."""


class Sample(NamedTuple):
    """What was asked and done at one step."""

    second: float
    asked: Velocity
    done: Velocity


class LiveRobot:
    """Steps one robot. Until somebody asks for something, its task says what it is asked for."""

    def __init__(self, performer: Performer, *, seed: int = 0) -> None:
        self.performer, self._seed = performer, seed
        base = performer.environment.base
        assert isinstance(base, RobotVector), "only robots are viewed"
        self.robots = base
        self.driver = Driver(base.task.commands)
        self.is_driven = False
        """Whether somebody says what the robot is asked for."""
        self.episode, self.steps, self.total_reward, self.falls = 0, 0, 0.0, 0
        self.done: Velocity = (0.0, 0.0, 0.0)
        """How the robot moved in the last step."""
        self.history: deque[Sample] = deque(maxlen=max(2, round(HISTORY_S / base.dt)))
        self._all_steps, self._was_asked, self._fell = 0, self.done, False
        self._marker = Marker(base)
        self._data: Any = None
        base.listener = self._note
        self.begin()

    @property
    def asked(self) -> Velocity:
        """What the robot is asked for now."""
        forward, sideways, turn = self.robots.memory.command[0].tolist()
        return forward, sideways, turn

    @property
    def seconds(self) -> float:
        """Of the robot's own time, in this episode."""
        return self.steps * self.robots.dt

    def begin(self) -> None:
        """Begin an episode, the next one by its seed."""
        self._hold()
        self.performer.begin(self._seed + self.episode)
        self.episode += 1
        self._renew()

    def step(self) -> None:
        """Take a step; a robot that falls begins again by itself, as in training."""
        reward, ended = self.performer.step()
        self.steps += 1
        self._all_steps += 1
        self.total_reward += reward
        self._data = None
        self.history.append(Sample(self._all_steps * self.robots.dt, self._was_asked, self.done))
        if ended:
            self.falls += self._fell
            self.episode += 1
            self._renew()

    def _renew(self) -> None:
        self.steps, self.total_reward, self._data = 0, 0.0, None

    def take(self, event: Event) -> None:
        """Ask for what a key, a stick or a slider means; from here on the task does not."""
        self.is_driven = True
        self.driver.take(event)
        self._hold()

    def hand_back(self) -> None:
        """Let the task say again what is asked for."""
        if self.is_driven:
            self.is_driven = False
            self._hold()
            self.robots.memory.command_left.zero_()  # it draws another one with the next step

    def _hold(self) -> None:
        held = torch.tensor(self.driver.command, device=self.robots.device) if self.is_driven else None
        self.robots.commands.fixed = held
        if held is not None:  # what is shown before the next step too; a step writes it again
            self.robots.memory.command.copy_(held.expand_as(self.robots.memory.command))
            self.robots.state.refresh_command()

    def _note(self, state: State) -> None:
        """Called after each step, before a robot that has fallen begins again."""
        self.done, self._was_asked, self._fell = velocity_of(self.robots), self.asked, bool(state.fell[0])

    def data(self) -> Any:
        """Return MuJoCo's data of this moment, with all that follows from it: places of bodies, contacts, forces."""
        if self._data is None:
            self._data = self.robots.simulation.data(0)
            _mujoco.mj_forward(self.robots.scene.model, self._data)
        return self._data

    def marks(self) -> Marks:
        """Return what is to be drawn beside the robot."""
        return self._marker.take(self.data(), self.done if self.steps else velocity_of(self.robots))

    @property
    def scans(self) -> bool:
        """Whether the task has a height scan."""
        return self._marker.scan_options is not None

    def close(self) -> None:
        """Close the environment."""
        self.robots.listener = None
        self.performer.environment.close()
