"""Etude from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import etude
from etude.telemetry.jsonl import read_rows


def test_train_resume_evaluate_and_read_metrics_without_the_command_line(tmp_path: Path) -> None:
    run = etude.train("CartPole-v1:ppo", "training.total_steps=1000", "algorithm.epochs=1", runs=tmp_path)
    assert run.status == "finished"
    assert etude.resume(run, "training.total_steps=1500").summary["counters"]["env_steps"] == 1504
    assert read_rows(run.metrics_path)[-1]["env_steps"] == 1504
    result = etude.evaluate("@last", episodes=5, runs=tmp_path)
    assert len(result.returns) == 5
    policy, environment = etude.load_policy(run, num_envs=3)
    assert policy.exportable
    assert environment.num_envs == 3


def test_importing_etude_is_light() -> None:
    code = "import sys, etude; assert not {'torch', 'gymnasium', 'hydra'} & set(sys.modules); etude.make_environment"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_environments_are_made_by_name() -> None:
    environment = etude.make_environment("CartPole-v1", 4)
    observation, _ = environment.reset([1, 2, 3, 4])
    assert observation.shape == (4, 4)  # type: ignore[union-attr]
