"""A slip in a robot or its task is one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude.config.robots import ActuatorConfig, ResetConfig, RobotConfig, TerrainConfig
from etude.config.validate import Validator
from etude.errors import EtudeError
from etude.robots.models.description import MODELS
from tests.robots.robots import robots

FEET = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"rewards": {"track_linear_velosity": 1.0}},
            r"rewards.track_linear_velosity: unknown reward term.* 'track_linear_velocity'",
        ),
        (
            {"rewards": {"gait": {"weight": 1.0, "swing_hight": 0.1}}},
            r"rewards.gait.swing_hight: unknown option.* 'swing_height'",
        ),
        ({"rewards": {"gait": "much"}}, r"rewards.gait=much: must be a number"),
        ({"observations": {"actor": {"joint_positions": {}}}}, r"observations.actor.joint_positions: unknown observation term"),
        ({"observations": {"actor": {"gravity": {"noise": -1}}}}, r"observations.actor.gravity.noise=-1: must be at least 0"),
        ({"observations": {}}, r"observations: a task needs at least one group"),
        ({"terminations": {"tilted": {}}}, r"terminations.tilted: unknown termination term.* 'tilt'"),
        ({"randomization": {"friction": {}}}, r"randomization.friction: unknown randomisation"),
        ({"randomization": {"base_mass": {"rang": [0, 1]}}}, r"randomization.base_mass.rang: unknown key.* 'range'"),
        ({"rewards": {"collisions": {"weight": -1, "bodies": ["thigh"]}}}, r"nothing is called 'thigh'.*FL_thigh"),
        ({"actuators": {"hips": ActuatorConfig(joints=".*_hipp")}}, r"actuators.hips.joints: nothing is called '.\*_hipp'"),
        (
            {"actuators": {"all": ActuatorConfig(), "hips": ActuatorConfig(joints=".*_hip")}},
            r"actuators.hips.joints=.*: joint 'FL_hip' has a motor of another group already",
        ),
        ({"actuators": {"bad": ActuatorConfig(joints="(")}}, r"'\(' is no regular expression"),
        ({"rewards": {"gait": {"swing_height": "abc"}}}, r"rewards.gait.swing_height=abc: must be a number"),
        ({"rewards": {"collisions": {"bodies": 5}}}, r"bodies=5: must be the name of a body, or a list of names"),
        ({"observations": {"actor": {"gravity": 3}}}, r"observations.actor.gravity=3: must be a mapping of options"),
        ({"observations": {"actor": {"gravity": {}, "history": "x"}}}, r"actor.gravity.history=x: must be a whole number"),
        ({"terminations": {"tilt": 3}}, r"terminations.tilt=3: must be a mapping of options"),
        ({"randomization": {"push": 3}}, r"randomization.push=3: must be a mapping of options"),
        ({"rewards": {"collisions": -1}}, r"rewards.collisions: needs bodies, such as"),
        ({"terminations": {"contact": {}}}, r"terminations.contact: needs bodies, such as"),
        ({"observations": {"actor": {"height_scan": {"step": 0}}}}, r"height_scan.step=0: must be above 0"),
        ({"observations": {"actor": {"history": 3}}}, r"observations.actor: needs at least one term"),
        ({"terrain": TerrainConfig(type="tiles", cell=9.0)}, r"terrain.cell=9: must be at most tile, 8"),
        ({"terrain": TerrainConfig(type="tiles", cell=0.3)}, r"terrain.cell=0.3: tile, 8, must be a multiple of it"),
        ({"terrain": TerrainConfig(type="tiles", cell=0.001)}, r"terrain.cell=0.001: 56,000 by 88,000 heights are more than"),
        ({"terrain": TerrainConfig(type="tiles", columns=1)}, r"terrain.columns=1: too few for a column of 'flat'"),
        (
            {"terrain": TerrainConfig(type="tiles"), "reset": ResetConfig(position=30.0)},
            r"reset.position=30: must be at most half a tile, 4 m",
        ),
        (
            {"randomization": {"floor_friction": {"range": [-1, 1]}}},
            r"floor_friction.range=\[-1.0, 1.0\]: each must be at least 0",
        ),
        ({"randomization": {"floor_friction": {"range": [1, 0.5]}}}, r"must be a lower bound and then an upper one"),
        ({"randomization": {"base_mass": {"range": [-100, 0]}}}, r"the base weighs 6 kg, and must keep 0.1"),
        ({"randomization": {"link_mass": {"range": [0, 1]}}}, r"link_mass.range=\[0.0, 1.0\]: each must be above 0"),
        (
            {"randomization": {"restitution": {"range": [2, 2]}}},
            r"restitution.range=.*: each must be at least 0 and at most 0.99",
        ),
        ({"randomization": {"stiffness": {}}}, r"randomization.stiffness.range: is required"),
        ({"randomization": {"push": {"every_s": [0, 1]}}}, r"push.every_s=\[0, 1\]: each must be above 0"),
        ({"observations": {"actor": {"gravity": {"lag": [3, 1]}}}}, r"gravity.lag=\[3, 1\]: must be a lower bound and then"),
        ({"observations": {"actor": {"gravity": {"lag": [0, 0.5]}}}}, r"gravity.lag=\[0, 0.5\]: must be whole numbers"),
        ({"observations": {"actor": {"gravity": {"scale": 0}}}}, r"gravity: scale=0: hides the term"),
        (
            {"observations": {"actor": {"gravity": {"history": 10**9}}}},
            r"history=1000000000: must be at least 1 and at most 1000",
        ),
        (
            {"observations": {"actor": {"randomized": {"name": "base_mass"}}}},
            r"randomized.name=base_mass: the task draws no base_mass",
        ),
        (
            {"observations": {"actor": {"height_scan": {"step": 1e-4}}}},
            r"height_scan.step=0.0001: makes more than 4,096 points",
        ),
        ({"model": "ball", "rewards": {"gait": 1.0}}, r"rewards.gait: is of feet, and this robot has none"),
        (
            {"model": "ball", "observations": {"actor": {"feet_height": {}}}},
            r"actor.feet_height: is of feet, and this robot has",
        ),
        ({"rewards": {"feet_distance": 1.0}}, r"rewards.feet_distance: is of robots with 2 feet, and this one has 4"),
        ({"rewards": {"alive": float("nan")}}, r"rewards.alive=nan: must be a number"),
        ({"rewards": {"track_turn": {"width": 0}}}, r"rewards.track_turn.width=0: must be above 0"),
        ({"rewards": {"pose_by_speed": {"standing": [1]}}}, r"pose_by_speed.standing=\[1\]: must be a mapping"),
        ({"terminations": {"tilt": {"limit": 10}}}, r"terminations.tilt.limit=10: must be above 0 and at most 3.1416"),
        ({"terminations": {"low": {"height": 5.0}}}, r"terminations.low: holds for every robot at the start of its episode"),
        (
            {"actuators": {"hips": ActuatorConfig(joints=".*_hip")}},
            r"quadruped.xml: actuators: no motor moves FL_thigh.* and 4 more",
        ),
        ({"model": "quadrupet"}, r"robot.model=quadrupet: unknown robot.* 'quadruped'"),
        ({"model": "nowhere/robot.yaml"}, r"there is no such file"),
    ],
)
def test_a_slip_in_a_task_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EtudeError, match=said):
        robots(2, training=True, **changes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"action": {"lag": [3, 1]}}, r"action.lag=\[3, 1\]: must be a lower bound and then an upper one"),
        ({"action": {"lag": [0, 1.5]}}, r"action.lag=\[0, 1.5\]: must be whole numbers"),
        ({"commands": {"forward": [1, -1]}}, r"commands.forward=\[1, -1\]: must be a lower bound and then an upper one"),
        ({"commands": {"every_s": [0, 0]}}, r"commands.every_s=\[0, 0\]: each must be above 0"),
        ({"commands": {"level_up": 0.2}}, r"commands: level_down=0.5: must be at most level_up, 0.2"),
        ({"terrain": {"tile": 1}}, r"terrain.tile=1: must be at least 4"),
        ({"timestep": 1}, r"timestep=1: must be above 0 and at most 0.05"),
        ({"reset": {"joints": 100}}, r"reset.joints=100: must be at least 0 and at most 3.15"),
        ({"action": {"lag": ["x", 1]}}, r"action.lag\[0\]=x: must be a number"),
    ],
)
def test_settings_that_no_robot_can_have_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(EtudeError, match=said):
        Validator().build(RobotConfig, settings, "environment.robot")


def _own(folder: Path, text: str, **changes: str) -> str:
    (folder / "own.xml").write_text(text)
    lines = {"file": "own.xml", "feet": str(FEET), "height": "0.29", "pose": "{.*_calf: -1.5}"} | changes
    (folder / "own.yaml").write_text("\n".join(f"{key}: {value}" for key, value in lines.items()))
    return str(folder / "own.yaml")


@pytest.mark.parametrize(
    ("edit", "changes", "said"),
    [
        (("", ""), {"feet": "[FL_foot, FL_paw]"}, r"own.xml: feet: there is no geom or body 'FL_paw' \(there are .*FL_foot"),
        (("", ""), {"feet": "[FL_foot, FL_foot]"}, r"own.xml: feet: 'FL_foot' is named twice"),
        (("", ""), {"gait": "[0.0, 0.5]"}, r"own.xml: gait=\[0.0, 0.5\]: must have a phase for each of 4 feet"),
        (("", ""), {"base": "FL_hip"}, r"own.xml: base=FL_hip: has no free joint \(bodies that have: base\)"),
        (("", ""), {"pose": "{.*_knee: 1.0}"}, r"own.xml: pose: nothing is called '.\*_knee'"),
        (("", ""), {"pose": "{.*_calf: 0.5}"}, r"own.xml: pose: FL_calf=0.5: is beyond the joint's range, -2.75 to -0.75"),
        (("", ""), {"pose": "{}"}, r"own.xml: pose: FL_calf=0: is beyond .*, and is not in the pose"),
        (
            ("", ""),
            {"actuators": "{legs: {joints: .*_(hip|thigh)}}", "passive": "[.*_calf]"},
            r"own.xml: pose: no motor holds FL_calf",
        ),
        (("", ""), {"passive": "[.*_calf]"}, r"own.xml: passive: 'FL_calf' has a motor"),
        (("", ""), {"feet": "[FL_foot, FL_calf]"}, r"own.xml: feet: 'FL_foot' is named twice, as 'FL_calf' too"),
        (('class="foot" pos', 'class="foot" contype="0" conaffinity="0" pos'), {}, r"feet: 'FL_foot' touches nothing"),
        (("", ""), {"height": "-1"}, r"own.yaml.height=-1: must be above 0"),
        (("", ""), {"gait": "[0, 5, 0, 0]"}, r"own.yaml.gait\[1\]=5: must be at least 0 and at most 1"),
        (("", ""), {"hight": "0.3"}, r"own.yaml.hight: unknown key.* 'height'"),
        (('<freejoint name="base"/>', ""), {}, r"own.xml: no body has a free joint"),
        (("<mujoco", "<mujoko"), {}, r"own.xml: MuJoCo can't read this robot"),
    ],
)
def test_a_slip_in_a_robots_own_files_is_named(
    edit: tuple[str, str], changes: dict[str, str], said: str, tmp_path: Path
) -> None:
    text = (MODELS / "quadruped.xml").read_text()
    with pytest.raises(EtudeError, match=said):
        robots(2, model=_own(tmp_path, text.replace(*edit) if edit[0] else text, **changes))


def test_a_users_own_robot_is_found_by_its_path(tmp_path: Path) -> None:
    path = _own(tmp_path, (MODELS / "quadruped.xml").read_text())
    assert len(robots(2, model=path).scene.joints) == 12
    assert len(robots(2, model=str(tmp_path / "own.xml"), terminations={}).scene.joints) == 12
