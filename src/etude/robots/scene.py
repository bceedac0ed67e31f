"""From a robot's description to a model that can be simulated: ground, motors, sensors and the solver's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.config.robots import ActuatorConfig, RobotConfig, SolverConfig
from etude.errors import UserError
from etude.robots.models.description import RobotDescription, assign, matches
from etude.robots.models.model_files import read_model
from etude.robots.motors.named import networks_of
from etude.robots.motors.network import MotorNetwork
from etude.robots.scene_checks import check_feet, check_motors, check_pose
from etude.robots.soles import Soles, soles_of
from etude.robots.terrain import Terrain

_mujoco: Any = mujoco
FLOOR = "floor"
_CONTACT_DATA = (3, 3, 1)  # found and force; summed over contacts; one slot
START_MARGIN = 0.03
"""Metres between the feet of the default pose and the ground when an episode begins: joints begin a little off it."""


@dataclass(frozen=True)
class Scene:
    """A compiled model and where its parts are in the simulator's arrays."""

    model: Any
    spec: Any
    """What the model was compiled from: it can be written as MJCF."""
    description: RobotDescription
    joints: tuple[str, ...]
    """Joints with motors, in the order of actions."""
    qpos_address: np.ndarray
    """Of the joints, in qpos. (J,)"""
    dof_address: np.ndarray
    """Of the joints, in qvel. (J,)"""
    base_qpos: int
    base_dof: int
    base_body: int
    trunk_body: int
    """The heaviest of the base and what is fixed to it: a URDF's root link often weighs nothing."""
    start_height: float
    """Metres of the base above the ground at which an episode begins: the feet of the default pose hang just over it."""
    default_pose: np.ndarray
    """Of the joints. (J,)"""
    stride: np.ndarray
    """How far joints are off it at the height of their leg's swing, rad. (J,)"""
    foot_of_joint: np.ndarray
    """Which foot's leg a joint is of; −1: none's. (J,)"""
    position_limits: np.ndarray
    """(J, 2); infinite where there are none."""
    stiffness: np.ndarray
    damping: np.ndarray
    effort_limit: np.ndarray
    stall_torque: np.ndarray
    """At standstill; with the velocity limit, the line that the torque is below. (J,); infinite where there is none."""
    velocity_limit: np.ndarray
    """(J,); infinite where there is none."""
    action_scale: np.ndarray
    acted: np.ndarray
    """The places of joints that actions move, in order; the others hold the default pose. (A,)"""
    controls_position: np.ndarray
    """Which motors hold a position; the others hold a velocity. (J,) bool"""
    sensors: Mapping[str, slice]
    """Where each sensor's values are in sensordata."""
    contact_bodies: tuple[str, ...]
    """Bodies whose contacts are sensed, besides the feet."""
    soles: Soles
    """Of the feet: what of them can be lowest."""
    solver: SolverConfig
    networks: tuple[tuple[MotorNetwork, np.ndarray], ...] = ()
    """Motors that were learnt from logs, each with the places of its joints."""

    @property
    def of_network(self) -> np.ndarray:
        """Which motors do what a network says. (J,) bool"""
        marks = np.zeros(len(self.joints), bool)
        for _, places in self.networks:
            marks[places] = True
        return marks

    @property
    def has_curves(self) -> bool:
        """Whether what some motor can do depends on its speed."""
        return bool(np.isfinite(self.velocity_limit).any())

    @property
    def feet(self) -> tuple[str, ...]:
        """The names of the feet."""
        return self.description.feet


def build_scene(
    config: RobotConfig, description: RobotDescription, contact_patterns: Sequence[str] = (), terrain: Terrain | None = None
) -> Scene:
    """Compile a robot on its ground; `contact_patterns` name the bodies whose contacts the task reads."""
    spec = read_model(description.path)
    base = _base_body(spec, description)
    _set_options(spec, config)
    joints = [joint.name for joint in spec.joints if joint.type in (_mujoco.mjtJoint.mjJNT_HINGE, _mujoco.mjtJoint.mjJNT_SLIDE)]
    motors = _motors(config.actuators or description.actuators, joints, "environment.robot.actuators")
    if not motors:
        raise UserError(f"{description.file}: this robot has no joints that a motor could move")
    check_motors(description, joints, motors)
    check_feet(spec, description, FLOOR)
    networks = networks_of(config, description)
    _add_motors(spec, motors, networks)
    if config.solver.self_collisions is None:
        _add_pairs(spec, description, config.timestep)
    if not config.solver.self_collisions:
        for geom in spec.geoms:
            if geom.contype or geom.conaffinity:
                geom.contype, geom.conaffinity = 0, 1
    _add_floor(spec, terrain)
    _add_light(spec, base)
    bodies = [body.name for body in spec.bodies if body.name and body.name != "world"]
    touched = tuple(dict.fromkeys(name for pattern in contact_patterns for name in matches(pattern, bodies, "bodies")))
    _add_sensors(spec, description, touched)
    try:
        model = spec.compile()
    except ValueError as error:
        raise UserError(f"{description.file}: MuJoCo can't compile this robot: {' '.join(str(error).split())}") from error
    names = [joint for joint in joints if joint in motors]
    ids = [model.joint(name).id for name in names]
    pose = assign(description.pose, joints, f"{description.file}: pose") if description.pose else {}
    limited = model.jnt_limited[ids].astype(bool)[:, None]
    sensors = {
        model.sensor(i).name: slice(int(model.sensor_adr[i]), int(model.sensor_adr[i] + model.sensor_dim[i]))
        for i in range(model.nsensor)
    }
    free = model.body(base).jntadr[0]
    default_pose = np.array([pose.get(name, 0.0) for name in names], float)
    position_limits = np.where(limited, model.jnt_range[ids], [[-np.inf, np.inf]])
    stride = assign(description.stride, names, f"{description.file}: stride") if description.stride else {}
    foot_of_joint = _foot_of_joints(model, description.feet, ids)
    loose = next((name for name, foot in zip(names, foot_of_joint, strict=True) if foot < 0 and name in stride), None)
    if loose is not None:
        raise UserError(f"{description.file}: stride: joint '{loose}' is of no foot's leg")
    check_pose(description, pose, names, default_pose, position_limits)
    if config.action.stride:
        _check_stride(config.action.stride, stride, motors, description)
    return Scene(
        model=model,
        spec=spec,
        description=description,
        joints=tuple(names),
        qpos_address=model.jnt_qposadr[ids].copy(),
        dof_address=model.jnt_dofadr[ids].copy(),
        base_qpos=int(model.jnt_qposadr[free]),
        base_dof=int(model.jnt_dofadr[free]),
        base_body=int(model.body(base).id),
        trunk_body=_trunk(model, int(model.body(base).id)),
        start_height=START_MARGIN - _lowest_point(model, int(free), ids, default_pose),
        default_pose=default_pose,
        stride=np.array([stride.get(name, 0.0) for name in names], float),
        foot_of_joint=foot_of_joint,
        position_limits=position_limits,
        stiffness=np.array([motors[name].stiffness for name in names]),
        damping=np.array([motors[name].damping for name in names]),
        effort_limit=np.array([_limit(motors[name], networks) or np.inf for name in names]),
        stall_torque=np.array([motors[name].stall_torque or motors[name].effort_limit or np.inf for name in names]),
        velocity_limit=np.array([motors[name].velocity_limit or np.inf for name in names]),
        action_scale=config.action.scale * np.array([motors[name].action_scale for name in names]),
        acted=_acted(config.action.joints, names),
        controls_position=np.array([motors[name].control == "position" for name in names]),
        sensors=sensors,
        contact_bodies=touched,
        soles=soles_of(model, description.feet),
        solver=config.solver,
        networks=tuple(
            (network, np.array([i for i, name in enumerate(names) if motors[name].network == given]))
            for given, network in networks.items()
            if any(motor.network == given for motor in motors.values())
        ),
    )


def _check_stride(share: float, stride: Mapping[str, float], motors: Mapping[str, Any], description: RobotDescription) -> None:
    """Refuse to add a stride that there is not, or to motors that don't hold positions."""
    where = f"environment.robot.action.stride={share:g}"
    if not stride:
        raise UserError(f"{where}: needs `stride` in {description.file}")
    turning = next((name for name in stride if motors[name].control == "velocity"), None)
    if turning is not None:
        raise UserError(f"{where}: is of positions, and the motor of '{turning}' holds a velocity")


def _acted(patterns: Sequence[str], joints: Sequence[str]) -> np.ndarray:
    """Return the places of the joints that patterns match, all of them without any. (A,)"""
    moved = {name for pattern in patterns or (".*",) for name in matches(pattern, joints, "environment.robot.action.joints")}
    return np.array([i for i, name in enumerate(joints) if name in moved])


def foot_bodies(model: Any, feet: Sequence[str]) -> list[int]:
    """Return the body of each foot, which may be a geom of it."""
    geoms = {model.geom(i).name: i for i in range(model.ngeom)}
    return [int(model.geom_bodyid[geoms[foot]]) if foot in geoms else int(model.body(foot).id) for foot in feet]


def leg_bodies(model: Any, feet: Sequence[str]) -> list[set[int]]:
    """Return the bodies of each foot's leg: the foot's own, and all above it that carry no other foot."""
    above: list[set[int]] = []
    for body in foot_bodies(model, feet):
        chain = set()
        while body > 0:
            chain.add(body)
            body = int(model.body_parentid[body])
        above.append(chain)
    return [chain - set().union(*(above[:i] + above[i + 1 :])) for i, chain in enumerate(above)]


def _foot_of_joints(model: Any, feet: Sequence[str], joints: Sequence[int]) -> np.ndarray:
    """Return which foot's leg each joint is of; −1: none's. (J,)"""
    legs = leg_bodies(model, feet)
    return np.array([next((i for i, leg in enumerate(legs) if int(model.jnt_bodyid[joint]) in leg), -1) for joint in joints])


def _trunk(model: Any, base: int) -> int:
    """Return the heaviest body that can't move against the base."""
    rigid = [base]
    for body in range(base + 1, model.nbody):
        if model.body_parentid[body] in rigid and model.body_jntnum[body] == 0:
            rigid.append(body)
    return max(rigid, key=lambda body: model.body_mass[body])


def _lowest_point(model: Any, free: int, joints: Sequence[int], pose: np.ndarray) -> float:
    """Return how far below the base's origin the robot reaches in a pose (a negative number, m)."""
    data = _mujoco.MjData(model)
    first = int(model.jnt_qposadr[free])
    data.qpos[first : first + 7] = [0, 0, 0, 1, 0, 0, 0]
    data.qpos[model.jnt_qposadr[joints]] = pose
    _mujoco.mj_kinematics(model, data)
    lowest = 0.0
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] == 0 or not (model.geom_contype[geom] or model.geom_conaffinity[geom]):
            continue
        middle, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
        up = data.geom_xmat[geom].reshape(3, 3)[2]
        is_sphere = model.geom_type[geom] == _mujoco.mjtGeom.mjGEOM_SPHERE
        reach = half[0] if is_sphere else np.abs(up) @ half
        lowest = min(lowest, float(data.geom_xpos[geom, 2] + up @ middle - reach))
    return lowest


def _base_body(spec: Any, description: RobotDescription) -> str:
    free = [joint for joint in spec.joints if joint.type == _mujoco.mjtJoint.mjJNT_FREE]
    bodies = [joint.parent.name for joint in free]
    if not bodies:
        raise UserError(f"{description.file}: no body has a free joint, so this robot can't move about")
    if description.base and description.base not in bodies:
        raise UserError(
            f"{description.file}: base={description.base}: has no free joint (bodies that have: {', '.join(bodies)})"
        )
    return description.base or bodies[0]


def _set_options(spec: Any, config: RobotConfig) -> None:
    spec.option.timestep = config.timestep
    spec.option.iterations = config.solver.iterations
    spec.option.ls_iterations = config.solver.line_search
    spec.option.solver = _mujoco.mjtSolver.mjSOL_NEWTON
    spec.option.integrator = _mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    # A robot whose numbers have blown up is to be found, not put back to the start in silence.
    spec.option.disableflags |= _mujoco.mjtDisableBit.mjDSBL_AUTORESET
    cones = {"pyramidal": _mujoco.mjtCone.mjCONE_PYRAMIDAL, "elliptic": _mujoco.mjtCone.mjCONE_ELLIPTIC}
    spec.option.cone = cones[config.solver.cone]
    spec.option.impratio = config.solver.impratio


def _motors(groups: Mapping[str, ActuatorConfig], joints: Sequence[str], where: str) -> dict[str, ActuatorConfig]:
    motors: dict[str, ActuatorConfig] = {}
    for name, group in groups.items():
        for joint in matches(group.joints, joints, f"{where}.{name}.joints"):
            if joint in motors:
                raise UserError(f"{where}.{name}.joints={group.joints}: joint '{joint}' has a motor of another group already")
            motors[joint] = group
    return {joint: motors[joint] for joint in joints if joint in motors}


def _limit(motor: ActuatorConfig, networks: Mapping[str, MotorNetwork]) -> float | None:
    """Return the largest torque of a motor; that of a network which has no limit of its own is the largest in its logs."""
    network = networks.get(motor.network)
    return motor.effort_limit or (None if network is None else network.layout.largest_torque)


def _add_motors(spec: Any, motors: Mapping[str, ActuatorConfig], networks: Mapping[str, MotorNetwork]) -> None:
    """Replace the file's actuators by ours: the same kind of motor in every simulator, with gains that can be randomised."""
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    for name, motor in motors.items():
        joint = spec.joint(name)
        if motor.armature is not None:
            joint.armature = motor.armature
        actuator = spec.add_actuator(name=name, target=name, trntype=_mujoco.mjtTrn.mjTRN_JOINT)
        actuator.gaintype, actuator.biastype = _mujoco.mjtGain.mjGAIN_FIXED, _mujoco.mjtBias.mjBIAS_AFFINE
        holds_position = motor.control == "position"
        actuator.gainprm[0] = motor.stiffness if holds_position else motor.damping
        actuator.biasprm[:3] = [0.0, -motor.stiffness if holds_position else 0.0, -motor.damping]
        if motor.network:  # what it is asked for is the torque itself
            actuator.gainprm[0], actuator.biasprm[:3] = 1.0, [0.0, 0.0, 0.0]
        limit = _limit(motor, networks) or motor.stall_torque
        if limit is not None:
            actuator.forcelimited = True
            actuator.forcerange = [-limit, limit]


def _add_pairs(spec: Any, description: RobotDescription, timestep: float) -> None:
    """Let the parts that a robot's file names touch each other, and no others."""
    solid = {body.name: [geom for geom in body.geoms if geom.contype or geom.conaffinity] for body in spec.bodies}
    names, where = [name for name in solid if name != "world"], f"{description.file}: touching"
    touching = {
        tuple(sorted((one, other)))
        for pair in description.touching
        for one in matches(pair[0], names, where)
        for other in matches(pair[1], names, where)
        if one != other
    }
    for one, other in sorted(touching):
        for geom in solid[one]:
            for against in solid[other]:
                pair = spec.add_pair(geomname1=geom.name, geomname2=against.name)
                pair.solref = [2 * timestep, 1.0]  # as hard as the solver can make it: legs meet fast


def _add_floor(spec: Any, terrain: Terrain | None) -> None:
    # Its friction alone counts, so that one number says how slippery a place is.
    floor = spec.worldbody.add_geom(name=FLOOR, contype=1, conaffinity=0, priority=1)
    if terrain is None:
        floor.type, floor.size = _mujoco.mjtGeom.mjGEOM_PLANE, [0, 0, 0.1]
    else:
        _add_heights(spec, floor, terrain)
    floor.friction = [1.0, 0.02, 0.01]
    floor.condim = 3
    texture = spec.add_texture(
        name=FLOOR,
        type=_mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=_mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        width=128,
        height=128,
        rgb1=[0.80, 0.83, 0.86],
        rgb2=[0.70, 0.74, 0.78],
    )
    material = spec.add_material(name=FLOOR, texrepeat=[2, 2], texuniform=True)
    material.textures[_mujoco.mjtTextureRole.mjTEXROLE_RGB] = texture.name
    floor.material = FLOOR


def _add_light(spec: Any, base: str) -> None:
    """A light that goes along above the robot: shadows are drawn only near the light, not near the camera."""
    light = spec.body(base).add_light(pos=[0, 0, 4], dir=[0, 0, -1], type=_mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
    light.mode = _mujoco.mjtCamLight.mjCAMLIGHT_TRACK  # with the base, but without turning as it does


def _add_heights(spec: Any, floor: Any, terrain: Terrain) -> None:
    """MuJoCo's field has its samples at the corners of its cells, and its rows along y."""
    heights = terrain.heights.T
    lowest, highest = float(heights.min()), float(heights.max())
    rise = max(highest - lowest, 1e-3)
    half = terrain.half_extent - terrain.config.cell / 2
    field = spec.add_hfield(
        name=FLOOR,
        size=[float(half[0]), float(half[1]), rise, 0.5],
        nrow=heights.shape[0],
        ncol=heights.shape[1],
        userdata=((heights - lowest) / rise).ravel().tolist(),
    )
    floor.type, floor.hfieldname, floor.pos = _mujoco.mjtGeom.mjGEOM_HFIELD, field.name, [0, 0, lowest]


def _add_sensors(spec: Any, description: RobotDescription, bodies: Sequence[str]) -> None:
    geoms = {geom.name for geom in spec.geoms}
    sense, kinds = _mujoco.mjtSensor, _mujoco.mjtObj
    kind = {foot: kinds.mjOBJ_GEOM if foot in geoms else kinds.mjOBJ_BODY for foot in description.feet}
    # Kind by kind: what a term reads of all feet then stands side by side.
    for foot in description.feet:
        sensor = _add_contact_sensor(spec, f"force/{foot}", kind[foot], foot)
        sensor.reftype, sensor.refname = kinds.mjOBJ_BODY, "world"  # a foot that touches the other one does not stand
    for name, type_ in (("position", sense.mjSENS_FRAMEPOS), ("velocity", sense.mjSENS_FRAMELINVEL)):
        for foot in description.feet:
            spec.add_sensor(name=f"{name}/{foot}", type=type_, objtype=kind[foot], objname=foot)
    spheres = {geom.name for geom in spec.geoms if geom.type == _mujoco.mjtGeom.mjGEOM_SPHERE}
    if not set(description.feet) <= spheres:  # a ball is as low however it is turned
        for foot in description.feet:
            spec.add_sensor(name=f"rotation/{foot}", type=sense.mjSENS_FRAMEQUAT, objtype=kind[foot], objname=foot)
    for knee in description.knees:
        if knee not in {body.name for body in spec.bodies}:
            raise UserError(f"{description.file}: knees: there is no body '{knee}'")
        spec.add_sensor(name=f"knee/{knee}", type=sense.mjSENS_FRAMEPOS, objtype=kinds.mjOBJ_XBODY, objname=knee)
    for body in bodies:
        _add_contact_sensor(spec, f"contact/{body}", kinds.mjOBJ_BODY, body)


def _add_contact_sensor(spec: Any, name: str, kind: Any, what: str) -> Any:
    sensor = spec.add_sensor(name=name, type=_mujoco.mjtSensor.mjSENS_CONTACT, objtype=kind, objname=what)
    sensor.intprm[:3] = _CONTACT_DATA
    return sensor
