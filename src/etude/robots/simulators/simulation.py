"""What a robot's task needs of a simulator: many robots in tensors on one device, stepped, placed and changed together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from etude.robots.scene import Scene


class Simulation(ABC):
    """N robots. Tensors that it hands out keep their memory; their values are those after the last call that changed them."""

    scene: Scene
    count: int
    device: torch.device
    qpos: Tensor
    """(N, nq) float32"""
    qvel: Tensor
    """(N, nv) float32"""
    sensors: Tensor
    """(N, nsensordata) float32; of the last physics step, as are all derived quantities."""
    torques: Tensor
    """Of the motors, in the order of the scene's joints. (N, J) float32"""

    @abstractmethod
    def step(self, targets: Tensor, substeps: int, before: Tensor | None = None, lag: Tensor | None = None) -> None:
        """Advance by some physics steps with these targets for the motors (N, J).

        Where each robot has a `lag` (N,) int64, its motors keep their previous targets, `before`, for that many of these steps.
        """

    @abstractmethod
    def place(self, which: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Put the robots `which` (N,) bool at rows of qpos (N, nq) and qvel (N, nv); others stay as they are."""

    def settle(self, which: Tensor) -> None:  # noqa: B027 # most know at once
        """Make sensors tell of robots that were placed, `which` (N,) bool, where `place` does not do that itself."""

    @abstractmethod
    def push(self, velocity: Tensor) -> None:
        """Add to the velocities of every robot, (N, nv)."""

    @abstractmethod
    def model_field(self, name: str) -> Tensor:
        """Return a model field with its own value for each robot, (N, ...): the simulator's memory, to be written to."""

    @abstractmethod
    def update_constants(self) -> None:
        """Derive again what depends on masses and inertias, after these were written."""

    def problem(self) -> str | None:
        """Return what went wrong inside the simulator since the last call, if it is known only there; reads the device."""
        return None

    @abstractmethod
    def data(self, robot: int) -> Any:
        """Return one robot's MjData on the host, to draw it or to ask MuJoCo anything."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that the next steps depend on."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
