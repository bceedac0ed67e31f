"""Tiny runs, each trained once for all tests here."""

from __future__ import annotations

import pytest

from etude.runs.run import Run
from tests.runs_compared import train

QUIET = ("evaluation.episodes=1", "experiment.device=cpu")
PPO = ("training.total_steps=128", "environment.num_envs=2", "algorithm.rollout_steps=32", "algorithm.batch_size=32", *QUIET)


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Discrete actions, and a normaliser that has seen something."""
    words = (*PPO, "environment.normalize_observations=rolling")
    return train("CartPole-v1:ppo", tmp_path_factory.mktemp("cartpole"), *words)


@pytest.fixture(scope="session")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Squashed actions between −2 and 2."""
    words = ("training.total_steps=64", "algorithm.learning_starts=32", "environment.num_envs=1", *QUIET)
    return train("Pendulum-v1:sac", tmp_path_factory.mktemp("pendulum"), *words)


@pytest.fixture(scope="session")
def quadruped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A robot whose critic sees more than its actor."""
    pytest.importorskip("mujoco", reason="robots need MuJoCo")
    words = ("environment.num_envs=4", "training.total_steps=192", "environment.max_episode_steps=20", *QUIET)
    return train("quadruped-flat:ppo", tmp_path_factory.mktemp("quadruped"), *words)
