"""Terms of a robot's task may be functions in a user's own file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import etude
from etude.config.compose import check, compose
from etude.config.robots import CommandConfig, ResetConfig, TerrainConfig
from etude.config.validate import to_plain
from etude.errors import ConfigError, UserError
from etude.runs.run import Run
from etude.verification import rerun
from tests.forked import fork_instead, run_forked
from tests.robots.robots import SEEN, rest, robots
from tests.runs_compared import assert_resumes

TERMS = '''
import torch

from etude.robots.terms.randomizations import Randomization

def bounce(state, height: float = 0.3):
    """(h - height) squared"""
    return (state.base_height - height).square()

def speed(state):
    return state.base_linear_velocity[:, :2]

def sunk(state, below: float = 0.05):
    return state.base_height < below

def flat(state):
    return state.base_height

def nameless(robot):
    return robot.base_height

def greedy(state, much):
    return state.base_height * much

def circle(state):
    """Ahead, and around faster the older the episode is."""
    age = state.memory.age * state.dt
    return torch.stack([torch.full_like(age, 0.5), torch.zeros_like(age), age.clamp(max=1.0)], 1)

def promote(state):
    return torch.where(state.fell, -1, 1)

class Wind(Randomization):
    """A steady push, m/s each second"""

    def step(self):
        velocity = torch.zeros_like(self.simulation.qvel)
        velocity[:, self.simulation.scene.base_dof] = self.state.drawn[self.name][:, 0] * self.state.dt
        self.simulation.push(velocity)

NUMBER = 3
'''
WORDS = (
    *("environment.robot.rewards={own_terms.bounce: {weight: -0.5, height: 0.28}}", "environment.num_envs=4"),
    *("environment.robot.observations.actor={own_terms.speed: {scale: 0.5}}",),
    "environment.robot.terminations={own_terms.sunk: {}}",
    "environment.robot.randomization={own_terms.Wind: {range: [1, 2]}}",
    *("environment.robot.commands.own=own_terms.circle", "environment.robot.terrain={type: tiles, promote: own_terms.promote}"),
    *("algorithm.rollout_steps=8", "algorithm.epochs=1", "evaluation.every_steps=0", "experiment.compile=off"),
)  # fmt: skip


STILL = ResetConfig(position=0.0, velocity=0.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_terms.py").write_text(TERMS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_terms", raising=False)
    return tmp_path


def _etude(folder: Path, *arguments: str) -> str:
    clean = {**os.environ, "PYTHONPATH": str(Path(etude.__file__).parents[1]), "XDG_DATA_HOME": str(folder / "home")}
    done = run_forked([sys.executable, "-m", "etude", *arguments], cwd=folder, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_run_with_own_terms_resumes_exactly_and_verifies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_instead(rerun, monkeypatch)
    _etude(folder, "train", "quadruped-flat:ppo", "-q", *WORDS, "training.total_steps=64")
    run = Run.resolve("@last", folder / "runs")
    assert "collect/reward/own_terms.bounce" in run.metrics_path.read_text()
    assert "own_terms" in (run.path / "provenance" / "modules.json").read_text()
    assert "reproduced" in _etude(folder, "verify", "@last", "--resume-at", "32")
    assert_resumes("quadruped-flat:ppo", folder / "resumed", *WORDS, "training.total_steps=96", after=1)


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("own_terms.bounse", "module 'own_terms' has no 'bounse'; did you mean 'bounce'?"),
        ("no_such_file.bounce", "there is no module 'no_such_file' here"),
        ("own_terms.NUMBER", "is no function of a state"),
        ("own_terms.nameless", "its first parameter must be `state`"),
        ("own_terms.greedy", "its parameter `much` needs a default"),
        ("own_terms.speed", r"returned \(4, 2\), and must return \(4,\)"),
        ("track_lineer_velocity", "unknown reward term"),
    ],
)
def test_a_reward_that_is_none_is_one_line(folder: Path, reward: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        robots(rewards={reward: 1.0})
    assert "\n" not in str(caught.value)


def test_commands_curricula_and_randomisations_may_be_own_ones(folder: Path) -> None:
    ground = TerrainConfig(type="tiles", levels=4, first_levels=1, columns=10, promote="own_terms.promote")
    commands = CommandConfig(own="own_terms.circle", levels=3, promote="own_terms.promote")
    wind = {"own_terms.Wind": {"range": [3.0, 3.0]}}
    windy = robots(2, training=True, steps=40, terrain=ground, commands=commands, randomization=wind, reset=STILL)
    rest(windy, 20)
    assert windy.state.memory.command[0].tolist() == pytest.approx([0.5, 0.0, 0.4])
    assert float(windy.state.base_position[:, 0].sub(windy.levels.origin[:, 0]).min()) > 0.05  # type: ignore[union-attr]
    assert windy.state.drawn["own_terms.Wind"].tolist() == [[3.0], [3.0]]
    rest(windy, 20)
    assert (windy.levels.level.tolist(), windy.commands.level.tolist()) == ([1, 1], [1, 1])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"commands": CommandConfig(own="own_terms.flat")}, r"commands.own: returned \(4,\), and must return \(4, 3\)"),
        ({"commands": CommandConfig(own="own_terms.nothing")}, r"commands.own: .* has no 'nothing'"),
        ({"randomization": {"own_terms.flat": {"range": [0, 1]}}}, r"own_terms.flat: is no class derived from .*Randomization"),
        ({"randomization": {"own_terms.Wind": {}}}, r"own_terms.Wind.range: is required"),
        (
            {"terrain": TerrainConfig(type="tiles", promote="own_terms.speed")},
            r"terrain.promote: returned \(4, 2\), and must return \(4,\)",
        ),
    ],
)
def test_own_commands_and_the_like_that_are_none_are_one_line(folder: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        robots(training=True, **changes)


def test_shapes_of_own_observations_and_terminations_are_checked(folder: Path) -> None:
    with pytest.raises(UserError, match=r"observations.actor.own_terms.flat: returned \(4,\)"):
        robots(observations={"actor": {**SEEN, "own_terms.flat": {}}})
    with pytest.raises(UserError, match=r"terminations.own_terms.flat: .* torch.bool"):
        robots(terminations={"own_terms.flat": {}})


def test_the_config_of_a_stranger_may_not_name_terms_to_import(folder: Path) -> None:
    config = to_plain(compose("quadruped-flat:ppo", words=WORDS).config)
    with pytest.raises(ConfigError, match=r"environment.robot.rewards.own_terms.bounce: names code to import"):
        check(config, allow_imports=False)
    assert "own_terms" not in sys.modules
