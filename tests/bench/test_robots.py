"""The robots' benchmark: its clock, the Go1 that it makes, its tasks, and what it says of a side that fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import robots_agree
import robots_etude
from robots_clock import Mark, summary
from robots_go1 import INSIDE, find_model, write_robot
from robots_mjlab_states import model_facts

import robots as bench
from etude.config.compose import compose
from etude.config.robots import RobotConfig
from etude.robots.environment import RobotVector
from etude.robots.models.description import load_robot
from etude.robots.scene import build_scene

LEG = """
<body name="{leg}_hip" pos="{x} {y} 0"><joint name="{leg}_hip_joint" axis="1 0 0" range="-.8 .8"/>
  <geom name="{leg}_hip_collision" type="capsule" fromto="0 0 0 0 .02 0" size=".04" mass=".6"/>
  <body name="{leg}_thigh" pos="0 {y} 0"><joint name="{leg}_thigh_joint" axis="0 1 0" range="-.6 4"/>
    <geom name="{leg}_thigh_collision1" type="capsule" fromto="0 0 0 0 0 -.2" size=".015" mass="1"/>
    <body name="{leg}_calf" pos="0 0 -.213"><joint name="{leg}_calf_joint" axis="0 1 0" range="-2.8 -.9"/>
      <geom name="{leg}_calf_collision1" type="capsule" fromto="0 0 0 0 0 -.2" size=".01" mass=".2"/>
      <geom name="{leg}_foot_collision" type="sphere" size=".023" pos="0 0 -.213" mass=".05"/></body></body></body>
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with an mjlab that has nothing but a dog with the Go1's names."""
    model = tmp_path / "packages" / "mjlab" / INSIDE
    model.parent.mkdir(parents=True)
    places = {"FR": (0.19, -0.05), "FL": (0.19, 0.05), "RR": (-0.19, -0.05), "RL": (-0.19, 0.05)}
    legs = "".join(LEG.format(leg=leg, x=x, y=y) for leg, (x, y) in places.items())
    trunk = '<geom name="trunk_collision" type="box" size=".13 .09 .05" mass="5"/><freejoint/>'
    body = f'<body name="trunk" pos="0 0 .4">{trunk}{legs}</body>'
    model.write_text(f'<mujoco><compiler angle="radian" meshdir="assets"/><worldbody>{body}</worldbody></mujoco>')
    return tmp_path / "packages"


def test_speed_is_that_of_iterations_after_the_warm_up() -> None:
    ends = [10.0, 30.0, 31.0, 33.0, 34.0]  # two of warm-up, then 1, 2 and 1 seconds
    found = summary([Mark(at, 0.4, 0.1) for at in ends], warm_up=2, steps=100)
    assert (found["steps_per_s"], found["best_steps_per_s"], found["mean_steps_per_s"]) == (100.0, 100.0, 75.0)
    assert (found["iterations"], found["collect_s"], found["learn_s"]) == (3, 0.4, 0.1)
    with pytest.raises(ValueError, match="2 iterations with a warm-up of 2"):
        summary([Mark(0.0, 0, 0), Mark(1.0, 0, 0)], warm_up=2, steps=1)


def test_the_go1_task_has_mjlabs_sizes_and_contacts(packages: Path, tmp_path: Path) -> None:
    robot = write_robot(find_model([packages]), tmp_path / "robot")
    file = robots_etude.DATA / "go1-flat.yaml"
    config = compose(file=file, words=[f"environment.robot.model={robot}"]).config
    environment = RobotVector(config.environment, 4, training=True)
    environment.reset(range(4))
    assert {name: group.size for name, group in environment.groups.items()} == {"actor": 48, "critic": 72}
    model = environment.scene.model
    assert len(environment.rewards) == 10
    assert (model.opt.impratio, model.opt.cone, model.opt.iterations, model.opt.timestep) == (10.0, 1, 10, 0.005)
    foot, thigh, floor = (model.geom(name) for name in ("FR_foot_collision", "FR_thigh_collision1", "floor"))
    assert (foot.condim[0], thigh.condim[0]) == (6, 1)
    assert foot.priority[0] > floor.priority[0] > thigh.priority[0]
    assert (thigh.contype[0], thigh.conaffinity[0]) == (1, 1)  # parts of the robot meet each other
    assert thigh.solref.tolist() == [0.01, 1.0]


def test_models_are_compared_by_the_names_of_their_parts(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    robot = write_robot(find_model([packages]), tmp_path / "robot")
    ours = model_facts(build_scene(RobotConfig(model=str(robot)), load_robot(str(robot))).model)
    turned = {key: value[::-1] for key, value in ours.items() if key.startswith(("model/geom", "names/geom"))}
    assert robots_agree._show([*robots_agree.compare_models({**ours, **turned}, ours)]) == 0
    other = ours["model/geom_condim"].copy()
    other[ours["names/geom"] == "FR_foot_collision"] = 3
    assert robots_agree._show([*robots_agree.compare_models({**ours, "model/geom_condim": other}, ours)]) == 1
    assert "model geom_condim" in [line[:17] for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line]


def test_a_difference_that_is_meant_is_told_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    (known, why), zeros = next(iter(robots_agree.KNOWN.items())), np.zeros(3)
    assert robots_agree._show([robots_agree._difference(known, zeros + 1.0, zeros)]) == 0
    assert why in capsys.readouterr().out


def test_a_folder_without_mjlab_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no mjlab with its Go1 in {tmp_path}"):
        find_model([tmp_path])


def test_the_full_task_has_everything_on_and_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["full", "--num-envs", "4", "--iterations", "1", "--warm-up", "1", "--device", "cpu"]
    assert robots_etude.main([*words, "--words", "experiment.compile=off", "algorithm.epochs=1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["side"], answer["task"], answer["robots"], answer["iterations"]) == ("etude", "full", 4, 1)
    assert answer["steps_per_s"] > 0
    config = compose("quadruped-flat:ppo", file=robots_etude.DATA / "full.yaml").config
    robot = config.environment.robot
    assert robot is not None
    assert len(robot.rewards) >= 15
    assert len(robot.randomization) >= 12
    assert robot.action.lag[1] > 0
    assert "last_push" in robot.observations["critic"]


def test_a_side_that_fails_is_told_and_fails_the_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    words = ["--etude-python", "/bin/false", "--mjlab-python", "/bin/false", "--mjlab", str(tmp_path), "--rounds", "1"]
    assert bench.main([*words, "--json", str(out)]) == 1
    assert "exit 1: nothing was said" in capsys.readouterr().out
    (result,) = json.loads(out.read_text())
    assert [side["failed"] for side in result["sides"]] == ["exit 1: nothing was said"] * 2


def test_ways_are_measured_in_turn_with_words_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def answer(robots: int, side: bench.Side, options: object) -> dict[str, float]:
        asked.append((side.name, side.arguments))
        return {"steps_per_s": 100.0, "collect_s": 0.1, "learn_s": 0.1}

    monkeypatch.setattr(bench, "_measure_once", answer)
    ways = ["--way", "as is", "--way", "compiled", "experiment.compile=on"]
    assert bench.main(["--own", *ways, "--rounds", "2", "--words", "algorithm.epochs=1", "--profile"]) == 0
    script, plain = "robots_etude.py", ("--words", "algorithm.epochs=1")
    turn = [
        ("full, as is", (script, "full", "--profile", *plain)),
        ("full, compiled", (script, "full", "--profile", *plain, "experiment.compile=on")),
    ]
    assert asked == turn * 2
    assert "full, compiled" in capsys.readouterr().out


def test_rounds_are_summed_up_by_their_median_and_best(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = {"etude": iter([300.0, 900.0, 600.0]), "mjlab": iter([100.0, 200.0, 300.0])}
    order = []

    def answer(robots: int, side: bench.Side, options: object) -> dict[str, float]:
        order.append(side.name)
        return {"steps_per_s": next(speeds[side.name]), "collect_s": 0.1, "learn_s": 0.1}

    monkeypatch.setattr(bench, "_measure_once", answer)
    assert bench.main(["--mjlab", "somewhere"]) == 0
    assert order == ["etude", "mjlab"] * 3
    assert "3.00 (3.00)" in capsys.readouterr().out
