"""Reference motions: made ones keep what they promise, files are read, and a robot on its motion is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.config.robots import CommandConfig, MotionConfig
from etude.errors import UserError
from etude.robots.environment import RobotVector
from tests.robots.robots import SEEN, actions, robots

AHEAD = CommandConfig(forward=(0.5, 0.5), sideways=(0.0, 0.0), turn=(0.0, 0.0), standing=0.0, smallest=0.0)
TERMS = ("motion_joints", "motion_joint_velocity", "motion_base", "motion_velocity")
POSED = {"joint_position": {}, "joint_velocity": {}, "base_linear_velocity": {}, "feet_height": {}, "base_height": {}}


def on_motion(count: int = 6, **motion: Any) -> RobotVector:
    seen = {"actor": {**SEEN, "motion_pose": {}}, "amp": POSED}
    rewards = dict.fromkeys(TERMS, 1.0)
    return robots(count, motion=MotionConfig(**{"file": "trot", **motion}), commands=AHEAD, observations=seen, rewards=rewards)


@pytest.mark.parametrize("gait", ["trot", "pace", "bound"])
def test_feet_of_a_made_motion_stand_and_swing_and_it_moves_as_fast_as_asked(gait: str) -> None:
    frames = on_motion(file=gait, speed=0.4, lift=0.05).reference("amp")
    assert frames is not None
    feet, speed = frames[:, 27:31], frames[:, 24]
    assert speed == pytest.approx(0.4, abs=1e-4)
    assert torch.equal(feet[0] < 0.005, torch.tensor([True] * 4))  # at the change of feet all are down
    swung = (feet > 0.04).any(0)
    assert bool(swung.all())
    assert float(feet.max()) == pytest.approx(0.05, abs=0.004)
    together = {"trot": (0, 3), "pace": (0, 2), "bound": (0, 1)}[gait]
    assert torch.allclose(feet[:, together[0]], feet[:, together[1]], atol=0.005)
    assert float((feet[:, 0] * feet[:, {0: 1, 1: 0, 2: 1, 3: 1}[together[1]] if gait != "bound" else 2]).max()) < 1e-4


def test_robots_begin_amid_their_motion_and_every_term_says_so() -> None:
    environment = on_motion()
    environment.state.refresh()
    for name, (term, _) in environment.rewards.items():
        assert float(term(environment.state).min()) > 0.99, name
    assert environment.memory.phase.std() > 0.05  # each at its own place
    for _ in range(10):
        environment.step(actions(environment))
    environment.state.refresh()
    assert all(float(term(environment.state).mean()) < 0.9 for term, _ in environment.rewards.values())
    assert environment.task.commands.gait_hz == pytest.approx(2.0)


def _write(path: Path, environment: RobotVector) -> dict[str, np.ndarray]:
    motion = environment.motion
    assert motion is not None
    count = motion.frames
    parts = {
        "root_pos": np.stack([np.arange(count) / 50 * 0.5, np.zeros(count), motion.height.numpy()], 1),
        "root_quat": motion.tilt.numpy(),
        "joint_pos": motion.joints.numpy(),
    }
    if path.suffix == ".npz":
        order = np.arange(12)[::-1]
        names = np.array(environment.scene.joints)[order]
        np.savez(path, **{**parts, "joint_pos": parts["joint_pos"][:, order]}, joint_names=names, fps=np.array(50.0))
    else:
        quaternion = parts["root_quat"][:, [1, 2, 3, 0]]
        np.savetxt(path, np.concatenate([parts["root_pos"], quaternion, parts["joint_pos"]], 1), delimiter=",")
    return parts


@pytest.mark.parametrize("name", ["walk.npz", "walk.csv"])
def test_a_motion_from_a_file_is_the_one_that_was_written(tmp_path: Path, name: str) -> None:
    made = on_motion()
    _write(tmp_path / name, made)
    read = on_motion(file=str(tmp_path / name), fps=50.0)
    assert made.motion is not None
    assert read.motion is not None
    assert torch.allclose(read.motion.joints, made.motion.joints, atol=1e-5)
    assert read.motion.linear_velocity[:, 0].mean() == pytest.approx(0.5, abs=1e-3)
    assert read.motion.duration == pytest.approx(made.motion.duration)


def test_what_is_no_motion_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("1,2,3\n4,5,6\n7,8,9\n")
    (tmp_path / "torn.npz").write_bytes(b"PK")
    np.savez(tmp_path / "person.npz", poses=np.zeros((4, 66)), trans=np.zeros((4, 3)))
    np.savez(tmp_path / "half.npz", root_pos=np.zeros((4, 3)), root_quat=np.zeros((4, 4)))
    refused = {
        "gallop": "must be trot, pace, bound, or a .npz or .csv file",
        str(tmp_path / "none.npz"): "can't be read",
        str(tmp_path / "short.csv"): "a row is x, y, z, qx, qy, qz, qw and the joints",
        str(tmp_path / "torn.npz"): "is no npz of plain arrays",
        str(tmp_path / "person.npz"): "retarget it to this robot",
        str(tmp_path / "half.npz"): "has no joint_pos",
    }
    for file, said in refused.items():
        with pytest.raises(UserError, match=said):
            on_motion(file=file)
    with pytest.raises(UserError, match=r"motion.speed=9: \w+ can't step so far"):
        on_motion(speed=9.0)
    with pytest.raises(UserError, match="motion_joints is of tasks with a motion"):
        robots(rewards={"motion_joints": 1.0})
