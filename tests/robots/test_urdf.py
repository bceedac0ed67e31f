"""A URDF is a robot like any other: its root floats, its hinges have motors, and its meshes are found or named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from etude.cli import run as command
from etude.config.robots import ResetConfig
from etude.errors import UserError
from etude.robots.models.description import load_robot
from tests.robots.conftest import SMALL
from tests.robots.robots import rest, robots
from tests.robots.urdf_dog import write_dog
from tests.runs_compared import assert_resumes

CORNERS = ((0.2, 0.1, 0.05), (-0.2, 0.1, 0.05), (0.0, -0.1, 0.05), (0.0, 0.0, -0.05))


def write_mesh(path: Path) -> None:
    """A tetrahedron as binary STL."""
    faces = [(0, 1, 2), (0, 3, 1), (1, 3, 2), (2, 3, 0)]
    body = b"".join(struct.pack("<12fH", 0, 0, 0, *(x for corner in face for x in CORNERS[corner]), 0) for face in faces)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(80) + struct.pack("<I", len(faces)) + body)


def test_a_bare_urdf_floats_and_stands_on_feet_that_were_guessed(tmp_path: Path) -> None:
    path = str(write_dog(tmp_path))
    description = load_robot(path)
    assert description.base == "base"
    assert description.feet == ("FL_foot_geom", "FR_foot_geom", "RL_foot_geom", "RR_foot_geom")
    environment = robots(2, model=path, reset=ResetConfig(joints=0.0, velocity=0.0))
    assert len(environment.scene.joints) == 12
    assert sorted(set(environment.scene.effort_limit)) == [20.0, 30.0]
    assert set(environment.scene.model.actuator_forcerange[:, 1]) == {20.0, 30.0}
    rest(environment, 60)
    assert float(environment.state.gravity[:, 2].max()) < -0.9
    assert bool(environment.state.feet_in_contact.all())
    environment.mirror()


def test_a_yaml_says_of_a_urdf_what_it_knows_better_and_the_rest_is_guessed(tmp_path: Path) -> None:
    write_dog(tmp_path / "shapes")
    mine = tmp_path / "mine.yaml"
    mine.write_text("file: shapes/dog.urdf\nfeet: [FL_foot, FR_foot, RL_foot, RR_foot]\nheight: 0.31\n")
    description = load_robot(str(mine))
    assert (description.feet[0], description.height, description.path) == ("FL_foot", 0.31, tmp_path / "shapes" / "dog.urdf")
    assert description.pose["FL_calf_joint"] < -0.5
    assert {group.effort_limit for group in description.actuators.values()} == {20.0, 30.0}
    rest(robots(2, model=str(mine)), 2)
    mine.write_text("file: dog.urdf\n")
    with pytest.raises(UserError, match=r"mine\.yaml: file=dog\.urdf: there is no such file"):
        load_robot(str(mine))


@pytest.mark.parametrize("mesh", ["../meshes/trunk.stl", "package://dog_description/meshes/trunk.stl"])
def test_meshes_are_found_beside_the_file_and_in_its_package(tmp_path: Path, mesh: str) -> None:
    package = tmp_path / "dog_description"
    write_mesh(package / "meshes" / "trunk.stl")
    environment = robots(2, model=str(write_dog(package / "urdf", mesh=mesh)))
    assert environment.scene.model.nmesh == 1


def test_a_package_elsewhere_is_found_on_the_package_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mesh(tmp_path / "ros" / "parts" / "trunk.stl")
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(tmp_path / "ros"))
    load_robot(str(write_dog(tmp_path / "mine", mesh="package://parts/trunk.stl")))


def test_a_mesh_that_collides_and_is_missing_is_one_line_and_one_that_is_only_seen_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_robot(str(write_dog(tmp_path, seen="package://nowhere/trunk.dae")))
    path = write_dog(tmp_path, mesh="package://nowhere/trunk.stl")
    assert command(["robots", str(path)]) == 2
    said = capsys.readouterr().err.strip()
    assert "dog.urdf: link trunk: mesh package://nowhere/trunk.stl: there is no such file" in said
    assert len(said.splitlines()) == 1
    (tmp_path / "trunk.dae").write_text("<COLLADA/>")
    with pytest.raises(UserError, match=r"mesh trunk\.dae: MuJoCo reads \.stl, \.obj, \.msh"):
        load_robot(str(write_dog(tmp_path, mesh="trunk.dae")))


def test_what_is_no_urdf_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.urdf"
    for text in ("<robot", "<mujoco/>"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"bad\.urdf: can't be read as a URDF"):
            load_robot(str(path))


def test_a_robot_that_its_file_fixes_to_the_world_stays_there(tmp_path: Path) -> None:
    path = write_dog(tmp_path)
    path.write_text(path.read_text().replace('"base"', '"world"'))
    with pytest.raises(UserError, match="no body has a free joint"):
        load_robot(str(path))


def test_a_urdf_trains_evaluates_and_resumes(tmp_path: Path) -> None:
    model = f"environment.robot.model={write_dog(tmp_path)}"
    assert_resumes("quadruped-flat:ppo", tmp_path, model, *SMALL, "evaluation.every_steps=480", after=2)
