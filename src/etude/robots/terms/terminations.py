"""What ends an episode. (N,) bool each."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from etude.config.constraints import Bounds, NonNegativeFloat, PositiveFloat
from etude.robots.state import State
from etude.robots.terms.table import Table

TERMINATIONS = Table("termination term")


@TERMINATIONS.add
def tilt(state: State, limit: Annotated[float, Bounds(0, 3.1416, low_open=True)] = 1.2) -> Tensor:
    """The base leans more than `limit` radians"""
    return -state.gravity[:, 2] < math.cos(limit)


@TERMINATIONS.add
def low(state: State, height: PositiveFloat = 0.1) -> Tensor:
    """The base is nearer to the ground than `height`"""
    return state.base_height < height


@TERMINATIONS.add
def contact(state: State, bodies: tuple[str, ...] = (), force: NonNegativeFloat = 1.0) -> Tensor:
    """One of these bodies touches something with more than `force`, N"""
    return (state.contact_force(bodies) > force).any(-1)


@TERMINATIONS.add
def unstable(state: State, linear: PositiveFloat = 20.0, joints: PositiveFloat = 200.0) -> Tensor:
    """The simulation has blown up: speeds (m/s, rad/s) that no robot has, or numbers that are none"""
    speed = state.base_linear_velocity.abs().amax(-1)
    spin = state.joint_velocity.abs().amax(-1)
    return ~((speed < linear) & (spin < joints) & torch.isfinite(state.simulation.qpos).all(-1))
