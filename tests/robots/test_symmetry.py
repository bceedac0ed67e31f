"""A robot's mirror image: left and right change places in all that is seen and done, as they do in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.robots import CommandConfig, ResetConfig
from etude.environments.mirror import Mirror, Swap
from etude.errors import UserError
from etude.robots.environment import RobotVector
from etude.robots.symmetry import body_symmetry, mirrored_name
from etude.robots.terms.mirrors import MIRRORS, RANDOMIZED
from etude.robots.terms.observations import OBSERVATIONS, _scan_grid
from etude.robots.terms.randomizations import RANDOMIZATIONS
from tests.robots.robots import actions, rest, robots

OF_MOTIONS = {"motion_pose"}
"""What a motion need not look like in a mirror."""
OF_JUMPS = {"jump_clock"}
"""What is shown in tasks of jumps alone."""
EVERY_TERM: dict[str, Any] = {name: {} for name in sorted({*OBSERVATIONS.terms} - OF_MOTIONS - OF_JUMPS)}
DRAWN = {"floor_friction": {"range": [0.5, 0.9]}}


def pair(model: str, **changes: Any) -> tuple[RobotVector, Mirror]:
    """Two robots, the second of which begins as the first one's mirror image."""
    settings: dict[str, Any] = {
        "observations": {"actor": {name: {} for name in EVERY_TERM if model != "ball" or name not in OBSERVATIONS.for_feet}},
        "randomization": DRAWN,
        "reset": ResetConfig(joints=0.3, velocity=1.0),
        "commands": CommandConfig(standing=0.0),
        "rewards": {"alive": 1.0},
        "terminations": {"unstable": {}},
    }
    environment = robots(2, model=model, **(settings | changes))
    mirror, body, scene = environment.mirror(), body_symmetry(environment.scene), environment.scene
    joints = Swap(body.joints, body.joint_signs)
    qpos, qvel = environment.simulation.qpos.clone(), environment.simulation.qvel.clone()
    first, dof = scene.base_qpos, scene.base_dof
    qpos[1, first : first + 3] = qpos[0, first : first + 3] * torch.tensor([1.0, -1.0, 1.0])
    qpos[1, first + 3 : first + 7] = qpos[0, first + 3 : first + 7] * torch.tensor([1.0, -1.0, 1.0, -1.0])
    qvel[1, dof : dof + 6] = qvel[0, dof : dof + 6] * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    places, dofs = torch.as_tensor(scene.qpos_address).long(), torch.as_tensor(scene.dof_address).long()
    qpos[1, places], qvel[1, dofs] = joints(qpos[0, places]), joints(qvel[0, dofs])
    environment.simulation.place(torch.tensor([True, True]), qpos, qvel)
    memory = environment.memory
    memory.command[1] = memory.command[0] * torch.tensor([1.0, -1.0, -1.0])
    memory.command_left.fill_(100.0)
    memory.phase[1] = (memory.phase[0] + body.gait_shift) % 1.0
    environment.state.refresh()
    return environment, mirror


@pytest.mark.parametrize("model", ["quadruped", "biped", "ball"])
def test_a_mirrored_start_and_mirrored_actions_are_seen_mirrored_all_along(model: str) -> None:
    environment, mirror = pair(model)
    seen: Any = None
    for seed in range(15):
        action = actions(environment, seed, 0.7)[:1]
        step = environment.step(torch.cat([action, mirror.action(action)]))
        seen = step.observation
        size = seen.abs().clamp(min=1.0)[1]
        assert float(((mirror.observe(seen)[0] - seen[1]).abs() / size).max()) < 2e-3  # type: ignore[index] # a tensor
    assert float((seen[0] - seen[1]).abs().max()) > 0.05  # and the two are not the same


def test_every_term_knows_how_it_looks_in_a_mirror_and_twice_is_itself() -> None:
    assert set(MIRRORS) == {*EVERY_TERM, *OF_JUMPS}
    for term in MIRRORS:
        commands = CommandConfig(goal="jump" if term in OF_JUMPS else "velocity")
        environment = robots(3, observations={"actor": {term: {"history": 2}}}, randomization=DRAWN, commands=commands)
        mirror, (group,) = environment.mirror(), environment.groups.values()
        values = torch.randn(5, group.size)
        assert torch.equal(mirror.observe(mirror.observe(values)), values), term  # type: ignore[arg-type] # tensors


@pytest.mark.parametrize("name", sorted({*RANDOMIZATIONS} - {"feet_friction"}))  # our robots' feet leave it to the ground
def test_what_a_randomisation_drew_is_seen_whole_and_mirrored(name: str) -> None:
    """In training, where it was drawn, and in evaluations, where nothing was."""
    options = {} if name == "push" else {"range": [0.5, 0.9]}
    seen = {"observations": {"actor": {"randomized": {"name": name}}}, "randomization": {name: options}}
    drawn, nothing = robots(2, training=True, **seen), robots(2, **seen)
    assert set(RANDOMIZED) == set(RANDOMIZATIONS)
    assert drawn.groups["actor"].size == nothing.groups["actor"].size == len(drawn.mirror().observation[""].index)
    assert float(rest(drawn, 1).observation.abs().max()) > 0  # type: ignore[union-attr] # a tensor
    assert float(rest(nothing, 1).observation.abs().max()) == 0  # type: ignore[union-attr]


def test_an_unknown_randomisation_can_not_be_seen() -> None:
    with pytest.raises(UserError, match=r"randomized.name=floor_frictoin: unknown .* did you mean 'floor_friction'"):
        robots(1, observations={"actor": {"randomized": {"name": "floor_frictoin"}}})


def test_what_is_no_mirror_is_refused() -> None:
    with pytest.raises(ValueError, match="done twice"):
        Swap([1, 2, 0], [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="done twice"):
        Swap([1, 0], [1.0, -1.0])


def test_the_scan_is_read_from_its_other_side() -> None:
    options = {"length": 1.0, "width": 0.6, "step": 0.2}
    environment = robots(1, observations={"actor": {"height_scan": options}})
    grid = _scan_grid(1.0, 0.6, 0.2, torch.device("cpu"))
    mirrored = grid[environment.mirror().observation[""].index]
    assert torch.allclose(mirrored, grid * torch.tensor([1.0, -1.0, 1.0]), atol=1e-6)


def test_groups_are_mirrored_each_by_its_own_terms() -> None:
    seen = {"actor": {"command": {}, "action": {"history": 2}}, "critic": {"base_linear_velocity": {}, "feet_contact": {}}}
    mirror = robots(2, observations=seen).mirror()
    observation = {"actor": torch.arange(27.0), "critic": torch.arange(7.0)}
    mirrored = mirror.observe(observation)
    assert isinstance(mirrored, dict)
    assert mirrored["actor"][:3].tolist() == [0.0, -1.0, -2.0]
    assert mirrored["actor"][3:6].tolist() == [-6.0, 7.0, 8.0]  # the front right leg's, whose hip turns the other way
    assert mirrored["critic"].tolist() == [0.0, -1.0, 2.0, 4.0, 3.0, 6.0, 5.0]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("FL_hip", "FR_hip"), ("left_knee", "right_knee"), ("leftKnee", "rightKnee"), ("LF_HAA", "RF_HAA"), ("l_arm", "r_arm"),
        ("Left-ankle", "Right-ankle"), ("L_toe", "R_toe"), ("waist", "waist"), ("lonely_left", "lonely_left"),
    ],
)  # fmt: skip
def test_names_tell_left_from_right(name: str, other: str) -> None:
    names = {name, other, "RL_hip", "RR_hip"}
    assert mirrored_name(name, names) == other
    assert mirrored_name(other, names) == name


def write_robot(folder: Path, changes: str = "") -> Path:
    from etude.robots.models.description import MODELS

    (folder / "mine.xml").write_text((MODELS / "quadruped.xml").read_text().replace("FL_", "port_").replace("FR_", "star_"))
    text = (MODELS / "quadruped.yaml").read_text().replace("quadruped.xml", "mine.xml")
    path = folder / "mine.yaml"
    path.write_text(text.replace("FL_", "port_").replace("FR_", "star_") + changes)
    return path


def test_a_robots_file_says_which_words_mean_left_and_right(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no joint is named as the partner of port_hip"):
        robots(1, model=str(write_robot(tmp_path))).mirror()
    named = write_robot(tmp_path, "mirror: [[port, star], [RL, RR]]\n")
    assert torch.equal(robots(1, model=str(named)).mirror().action.index, robots(1).mirror().action.index)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("gait: [0.0, 0.5, 0.5, 0.0]", "gait: [0.0, 0.5, 0.75, 0.0]"), "gait="),
        ((".*_thigh: 0.8", ".*L_thigh: 0.8\n  .*R_thigh: 0.5"), "the default pose differs between FL_thigh and FR_thigh"),
    ],
)
def test_a_lopsided_robot_is_refused_and_says_where(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    from etude.robots.models.description import MODELS

    (tmp_path / "quadruped.xml").write_text((MODELS / "quadruped.xml").read_text())
    path = tmp_path / "odd.yaml"
    path.write_text((MODELS / "quadruped.yaml").read_text().replace(*change))
    with pytest.raises(UserError, match=said):
        robots(1, model=str(path)).mirror()
