"""Many simulations do what one MjData each would do, bit for bit, and can be saved and continued."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

mujoco = pytest.importorskip("mujoco")

from mujoco.batch import DATA_FIELDS  # noqa: E402

from etude.compute.processors import available_cpus  # noqa: E402
from etude.environments.native.mujoco_batch import MujocoSimulation  # noqa: E402
from etude.errors import UserError  # noqa: E402

N = 3
# A hopping ball with a pendulum in it: contacts, an actuator with a state of its own, Runge-Kutta.
XML = """
<mujoco>
  <option integrator="{integrator}"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="ball" pos="0 0 .3">
      <freejoint/>
      <geom type="sphere" size=".1" mass="1"/>
      <body name="arm">
        <joint name="hinge" axis="0 1 0" damping=".01"/>
        <geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".1"/>
      </body>
    </body>
    {bodies}
  </worldbody>
  <actuator>
    <general joint="hinge" dyntype="filter" dynprm="0.02" gainprm="0.5"/>
  </actuator>
  {equality}
</mujoco>
"""
INTEGRATORS = ["Euler", "RK4", "implicitfast"]


def compile_model(integrator: str = "RK4", bodies: str = "", equality: str = "") -> Any:
    return mujoco.MjModel.from_xml_string(XML.format(integrator=integrator, bodies=bodies, equality=equality))


def make(threads: int | None = None, **options: str) -> MujocoSimulation:
    return MujocoSimulation(compile_model(**options), N, frame_skip=4, threads=threads)


def start(simulation: MujocoSimulation, ids: np.ndarray | None = None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    ids = np.arange(N) if ids is None else ids
    random = np.random.default_rng(seed)
    qpos = simulation.model.qpos0 + random.uniform(-0.05, 0.05, (len(ids), simulation.model.nq))
    qvel = random.standard_normal((len(ids), simulation.model.nv))
    simulation.reset(ids, qpos, qvel)
    return qpos, qvel


def controls(steps: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, N, 1))


def run(simulation: MujocoSimulation, moves: np.ndarray) -> bytes:
    out = b""
    for move in moves:
        simulation.ctrl[...] = move
        simulation.step()
        out += simulation.qpos.tobytes() + simulation.qvel.tobytes() + simulation.field("xpos").tobytes()
    return out


def assert_same_data(simulation: MujocoSimulation, index: int | np.integer, expected: Any) -> None:
    found = simulation.data(int(index))
    for name in sorted(DATA_FIELDS):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_every_field_is_that_of_a_single_simulation(integrator: str) -> None:
    """Through resets of some, which leave what `mj_resetData`, `set_state` and `mj_forward` leave."""
    simulation = make(integrator=integrator)
    model = simulation.model
    singles = [mujoco.MjData(model) for _ in range(N)]
    ids = np.arange(N)
    for seed in range(4):
        for index, qpos, qvel in zip(ids, *start(simulation, ids, seed), strict=True):
            mujoco.mj_resetData(model, singles[index])
            singles[index].qpos[:], singles[index].qvel[:] = qpos, qvel
            mujoco.mj_forward(model, singles[index])
            assert_same_data(simulation, index, singles[index])
        for move in controls(25, seed):
            simulation.ctrl[...] = move
            simulation.step()
            for index, single in enumerate(singles):
                single.ctrl[:] = move[index]
                mujoco.mj_step(model, single, nstep=4)
                assert_same_data(simulation, index, single)
        ids = np.array([0, 2])
    assert (simulation.field("ncon") > 0).any()


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize("kind", ["contacts", "pushes", "equality"])
def test_external_forces_are_those_after_the_whole_step(integrator: str, kind: str) -> None:
    far = '<body name="far" pos="0 0 9"><freejoint/><geom size=".1" contype="0" conaffinity="0"/></body>'
    weld = '<equality><connect body1="far" anchor="0 0 1"/></equality>' if kind == "equality" else ""
    simulation = make(integrator=integrator, bodies=far, equality=weld)
    forces = simulation.external_forces()
    start(simulation)
    assert not forces.any()
    if kind == "pushes":
        simulation.qpos[:, 2] = 3.0
        simulation.field("xfrc_applied")[0, 1, 2] = 0.5
    seen = 0
    for move in controls(40):
        simulation.ctrl[...] = move
        simulation.step()
        for index in range(N):
            data = simulation.data(index)
            mujoco.mj_rnePostConstraint(simulation.model, data)
            np.testing.assert_array_equal(forces[index], data.cfrc_ext)
        seen += int(forces.any(axis=(1, 2)).sum())
    assert seen >= 20
    before = forces.copy()
    start(simulation, np.array([1]))
    assert not forces[1].any()
    np.testing.assert_array_equal(forces[[0, 2]], before[[0, 2]])


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_a_saved_simulation_goes_on_bit_for_bit_in_a_fresh_one_and_in_a_used_one(integrator: str) -> None:
    simulation = make(integrator=integrator)
    start(simulation)
    simulation.external_forces()
    run(simulation, controls(30))
    state = simulation.state_dict()
    kept = {name: value.clone() for name, value in state["outputs"].items()}
    positions, forces = simulation.field("xpos").copy(), simulation.external_forces().copy()
    expected = run(simulation, controls(50, seed=2))
    assert all(torch.equal(value, kept[name]) for name, value in state["outputs"].items())
    used = make(integrator=integrator)
    start(used, seed=9)  # its last call computed the stages of a step that will not follow
    for other in (make(integrator=integrator), used, simulation):
        other.load_state_dict(state)
        np.testing.assert_array_equal(other.field("xpos"), positions)
        np.testing.assert_array_equal(other.external_forces(), forces)
        assert not other.field("xpos").flags.writeable
        assert run(other, controls(50, seed=2)) == expected


def test_simulations_can_have_models_of_their_own() -> None:
    simulation = make()
    masses = simulation.model_field("body_mass")
    masses[:, 1] = [0.5, 1.0, 2.0]
    simulation.model_field("opt.gravity")[:, 2] = [-9.81, -5.0, -1.0]
    simulation.update_constants()
    moves = controls(50)
    qpos, qvel = start(simulation)
    run(simulation, moves)
    for index in range(N):
        model = compile_model()
        model.body_mass[1] = masses[index, 1]
        model.opt.gravity[2] = [-9.81, -5.0, -1.0][index]
        data = mujoco.MjData(model)
        mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = qpos[index], qvel[index]
        mujoco.mj_forward(model, data)
        for move in moves:
            data.ctrl[:] = move[index]
            mujoco.mj_step(model, data, nstep=4)
        np.testing.assert_array_equal(simulation.qpos[index], data.qpos)


def test_models_of_their_own_are_part_of_the_state() -> None:
    simulation = make()
    simulation.model_field("body_mass")[:, 1] = [0.5, 1.0, 2.0]
    simulation.update_constants()
    simulation.model_field("body_mass")[:, 1] *= 1.5  # and the constants stay those of before
    start(simulation)
    run(simulation, controls(10))
    state = simulation.state_dict()
    expected = run(simulation, controls(50, seed=2))
    used = make()
    used.model_field("geom_friction")[...] = 0.01  # the saved simulation has the model's own
    for other in (make(), used, simulation):
        other.load_state_dict(state)
        assert run(other, controls(50, seed=2)) == expected
    with pytest.raises(ValueError, match=r"update_constants\(\) was called here"):
        simulation.load_state_dict(make().state_dict())


def test_a_state_of_other_simulations_is_refused() -> None:
    with pytest.raises(ValueError, match="states of shape"):
        make().load_state_dict(MujocoSimulation(compile_model(), N + 1).state_dict())


def test_threads_are_as_many_as_asked_for_and_never_more_than_simulations() -> None:
    assert make().threads == min(N, available_cpus())
    assert make(threads=1).threads == 1
    assert make(threads=8).threads == N
    with pytest.raises(UserError, match="threads=0: must be at least 1"):
        make(threads=0)


def test_a_step_lasts_as_long_as_its_substeps() -> None:
    simulation = make()
    start(simulation)
    simulation.step()
    assert simulation.dt == pytest.approx(0.008)
    np.testing.assert_allclose(simulation.field("time"), simulation.dt)
