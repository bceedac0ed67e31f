"""Robots on a GPU: MuJoCo Warp, stepped by one captured call, with the task's tensors as views of the simulator's memory.

Its sums are in no fixed order, so two runs differ in last bits and drift apart; its state, saved and loaded, is the same bit
for bit. On the CPU it runs too, slowly: that is for tests.
"""

from __future__ import annotations

import copy
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np
import torch
from torch import Tensor

from etude.errors import MissingPackageError, UserError
from etude.robots.scene import Scene, foot_bodies
from etude.robots.simulators.network_motors import NetworkMotors
from etude.robots.simulators.simulation import Simulation

try:
    import warp as wp  # type: ignore[import-not-found] # an extra

    wp.config.log_level = wp.LOG_WARNING  # it would announce every kernel that it loads
    wp.init()
    import mujoco_warp as mjw  # type: ignore[import-not-found] # an extra
except ImportError:
    raise MissingPackageError(
        "robots on a GPU need MuJoCo Warp: pip install 'etude[gpu]', or environment.robot.simulator=cpu"
    ) from None

_mujoco: Any = mujoco
_DERIVED_FROM_MASSES = ("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0")
_CONSTANT_INPUTS = ("body_mass", "body_inertia", "body_ipos", "dof_armature")
_STATE = ("qpos", "qvel", "qacc_warmstart", "ctrl", "sensordata", "actuator_force", "time")
CONTACTS_ON_AVERAGE = 16
"""Contacts of a robot for which there is room, on average over all robots: a walking one has few, a fallen one many."""


class WarpSimulation(Simulation):
    """`mujoco_warp` in single precision."""

    def __init__(self, scene: Scene, count: int, device: torch.device) -> None:
        self.scene, self.count, self.device = scene, count, device
        indexed = torch.empty(0, device=device).device  # Warp asks for the number of a GPU
        self._place_of_warp = wp.device_from_torch(indexed)
        contacts, rows = room_for(scene)
        contacts, rows = scene.solver.contacts or contacts, scene.solver.constraints or rows
        with wp.ScopedDevice(self._place_of_warp):
            try:
                self.model = mjw.put_model(_without_autoreset(scene.model))
                start = _mujoco.MjData(scene.model)
                start.qpos[scene.base_qpos + 2] += 10.0  # in the air: nothing touches
                _mujoco.mj_forward(scene.model, start)
                self.data_on_device = mjw.put_data(scene.model, start, nworld=count, nconmax=contacts, njmax=rows)
            except NotImplementedError as error:
                raise UserError(
                    f"{scene.description.file}: the simulator on the GPU can't do this robot: {error}; "
                    "use environment.robot.simulator=cpu"
                ) from error
        self.model.opt.graph_conditional = not scene.solver.unrolled
        self.model.opt.warn_overflow = 0  # reported by `problem`, once, instead of by every thread of every step
        fields = {name: wp.to_torch(getattr(self.data_on_device, name)) for name in (*_STATE, "overflow")}
        self.qpos, self.qvel = fields["qpos"], fields["qvel"]
        self.sensors, self.torques = fields["sensordata"], fields["actuator_force"]
        self._ctrl, self._warm_start, self._overflow = fields["ctrl"], fields["qacc_warmstart"], fields["overflow"]
        self._state = {name: fields[name] for name in _STATE}
        self._before = torch.zeros_like(self._ctrl)
        self._targets = torch.zeros_like(self._ctrl)
        self._lag = torch.zeros(count, dtype=torch.int64, device=device)
        self._sensors_before = torch.zeros_like(self.sensors)
        self._acceleration_sensors = _columns_after_velocity(scene.model, device)
        self._own_fields: dict[str, Tensor] = {}
        self._graphs: dict[Any, Any] = {}
        self._curves = self._prepare_curves() if scene.has_curves else None
        self._networks = NetworkMotors(scene, count, device) if scene.networks else None
        if self._networks is not None:
            places = (scene.qpos_address, scene.dof_address)
            self._joint_qpos, self._joint_dofs = (torch.as_tensor(each, dtype=torch.int64, device=device) for each in places)

    def _prepare_curves(self) -> list[Any]:
        """Give every robot its own range of torques, and return what its motors' curves are made of."""
        scene = self.scene
        self.model_field("actuator_forcerange")
        known = (scene.stall_torque, scene.velocity_limit, np.minimum(scene.effort_limit, scene.stall_torque))
        self._of_curves = [torch.as_tensor(scene.dof_address, dtype=torch.int32, device=self.device)]
        self._of_curves += [torch.as_tensor(each, dtype=torch.float32, device=self.device) for each in known]
        return [wp.from_torch(self.qvel), *map(wp.from_torch, self._of_curves), self.model.actuator_forcerange]

    # ---- stepping ----------------------------------------------------------------------------------------------------------

    def step(self, targets: Tensor, substeps: int, before: Tensor | None = None, lag: Tensor | None = None) -> None:
        """Advance by some physics steps; robots with a lag keep their previous targets for the first of them."""
        lags = lag is not None
        if self._networks is not None:
            self._step_networks(self._networks, targets, substeps, before, lag)
            return
        if before is None or lag is None:
            self._ctrl.copy_(targets)
        else:
            self._targets.copy_(targets)
            self._before.copy_(before)
            self._lag.copy_(lag)
        self._run(("step", substeps, lags), lambda: self._substeps(substeps, lags))

    def _step_networks(
        self, networks: NetworkMotors, targets: Tensor, substeps: int, before: Tensor | None, lag: Tensor | None
    ) -> None:
        """Torch says the torques of each physics step, which is a launch of its own: on a GPU all wait in one stream."""
        for substep in range(substeps):
            aim = targets if before is None or lag is None else torch.where((lag > substep)[:, None], before, targets)
            with torch.no_grad():
                self._ctrl.copy_(networks.aim(aim, self.qpos[:, self._joint_qpos], self.qvel[:, self._joint_dofs]))
            is_last = substep == substeps - 1
            self._run(("physics", is_last), lambda is_last=is_last: self._one_step(is_last=is_last))

    def _one_step(self, *, is_last: bool) -> None:
        options, plain = self.model.opt, self.model.opt.disableflags
        if self._curves is not None:
            wp.launch(_limit_torques, dim=(self.count, self._ctrl.shape[1]), inputs=self._curves)
        # What sensors say is read after the last step alone.
        options.disableflags = plain | (0 if is_last else int(mjw.DisableBit.SENSOR))
        mjw.step(self.model, self.data_on_device)
        options.disableflags = plain

    def _substeps(self, substeps: int, lags: bool) -> None:
        for substep in range(substeps):
            if lags:
                shape, arrays = (self.count, self._ctrl.shape[1]), (self._targets, self._before, self._lag, self._ctrl)
                wp.launch(_aim, dim=shape, inputs=[substep, *(wp.from_torch(array) for array in arrays)])
            self._one_step(is_last=substep == substeps - 1)

    def _run(self, key: Any, work: Any) -> None:
        """Do work of Warp on the stream that torch is using; on a GPU it is captured the first time and launched after."""
        if not self._place_of_warp.is_cuda:
            with wp.ScopedDevice(self._place_of_warp):
                work()
            return
        stream = wp.stream_from_torch(torch.cuda.current_stream(self.device))
        if key not in self._graphs:
            with wp.ScopedStream(stream):
                self._warm_up(work)
            torch.cuda.synchronize(self.device)
            # On a stream of Warp's own: torch's default one can't be captured.
            with wp.ScopedDevice(self._place_of_warp), wp.ScopedCapture() as capture:
                work()
            self._graphs[key] = capture.graph
        wp.capture_launch(self._graphs[key], stream=stream)

    def _warm_up(self, work: Any) -> None:
        """Compile what the work needs; what that changes is put back."""
        kept = {name: tensor.clone() for name, tensor in self._everything().items()}
        work()
        for name, tensor in self._everything().items():
            tensor.copy_(kept[name])

    def place(self, which: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Put the robots `which` (N,) bool at rows of qpos (N, nq) and qvel (N, nv); others stay as they are."""
        chosen = which[:, None]
        if self._networks is not None:
            self._networks.forget(which)
        self.qpos.copy_(torch.where(chosen, qpos, self.qpos))
        self.qvel.copy_(torch.where(chosen, qvel, self.qvel))
        for forgotten in (self._warm_start, self._ctrl, self.torques):
            forgotten.copy_(torch.where(chosen, 0.0, forgotten))

    def settle(self, which: Tensor) -> None:
        """Compute where the parts of placed robots are, and how fast; nothing touches them yet."""
        self._sensors_before.copy_(self.sensors)
        self._run("settle", self._look)
        fresh = torch.where(self._acceleration_sensors, 0.0, self.sensors)
        self.sensors.copy_(torch.where(which[:, None], fresh, self._sensors_before))

    def _look(self) -> None:
        model, data = self.model, self.data_on_device
        mjw.kinematics(model, data)
        mjw.com_pos(model, data)
        mjw.sensor_pos(model, data)
        mjw.com_vel(model, data)
        mjw.sensor_vel(model, data)

    def push(self, velocity: Tensor) -> None:
        """Add to the velocities of every robot, (N, nv)."""
        self.qvel.add_(velocity)

    # ---- model fields --------------------------------------------------------------------------------------------------------

    def model_field(self, name: str) -> Tensor:
        """Return a model field with its own value for each robot, (N, ...): the simulator's memory."""
        if name not in self._own_fields:
            if self._graphs:
                raise RuntimeError(f"model field {name} was asked for after steps were captured")
            shared = getattr(self.model, name)
            values = wp.to_torch(shared)
            own = values.expand(self.count, *values.shape[1:]).contiguous()
            setattr(self.model, name, wp.from_torch(own, dtype=shared.dtype))
            self._own_fields[name] = own
        return self._own_fields[name]

    def update_constants(self) -> None:
        """Derive again what depends on masses and inertias, after these were written."""
        for name in (*_CONSTANT_INPUTS, *_DERIVED_FROM_MASSES):
            self.model_field(name)
        kept = {name: tensor.clone() for name, tensor in self._state.items()}
        with self._on_stream():
            mjw.set_const(self.model, self.data_on_device)
        for name, tensor in self._state.items():
            tensor.copy_(kept[name])

    def _on_stream(self) -> Any:
        if self._place_of_warp.is_cuda:
            return wp.ScopedStream(wp.stream_from_torch(torch.cuda.current_stream(self.device)))
        return wp.ScopedDevice(self._place_of_warp)

    # ---- what went wrong, looking and keeping ------------------------------------------------------------------------------

    def problem(self) -> str | None:
        """Return which memory of the simulator was too small since the last call, if any; reads the device."""
        found = torch.bitwise_and(self._overflow, _COUNTED_OVERFLOWS)
        worst = int(found.amax())
        if worst == 0:
            return None
        robot = int(found.argmax())
        self._overflow.zero_()
        kinds = [kind.name for kind in mjw.OverflowType if kind.name and kind & worst and kind & _COUNTED_OVERFLOWS]
        contacts, rows = self.data_on_device.naconmax // self.count, self.data_on_device.njmax
        return (
            f"the simulator had no room for all contacts of robot {robot} ({', '.join(kinds).lower()}): raise "
            f"environment.robot.solver.contacts (now {contacts}) or constraints (now {rows}), or have fewer geoms collide"
        )

    def data(self, robot: int) -> Any:
        """Return one robot's MjData on the host, to draw it or to ask MuJoCo anything."""
        data = _mujoco.MjData(self.scene.model)
        data.qpos[:], data.qvel[:] = self.qpos[robot].double().cpu().numpy(), self.qvel[robot].double().cpu().numpy()
        _mujoco.mj_forward(self.scene.model, data)
        return data

    def _everything(self) -> dict[str, Tensor]:
        return {**self._state, "overflow": self._overflow}

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next steps depend on."""
        fields = {name: value.clone() for name, value in self._own_fields.items()}
        state = {"state": {name: value.clone() for name, value in self._state.items()}, "fields": fields}
        return state if self._networks is None else state | {"motors": self._networks.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name, value in state["state"].items():
            self._state[name].copy_(value)
        for name, value in state["fields"].items():
            self.model_field(name).copy_(value)
        if self._networks is not None and "motors" in state:
            self._networks.load_state_dict(state["motors"])


@wp.kernel
def _limit_torques(
    velocity: wp.array2d(dtype=float),  # type: ignore[valid-type] # Warp's annotations are values
    dof: wp.array(dtype=wp.int32),  # type: ignore[valid-type]
    stall: wp.array(dtype=float),  # type: ignore[valid-type]
    limit: wp.array(dtype=float),  # type: ignore[valid-type]
    most: wp.array(dtype=float),  # type: ignore[valid-type]
    ranges: wp.array2d(dtype=wp.vec2),  # type: ignore[valid-type]
):
    robot, motor = wp.tid()  # type: ignore[misc] # as many numbers as the launch has dimensions
    if wp.isfinite(limit[motor]):
        speed = velocity[robot, dof[motor]] / limit[motor]
        down = wp.clamp(stall[motor] * (-1.0 - speed), -most[motor], 0.0)
        ranges[robot, motor] = wp.vec2(down, wp.clamp(stall[motor] * (1.0 - speed), 0.0, most[motor]))


@wp.kernel
def _aim(
    substep: int,
    targets: wp.array2d(dtype=float),  # type: ignore[valid-type] # Warp's annotations are values
    before: wp.array2d(dtype=float),  # type: ignore[valid-type]
    lag: wp.array(dtype=wp.int64),  # type: ignore[valid-type]
    ctrl: wp.array2d(dtype=float),  # type: ignore[valid-type]
):
    robot, motor = wp.tid()  # type: ignore[misc] # as many numbers as the launch has dimensions
    if lag[robot] > wp.int64(substep):
        ctrl[robot, motor] = before[robot, motor]
    else:
        ctrl[robot, motor] = targets[robot, motor]


def room_for(scene: Scene) -> tuple[int, int]:
    """Return how many contacts a robot needs room for, on average, and how many rows of constraints at most.

    Rows are each robot's own: there are enough for one that lies on the ground with all it has. Contacts are shared by all,
    and most robots stand, on all that their feet have; but above uneven ground every part of every robot is a candidate.
    """
    model, kinds = scene.model, _mujoco.mjtGeom
    points = {int(kinds.mjGEOM_SPHERE): 1, int(kinds.mjGEOM_CAPSULE): 2}
    feet = foot_bodies(model, scene.feet)
    contacts, rows, parts, standing = 0, 0, 0, 0
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] == 0 or not (model.geom_contype[geom] or model.geom_conaffinity[geom]):
            continue
        parts += 1
        count = 4 if model.nhfield else points.get(int(model.geom_type[geom]), 4)
        size = max(3, int(model.geom_condim[geom]))
        contacts += count
        standing += count if model.geom_bodyid[geom] in feet else 0
        rows += count * (size if scene.solver.cone == "elliptic" else 2 * (size - 1))
    if scene.solver.self_collisions:
        contacts, rows = 2 * contacts, 2 * rows
    room = 4 * model.npair  # as many as two boxes have
    contacts, rows = contacts + room, rows + room * 4
    average = max(CONTACTS_ON_AVERAGE, standing + CONTACTS_ON_AVERAGE // 4, 2 * parts if model.nhfield else 0)
    return min(contacts, average), rows + int(model.jnt_limited.sum()) + model.nv  # joints at their limits, and with friction


def _without_autoreset(model: Any) -> Any:
    """Return the model without a flag that Warp does not know: not to reset robots in silence, which it never does."""
    plain = copy.copy(model)
    plain.opt.disableflags &= ~int(_mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    return plain


def _columns_after_velocity(model: Any, device: torch.device) -> Tensor:
    """Return which columns of sensordata are computed from forces, (nsensordata,) bool."""
    columns = torch.zeros(model.nsensordata, dtype=torch.bool)
    for sensor in range(model.nsensor):
        if model.sensor_needstage[sensor] == _mujoco.mjtStage.mjSTAGE_ACC:
            first = int(model.sensor_adr[sensor])
            columns[first : first + int(model.sensor_dim[sensor])] = True
    return columns.to(device)


# A solver that stops at its limit of iterations is as asked for; it is no lack of memory.
_COUNTED_OVERFLOWS = int(mjw.OverflowType.ALL) & ~int(mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS)
