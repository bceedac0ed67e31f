"""What tests of worker processes share: an environment of many sensors, makers, fixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from etude.environments.vector import VectorEnvironment
from etude.environments.workers.vector import WorkerVector
from etude.errors import UserError

with warnings.catch_warnings():  # SWIG's types crash the interpreter where their warning is an error
    warnings.simplefilter("ignore")
    import gymnasium.envs.box2d

ROOT = Path(__file__).parents[2]


class Sensors(gymnasium.Env[Any, Any]):
    """Observes a dict, counts its steps, and does on request what no environment should."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (4, 4), np.uint8), "pose": spaces.Box(-9, 9, (3,), np.float64)}
    )
    action_space = spaces.Box(-1, 1, (2,), np.float64)

    def __init__(self, fault: str = "", at_step: int = 17, engine: Any = None) -> None:
        self.fault, self.at_step, self.steps, self.total = fault, at_step, 0, 0
        if engine is not None:
            self.engine = engine
        if fault == "build":
            raise KeyError("no such map")
        if fault == "refuse":
            raise UserError("environment.kwargs={'level': 9}: there are 8 levels")

    def observation(self) -> dict[str, Any]:
        return {"image": self.np_random.integers(0, 256, (4, 4), np.uint8), "pose": self.np_random.normal(size=3)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.total += 1
        if self.fault and self.total == self.at_step:
            self.fail()
        return self.observation(), float(action.sum()), bool(self.np_random.random() < 0.05), False, {}

    def fail(self) -> None:
        match self.fault:
            case "raise":
                raise ZeroDivisionError("the ground is gone")
            case "exit":
                os._exit(3)
            case "sys.exit":
                sys.exit("enough")
            case "hang":
                time.sleep(1_000)
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "child":
                subprocess.Popen(["sleep", "1000"])

    def render(self) -> Any:
        return np.full((2, 2, 3), self.steps, np.uint8)


def make_sensors() -> gymnasium.Env[Any, Any]:
    return TimeLimit(Sensors(), 30)


def make_named(name: str) -> Any:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make(name, max_episode_steps=40, disable_env_checker=True)

    return make


MAKERS = {
    "dict": make_sensors,
    **{name: make_named(name) for name in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "LunarLander-v3", "HalfCheetah-v5")},
}
SEEDS = [3, 1, 4, 5]


def workers_of(vector: WorkerVector) -> list[int]:
    return [worker.pid for worker in vector._crew.workers]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids: list[int], within_s: float = 0.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_alive, pids))


def moves_for(vector: VectorEnvironment, steps: int) -> list[torch.Tensor]:
    from tests.environments.test_conformance import actions  # here: workers import this module, and need none of the tests

    return actions(vector.single_action_space, steps, num_envs=vector.num_envs, seed=8)


# ---- the same as in-process -----------------------------------------------------------------------------------------------
