"""Robots on the CPU's threads: deterministic on any number of them, and exact after a resume."""

from __future__ import annotations

from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np
import torch
from torch import Tensor

from etude.environments.native.mujoco_batch import MujocoSimulation
from etude.robots.scene import Scene
from etude.robots.simulators.network_motors import NetworkMotors
from etude.robots.simulators.simulation import Simulation

_mujoco: Any = mujoco


class CpuSimulation(Simulation):
    """`mujoco.batch` in double precision; what the task sees is single."""

    device = torch.device("cpu")

    def __init__(self, scene: Scene, count: int, threads: int | None = None) -> None:
        self.scene, self.count = scene, count
        # Robots that blow up are found and reported by the task; MuJoCo would write about it into a file of the user's folder.
        _mujoco.set_mju_user_warning(lambda _: None)
        self.batch = MujocoSimulation(scene.model, count, threads=threads)
        self._sensordata = self.batch.field("sensordata")
        self._force = self.batch.field("actuator_force")
        self.qpos = torch.zeros(count, scene.model.nq)
        self.qvel = torch.zeros(count, scene.model.nv)
        self.sensors = torch.zeros(count, scene.model.nsensordata)
        self.torques = torch.zeros(count, len(scene.joints))
        self._ranges = self.batch.model_field("actuator_forcerange") if scene.has_curves else None
        self._networks = NetworkMotors(scene, count, self.device) if scene.networks else None

    def step(self, targets: Tensor, substeps: int, before: Tensor | None = None, lag: Tensor | None = None) -> None:
        """Advance by some physics steps; robots with a lag keep their previous targets for the first of them."""
        lags = before is not None and lag is not None
        if not lags and self._ranges is None and self._networks is None:
            self._advance(targets, substeps)
        else:
            for substep in range(substeps):
                if self._ranges is not None:
                    self._limit_torques(self._ranges)
                waits = torch.zeros_like(targets, dtype=torch.bool) if lag is None else (lag > substep)[:, None]
                self._advance(self._asked(targets if before is None else torch.where(waits, before, targets)), 1)
        self._read()

    def _asked(self, targets: Tensor) -> Tensor:
        """Return what the simulator's motors are asked for: targets, or what networks make of them."""
        if self._networks is None:
            return targets
        places = ((self.batch.qpos, self.scene.qpos_address), (self.batch.qvel, self.scene.dof_address))
        moves = (torch.from_numpy(values[:, address]).float() for values, address in places)
        with torch.no_grad():
            return self._networks.aim(targets, *moves)

    def _limit_torques(self, ranges: np.ndarray) -> None:
        """Motors can do less the faster they turn; those without a curve keep their range."""
        scene, has_curve = self.scene, np.isfinite(self.scene.velocity_limit)
        speed = self.batch.qvel[:, scene.dof_address] / scene.velocity_limit  # 0 where there is no limit
        most, stall = np.minimum(scene.effort_limit, scene.stall_torque), scene.stall_torque
        ranges[..., 0] = np.where(has_curve, np.clip(stall * (-1 - speed), -most, 0.0), ranges[..., 0])
        ranges[..., 1] = np.where(has_curve, np.clip(stall * (1 - speed), 0.0, most), ranges[..., 1])

    def _advance(self, targets: Tensor, substeps: int) -> None:
        self.batch.ctrl[...] = targets.numpy()
        self.batch.frame_skip = substeps
        self.batch.step()

    def place(self, which: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Put the robots `which` (N,) bool at rows of qpos (N, nq) and qvel (N, nv); others stay as they are."""
        ids = np.flatnonzero(which.numpy()).astype(np.int32)
        if self._networks is not None:
            self._networks.forget(which)
        if ids.size:
            self.batch.reset(ids, qpos.numpy()[ids], qvel.numpy()[ids])
            torques = self.torques.masked_fill(which[:, None], 0.0)
            self._read()
            self.torques.copy_(torques)  # MuJoCo computes those of motors with targets of 0, which nobody asked for

    def push(self, velocity: Tensor) -> None:
        """Add to the velocities of every robot, (N, nv)."""
        self.batch.qvel[...] += velocity.numpy()
        self._copy(self.qvel, self.batch.qvel)

    def model_field(self, name: str) -> Tensor:
        """Return a model field with its own value for each robot, (N, ...): the simulator's memory."""
        return torch.from_numpy(self.batch.model_field(name))

    def update_constants(self) -> None:
        """Derive again what depends on masses and inertias, after these were written."""
        self.batch.update_constants()

    def data(self, robot: int) -> Any:
        """Return one robot's MjData, to draw it or to ask MuJoCo anything."""
        return self.batch.data(robot)

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next steps depend on."""
        state = {"batch": self.batch.state_dict(), "torques": self.torques.clone()}
        return state if self._networks is None else state | {"motors": self._networks.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.batch.load_state_dict(state["batch"])
        self._read()
        self.torques.copy_(state["torques"])
        if self._networks is not None and "motors" in state:
            self._networks.load_state_dict(state["motors"])

    def _read(self) -> None:
        self._copy(self.qpos, self.batch.qpos)
        self._copy(self.qvel, self.batch.qvel)
        self._copy(self.sensors, self._sensordata)
        self._copy(self.torques, self._force)

    @staticmethod
    def _copy(target: Tensor, source: np.ndarray) -> None:
        np.copyto(target.numpy(), source, casting="same_kind")
