"""What is drawn beside a robot is what the simulation says, where it says it."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import pytest
import torch

from etude.compute.trees import map_tree
from etude.robots.rotations import from_yaw, yaw_of
from etude.robots.terms.observations import height_scan
from etude.viewing.live_robot import LiveRobot
from etude.viewing.marks import METRES_OF_WEIGHT, METRES_PER_SPEED, Marker
from etude.viewing.mujoco_window import draw_marks
from etude.viewing.show import Show

MakeShow = Callable[..., Show]
STANDS = {"forward": [0, 0], "sideways": [0, 0], "turn": [0, 0]}


def place(live: LiveRobot, *, yaw: float, command: tuple[float, float, float]) -> None:
    """Let the robot face some way, and be asked for something."""
    robots, first = live.robots, live.robots.scene.base_qpos
    qpos = robots.simulation.qpos.clone()
    qpos[:, first + 3 : first + 7] = from_yaw(torch.tensor([yaw]))
    robots.simulation.place(torch.tensor([True]), qpos, torch.zeros_like(robots.simulation.qvel))
    robots.memory.command[0] = torch.tensor(command)
    robots.state.refresh()


def test_arrows_end_where_velocities_lead(show_of: MakeShow) -> None:
    live = show_of().live
    place(live, yaw=np.pi / 2, command=(0.8, 0.2, 0.5))
    marks = Marker(live.robots).take(live.data(), (0.4, 0.0, -0.3))
    base = live.robots.state.base_position[0].numpy()
    assert marks.asked is not None
    assert marks.done is not None
    # Facing along y, ahead is y and left is −x.
    np.testing.assert_allclose(marks.asked[1] - marks.asked[0], METRES_PER_SPEED * np.array([-0.2, 0.8, 0]), atol=1e-6)
    np.testing.assert_allclose(marks.done[1] - marks.done[0], METRES_PER_SPEED * np.array([0, 0.4, 0]), atol=1e-6)
    np.testing.assert_allclose(marks.asked[0][:2], base[:2], atol=1e-6)
    assert marks.asked[0][2] > marks.done[0][2] > base[2]


def test_arcs_turn_from_where_the_robot_faces(show_of: MakeShow) -> None:
    live = show_of().live
    place(live, yaw=0.3, command=(0.0, 0.0, 0.5))
    marks = Marker(live.robots).take(live.data(), (0.0, 0.0, 0.0))
    assert marks.asked is None
    assert marks.done is None
    assert marks.done_turn is None
    assert marks.asked_turn is not None
    ways = marks.asked_turn[:, :2] - live.robots.state.base_position[0, :2].numpy()
    angles = np.arctan2(ways[:, 1], ways[:, 0])
    assert angles[0] == pytest.approx(0.3, abs=1e-5)
    assert angles[-1] == pytest.approx(0.8, abs=1e-5)


def test_forces_of_a_robot_that_stands_add_up_to_its_weight(show_of: MakeShow) -> None:
    live = show_of(commands=STANDS).live
    for _ in range(150):
        live.step()
    marks, model = live.marks(), live.robots.scene.model
    weight = model.body_subtreemass[live.robots.scene.base_body] * 9.81
    np.testing.assert_allclose(marks.newtons.sum(0), [0, 0, weight], atol=0.01 * weight)
    lengths = marks.forces[:, 1] - marks.forces[:, 0]
    assert lengths[:, 2].sum() == pytest.approx(METRES_OF_WEIGHT, rel=0.01)
    assert np.abs(marks.forces[:, 0, 2]).max() < 0.01  # from where feet touch the ground


def test_scan_points_lie_on_the_ground_that_the_policy_sees(show_of: MakeShow) -> None:
    live = show_of("quadruped-rough", terrain={"levels": 2, "columns": 10}).live
    live.step()
    robots = live.robots
    assert live.scans
    assert robots.terrain is not None
    scan = torch.as_tensor(live.marks().scan, dtype=torch.float32)
    torch.testing.assert_close(scan[:, 2], robots.terrain.height(scan[:, :2]), atol=1e-4, rtol=0)
    term = next(group["height_scan"] for group in robots.task.observations.values() if "height_scan" in group)
    given = {key: term[key] for key in ("length", "width", "step") if key in term}
    seen = (robots.state.base_position[0, 2] - scan[:, 2] - robots.state.standing_height).clamp(-1, 1)
    torch.testing.assert_close(height_scan(robots.state, **given)[0], seen)


def test_a_flat_task_without_a_scan_shows_none(show_of: MakeShow) -> None:
    live = show_of().live
    assert not live.scans
    assert live.marks().scan.shape == (0, 3)


def test_the_place_to_go_to_is_the_tasks_or_the_one_asked_for(show_of: MakeShow) -> None:
    show = show_of("quadruped-goto")
    live, robots = show.live, show.live.robots
    goal = live.marks().goal
    assert goal is not None
    np.testing.assert_allclose(goal[:2], robots.memory.goal[0].numpy(), atol=1e-6)
    show.ask(1.0, 0.0, 0.0)
    goal, base = live.marks().goal, robots.state.base_position[0].numpy()
    yaw = float(robots.state.yaw[0])
    assert goal is not None
    np.testing.assert_allclose(goal[:2], base[:2] + np.array([np.cos(yaw), np.sin(yaw)]), atol=1e-5)


def test_the_motion_to_follow_is_where_the_robot_is(show_of: MakeShow) -> None:
    live = show_of("quadruped-motion").live
    for _ in range(10):
        live.step()
    robots, posed = live.robots, live.marks().motion
    assert posed is not None
    assert robots.motion is not None
    first, qpos = robots.scene.base_qpos, robots.simulation.qpos[0].numpy()
    np.testing.assert_allclose(posed[first : first + 2], qpos[first : first + 2])
    wanted = robots.motion.at(robots.motion.joints, robots.memory.phase)[0]
    np.testing.assert_allclose(posed[robots.scene.qpos_address], wanted.numpy(), atol=1e-6)
    tilted = yaw_of(torch.as_tensor(posed[first + 3 : first + 7]))
    assert float(tilted) == pytest.approx(float(robots.state.yaw[0]), abs=1e-3)


@pytest.mark.parametrize("task", ["quadruped-motion", "ball-flat", "quadruped-goto"])
def test_looking_changes_nothing(show_of: MakeShow, task: str) -> None:
    live = show_of(task, act="random").live
    live.step()
    before = map_tree(lambda value: value.clone() if isinstance(value, torch.Tensor) else value, live.robots.state_dict())
    live.marks()
    after = live.robots.state_dict()
    map_tree(lambda one, other: torch.testing.assert_close(one, other, atol=0, rtol=0), before["memory"], after["memory"])
    torch.testing.assert_close(before["simulation"], after["simulation"], atol=0, rtol=0)
    assert torch.equal(before["generator"], after["generator"])


def test_mujocos_scene_has_every_mark_that_is_shown(show_of: MakeShow) -> None:
    show = show_of("quadruped-goto", commands={"standing": 0.0})
    live = show.live
    for _ in range(60):
        live.step()
    scene, marks = mujoco.MjvScene(live.robots.scene.model, maxgeom=500), live.marks()  # type: ignore[attr-defined]
    assert marks.asked is not None
    assert marks.goal is not None
    assert len(marks.forces)
    draw_marks(scene, marks, show)
    arrow = scene.geoms[0]
    np.testing.assert_allclose(arrow.pos, marks.asked[0], atol=1e-5)
    np.testing.assert_allclose(arrow.pos + arrow.mat[:, 2] * arrow.size[2], marks.asked[1], atol=1e-5)
    for key in "vfhgm":
        show.press(key)
    scene.ngeom = 0
    draw_marks(scene, marks, show)
    assert scene.ngeom == 0


def test_a_scene_that_is_full_takes_no_more(show_of: MakeShow) -> None:
    show = show_of("quadruped-rough", terrain={"levels": 1, "columns": 10})
    scene = mujoco.MjvScene(show.live.robots.scene.model, maxgeom=20)  # type: ignore[attr-defined]
    draw_marks(scene, show.live.marks(), show)
    assert scene.ngeom == 20
