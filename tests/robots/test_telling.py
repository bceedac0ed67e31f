"""Robots tell why their episodes end, how well commands are followed, and how far they are on each kind of ground."""

from __future__ import annotations

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import pytest
import torch

from etude.config.robots import TerrainConfig
from etude.robots.telling import shares_of_ends
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.robots.robots import rest, robots


def test_rows_say_why_episodes_ended_and_how_commands_were_followed(trained: Run) -> None:
    rows = list(read_rows(trained.metrics_path))
    row = next(row for row in rows if "collect/fall_rate" in row)
    assert row["collect/fall_rate"] + row["collect/end_share/time_out"] == pytest.approx(1.0)
    assert {"collect/end_share/tilt", "collect/end_share/low", "collect/error/linear_velocity", "collect/error/turn"} <= set(
        row
    )


def test_shares_are_of_the_episodes_that_ended() -> None:
    shares = shares_of_ends({"end/any": 0.02, "end/fall": 0.005, "end/tilt": 0.005, "end/time_out": 0.015, "reward/x": 1.0})
    assert shares == pytest.approx({"fall_rate": 0.25, "end_share/tilt": 0.25, "end_share/time_out": 0.75})
    assert shares_of_ends({"end/any": 0.0}) == {}


def test_levels_are_told_for_each_kind_of_ground() -> None:
    ground = TerrainConfig(type="tiles", kinds={"rough": 2.0, "pit": 1.0}, columns=3, levels=4)
    environment = robots(6, terrain=ground)
    assert environment.levels is not None
    environment.levels.level.copy_(torch.tensor([1, 2, 3, 2, 3, 0]))
    info = rest(environment, 1).info
    assert float(info["terrain_level/rough"].mean()) == pytest.approx(2.0)
    assert float(info["terrain_level/pit"].mean()) == pytest.approx(1.5)


def test_the_light_stays_above_a_robot_that_walks_away() -> None:
    scene = robots(1).scene
    data = mujoco.MjData(scene.model)
    data.qpos[scene.base_qpos : scene.base_qpos + 7] = [30.0, -20.0, 0.3, 0.0, 0.0, 0.0, 1.0]
    mujoco.mj_forward(scene.model, data)
    assert data.light_xpos[-1][:2] == pytest.approx([30.0, -20.0], abs=0.2)
    assert data.light_xdir[-1] == pytest.approx([0.0, 0.0, -1.0])
