"""Trials measure what legs do to each other, name what they measure, and keep what they have when they are stopped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import pytest
import torch

from etude.cli import run as command
from etude.config.robots import ResetConfig, SolverConfig
from etude.robots.environment import RobotVector
from etude.robots.legs import legs_of
from etude.robots.trial import TrialResult, constant, run_trial
from etude.runs.run import Run
from tests.robots.robots import robots

STILL = ResetConfig(joints=0.0, velocity=0.0)


def held(environment: RobotVector, seconds: float = 0.4, **angles: float) -> TrialResult:
    """Let robots hold actions of some joints."""
    action = torch.zeros(environment.num_envs, len(environment.scene.joints))
    for joint, value in angles.items():
        action[:, environment.scene.joints.index(joint)] = value
    return run_trial(environment, lambda seen, first: action, constant("x"), seconds=seconds, seed=1)


def deepest(environment: RobotVector) -> float:
    """How deep the legs of the first robot are inside each other, m."""
    model, data = environment.scene.model, environment.simulation.data(0)
    left, right = legs_of(environment.scene)
    return -min(mujoco.mj_geomDistance(model, data, one, other, 1.0, None) for one in left for other in right)


def test_legs_that_cross_are_told_and_legs_that_stand_are_not() -> None:
    free = SolverConfig(self_collisions=False)
    environment = robots(2, model="biped", reset=STILL, solver=free, terminations={})
    stands = held(environment)
    assert stands.leg_clash == 0.0
    assert stands.feet_apart == pytest.approx(0.18, abs=0.02)
    crossed = held(environment, L_hip_roll=-1.0, R_hip_roll=1.0)
    assert crossed.leg_clash is not None
    assert crossed.leg_clash > 0.2
    assert deepest(environment) > 0.02


def test_legs_of_the_biped_can_not_pass_through_each_other() -> None:
    environment = robots(2, model="biped", reset=STILL, terminations={})
    held(environment, L_hip_roll=-1.0, R_hip_roll=1.0)
    assert deepest(environment) < 0.008


def test_a_foot_that_touches_the_other_one_does_not_stand() -> None:
    environment = robots(1, model="biped", reset=STILL, terminations={})
    qpos = environment.simulation.qpos.clone()
    qpos[:, 2] = 2.0
    for joint, angle in (("L_hip_roll", -0.16), ("R_hip_roll", 0.16)):
        qpos[:, environment.scene.model.joint(joint).qposadr[0]] = angle
    environment.simulation.place(torch.ones(1, dtype=torch.bool), qpos, torch.zeros_like(environment.simulation.qvel))
    environment.state.refresh()
    assert deepest(environment) > 0
    assert environment.simulation.data(0).ncon > 0
    assert not bool(environment.state.feet_in_contact.any())


def test_legs_are_those_of_feet_without_what_they_share() -> None:
    for model, legs in (("quadruped", 4), ("biped", 2), ("ball", 0)):
        scene = robots(1, model=model, terminations={}).scene
        names = [{scene.model.geom(geom).name for geom in leg} for leg in legs_of(scene)]
        assert len(names) == legs
        assert all(any(foot in leg for leg in names) for foot in scene.feet)
        assert not any("base" in leg for leg in names)


def test_robots_of_a_trial_walk_in_step_also_after_a_fall() -> None:
    environment = robots(4, observations={"actor": {"gait_phase": {}}}, terminations={"low": {"height": 0.25}}, steps=100)
    phases = []

    def act(seen: Any, first: torch.Tensor) -> torch.Tensor:
        phases.append(environment.memory.phase.clone())
        if len(phases) == 15:
            environment.simulation.batch.qpos[0, 2] = 0.1  # type: ignore[attr-defined] # falls, and begins again
        return torch.zeros(4, 12)

    result = run_trial(environment, act, constant("x", forward=0.5), seconds=0.6, seed=3)
    assert result.falls == 1
    assert all(torch.allclose(row, row[:1].expand(4), atol=1e-4) for row in phases)
    assert float(phases[10][0]) == pytest.approx(10 * environment.dt * 2.0, abs=1e-4)
    environment.reset(range(4))
    assert len(set(environment.memory.phase.tolist())) == 4  # and elsewhere they don't


def test_a_trial_that_is_interrupted_has_what_there_is() -> None:
    environment = robots(2, steps=100)

    def act_until(last: int) -> Any:
        steps = iter(range(last))

        def act(seen: Any, first: torch.Tensor) -> torch.Tensor:
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return torch.zeros(2, 12)

        return act

    result = run_trial(environment, act_until(35), constant("x"), seconds=1.0, seed=1)
    assert (result.complete, result.seconds) == (False, pytest.approx(0.7))
    assert len(result.series["torque"]) == len(result.first["torque"]) == 35
    with pytest.raises(KeyboardInterrupt):
        run_trial(environment, act_until(10), constant("x"), seconds=1.0, seed=1)


def test_trials_that_are_stopped_write_what_they_have_with_names(
    trained: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    def stop_at_the_third(*given: Any, **settings: Any) -> TrialResult:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(run_trial(*given, **settings))
        return done[-1]

    monkeypatch.setattr("etude.using.trials.run_trial", stop_at_the_third)
    assert command(["trials", str(trained.path), "--robots", "2", "--seconds", "0.4"]) == 130
    assert "interrupted after 2 of 7 trials" in capsys.readouterr().err
    folder: Path = trained.logs / "trials"
    told = json.loads((folder / "trials.json").read_text())["trials"]
    assert [(trial["name"], trial["complete"]) for trial in told] == [("stand", True), ("forward", True)]
    assert {"feet_apart", "leg_gap", "leg_clash"} <= set(told[0])
    for name in ("forward-torque.csv", "forward-torque-first.csv", "forward-joint_position.csv"):
        header = next(csv.reader((folder / name).read_text().splitlines()))
        assert header[:3] == ["second", "FL_hip", "FL_thigh"]
    assert next(csv.reader((folder / "forward-feet_force.csv").read_text().splitlines()))[1:3] == ["FL_foot", "FR_foot"]
