"""Runs that have hardly learnt anything: what is inspected need not be good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.runs.run import Run
from tests.runs_compared import train

QUICK = {
    "training.total_steps": "32",
    "evaluation.every_steps": "0",
    "evaluation.episodes": "1",
    "environment.num_envs": "2",
}
OF_ALGORITHM = {
    "ppo": {"algorithm.rollout_steps": "8", "algorithm.batch_size": "8", "algorithm.epochs": "1"},
    "dqn": {"algorithm.learning_starts": "8", "algorithm.batch_size": "8", "network.q.hidden_dims": "[8]"},
    "sac": {
        "algorithm.learning_starts": "8",
        "algorithm.batch_size": "8",
        "network.actor.hidden_dims": "[8]",
        "network.critic.hidden_dims": "[8]",
    },
}

Trained = Callable[..., Run]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """A tiny run of ENV:ALGO with further words, trained once."""
    root, made = tmp_path_factory.mktemp("inspected"), {}

    def make(spec: str, *words: str) -> Run:
        if (spec, words) not in made:
            algorithm = spec.rpartition(":")[2]
            given = {word.partition("=")[0] for word in words}
            known = {**QUICK, **OF_ALGORITHM.get(algorithm, {})}
            made[spec, words] = train(
                spec, root, *(f"{key}={value}" for key, value in known.items() if key not in given), *words
            )
        return made[spec, words]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("home")))
        yield make


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER", "MUJOCO_GL"):  # put back what drawing sets
        monkeypatch.setenv(name, {"MUJOCO_GL": "egl"}.get(name, "dummy"))


@pytest.fixture
def root(trained: Trained) -> Path:
    return trained("CartPole-v1:ppo").path.parent
