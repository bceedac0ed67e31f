"""Which simulator robots live in."""

from __future__ import annotations

import torch

from etude.robots.scene import Scene
from etude.robots.simulators.cpu_simulation import CpuSimulation
from etude.robots.simulators.simulation import Simulation


def choose_simulator(wanted: str, device: torch.device | None, *, training: bool) -> tuple[str, torch.device]:
    """Return which simulator runs where. What is not for training is measured in MuJoCo itself."""
    learner, host = device or torch.device("cpu"), torch.device("cpu")
    if not training or wanted == "cpu" or (wanted == "auto" and learner.type != "cuda"):
        return "cpu", host
    return "warp", learner


def simulate(kind: str, scene: Scene, count: int, device: torch.device) -> Simulation:
    """Return robots in the simulator of this kind; the one for GPUs is imported only where it is used."""
    if kind == "warp":
        from etude.robots.simulators.warp_simulation import WarpSimulation

        return WarpSimulation(scene, count, device)
    return CpuSimulation(scene, count)
