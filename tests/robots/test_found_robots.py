"""Robots of other packages are found without importing them, read without their pictures, and described by what they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.cli import run as command
from etude.config.robots import ResetConfig, RobotConfig
from etude.errors import UserError
from etude.robots.models import description, found_robots
from etude.robots.models.description import MODELS, load_robot, package_folder
from etude.robots.models.found_robots import find_robot, find_robots
from etude.robots.models.guessing import guess
from etude.robots.models.stored_files import store_robot, use_stored_robot
from tests.robots.robots import rest, robots

MOTORS = "".join(
    f'<position joint="{leg}_{part}" kp="{kp}" kv="0.7" forcerange="-{limit} {limit}"/>'
    for leg in ("FR", "FL", "RR", "RL")
    for part, kp, limit in (("hip", 40, 20), ("thigh", 40, 20), ("calf", 50, 30))
)
HOME = "0 0 0.29 1 0 0 0 " + "0.05 0.8 -1.5 " * 4
MESH = (
    '<asset><mesh name="shell" file="shell.stl"/><texture name="skin" type="2d" file="skin.png"/>'
    '<material name="skin" texture="skin"/></asset>'
)
SHELL = '<geom type="mesh" mesh="shell" material="skin" contype="0" conaffinity="0"/>'


def dog(*, motors: bool = True, pose: bool = True) -> str:
    """A robot dog as other collections have them: visual meshes, unnamed parts, actuators, a keyframe and a floor."""
    text = (MODELS / "quadruped.xml").read_text()
    text = text.replace("<worldbody>", f'{MESH}<worldbody><geom name="floor" type="plane" size="0 0 1"/>', 1)
    text = text.replace('<freejoint name="base"/>', f'<freejoint name="base"/>{SHELL}', 1)
    more = f"<actuator>{MOTORS}</actuator>" if motors else ""
    more += f'<keyframe><key name="crouch" qpos="{HOME}"/><key name="home" qpos="{HOME}"/></keyframe>' if pose else ""
    return text.replace("</mujoco>", f"{more}</mujoco>")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any other robots than those that a test puts there."""
    for name in ("MENAGERIE_ROOT", "MENAGERIE_CACHE_DIR", "ROBOT_DESCRIPTIONS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("etude.robots.models.found_robots.SUITE", ())
    installed = found_robots.package_place

    def of_the_test(name: str) -> Path | None:
        place = installed(name)
        return place if place is not None and tmp_path in place.parents else None

    monkeypatch.setattr(found_robots, "package_place", of_the_test)
    monkeypatch.setattr(description, "package_folder", lambda package: None)
    return tmp_path


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or dog())
    return path


@pytest.fixture
def mjlab(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that must not be imported."""
    put(elsewhere / "site" / "mjlab" / "__init__.py", "raise RuntimeError('imported')\n")
    zoo = elsewhere / "site" / "mjlab" / "asset_zoo" / "robots"
    put(zoo / "an_arm" / "xmls" / "arm.xml", "<mujoco/>")
    monkeypatch.syspath_prepend(str(elsewhere / "site"))
    return put(zoo / "unitree_go1" / "xmls" / "go1.xml")


def test_a_package_is_looked_into_without_importing_it(mjlab: Path) -> None:
    for name in ("go1", "unitree_go1", "mjlab:unitree_go1", "mjlab:go1"):
        found = find_robot(name)
        assert found is not None, name
        assert found.path == mjlab
    assert find_robot("menagerie:go1") is None
    assert [robot.full_name for robot in find_robots()] == ["mjlab:unitree_go1"]  # the arm can't move about
    assert "mjlab" not in sys.modules


def test_a_run_notes_the_files_of_another_packages_robot_and_says_where_they_have_changed(mjlab: Path, tmp_path: Path) -> None:
    task = RobotConfig(model="go1")
    store_robot(task, tmp_path)
    assert use_stored_robot(task, tmp_path) is None
    mjlab.write_text(mjlab.read_text().replace('mass="', 'mass="1'))
    said = use_stored_robot(task, tmp_path)
    assert said is not None
    assert said.startswith("the files of the robot go1 have changed since: go1.xml")
    assert use_stored_robot(RobotConfig(model="quadruped"), tmp_path) is None


def test_the_menagerie_is_found_where_it_is_kept(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = put(elsewhere / "cache" / "mujoco_menagerie" / "models" / "unitree_go2-0123456789abcdef" / "go2.xml")
    described = put(elsewhere / "cache" / "robot_descriptions" / "mujoco_menagerie" / "unitree_a1" / "a1.xml")
    put(described.parent / "a1_mjx.xml")
    scene = put(described.parent / "scene.xml", '<mujoco><include file="a1.xml"/></mujoco>')
    assert {robot.full_name: robot.path for robot in find_robots()} == {
        "menagerie:unitree_go2": cached,
        "menagerie:unitree_a1": described,
    }
    assert find_robot("a1") is not None
    assert find_robot("a1").scene == scene  # type: ignore[union-attr] # just found
    checkout = put(elsewhere / "checkout" / "unitree_a1" / "a1.xml")
    monkeypatch.setenv("MENAGERIE_ROOT", str(elsewhere / "checkout"))
    assert find_robot("menagerie:unitree_a1").path == checkout  # type: ignore[union-attr] # what is named comes first


def test_the_playgrounds_robot_has_its_pose_in_a_scene(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(elsewhere / "site" / "mujoco_playground" / "__init__.py", "raise RuntimeError('imported')\n")
    folder = elsewhere / "site" / "mujoco_playground" / "_src" / "locomotion" / "go1" / "xmls"
    put(folder / "go1_mjx_fullcollisions.xml")
    feet_only = put(folder / "go1_mjx_feetonly.xml", dog(pose=False))
    key = f'<keyframe><key name="home" qpos="{HOME}"/></keyframe>'
    put(folder / "scene_mjx_feetonly_flat_terrain.xml", f'<mujoco><include file="go1_mjx_feetonly.xml"/>{key}</mujoco>')
    monkeypatch.syspath_prepend(str(elsewhere / "site"))
    found = find_robot("playground:go1")
    assert found is not None
    assert (found.path, found.short_name) == (feet_only, "go1")
    assert load_robot("go1").pose["FL_calf"] == -1.5


def test_a_found_robot_stands_in_its_pose_with_its_own_motors(mjlab: Path) -> None:
    description = load_robot("go1")
    assert (description.base, description.gait) == ("base", (0.0, 0.5, 0.5, 0.0))
    assert description.feet == ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
    assert description.pose["FR_hip"] == 0.05
    stiff = {(group.stiffness, group.damping, group.effort_limit) for group in description.actuators.values()}
    assert stiff == {(40.0, 0.7, 20.0), (50.0, 0.7, 30.0)}
    environment = robots(2, model="go1", reset=ResetConfig(joints=0.0, velocity=0.0))
    rest(environment, 60)
    assert torch.allclose(environment.state.base_height, torch.tensor(description.height), atol=0.05)
    assert bool(environment.state.feet_in_contact.all())


def test_legs_are_bent_and_motors_guessed_where_a_file_says_nothing(tmp_path: Path) -> None:
    said = guess(put(tmp_path / "bare.xml", dog(motors=False, pose=False)))
    assert "no keyframe" in said.remarks[0]
    assert "weight and height" in said.remarks[1]
    assert 0.2 < said.description.height < 0.4
    (motors,) = said.description.actuators.values()
    assert 20 < motors.stiffness < 60
    environment = robots(2, model=str(tmp_path / "bare.xml"), reset=ResetConfig(joints=0.0, velocity=0.0))
    rest(environment, 60)
    assert float(environment.state.gravity[:, 2].max()) < -0.95
    assert bool(environment.state.feet_in_contact.all())
    environment.mirror()


def test_a_file_that_nobody_can_read_or_that_stays_where_it_is_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"broken\.xml: MuJoCo can't read this robot"):
        load_robot(str(put(tmp_path / "broken.xml", "<mujoco")))
    with pytest.raises(UserError, match=r"arm\.xml: no body has a free joint"):
        load_robot(str(put(tmp_path / "arm.xml", "<mujoco/>")))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert command(["robots", *words]) == 0
    return capsys.readouterr().out


def test_robots_are_listed_with_what_is_known_of_them(mjlab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = {row["name"]: row for row in json.loads(printed(capsys, "--json"))}
    assert set(listed) == {"ball", "biped", "quadruped", "mjlab:unitree_go1"}
    found = listed["mjlab:unitree_go1"]
    assert (found["joints"], found["from"], found["file"]) == (12, "mjlab", str(mjlab))
    assert listed["ball"]["feet"] == []
    assert "12 joints   12.9 kg  0.29 m  4 feet  etude" in printed(capsys)
    mjlab.write_text("<mujoco><freejoint")
    assert "MuJoCo can't read this robot" in printed(capsys)  # one that is broken hides no other


def test_one_robot_is_shown_and_written_as_a_yaml_that_is_the_same_robot(
    mjlab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "go1")
    assert "guessed pose: the file's keyframe home" in text
    mine = tmp_path / "mine.yaml"
    mine.write_text(printed(capsys, "go1", "--yaml"))
    ours, theirs = load_robot(str(mine)), load_robot("go1")
    assert (ours.pose, ours.actuators, ours.feet, ours.path) == (theirs.pose, theirs.actuators, theirs.feet, theirs.path)
    assert command(["robots", "goo1"]) == 2
    assert "unknown robot; did you mean 'go1'" in capsys.readouterr().err
    assert command(["robots", "--yaml"]) == 2


def test_a_user_without_a_home_finds_what_there_is(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry and no HOME: the caches are nowhere, and nothing fails."""

    def nobody(_: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setenv("MENAGERIE_ROOT", str(elsewhere / "zoo"))
    put(elsewhere / "zoo" / "unitree_go1" / "go1.xml")
    assert [robot.name for robot in find_robots()] == ["unitree_go1"]


def test_a_package_that_pip_did_not_install_is_found_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a_robot_zoo" / "__init__.py", "raise RuntimeError('imported')\n")
    assert package_folder("a-robot-zoo") is None
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_folder("a-robot-zoo") == tmp_path
    for name in ("a_robot_zoo.robots", ".a_robot_zoo", "a robot zoo"):  # nothing is imported for a name
        assert package_folder(name) is None
