"""Swimmer-v5: swim forward; never ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

from etude.environments.native.mujoco_tasks.runners import RunnerParameters, RunnerVector


@dataclass(frozen=True)
class SwimmerParameters(RunnerParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1


class Swimmer(RunnerVector[SwimmerParameters]):
    """Three links in a viscous fluid, paid for speed."""

    id = "Swimmer-v5"
    xml = "swimmer.xml"
    parameters_type = SwimmerParameters
    hidden_positions = 2  # a place in the plane
