"""Many MuJoCo simulations of one model, stepped together on threads, whose state can be saved exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from mujoco import MjData, MjModel, mj_rnePostConstraint, mjtStage  # type: ignore[attr-defined] # compiled, without stubs
from mujoco.batch import Batch
from torch import Tensor

from etude.compute.processors import available_cpus
from etude.errors import UserError

_NO_STAGE = int(mjtStage.mjSTAGE_NONE)


class MujocoSimulation:
    """N simulations of `model`; each does what one MjData with `mj_step` would do, bit for bit, on any number of threads.

    `qpos`, `qvel`, `ctrl` and the arrays that `field` returns are live: (N, ...), float64. As after `mj_step`, derived
    fields describe the state before the last substep (or Runge-Kutta stage), not the state after it. A saved state is exact
    but for models with sleeping bodies: MuJoCo's state does not say which of them sleep.
    """

    def __init__(self, model: MjModel, count: int, *, frame_skip: int = 1, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UserError(f"threads={threads}: must be at least 1")
        self.model = model
        self.count = count
        self.frame_skip = frame_skip
        """Substeps of one `step`."""
        self.threads = min(threads or available_cpus(), count)
        # Persistent: derived fields stay those of their own simulation, and so do contacts.
        self._batch = Batch(model, count, self.threads, persistent=True)
        self._all = np.arange(count, dtype=np.int32)
        self._outputs: dict[str, np.ndarray] = {}
        self._model_fields: dict[str, np.ndarray] = {}
        self._constant_inputs: dict[str, np.ndarray] | None = None
        self._external_forces: np.ndarray | None = None
        self._scratch = MjData(model)
        self.qpos = self.field("qpos")
        self.qvel = self.field("qvel")
        self.ctrl = self.field("ctrl")

    @property
    def dt(self) -> float:
        """Simulated seconds of one `step`."""
        return self.model.opt.timestep * self.frame_skip

    def field(self, name: str) -> np.ndarray:
        """Return the live (N, ...) array of an MjData field: of state to read and write, of anything else to read.

        A derived field is zero until the next step or reset.
        """
        array = self._batch.bind(name)
        if not np.may_share_memory(array, self._batch.state):
            self._outputs[name] = array
        return array

    def model_field(self, name: str) -> np.ndarray:
        """Give an MjModel field (`opt.…` for an option) its own value in every simulation; returns them, (N, ...)."""
        array = self._batch.expand(name)
        self._model_fields[name] = array
        return array

    def update_constants(self) -> None:
        """Derive again what MuJoCo computes from model fields, after writing masses, inertias or lengths (`mj_setConst`)."""
        self._batch.set_const()
        self._constant_inputs = {name: array.copy() for name, array in self._model_fields.items()}

    def step(self) -> None:
        """Advance every simulation by `frame_skip` substeps with its `ctrl`."""
        self._batch.step(nstep=self.frame_skip)
        if self._external_forces is not None:
            self._compute_external_forces(self._external_forces)

    def reset(self, ids: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Put the simulations `ids` (ascending) at these states, all else as new: `mj_resetData`, then `mj_forward`."""
        self._batch.reset(ids, stage=_NO_STAGE)
        self.qpos[ids] = qpos
        self.qvel[ids] = qvel
        self._batch.forward(ids)
        if self._external_forces is not None:
            self._external_forces[ids] = 0.0

    def external_forces(self) -> np.ndarray:
        """Return the live (N, bodies, 6) forces of contacts and pushes on every body; from now on each step computes them.

        This is `cfrc_ext` after `mj_rnePostConstraint`, and zero after a reset. `mj_step` leaves it to sensors, which
        Runge-Kutta stages skip, and the batch has no call for it: so each simulation that touches something is copied
        out and asked, 7 µs beside the 200 to 400 µs that Ant and Humanoid take for a step.
        """
        if self._external_forces is None:
            self._external_forces = np.zeros((self.count, self.model.nbody, 6))
            self._contacts = self.field("ncon")
            self._pushes = self.field("xfrc_applied").reshape(self.count, -1)
        return self._external_forces

    def data(self, index: int) -> MjData:
        """Return a copy of one simulation, to render it or to pass it to any MuJoCo function."""
        return self._batch.get_data(index)

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next steps depend on, as tensors.

        That is MuJoCo's integration state (warm start included) and the model fields. A step computes every derived field
        afresh, but a task may read one before it does: the speed of Ant and Humanoid begins at a body's position as the
        step before left it. So the fields in use are part of the state.
        """
        return {
            "integration": _tensor(self._batch.state),
            "outputs": {name: _tensor(array) for name, array in self._outputs.items()},
            "external_forces": None if self._external_forces is None else _tensor(self._external_forces),
            "model_fields": {name: _tensor(array) for name, array in self._model_fields.items()},
            "constant_inputs": None
            if self._constant_inputs is None
            else {name: _tensor(array) for name, array in self._constant_inputs.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state of as many simulations of the same model."""
        if (found := tuple(state["integration"].shape)) != (expected := self._batch.state.shape):
            raise ValueError(f"the saved simulations have states of shape {found}, these {expected}")
        self._load_model(state["model_fields"], state["constant_inputs"])
        self._batch.reset(stage=_NO_STAGE)  # nothing of what ran here before
        self._batch.state[...] = state["integration"].numpy()
        for name, saved in state["outputs"].items():
            _write_output(self.field(name), saved)
        if state["external_forces"] is not None:
            self.external_forces()[...] = state["external_forces"].numpy()

    def _load_model(self, fields: dict[str, Tensor], constant_inputs: dict[str, Tensor] | None) -> None:
        if constant_inputs is None and self._constant_inputs is not None:
            raise ValueError("update_constants() was called here but not in the saved simulation: load it into a new one")
        for name in self._model_fields.keys() - fields.keys():
            owner, _, attribute = name.rpartition(".")
            self._model_fields[name][...] = getattr(self.model.opt if owner else self.model, attribute)
        if constant_inputs is not None:
            for name, saved in constant_inputs.items():
                self.model_field(name)[...] = saved.numpy()
            self.update_constants()
        for name, saved in fields.items():
            self.model_field(name)[...] = saved.numpy()

    def _compute_external_forces(self, forces: np.ndarray) -> None:
        forces[...] = 0.0
        ids = self._all
        if self.model.neq == 0:  # without equality constraints only contacts and pushes bring a force
            ids = ids[(self._contacts > 0) | self._pushes.any(axis=1)]
        data = self._scratch
        for index in ids.tolist():
            self._batch.get_data(index, data)
            mj_rnePostConstraint(self.model, data)
            forces[index] = data.cfrc_ext


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.copy())


def _write_output(array: np.ndarray, saved: Tensor) -> None:
    """The batch hands its outputs out as read-only because the next call overwrites them, which is what we want here."""
    array.flags.writeable = True
    array[...] = saved.numpy()
    array.flags.writeable = False
