"""Rotations by unit quaternions (w, x, y, z), in batches."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(quaternion: Tensor, vector: Tensor) -> Tensor:
    """From the body's frame to the world's: (..., 4), (..., 3) → (..., 3)"""
    w, xyz = quaternion[..., :1], quaternion[..., 1:]
    t = 2 * torch.linalg.cross(xyz, vector)
    return vector + w * t + torch.linalg.cross(xyz, t)


def rotate_inverse(quaternion: Tensor, vector: Tensor) -> Tensor:
    """From the world's frame to the body's: (..., 4), (..., 3) → (..., 3)"""
    w, xyz = quaternion[..., :1], quaternion[..., 1:]
    t = 2 * torch.linalg.cross(xyz, vector)
    return vector - w * t + torch.linalg.cross(xyz, t)


def yaw_of(quaternion: Tensor) -> Tensor:
    """Return the rotation about the vertical axis: (..., 4) → (...)"""
    w, x, y, z = quaternion.unbind(-1)
    return torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def euler_of(quaternion: Tensor) -> Tensor:
    """Return roll, pitch and yaw: (..., 4) → (..., 3)"""
    w, x, y, z = quaternion.unbind(-1)
    roll = torch.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = torch.asin((2 * (w * y - z * x)).clamp(-1, 1))
    return torch.stack([roll, pitch, yaw_of(quaternion)], -1)


def from_yaw(yaw: Tensor) -> Tensor:
    """Return the rotation by `yaw` about the vertical axis: (...) → (..., 4)"""
    zero = torch.zeros_like(yaw)
    return torch.stack([(yaw / 2).cos(), zero, zero, (yaw / 2).sin()], -1)


def wrap(angle: Tensor) -> Tensor:
    """Return the angle in [−π, π)."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
