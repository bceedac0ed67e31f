"""A reference motion: where a robot's base and joints are in each frame of a clip that is repeated by the gait's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.robots.rotations import from_yaw, rotate_inverse, yaw_of


@dataclass(frozen=True)
class Clip:
    """What a file says of a motion, frame by frame."""

    fps: float
    position: np.ndarray
    """Of the base in the world, m. (T, 3)"""
    quaternion: np.ndarray
    """w, x, y, z. (T, 4)"""
    joints: np.ndarray
    """In the order of the robot's motors, rad. (T, J)"""
    repeats: bool = False
    """Whether the frame after the last one is the first."""


class Motion:
    """A clip as tensors, seen from the robot's own heading, so that it can be followed anywhere and in any direction."""

    def __init__(self, clip: Clip, device: torch.device) -> None:
        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(np.asarray(values), dtype=torch.float32, device=device)

        position, quaternion = tensor(clip.position), tensor(clip.quaternion)
        quaternion = quaternion / quaternion.norm(dim=-1, keepdim=True)
        heading = from_yaw(yaw_of(quaternion))
        self.frames, self.repeats = len(position), clip.repeats
        self.duration = self.frames / clip.fps
        """Seconds until it begins again."""
        self.height = position[:, 2]
        self.tilt = _product(_conjugate(heading), quaternion)
        """The base's orientation without its heading. (T, 4)"""
        self.joints = tensor(clip.joints)
        moved = _per_second(position, clip, drifts=True)
        self.linear_velocity = rotate_inverse(heading, moved)
        """Of the base, seen from its heading, m/s. (T, 3)"""
        turned = _product(_conjugate(quaternion), _next(quaternion, clip))
        turned = torch.where(turned[:, :1] < 0, -turned, turned)
        angle = 2 * torch.atan2(turned[:, 1:].norm(dim=-1, keepdim=True), turned[:, :1])
        axis = turned[:, 1:] / turned[:, 1:].norm(dim=-1, keepdim=True).clamp(min=1e-9)
        self.angular_velocity = axis * angle * clip.fps
        """Of the base, in its own frame, rad/s. (T, 3)"""
        self.joint_velocity = _per_second(self.joints, clip)

    def at(self, values: Tensor, phase: Tensor) -> Tensor:
        """Return values (T, ...) at places of the clock (N,), in proportion to the two nearest frames. (N, ...)"""
        place = phase * self.frames
        first = place.floor().long() % self.frames
        share = (place - place.floor()).view(-1, *[1] * (values.dim() - 1))
        return torch.lerp(values[first], values[(first + 1) % self.frames], share)

    def reset_state(self, phase: Tensor, qpos: Tensor, qvel: Tensor, places: Any) -> tuple[Tensor, Tensor]:
        """Return positions (N, nq) and velocities (N, nv) of robots that are amid the motion, where `qpos` has put their base.

        Only the height, the tilt, the joints and the velocities are the motion's.
        """
        scene, joints, dofs = places
        qpos, qvel = qpos.clone(), qvel.clone()
        first, dof = scene.base_qpos, scene.base_dof
        heading = from_yaw(yaw_of(qpos[:, first + 3 : first + 7]))
        tilt = self.at(self.tilt, phase)
        qpos[:, first + 2] += self.at(self.height, phase) - float(scene.start_height)
        qpos[:, first + 3 : first + 7] = _product(heading, tilt / tilt.norm(dim=-1, keepdim=True))
        qpos[:, joints] = self.at(self.joints, phase)
        qvel[:, dof : dof + 3] = rotate_inverse(_conjugate(heading), self.at(self.linear_velocity, phase))
        qvel[:, dof + 3 : dof + 6] = self.at(self.angular_velocity, phase)
        qvel[:, dofs] = self.at(self.joint_velocity, phase)
        return qpos, qvel


def _next(values: Tensor, clip: Clip) -> Tensor:
    """Each frame's next one; the last one's is the first where the motion repeats, else itself."""
    return torch.cat([values[1:], values[:1] if clip.repeats else values[-1:]])


def _per_second(values: Tensor, clip: Clip, *, drifts: bool = False) -> Tensor:
    """The change to the next frame; the last one's is that of the one before where places drift or nothing repeats."""
    change = (_next(values, clip) - values) * clip.fps
    if drifts or not clip.repeats:
        change[-1] = change[-2]
    return change


def _conjugate(quaternion: Tensor) -> Tensor:
    return torch.cat([quaternion[..., :1], -quaternion[..., 1:]], -1)


def _product(one: Tensor, other: Tensor) -> Tensor:
    w, x, y, z = one.unbind(-1)
    a, b, c, d = other.unbind(-1)
    return torch.stack(
        [
            w * a - x * b - y * c - z * d,
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
        ],
        -1,
    )
