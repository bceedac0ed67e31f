"""A run of a robot that has hardly learnt anything, for whatever is done with runs."""

from __future__ import annotations

import pytest

from etude.runs.run import Run
from tests.runs_compared import train

SMALL = ("environment.num_envs=8", "training.total_steps=960", "evaluation.episodes=2", "environment.max_episode_steps=40")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("quadruped-flat:ppo", tmp_path_factory.mktemp("robots"), *SMALL)
