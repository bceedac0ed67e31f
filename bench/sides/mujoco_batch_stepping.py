"""MuJoCo's own batch, bare: physics alone, without observations, rewards, time limits or resets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from measurement import answer, steady, versions
from tasks import stepping_task

MODELS = {"HalfCheetah-v5": "half_cheetah.xml"}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Step with actions drawn beforehand."""
    import gymnasium
    import numpy as np
    from mujoco import MjModel  # type: ignore[attr-defined] # compiled, without stubs
    from mujoco.batch import Batch

    from sides.stepping import drawn_actions, step_through

    task = stepping_task(request["task"])
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / MODELS[task.env_id]
    model = MjModel.from_xml_path(str(path))
    batch = Batch(model, nsim=task.num_envs, nthread=request["threads"])
    low, high = model.actuator_ctrlrange.T
    actions = drawn_actions(task, SimpleNamespace(low=low, high=high), "float64")
    batch.reset()
    controls = batch.bind("ctrl")

    def step(action: np.ndarray) -> None:
        controls[:] = action
        batch.step(nstep=task.frame_skip)

    points = step_through(step, actions, task)
    return {
        **steady(points, points[1].units),
        "resolved": {"nthread": batch.nthread, "frame_skip": task.frame_skip, "model": path.name, "autoreset": "none"},
        "versions": versions("mujoco", "gymnasium", "numpy"),
    }


if __name__ == "__main__":
    answer(measure)
