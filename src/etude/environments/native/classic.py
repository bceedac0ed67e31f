"""Classic control for many copies at once, in NumPy: the same tasks as Gymnasium's, transition by transition.

Each copy draws its initial states from its own generator, seeded as Gymnasium seeds it, so a trajectory is the same
as that of Gymnasium's class with the same seed and actions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.seeding import np_random
from torch import Tensor

from etude.environments.state_vector import StateVector
from etude.environments.step_buffers import StepBuffers
from etude.environments.vector import ArrayStep, Observation, Step

Array = np.ndarray
_PI = math.pi


class ClassicVector(StateVector):
    """N copies of a task whose state is a few numbers; a task is its dynamics, its observation and its first states."""

    def __init__(self, name: str, num_envs: int, *, max_episode_steps: int | None = None) -> None:
        spec = gymnasium.spec(name)
        reference = gymnasium.make(spec, disable_env_checker=True)
        super().__init__(num_envs, self.state_size, reference.observation_space, reference.action_space)
        self.return_threshold = spec.reward_threshold
        reference.close()
        self._limit = max_episode_steps or spec.max_episode_steps or 0

    state_size: int
    has_advance_one: bool = False
    """Whether a task says what a single copy does in plain numbers."""

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> Array:
        """Return the state an episode begins in. (state_size,)"""

    @abstractmethod
    def advance(self, state: Array, action: Array) -> tuple[Array, Array | float, Array]:
        """Return the next states, the rewards and which states end the task. (N, state_size), (N,), (N,)"""

    def observe(self, state: Array, out: Array) -> None:
        """Write what the agent sees of each state. (N, ...)"""
        out[:] = state

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        self._generators = [np_random(seed)[0] for seed in seeds]
        self._state = np.stack([self.draw(generator) for generator in self._generators])
        self._age[:] = 0
        buffers = self._buffers.next()
        self.observe(self._state, buffers.arrays[""])
        return buffers.observation, {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        buffers, ended = self._step(action.numpy())
        return buffers.as_step(buffers.final_observation if ended else buffers.observation)

    def step_arrays(self, action: Array) -> ArrayStep:  # type: ignore[override] # there is one
        """The same from arrays to arrays."""
        buffers, ended = self._step(action)
        return buffers.as_arrays(ended=ended)

    def _step(self, action: Array) -> tuple[StepBuffers, bool]:
        """Write a step, and say whether an episode ended in it."""
        if self.num_envs == 1 and self.has_advance_one:
            return self._step_one(action.item())
        buffers = self._buffers.next()
        observation = buffers.arrays[""]
        state, reward, terminated = self.advance(self._state, action)
        self._age += 1
        buffers.reward[:] = reward
        buffers.terminated[:] = terminated
        np.greater_equal(self._age, self._limit, out=buffers.truncated)
        self.observe(state, observation)
        which = np.flatnonzero(buffers.terminated | buffers.truncated)
        if len(which):
            buffers.finals[""][:] = observation
            state[which] = [self.draw(self._generators[i]) for i in which]
            self._age[which] = 0
            self.observe(state, observation)
        self._state = state
        return buffers, bool(len(which))

    def advance_one(self, state: list[float], action: Any) -> tuple[tuple[float, ...], float, bool]:
        """Return what `advance` does of one copy, bit for bit, in plain numbers: arrays of one are ten times as slow."""
        raise NotImplementedError

    def _step_one(self, action: Any) -> tuple[StepBuffers, bool]:
        buffers, array = self._buffers.next(), self._state
        observation = buffers.arrays[""]
        state, reward, terminated = self.advance_one(array[0].tolist(), action)
        array[0] = state
        self._age += 1
        truncated = bool(self._age[0] >= self._limit)
        buffers.reward[0], buffers.terminated[0], buffers.truncated[0] = reward, terminated, truncated
        self.observe(array, observation)
        if not (terminated or truncated):
            return buffers, False
        buffers.finals[""][:] = observation
        array[0] = self.draw(self._generators[0])
        self._age[0] = 0
        self.observe(array, observation)
        return buffers, True


class CartPole(ClassicVector):
    """Balance a pole on a cart (Barto, Sutton and Anderson 1983), with Euler steps of 20 ms."""

    state_size = 4  # position, velocity, angle, angular velocity
    has_advance_one = True
    _forces = np.array([-10.0, 10.0])
    _limits = np.array([2.4, 12 * 2 * _PI / 360])

    def draw(self, generator: np.random.Generator) -> Array:
        """Almost upright and almost still."""
        return generator.uniform(low=-0.05, high=0.05, size=(4,))

    def advance(self, state: Array, action: Array) -> tuple[Array, Array | float, Array]:
        """Push with 10 N to the left or to the right; it ends beyond 2.4 m or 12°."""
        theta, theta_dot = state[:, 2], state[:, 3]
        cos, sin = np.cos(theta), np.sin(theta)
        total, pole = 0.1 + 1.0, 0.1 * 0.5
        push = (self._forces[action] + pole * np.square(theta_dot) * sin) / total
        theta_acc = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * np.square(cos) / total))
        change = np.empty_like(state)
        change[:, ::2] = state[:, 1::2]  # positions change by velocities
        change[:, 1] = push - pole * theta_acc * cos / total
        change[:, 3] = theta_acc
        change *= 0.02
        change += state
        beyond = np.abs(change[:, ::2]) > self._limits
        return change, 1.0, beyond[:, 0] | beyond[:, 1]

    def advance_one(self, state: list[float], action: Any) -> tuple[tuple[float, ...], float, bool]:
        """The same; sine and cosine are NumPy's, whose last bit is not always the C library's."""
        x, x_dot, theta, theta_dot = state
        cos, sin = float(np.cos(theta)), float(np.sin(theta))
        total, pole = 0.1 + 1.0, 0.1 * 0.5
        push = ((10.0 if action else -10.0) + pole * (theta_dot * theta_dot) * sin) / total
        theta_acc = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cos * cos) / total))
        x_acc = push - pole * theta_acc * cos / total
        x, x_dot = x_dot * 0.02 + x, x_acc * 0.02 + x_dot
        theta, theta_dot = theta_dot * 0.02 + theta, theta_acc * 0.02 + theta_dot
        return (x, x_dot, theta, theta_dot), 1.0, abs(x) > 2.4 or abs(theta) > 12 * 2 * _PI / 360


class Pendulum(ClassicVector):
    """Swing a pendulum up with a torque too weak to lift it, and hold it there."""

    state_size = 2  # angle from upright, angular velocity

    def draw(self, generator: np.random.Generator) -> Array:
        """Anywhere, turning slowly."""
        high = np.array([_PI, 1.0])
        return generator.uniform(low=-high, high=high)

    def advance(self, state: Array, action: Array) -> tuple[Array, Array | float, Array]:
        """One step of 50 ms; it never ends by itself."""
        angle, speed = state.T
        torque = np.clip(action, -2.0, 2.0)[:, 0]
        wrapped = ((angle + _PI) % (2 * _PI)) - _PI
        cost = wrapped**2 + 0.1 * speed**2 + 0.001 * (torque**2)
        following = np.empty_like(state)
        faster = speed + (3 * 10.0 / (2 * 1.0) * np.sin(angle) + 3.0 / (1.0 * 1.0**2) * torque) * 0.05
        following[:, 1] = np.clip(faster, -8, 8)
        following[:, 0] = angle + following[:, 1] * 0.05
        return following, -cost, np.zeros(len(state), np.bool_)

    def observe(self, state: Array, out: Array) -> None:
        """Cosine and sine of the angle, and the speed."""
        out[:, 0], out[:, 1], out[:, 2] = np.cos(state[:, 0]), np.sin(state[:, 0]), state[:, 1]


class MountainCar(ClassicVector):
    """Rock a weak car out of a valley (Moore 1990)."""

    state_size = 2  # position, velocity

    def draw(self, generator: np.random.Generator) -> Array:
        """At rest near the bottom."""
        return np.array([generator.uniform(low=-0.6, high=-0.4), 0.0])

    def advance(self, state: Array, action: Array) -> tuple[Array, Array | float, Array]:
        """Push left, not at all, or right; it ends on the right hill."""
        position, velocity = state.T
        velocity = velocity + ((action - 1) * 0.001 + np.cos(3 * position) * (-0.0025))
        velocity = np.clip(velocity, -0.07, 0.07)
        position = np.clip(position + velocity, -1.2, 0.6)
        velocity = np.where((position == -1.2) & (velocity < 0), 0.0, velocity)
        return np.stack([position, velocity], axis=1), -1.0, (position >= 0.5) & (velocity >= 0)


class Acrobot(ClassicVector):
    """Swing the tip of a two-link arm above a line by driving its middle joint (Sutton 1996)."""

    state_size = 4  # two angles, two angular velocities

    def draw(self, generator: np.random.Generator) -> Array:
        """Hanging, almost still; single precision, as Gymnasium begins."""
        return generator.uniform(low=-0.1, high=0.1, size=(4,)).astype(np.float32).astype(np.float64)

    def advance(self, state: Array, action: Array) -> tuple[Array, Array | float, Array]:
        """One Runge-Kutta step of 0.2 s with torque -1, 0 or 1."""
        torque = action.astype(np.float64) - 1.0
        step, half = 0.2, 0.2 / 2.0
        k1 = _acrobot_derivative(state.T, torque)
        k2 = _acrobot_derivative(state.T + half * k1, torque)
        k3 = _acrobot_derivative(state.T + half * k2, torque)
        k4 = _acrobot_derivative(state.T + step * k3, torque)
        following = (state.T + step / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)).T.copy()
        for column in (0, 1):
            following[:, column] = _wrap(following[:, column])
        following[:, 2] = np.clip(following[:, 2], -4 * _PI, 4 * _PI)
        following[:, 3] = np.clip(following[:, 3], -9 * _PI, 9 * _PI)
        ended = -np.cos(following[:, 0]) - np.cos(following[:, 1] + following[:, 0]) > 1.0
        return following, np.where(ended, 0.0, -1.0), ended

    def observe(self, state: Array, out: Array) -> None:
        """Cosine and sine of both angles, and both velocities."""
        out[:, 0], out[:, 1] = np.cos(state[:, 0]), np.sin(state[:, 0])
        out[:, 2], out[:, 3] = np.cos(state[:, 1]), np.sin(state[:, 1])
        out[:, 4:] = state[:, 2:]


def _acrobot_derivative(state: Array, torque: Array) -> Array:
    """The equations of motion with unit masses, lengths and inertias. (4, N) → (4, N)"""
    theta1, theta2, dtheta1, dtheta2 = state
    cos2, sin2 = np.cos(theta2), np.sin(theta2)
    d1 = 0.5**2 + (1.0**2 + 0.5**2 + 2 * 0.5 * cos2) + 1.0 + 1.0
    d2 = (0.5**2 + 0.5 * cos2) + 1.0
    phi2 = 0.5 * 9.8 * np.cos(theta1 + theta2 - _PI / 2.0)
    phi1 = -0.5 * dtheta2**2 * sin2 - 2 * 0.5 * dtheta2 * dtheta1 * sin2 + (0.5 + 1.0) * 9.8 * np.cos(theta1 - _PI / 2) + phi2
    ddtheta2 = (torque + d2 / d1 * phi1 - 0.5 * dtheta1**2 * sin2 - phi2) / (0.5**2 + 1.0 - d2**2 / d1)
    ddtheta1 = -(d2 * ddtheta2 + phi1) / d1
    return np.stack([dtheta1, dtheta2, ddtheta1, ddtheta2])


def _wrap(angle: Array) -> Array:
    """Bring angles back into [-π, π] by whole turns."""
    while (above := angle > _PI).any():
        angle = np.where(above, angle - 2 * _PI, angle)
    while (below := angle < -_PI).any():
        angle = np.where(below, angle + 2 * _PI, angle)
    return angle


TASKS: dict[str, type[ClassicVector]] = {
    "CartPole-v0": CartPole,
    "CartPole-v1": CartPole,
    "Pendulum-v1": Pendulum,
    "MountainCar-v0": MountainCar,
    "Acrobot-v1": Acrobot,
}
