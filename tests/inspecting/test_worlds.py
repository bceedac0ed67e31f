"""Simulated worlds as shapes and poses, and robots that are driven: recorded exactly, and without OpenGL."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import pytest

from etude.errors import UserError
from etude.inspecting.inspector import Inspector
from etude.inspecting.recording import same_future
from etude.inspecting.table import as_csv, observation_labels, step_row
from etude.inspecting.worlds import KINDS, World, _quaternions
from etude.runs.run import Run
from tests.inspecting.conftest import Trained

pytestmark = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs mujoco")

ROBOT = ("quadruped-flat:ppo", "environment.workers=0", "network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]")


def opened(run: Run, **options: Any) -> Inspector:
    return Inspector.open(run, pictures=False, world=True, **options)


def as_matrix(quaternion: np.ndarray) -> np.ndarray:
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def test_rotations_become_quaternions() -> None:
    generator = np.random.default_rng(0)
    given = generator.normal(size=(200, 4))
    given[:4] = np.eye(4)  # half turns about each axis, where the usual formula divides by 0
    given /= np.linalg.norm(given, axis=1, keepdims=True)
    matrices = np.stack([as_matrix(each) for each in given])
    found = _quaternions(matrices.reshape(-1, 9))
    np.testing.assert_allclose(np.stack([as_matrix(each) for each in found]), matrices, atol=1e-12)


def test_poses_are_where_mujoco_says_and_come_again_in_a_branch(trained: Trained) -> None:
    inspector = opened(trained("HalfCheetah-v5:ppo"))
    recording = inspector.record(0, max_steps=12)
    assert inspector.world is not None
    described = inspector.world.describe()
    assert {shape["kind"] for shape in described["shapes"]} <= {*KINDS, "surface"}
    assert len(recording.poses) == len(recording.steps) + 1
    assert {pose.shape for pose in recording.poses} == {(len(described["shapes"]), 7)}
    np.testing.assert_array_equal(recording.poses[-1], inspector.world.take())
    base: Any = inspector.environment.base
    torso = described["follow"]  # the first shape of the body that roams
    height = float(base.simulation.qpos[0, 1]) + 0.7
    assert recording.poses[-1][torso][2] == pytest.approx(height, abs=0.2)
    future = inspector.branch(recording, 5, max_steps=12)
    np.testing.assert_array_equal(np.stack(future.poses), np.stack(recording.poses))
    inspector.close()


def test_what_mujoco_does_not_simulate_has_no_world_and_nobody_to_drive(trained: Trained) -> None:
    inspector = opened(trained("CartPole-v1:ppo"))
    assert inspector.world is None
    recording = inspector.record(0, max_steps=3)
    assert recording.poses == []
    with pytest.raises(UserError, match="can't be driven; robots can"):
        inspector.drive(recording, 1)


def test_meshes_and_fields_are_triangles_and_what_is_too_fine_a_box(monkeypatch: pytest.MonkeyPatch) -> None:
    import mujoco  # type: ignore[import-untyped] # compiled, without stubs

    from etude.inspecting import surfaces

    parse = cast("Any", mujoco).MjModel.from_xml_string
    model = parse(
        """<mujoco><asset>
        <mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
        <hfield name="hill" nrow="3" ncol="4" size="2 1 0.5 0.1" elevation="0 0 0 0  0 1 1 0  0 0 0 0"/>
        </asset><worldbody><geom type="mesh" mesh="wedge"/><geom type="hfield" hfield="hill"/></worldbody></mujoco>"""
    )
    points, faces = surfaces.mesh_of(model, 0, []) or (None, None)
    assert points is not None
    assert faces is not None
    assert (points.shape, faces.shape, int(faces.max())) == ((4, 3), (4, 3), 3)
    field = surfaces.field_of(model, 0)
    assert field is not None
    assert (field[0].shape, field[1].shape) == ((12, 3), (12, 3))
    assert field[0][:, 2].max() == pytest.approx(0.5)
    monkeypatch.setattr(surfaces, "MOST_POINTS", 3)
    assert surfaces.mesh_of(model, 0, []) is None

    data = mujoco.MjData(model)  # type: ignore[attr-defined] # compiled, without stubs
    mujoco.mj_forward(model, data)  # type: ignore[attr-defined] # compiled, without stubs
    world = World(_Nowhere(), model, lambda: data, is_copy=False)  # type: ignore[arg-type] # nothing else is asked of it
    assert [shape["kind"] for shape in world.describe()["shapes"]] == ["box", "surface"]


class _Nowhere:
    base = None


@pytest.fixture
def driven(trained: Trained) -> Inspector:
    return opened(trained(*ROBOT))


def test_a_drive_is_exact_and_the_recording_is_left_alone(driven: Inspector) -> None:
    """However it is cut into requests; and what branches off it follows the commands up to there."""
    recording = driven.record(0, max_steps=10)
    before = [step.action.tobytes() for step in recording.steps]
    one, other = driven.drive(recording, 4), driven.drive(recording, 4)
    for steps in (3, 2, 5):
        driven.steer(one, (0.5, 0.0, 0.2), steps)
    driven.steer(other, (0.5, 0.0, 0.2), 10)
    assert same_future(one.steps, other.steps)
    assert len(one.steps) == 14
    assert len(one.poses) == 15
    assert one.frames == []
    assert [step.command for step in one.steps] == [None] * 4 + [(0.5, 0.0, 0.2)] * 10
    assert same_future(one.steps[:4], recording.steps[:4])
    assert not same_future(one.steps[4:10], recording.steps[4:])
    assert same_future(driven.branch(one, 9, max_steps=14).steps[:9], one.steps[:9])
    assert same_future(driven.branch(recording, 4, max_steps=10).steps, recording.steps)
    assert [step.action.tobytes() for step in recording.steps] == before
    assert step_row(driven, one, 8)["command"] == [0.5, 0.0, 0.2]
    assert "command_forward" in as_csv(driven, [one])
    assert "action_FL_thigh" in as_csv(driven, [one])
    assert observation_labels(driven)[9:11] == ("joint_position FL_hip", "joint_position FL_thigh")


def test_commands_stay_within_the_tasks_and_are_three_numbers(driven: Inspector) -> None:
    pilot = driven.steered()
    fastest = pilot.facts()["ranges"]["forward"][1]
    assert pilot.limited([99, 0, 0])[0] == fastest
    for wrong in ([1, 2], "abc", [1, 2, "3"], [1, 2, float("nan")], [10**400, 0, 0], [True, 0, 0], None, {"forward": 1}):
        with pytest.raises(UserError, match="command: must be"):
            pilot.limited(wrong)
    recording = driven.record(0, max_steps=3)
    with pytest.raises(UserError, match="a drive begins at one of the steps 0 to 3"):
        driven.drive(recording, 4)


def test_a_drive_has_no_limit_of_time_and_the_next_episode_has(driven: Inspector) -> None:
    base: Any = driven.environment.base
    base.episode_steps = driven.steered()._limit = 6
    recording = driven.record(0, max_steps=50)
    assert len(recording.steps) <= 6
    drive = driven.drive(driven.record(0, max_steps=2), 2)
    driven.steer(drive, (0.0, 0.0, 0.0), 8)
    assert drive.ending == "terminated" or len(drive.steps) == 10
    assert len(driven.record(0, max_steps=50).steps) == len(recording.steps)
