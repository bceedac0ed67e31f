"""Tiny runs, each trained and exported once for all tests here."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from etude.deploy.export import Export, export_policy
from etude.runs.run import Run
from etude.using.stored_policy import open_policy
from tests.runs_compared import train

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
HAS_MNN = HAS_ONNX and importlib.util.find_spec("MNN") is not None
FORMATS = [*(["onnx"] if HAS_ONNX else []), "torchscript", "torch", *(["mnn"] if HAS_MNN else [])]
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="needs the extra `export`")


def formats_of(name: str) -> list[str]:
    """Those that a run above is exported in: all that can be made here, less what would only cost time."""
    spared = {"pendulum": {"mnn"}, "quadruped": {"torch"}}.get(name, set())
    return [each for each in FORMATS if each not in spared]


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


@pytest.fixture(scope="session")
def exports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Export]:
    """The export of a run above, by its name."""
    made: dict[str, Export] = {}

    def find(name: str) -> Export:
        if name not in made:
            run: Run = request.getfixturevalue(name)
            folder = tmp_path_factory.mktemp(f"{name}-exported")
            made[name] = export_policy(open_policy(run, "last"), formats_of(name), folder)
        return made[name]

    return find
