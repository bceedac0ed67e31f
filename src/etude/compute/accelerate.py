"""How tensor functions are run: eager, compiled, or captured as a CUDA graph."""

from __future__ import annotations

import importlib.util
import shutil
import warnings
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Literal

import torch

Mode = Literal["eager", "compiled", "graph", "compiled graph"]
REPAYS_COMPILING = 50_000
"""Gradient steps from which compiling (half a minute) is repaid on the CPU, for networks of the usual size."""
SETTINGS: dict[Mode, str] = {"eager": "off", "compiled": "on", "graph": "capture", "compiled graph": "on"}
"""What `experiment.compile` says to have each of them."""


def choose_mode(wanted: str, device: torch.device, gradient_steps: int) -> Mode:
    """Return how updates run: a pure function of the settings, the device and the length of the run."""
    if wanted == "off":
        return "eager"
    if device.type == "cuda":
        return "compiled graph" if wanted == "on" and has_gpu_compiler() else "graph"
    if device.type != "cpu" or not has_compiler() or wanted == "capture":
        return "eager"
    return "compiled" if wanted == "on" or gradient_steps >= REPAYS_COMPILING else "eager"


def has_compiler() -> bool:
    """Whether this machine has the C++ compiler that compiling for the CPU needs."""
    return any(shutil.which(name) for name in ("c++", "g++", "clang++"))


def has_gpu_compiler() -> bool:
    """Whether this machine has what compiling for a GPU needs: Triton, and a compiler for what calls its kernels."""
    return importlib.util.find_spec("triton") is not None and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def is_compiled(mode: Mode) -> bool:
    """Whether updates are compiled, recorded or not."""
    return mode in ("compiled", "compiled graph")


def is_recorded(mode: Mode) -> bool:
    """Whether updates, and acting with them, are replayed CUDA graphs."""
    return mode in ("graph", "compiled graph")


def compile_apart(function: Any, device: torch.device) -> Callable[..., Any]:
    """Compile a function or method, for callers that always call it with tensors of the same shapes.

    The compiler keeps its result with the code object and asks dozens of guards on every call whether it still fits. A
    code object of its own and one shape per function leave nothing to ask; on small networks that is 5% of a run.
    """
    plain = getattr(function, "__func__", function)
    own = FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
    bound = MethodType(own, function.__self__) if hasattr(function, "__self__") else own
    options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe, **(_ON_CPU if device.type == "cpu" else _ON_GPU)}
    if device.type == "cuda":  # experiment.tf32 is the user's choice, and off for a reason: torch need not advise it
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    return torch.compile(bound, dynamic=False, fullgraph=True, options=options)


_ON_CPU = {
    "cpp_wrapper": True,
    # By exponentials: within 2e-7 of the library's tanh, and several times as fast.
    "cpp.use_decompose_tanh": True,
    # Moments and weights that a later step reads are written down, not computed again inside that step's loops.
    "realize_opcount_threshold": 4,
    "realize_reads_threshold": 2,
}
_ON_GPU = {
    # Trying other orders of loops fails on an assertion of its own in updates with several losses (torch 2.11).
    "loop_ordering_after_fusion": False,
    # Larger kernels are beyond what Triton can lay out there: SAC's would not compile with 64, the default.
    "max_fusion_size": 4,
}
