"""Classic control on tensors: Gymnasium's tasks, for thousands of copies on a GPU. In single precision, unless states are given
in double: from equal states and actions they then go where Gymnasium's go.
"""

from __future__ import annotations

import math
from typing import ClassVar

import gymnasium
import torch
from torch import Generator, Tensor

from etude.compute.draws import uniform
from etude.environments.tensors.task import Advanced, State, TensorTask
from etude.environments.vector import Observation

_PI = math.pi


class _Classic(TensorTask):
    """A state of a few numbers, `state` (N, size); spaces and limits are Gymnasium's."""

    name: ClassVar[str]

    def __init__(self) -> None:
        spec = gymnasium.spec(self.name)
        reference = gymnasium.make(spec, disable_env_checker=True)
        self.observation_space, self.action_space = reference.observation_space, reference.action_space
        reference.close()

    def observe(self, state: State) -> Observation:
        """The state itself."""
        return state["state"].float()


class CartPole(_Classic):
    """Balance a pole on a cart (Barto, Sutton and Anderson 1983), with Euler steps of 20 ms."""

    name = "CartPole-v1"
    max_episode_steps = 500
    return_threshold = 475.0

    def begin(self, count: int, generator: Generator) -> State:
        """Almost upright and almost still."""
        return {"state": uniform((count, 4), -0.05, 0.05, generator)}

    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """Push with 10 N to the left or to the right; it ends beyond 2.4 m or 12°."""
        x, x_dot, theta, theta_dot = state["state"].unbind(1)
        cos, sin = theta.cos(), theta.sin()
        total, pole = 0.1 + 1.0, 0.1 * 0.5
        push = ((20.0 * action - 10.0) + pole * theta_dot.square() * sin) / total
        theta_acc = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos.square() / total))
        x_acc = push - pole * theta_acc * cos / total
        speeds = torch.stack([x_dot, x_acc, theta_dot, theta_acc], 1)
        moved = state["state"] + 0.02 * speeds
        terminated = (moved[:, 0].abs() > 2.4) | (moved[:, 2].abs() > 12 * 2 * _PI / 360)
        return Advanced({"state": moved}, torch.ones_like(x, dtype=torch.float32), terminated)


class CartPoleV0(CartPole):
    """The same, with shorter episodes."""

    name = "CartPole-v0"
    max_episode_steps = 200
    return_threshold = 195.0


class Pendulum(_Classic):
    """Swing a pendulum up with a torque too weak to lift it, and hold it there."""

    name = "Pendulum-v1"
    max_episode_steps = 200

    def begin(self, count: int, generator: Generator) -> State:
        """Anywhere, turning slowly."""
        drawn = uniform((count, 2), -1.0, 1.0, generator)
        return {"state": torch.stack([_PI * drawn[:, 0], drawn[:, 1]], 1)}

    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """One step of 50 ms; it never ends by itself."""
        angle, speed = state["state"].unbind(1)
        torque = action.reshape(-1).clamp(-2.0, 2.0)
        wrapped = torch.remainder(angle + _PI, 2 * _PI) - _PI
        cost = wrapped.square() + 0.1 * speed.square() + 0.001 * torque.square()
        faster = (speed + (15.0 * angle.sin() + 3.0 * torque) * 0.05).clamp(-8.0, 8.0)
        moved = torch.stack([angle + faster * 0.05, faster], 1)
        return Advanced({"state": moved}, -cost.float(), torch.zeros_like(speed, dtype=torch.bool))

    def observe(self, state: State) -> Observation:
        """Cosine and sine of the angle, and the speed."""
        angle, speed = state["state"].unbind(1)
        return torch.stack([angle.cos(), angle.sin(), speed], 1).float()


class MountainCar(_Classic):
    """Rock a weak car out of a valley (Moore 1990)."""

    name = "MountainCar-v0"
    max_episode_steps = 200
    return_threshold = -110.0

    def begin(self, count: int, generator: Generator) -> State:
        """At rest near the bottom."""
        position = uniform((count, 1), -0.6, -0.4, generator)
        return {"state": torch.cat([position, torch.zeros_like(position)], 1)}

    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """Push left, not at all, or right; it ends on the right hill."""
        position, velocity = state["state"].unbind(1)
        velocity = (velocity + ((action - 1) * 0.001 - 0.0025 * (3 * position).cos())).clamp(-0.07, 0.07)
        position = (position + velocity).clamp(-1.2, 0.6)
        velocity = torch.where((position <= -1.2) & (velocity < 0), 0.0, velocity)
        terminated = (position >= 0.5) & (velocity >= 0)
        return Advanced(
            {"state": torch.stack([position, velocity], 1)}, torch.full_like(position, -1.0, dtype=torch.float32), terminated
        )


class Acrobot(_Classic):
    """Swing the tip of a two-link arm above a line by driving its middle joint (Sutton 1996)."""

    name = "Acrobot-v1"
    max_episode_steps = 500
    return_threshold = -100.0

    def begin(self, count: int, generator: Generator) -> State:
        """Hanging, almost still."""
        return {"state": uniform((count, 4), -0.1, 0.1, generator)}

    def advance(self, state: State, action: Tensor, generator: Generator) -> Advanced:
        """One Runge-Kutta step of 0.2 s with torque -1, 0 or 1."""
        before, torque, step = state["state"], action - 1.0, 0.2
        k1 = _acrobot_derivative(before, torque)
        k2 = _acrobot_derivative(before + 0.5 * step * k1, torque)
        k3 = _acrobot_derivative(before + 0.5 * step * k2, torque)
        k4 = _acrobot_derivative(before + step * k3, torque)
        theta1, theta2, dtheta1, dtheta2 = (before + step / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)).unbind(1)
        theta1, theta2 = _wrap(theta1), _wrap(theta2)
        moved = torch.stack([theta1, theta2, dtheta1.clamp(-4 * _PI, 4 * _PI), dtheta2.clamp(-9 * _PI, 9 * _PI)], 1)
        terminated = -theta1.cos() - (theta2 + theta1).cos() > 1.0
        return Advanced({"state": moved}, terminated.float() - 1.0, terminated)

    def observe(self, state: State) -> Observation:
        """Cosine and sine of both angles, and both velocities."""
        angles, speeds = state["state"].split(2, 1)
        parts = torch.stack([angles.cos(), angles.sin()], 2).flatten(1)
        return torch.cat([parts, speeds], 1).float()


def _acrobot_derivative(state: Tensor, torque: Tensor) -> Tensor:
    """The equations of motion with unit masses, lengths and inertias. (N, 4) → (N, 4)"""
    theta1, theta2, dtheta1, dtheta2 = state.unbind(1)
    cos2, sin2 = theta2.cos(), theta2.sin()
    d1 = 0.5**2 + (1.0 + 0.5**2 + cos2) + 1.0 + 1.0
    d2 = (0.5**2 + 0.5 * cos2) + 1.0
    phi2 = 0.5 * 9.8 * (theta1 + theta2 - _PI / 2.0).cos()
    phi1 = -0.5 * dtheta2.square() * sin2 - dtheta2 * dtheta1 * sin2 + 1.5 * 9.8 * (theta1 - _PI / 2).cos() + phi2
    ddtheta2 = (torque + d2 / d1 * phi1 - 0.5 * dtheta1.square() * sin2 - phi2) / (0.5**2 + 1.0 - d2.square() / d1)
    ddtheta1 = -(d2 * ddtheta2 + phi1) / d1
    return torch.stack([dtheta1, dtheta2, ddtheta1, ddtheta2], 1)


def _wrap(angle: Tensor) -> Tensor:
    """Bring angles back into [-π, π] by whole turns, as few as will do."""
    above, below = (angle - _PI).div(2 * _PI).ceil().clamp(min=0), (-_PI - angle).div(2 * _PI).ceil().clamp(min=0)
    return angle - 2 * _PI * above + 2 * _PI * below
