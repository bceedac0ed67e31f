"""One simulation of a task of the Control Suite: begun, stepped, observed, and captured exactly."""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import os
import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from etude.environments.display import has_display
from etude.environments.dm_control.tasks import domain_and_task
from etude.environments.native import mujoco_state
from etude.environments.snapshots import snapshot

_NO_BOUND = 1e10  # what dm_control writes for an actuator without limits
# Of a model, what is drawn or was compiled from files: most of its bytes, and no task writes into it.
_ASSETS = ("tex_", "mesh_", "skin_", "bvh_", "oct_", "text_", "name", "paths")


class SuiteTask:
    """Does what dm_control's own Environment does, bit for bit, but knows no time limit."""

    def __init__(self, name: str) -> None:
        self._environment = _load(name)
        self.task, self.physics = self._environment.task, self._environment.physics
        self.seconds_per_step = float(self._environment.control_timestep())
        self._model, self._data = self.physics.model.ptr, self.physics.data.ptr
        self._mujoco: Any = importlib.import_module("mujoco")  # compiled, without types
        self._substeps = round(self.seconds_per_step / self.physics.timestep())
        self._is_runge_kutta = self._model.opt.integrator == self._mujoco.mjtIntegrator.mjINT_RK4.value
        self._warnings = self._data.warning.number
        specs = self._environment.observation_spec()
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(spec.shape) for name, spec in specs.items()}
        self._fields = mujoco_state.fields_outside_arena(self._model, type(self._data))
        self._baseline = _arrays(self._model)  # what a task writes into its model is found by comparing with this

    @property
    def action_space(self) -> spaces.Box:
        """The actuators with their limits."""
        spec = self._environment.action_spec()
        low, high = (np.broadcast_to(bound, spec.shape).astype(np.float32) for bound in (spec.minimum, spec.maximum))
        low = np.where(low <= -_NO_BOUND, -np.inf, low).astype(np.float32)
        high = np.where(high >= _NO_BOUND, np.inf, high).astype(np.float32)
        return spaces.Box(low, high, dtype=np.float32)

    @property
    def size(self) -> int:
        """How many numbers an observation has."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def begin(self, seed: int | None) -> dict[str, Any]:
        """Begin an episode and return its first observation; without a seed the task's generator goes on."""
        if seed is not None:
            # Old generators take seeds of 32 bits, or several of them.
            self.task.random.seed(seed if seed < 2**32 else [seed % 2**32, seed >> 32])
        return self._environment.reset().observation

    def advance(self, action: np.ndarray) -> tuple[float, bool]:
        """Act for one step; return its reward and whether the task ended there."""
        self.task.before_step(action, self.physics)
        self._simulate()
        self.task.after_step(self.physics)
        reward = self.task.get_reward(self.physics)
        discount = self.task.get_termination(self.physics)
        return reward, discount is not None and discount == 0.0

    def observe(self) -> dict[str, Any]:
        """Return the observation by name."""
        return self.task.get_observation(self.physics)

    def state_dict(self) -> dict[str, Any]:
        """Return the simulation, what the task wrote into its model, and the task's own attributes and generator."""
        written = {
            name: snapshot.encode(array)
            for name, array in _arrays(self._model, live=True).items()
            if not np.array_equal(array, self._baseline[name])
        }
        return {
            "model": self._model_digest(),
            "written": written,
            "simulation": mujoco_state.capture(self._data, self._fields),
            "task": {name: snapshot.encode(value) for name, value in vars(self.task).items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state, in the simulation that is there."""
        if state["model"] != self._model_digest():
            raise ValueError("the saved state is of another model: dm_control, MuJoCo or a file of theirs is not the same")
        for name, array in self._baseline.items():
            live = getattr(self._model, name)
            live[...] = snapshot.decode(state["written"][name]) if name in state["written"] else array
        # A step begins with the contacts and constraints that the one before left in the arena: they are made here, from
        # the state, and then everything that was computed on the way is put back.
        mujoco_state.restore(self._data, self._fields, state["simulation"])
        self._mujoco.mj_step1(self._model, self._data)
        mujoco_state.restore(self._data, self._fields, state["simulation"])
        for name, value in state["task"].items():
            setattr(self.task, name, snapshot.decode(value))

    def _simulate(self) -> None:
        """`physics.step`, without the cost of its context manager: derived fields are current before and after."""
        mujoco, model, data = self._mujoco, self._model, self._data
        before = self._warnings.tobytes()
        if self._is_runge_kutta:
            mujoco.mj_step(model, data, self._substeps)
        else:
            mujoco.mj_step2(model, data)
            if self._substeps > 1:
                mujoco.mj_step(model, data, self._substeps - 1)
        mujoco.mj_step1(model, data)
        if self._warnings.tobytes() != before:
            self._complain(np.frombuffer(before, self._warnings.dtype))

    def _complain(self, before: np.ndarray) -> None:
        new = np.flatnonzero(self._warnings > before)
        if new.size:
            names = list(self._mujoco.mjtWarning.__members__)
            control: Any = importlib.import_module("dm_control.rl.control")
            raise control.PhysicsError(f"the simulation became invalid: {', '.join(names[index] for index in new)}")

    def _model_digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for name, array in self._baseline.items():
            digest.update(f"{name}{array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def _arrays(model: Any, *, live: bool = False) -> dict[str, np.ndarray]:
    """Return the arrays of a model that a task could write into."""
    found = {}
    for name in dir(model):
        if not name.startswith(("_", *_ASSETS)) and isinstance(value := getattr(model, name), np.ndarray) and value.size:
            found[name] = value if live else value.copy()
    return found


def _load(name: str) -> Any:
    """Return the suite's own environment, a copy of one that is compiled once: textures take most of a tenth of a second."""
    first = _compile(name)
    return type(first)(first.physics.copy(), copy.deepcopy(first.task), n_sub_steps=first._n_sub_steps)


@functools.lru_cache(maxsize=2)
def _compile(name: str) -> Any:
    """Build a task without its limit, which would count where a TimeLimit counts already; never to be begun or stepped."""
    domain, task = domain_and_task(name)
    suite = _import_suite()
    mujoco: Any = importlib.import_module("mujoco")
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)  # about the suite's own files, which no one here can change
    try:
        # What is drawn while building (lqr's springs) is the same in every copy; episodes have their own seeds.
        return suite.load(domain, task, task_kwargs={"random": 0, "time_limit": float("inf")})
    finally:
        mujoco.set_mju_user_warning(handler)


def _import_suite() -> Any:
    """Import the suite with a way to draw that works here; without any, all but pictures still does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if os.environ.get("MUJOCO_GL") or has_display():
            return importlib.import_module("dm_control.suite")
        # Left to itself it would choose GLFW, which finds no screen when the first picture is drawn.
        os.environ["MUJOCO_GL"] = "egl"
        try:
            return importlib.import_module("dm_control.suite")
        except (ImportError, AttributeError, OSError, RuntimeError):  # from a missing library to a driver that won't
            os.environ["MUJOCO_GL"] = "disable"
            try:
                return importlib.import_module("dm_control.suite")
            finally:
                del os.environ["MUJOCO_GL"]
