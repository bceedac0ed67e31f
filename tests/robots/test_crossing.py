"""Crossings hold robots on the ground that was asked for, and count who gets off it, in time and on its feet."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from etude.cli import run as command
from etude.config.robots import ResetConfig, TerrainConfig
from etude.robots.crossing import Crossing, run_crossing
from etude.robots.environment import RobotVector
from etude.robots.terrain import KINDS
from etude.using import trials
from tests.robots.robots import robots
from tests.runs_compared import train

TILES = TerrainConfig(type="tiles", kinds=dict.fromkeys(("flat", "slope", "gap"), 1.0), columns=6, levels=3)
SECONDS = 0.4


def on_tiles(count: int = 4) -> RobotVector:
    return robots(count, terrain=TILES, reset=ResetConfig(velocity=0.0))


def carried(environment: RobotVector, metres: Tensor, *, upside_down: Tensor | None = None):
    """Robots that do nothing, and are carried so far along x in every step."""

    def act(seen: object, is_first: Tensor) -> Tensor:
        qpos = environment.simulation.batch.qpos
        qpos[:, 0] += metres.numpy()
        if upside_down is not None:
            qpos[upside_down.numpy(), 3:7] = (0.0, 1.0, 0.0, 0.0)
        return torch.zeros(environment.num_envs, len(environment.scene.joints))

    return act


def test_who_is_off_its_tile_has_crossed_it_and_who_stays_has_not() -> None:
    environment = on_tiles()
    act = carried(environment, torch.tensor([0.3, 0.3, 0.0, 0.1]))
    found = run_crossing(environment, act, "flat", 1, speed=0.8, seconds=SECONDS, seed=1)
    assert (found.kind, found.level, found.robots, found.crossed, found.falls) == ("flat", 1, 4, 2, 0)
    assert found.seconds == pytest.approx(4 / 0.3 * environment.dt, abs=0.06)
    assert environment.commands.fixed is None


def test_who_falls_has_not_crossed() -> None:
    environment = on_tiles()
    act = carried(environment, torch.full((4,), 0.3), upside_down=torch.tensor([True, False, False, False]))
    found = run_crossing(environment, act, "flat", 0, speed=0.8, seconds=SECONDS, seed=1)
    assert (found.crossed, found.falls) == (3, 1)


def test_robots_are_held_on_every_tile_of_the_kind_at_the_level() -> None:
    environment = on_tiles(5)
    run_crossing(environment, carried(environment, torch.zeros(5)), "gap", 2, speed=0.8, seconds=0.1, seed=1)
    assert environment.levels is not None
    assert environment.levels.level.tolist() == [2] * 5
    kinds = {environment.levels.terrain.column_kinds[column] for column in environment.levels.column.tolist()}
    assert kinds == {"gap"}
    assert len(set(environment.levels.column.tolist())) == 2


def test_robots_are_asked_to_keep_the_direction_that_they_begin_in() -> None:
    environment, asked = on_tiles(2), []

    def act(seen: object, is_first: Tensor) -> Tensor:
        asked.append(environment.memory.command.clone())
        environment.simulation.batch.qpos[0, 3:7] = (1.0, 0.0, 0.0, 0.0)  # turned to where x leads
        return torch.zeros(2, len(environment.scene.joints))

    environment.reset([1, 2])
    run_crossing(environment, act, "flat", 0, speed=0.6, seconds=0.2, seed=1)
    assert float(asked[-1][1, 0]) == pytest.approx(0.6)
    assert abs(float(asked[-1][1, 2])) < 0.1
    assert abs(float(asked[-1][0, 2])) > 0.1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("rough", "discrete", "stepping_stones")])
def test_the_edges_of_tiles_meet_without_a_cliff(kind: str) -> None:
    terrain = TerrainConfig(type="tiles", kinds={kind: 1.0, "flat": 1.0}, columns=2, levels=2)
    ground = robots(1, terrain=terrain).terrain
    assert ground is not None
    edge = ground.origins[1, 0] + torch.tensor([0.0, terrain.tile / 2])
    beside = torch.stack([edge - torch.tensor([0.0, 0.06]), edge + torch.tensor([0.0, 0.06])])
    assert ground.height(beside).abs().max() < 0.05


def test_a_robot_that_is_asked_to_walk_in_circles_is_not_sent_to_easier_ground() -> None:
    environment = robots(1, training=True, terrain=TILES, reset=ResetConfig(velocity=0.0))
    environment.commands.fixed = torch.tensor([0.5, 0.0, 1.0])
    still = torch.zeros(1, len(environment.scene.joints))
    for _ in range(10):  # along x for a while, then back
        environment.step(still)
    ahead = environment.memory.asked_way.clone()
    assert float(ahead.norm()) == pytest.approx(0.5 * 10 * environment.dt, rel=0.15)
    environment.commands.fixed = torch.tensor([-0.5, 0.0, 1.0])
    for _ in range(10):
        environment.step(still)
    assert float(environment.memory.asked_way.norm()) < 0.3 * float(ahead.norm())


def test_crossings_are_printed_kept_and_refused_on_flat_ground(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("environment.num_envs=16", "training.total_steps=384", "evaluation.every_steps=0", "experiment.compile=off")
    run = train("quadruped-rough:ppo", tmp_path / "rough", *words)
    capsys.readouterr()
    assert (
        command(["trials", str(run.path), "--crossings", "--only", "stairs_up,slope", "--robots", "2", "--seconds", "0.2"]) == 0
    )
    said = capsys.readouterr()
    assert [line.split()[:2] for line in said.out.splitlines()[1:]] == [["stairs_up", "5"], ["slope", "5"]]
    assert (run.logs / "trials" / "crossings.json").is_file()
    for refused, why in (
        (["--crossings", "--only", "mud"], "no such ground"),
        (["--crossings", "--level", "9"], "levels 0 to 5"),
        (["--level", "1"], "add --crossings"),
        (["--speed", "1"], "is of --crossings"),
        (["--crossings", "--speed", "0"], "--speed"),
    ):
        assert command(["trials", str(run.path), *refused]) == 2
        assert why in capsys.readouterr().err


def test_crossings_that_are_stopped_keep_what_there_is(tmp_path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    words = ("environment.num_envs=16", "training.total_steps=384", "evaluation.every_steps=0", "experiment.compile=off")
    run = train("quadruped-rough:ppo", tmp_path / "rough", *words)
    capsys.readouterr()
    done: list[str] = []

    def once(environment: RobotVector, act: object, kind: str, level: int, **settings: object) -> Crossing:
        if done:
            raise KeyboardInterrupt
        done.append(kind)
        return Crossing(kind, level, 2, 1, 0, 3.0)

    monkeypatch.setattr(trials, "run_crossing", once)
    assert command(["trials", str(run.path), "--crossings", "--robots", "2"]) == 130
    assert "interrupted after 1 " in capsys.readouterr().err
    kept = json.loads((run.logs / "trials" / "crossings.json").read_text())["crossings"]
    assert [each["kind"] for each in kept] == done
