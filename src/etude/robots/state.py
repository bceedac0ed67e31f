"""What terms look at: the robots' motion, their feet, what they were asked for and what they did."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.config.robots import Goal
from etude.robots.motions.motion import Motion
from etude.robots.rotations import rotate, rotate_inverse, yaw_of
from etude.robots.scene import Scene
from etude.robots.simulators.simulation import Simulation
from etude.robots.terrain import Terrain

CONTACT_FORCE = 1.0
"""Newtons from which a foot counts as standing."""


_NEW = ("goal", "asked_way", "jump_height", "jump_flight", "jump_time", "jump_from", "jump_yaw", "apex", "flown", "jump_length",
        "jump_off", "has_jumped")  # fmt: skip
"""What checkpoints of earlier versions may lack."""


class Memory:
    """What the simulator does not know: actions, commands, clocks and the feet's history. Changed in place, row by row."""

    def __init__(self, scene: Scene, count: int, device: torch.device, *, apart: bool = False) -> None:
        """`apart`: every tensor in memory of its own, which is what compiled code is best at."""
        joints, feet = len(scene.joints), len(scene.feet)
        self._is_apart = apart
        # Side by side in a few blocks, so that beginning anew takes a few operations however much is remembered.
        self._blocks: dict[torch.dtype, Tensor] = {}
        widths = {torch.float32: 4 * joints + 5 * feet + 33, torch.bool: 2 * feet + 2, torch.int64: 1}
        for dtype, width in widths.items():
            self._blocks[dtype] = torch.zeros(count, width, dtype=dtype, device=device)
        used = dict.fromkeys(widths, 0)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            first = used[dtype]
            used[dtype] += shape[0] if shape else 1
            if apart:
                return torch.zeros(count, *shape, dtype=dtype, device=device)
            block = self._blocks[dtype]
            return block[:, first : used[dtype]] if shape else block[:, first]

        self.age = zeros(dtype=torch.int64)
        """Steps of the episode so far."""
        self.action = zeros(joints)
        self.previous_action = zeros(joints)
        self.action_before = zeros(joints)
        self.previous_joint_velocity = zeros(joints)
        self.previous_base_velocity = zeros(6)
        self.command = zeros(3)
        """Forward, sideways, turn."""
        self.command_left = zeros()
        """Seconds until another command is drawn."""
        self.asked_way = zeros(2)
        """Where the commands of the episode so far would have led from where it began, in the world, m."""
        self.goal = zeros(2)
        """The place to go to or to land at, in the world."""
        self.heading = zeros()
        """To turn to, or to arrive with, in the world."""
        self.follows_heading = zeros(dtype=torch.bool)
        self.phase = zeros()
        """Of the gait's clock, in strides, [0, 1)."""
        self.air_time = zeros(feet)
        """Seconds since each foot left the ground; 0 while it stands."""
        self.contact_time = zeros(feet)
        self.last_air_time = zeros(feet)
        """How long the swing took that ended in this step or before."""
        self.peak_height = zeros(feet)
        """Of the swing under way."""
        self.last_peak_height = zeros(feet)
        self.standing = zeros(feet, dtype=torch.bool)
        self.landed = zeros(feet, dtype=torch.bool)
        """Whether a foot touched down in this step."""
        self.push = zeros(6)
        """The last push: linear and angular velocity."""
        self.jump_height = zeros()
        """By how much the base is to rise; 0 where no jump is asked for."""
        self.jump_flight = zeros()
        """Seconds that such a jump flies."""
        self.jump_time = zeros()
        """Seconds since the take-off that is asked for; below 0 before it."""
        self.jump_from = zeros(3)
        """Where the base was when the jump was asked for, in the world, at its standing height or higher."""
        self.jump_yaw = zeros()
        """How it was turned then."""
        self.apex = zeros()
        """By how much the base has risen in this jump, while no foot touched the ground."""
        self.flown = zeros()
        """Seconds for which no foot has touched the ground, in the flight under way."""
        self.jump_length = zeros()
        """How far from where it was asked the robot came down, along the ground."""
        self.jump_off = zeros()
        """How far from the place to land at it came down."""
        self.has_jumped = zeros(dtype=torch.bool)
        """Whether it has flown and come down again since it was asked."""
        assert used == widths, f"the blocks are {widths} wide, and {used} is used"

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of every tensor."""
        return {name: tensor.clone() for name, tensor in self.tensors().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from saved tensors."""
        for name, tensor in self.tensors().items():
            if name in state or name not in _NEW:  # runs of earlier versions went nowhere in particular
                tensor.copy_(state[name])

    def forget(self, which: Tensor) -> None:
        """Begin anew for the robots `which`, (N,) bool."""
        for block in self.tensors().values() if self._is_apart else self._blocks.values():
            block.masked_fill_(which[:, None] if block.ndim > 1 else which, 0)


def columns_of(addresses: np.ndarray, device: torch.device) -> slice | Tensor:
    """Return columns to look at: a slice where they stand side by side, because a view costs nothing, else their numbers."""
    first = int(addresses[0]) if len(addresses) else 0
    if np.array_equal(addresses, np.arange(first, first + len(addresses))):
        return slice(first, first + len(addresses))
    return torch.as_tensor(addresses, dtype=torch.int64, device=device)


class State:
    """One moment of N robots. Quantities are computed when a term first asks for them, and once."""

    def __init__(self, simulation: Simulation, memory: Memory, dt: float, terrain: Terrain | None = None) -> None:
        self.simulation, self.scene, self.memory, self.dt = simulation, simulation.scene, memory, dt
        self.terrain = terrain
        """The ground, where it is not flat."""
        self.motion: Motion | None = None
        """What the robot is to do, where a task says so."""
        self.goal: Goal = "velocity"
        """What commands are."""
        self.count, self.device = simulation.count, simulation.device
        scene = self.scene

        def constant(values: Any, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.as_tensor(values, dtype=dtype, device=self.device)

        self.default_pose = constant(scene.default_pose)
        self.position_limits = constant(scene.position_limits)
        self.effort_limit = constant(scene.effort_limit)
        self.gait_offsets = constant(scene.description.gait or [0.0] * len(scene.feet))
        self._sole_points, self._sole_radius = constant(scene.soles.points), constant(scene.soles.radius)
        self._feet_turn = scene.soles.turns and f"rotation/{scene.feet[0]}" in scene.sensors
        self.stride = constant(scene.stride)
        feet = scene.foot_of_joint.clip(0)
        self._gait_offset_of_joint = self.gait_offsets[constant(feet, torch.int64)] if scene.feet else self.stride
        self.standing_height = scene.description.height
        self.joint_qpos = columns_of(scene.qpos_address, self.device)
        self.joint_dofs = columns_of(scene.dof_address, self.device)
        self.down = constant([0.0, 0.0, -1.0])
        self._bodies = {name: scene.sensors[f"contact/{name}"] for name in scene.contact_bodies}
        self.fell = torch.zeros(self.count, dtype=torch.bool, device=self.device)
        """Whose episode ends here for a reason other than time. (N,)"""
        self.drawn: dict[str, Tensor] = {}
        """What randomisations drew, by name, for terms that tell a critic: (N, ...)."""

    def refresh(self) -> None:
        """Forget what was computed: the simulation has moved."""
        for name in _COMPUTED:
            self.__dict__.pop(name, None)

    def refresh_command(self) -> None:
        """Forget what was computed from the command: it has changed."""
        for name in ("is_asked_to_move", "feet_should_stand", "reference_pose"):
            self.__dict__.pop(name, None)

    def _of_feet(self, kind: str, size: int = 3) -> Tensor:
        """The last `size` numbers of each foot's sensor of a kind."""
        return self._side_by_side(kind, self.scene.feet, size)

    def _side_by_side(self, kind: str, parts: tuple[str, ...], size: int = 3) -> Tensor:
        """The last `size` numbers of the sensors of a kind: those stand side by side, one part after another."""
        sensors = self.scene.sensors
        if not parts:
            return self.simulation.sensors.new_zeros(self.count, 0, size)
        first, last = sensors[f"{kind}/{parts[0]}"].start, sensors[f"{kind}/{parts[-1]}"].stop
        return self.simulation.sensors[:, first:last].unflatten(1, (len(parts), -1))[..., -size:]

    # ---- the base ---------------------------------------------------------------------------------------------------------

    @cached_property
    def base_position(self) -> Tensor:
        """(N, 3) in the world."""
        return self.simulation.qpos[:, self.scene.base_qpos : self.scene.base_qpos + 3]

    @cached_property
    def base_quaternion(self) -> Tensor:
        """(N, 4) w, x, y, z."""
        return self.simulation.qpos[:, self.scene.base_qpos + 3 : self.scene.base_qpos + 7]

    @cached_property
    def base_linear_velocity(self) -> Tensor:
        """(N, 3) in the robot's frame."""
        world = self.simulation.qvel[:, self.scene.base_dof : self.scene.base_dof + 3]
        return rotate_inverse(self.base_quaternion, world)

    @cached_property
    def base_angular_velocity(self) -> Tensor:
        """(N, 3) in the robot's frame."""
        return self.simulation.qvel[:, self.scene.base_dof + 3 : self.scene.base_dof + 6]

    @cached_property
    def gravity(self) -> Tensor:
        """The direction of gravity in the robot's frame, (N, 3): (0, 0, −1) when upright."""
        return rotate_inverse(self.base_quaternion, self.down.expand(self.count, 3))

    @cached_property
    def yaw(self) -> Tensor:
        """(N,)"""
        return yaw_of(self.base_quaternion)

    @cached_property
    def base_height(self) -> Tensor:
        """Above the ground, (N,)."""
        return self._above_ground(self.base_position)

    def _above_ground(self, points: Tensor) -> Tensor:
        """(..., 3) → (...)"""
        return points[..., 2] if self.terrain is None else points[..., 2] - self.terrain.height(points[..., :2])

    # ---- joints -----------------------------------------------------------------------------------------------------------

    @cached_property
    def joint_position(self) -> Tensor:
        """(N, J)"""
        return self.simulation.qpos[:, self.joint_qpos]

    @cached_property
    def joint_velocity(self) -> Tensor:
        """(N, J)"""
        return self.simulation.qvel[:, self.joint_dofs]

    @cached_property
    def joint_acceleration(self) -> Tensor:
        """Mean over the last step, (N, J)."""
        return (self.joint_velocity - self.memory.previous_joint_velocity) / self.dt

    @cached_property
    def base_acceleration(self) -> Tensor:
        """Linear and angular, mean over the last step, in the robot's frame. (N, 6)"""
        now = torch.cat([self.base_linear_velocity, self.base_angular_velocity], 1)
        return (now - self.memory.previous_base_velocity) / self.dt

    @property
    def torques(self) -> Tensor:
        """(N, J)"""
        return self.simulation.torques

    # ---- feet and contacts -------------------------------------------------------------------------------------------------

    @cached_property
    def feet_force(self) -> Tensor:
        """On each foot, in the world: upward from the ground. (N, F, 3)"""
        return -self._of_feet("force")  # MuJoCo tells what the foot does to what it touches

    @cached_property
    def feet_position(self) -> Tensor:
        """In the world. (N, F, 3)"""
        return self._of_feet("position")

    @cached_property
    def knees_position(self) -> Tensor:
        """In the world. (N, K, 3)"""
        return self._side_by_side("knee", self.scene.description.knees)

    @cached_property
    def feet_velocity(self) -> Tensor:
        """In the world. (N, F, 3)"""
        return self._of_feet("velocity")

    @cached_property
    def feet_height(self) -> Tensor:
        """Of each foot's sole, its lowest point, above the ground. (N, F)"""
        if not self._feet_turn:
            return self._above_ground(self.feet_position) - self._sole_radius[:, 0]
        turned = self._of_feet("rotation", 4)[:, :, None]  # (N, F, 1, 4)
        if self.terrain is None:
            w, x, y, z = turned.unbind(-1)
            # The last row of the rotation's matrix: how much of each of the foot's axes points up.
            up = torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)
            below = (up * self._sole_points).sum(-1) - self._sole_radius  # (N, F, P)
            return self.feet_position[..., 2] + below.amin(-1)
        shape = (self.count, *self._sole_points.shape)
        points = self.feet_position[:, :, None] + rotate(turned.expand(*shape[:-1], 4), self._sole_points.expand(shape))
        return (self._above_ground(points) - self._sole_radius).amin(-1)

    @cached_property
    def feet_in_contact(self) -> Tensor:
        """(N, F) bool"""
        return self.feet_force.norm(dim=-1) > CONTACT_FORCE

    def contact_force(self, bodies: tuple[str, ...]) -> Tensor:
        """The strength of what touches each of these bodies, (N, B)."""
        columns = [self.simulation.sensors[:, self._bodies[name]][:, 1:].norm(dim=-1) for name in bodies]
        return torch.stack(columns, 1)

    # ---- what was asked -----------------------------------------------------------------------------------------------------

    @cached_property
    def is_asked_to_move(self) -> Tensor:
        """(N,) bool: a command of exactly zero asks to stand."""
        return self.memory.command.abs().sum(-1) > 0

    @cached_property
    def feet_phase(self) -> Tensor:
        """Where each foot is in its stride, [0, 1): the first half is stance. (N, F)"""
        return torch.remainder(self.memory.phase[:, None] + self.gait_offsets, 1.0)

    @cached_property
    def reference_pose(self) -> Tensor:
        """Where joints would be in a stride by the gait's clock: off the default pose while their leg swings. (N, J)"""
        return self.default_pose + self.stride_now()

    def stride_now(self) -> Tensor:
        """How far joints would be off the default pose by the gait's clock. (N, J)"""
        phase = self.memory.phase[:, None] + self._gait_offset_of_joint
        swing = (-(2 * torch.pi * phase).sin()).clamp(min=0) * self.is_asked_to_move[:, None]
        return self.stride * swing

    @cached_property
    def feet_should_stand(self) -> Tensor:
        """(N, F) bool: by the gait's clock; all of them where the robot is asked to stand."""
        return (self.feet_phase < 0.5) | ~self.is_asked_to_move[:, None]


_COMPUTED = tuple(name for name, value in vars(State).items() if isinstance(value, cached_property))
