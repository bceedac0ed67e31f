"""What memory is worth, and what a bandit teaches: shipped presets, last checkpoint, 100 fresh episodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etude.config.compose import compose
from etude.environments.make import make_environment
from etude.runs.run import Run
from etude.training import assembly
from tests.test_learning import _train_and_measure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
FORGETFUL = ("network.actor=mlp", "network.critic=mlp")


def test_cartpole_without_velocities_needs_memory(tmp_path: Path) -> None:
    remembering = _train_and_measure("CartPoleNoVelocity-v0:ppo", 1, tmp_path / "gru")
    forgetful = _train_and_measure("CartPoleNoVelocity-v0:ppo", 1, tmp_path / "mlp", *FORGETFUL)
    assert remembering >= 450
    assert forgetful < 250


def test_the_corridor_needs_memory_of_whatever_kind(tmp_path: Path) -> None:
    for variant in ("ppo", "transformer_ppo"):
        remembering = _train_and_measure(f"MemoryCorridor-v0:{variant}", 1, tmp_path / variant)
        assert remembering >= 0.9
    forgetful = _train_and_measure("MemoryCorridor-v0:ppo", 1, tmp_path / "mlp", *FORGETFUL)
    assert forgetful < 0.4


def test_the_best_arm_of_a_bandit_gets_nine_tenths_of_the_probability(tmp_path: Path) -> None:
    _train_and_measure("Bandit-v0:ppo", 1, tmp_path)
    config = assembly.resolve(compose("Bandit-v0:ppo", words=["experiment.device=cpu"]).config)
    environment = make_environment(config.environment, num_envs=1)
    (run,) = Run.list(tmp_path)
    saved = run.checkpoints().find("last").load(["policy"])["policy"]
    assert isinstance(saved, dict)
    policy = assembly.build_policy(config, saved, environment)
    observation, _ = environment.reset([1])
    generator = torch.Generator().manual_seed(1)
    acts = [policy.act(observation, None, torch.ones(1).bool(), mode="sample", generator=generator) for _ in range(1000)]
    best = sum(int(act.action) == 9 for act in acts) / len(acts)
    assert best >= 0.9
