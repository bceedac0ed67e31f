"""How tensor functions are run: eager, compiled, or captured as a CUDA graph."""

from __future__ import annotations

import shutil
from typing import Literal

import torch

Mode = Literal["eager", "compiled", "graph"]
REPAYS_COMPILING = 50_000
"""Gradient steps from which compiling (half a minute) is repaid on the CPU, for networks of the usual size."""


def choose_mode(wanted: str, device: torch.device, gradient_steps: int) -> Mode:
    """Return how updates run: a pure function of the settings, the device and the length of the run."""
    if wanted == "off":
        return "eager"
    if device.type == "cuda":
        return "graph"
    if device.type != "cpu" or not has_compiler():
        return "eager"
    return "compiled" if wanted == "on" or gradient_steps >= REPAYS_COMPILING else "eager"


def has_compiler() -> bool:
    """Whether this machine has the C++ compiler that compiling for the CPU needs."""
    return any(shutil.which(name) for name in ("c++", "g++", "clang++"))
