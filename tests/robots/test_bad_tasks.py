"""A slip in a robot or its task is one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude.config.robots import ActionConfig, ActuatorConfig, TerrainConfig
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
        ({"model": "quadrupet"}, r"robot.model=quadrupet: unknown robot.* 'quadruped'"),
        ({"model": "nowhere/robot.yaml"}, r"there is no such file"),
        ({"action": ActionConfig(lag=(0, 4))}, r"action.lag=\[0, 4\]: must be between 0 and decimation - 1"),
    ],
)
def test_a_slip_in_a_task_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EtudeError, match=said):
        robots(2, training=True, **changes)


def _own(folder: Path, text: str, **changes: str) -> str:
    (folder / "own.xml").write_text(text)
    lines = {"file": "own.xml", "feet": str(FEET), "height": "0.29"} | changes
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
