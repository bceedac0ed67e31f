"""HalfCheetah-v5: run forward; never ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

from etude.environments.native.mujoco_tasks.runners import RunnerParameters, RunnerVector


@dataclass(frozen=True)
class HalfCheetahParameters(RunnerParameters):
    """Gymnasium's defaults."""

    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1


class HalfCheetah(RunnerVector[HalfCheetahParameters]):
    """A planar cheetah with six joints, paid for speed."""

    id = "HalfCheetah-v5"
    xml = "half_cheetah.xml"
    parameters_type = HalfCheetahParameters
    velocity_noise = "normal"
