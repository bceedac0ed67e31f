"""What off-policy presets reach: last checkpoint, fresh episodes. Minutes each, on one core."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from etude.environments.make import make_environment
from etude.environments.small.multi_goal import GOALS
from etude.runs.run import Run
from etude.using import q_contours
from etude.using.stored_policy import open_policy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def _train(spec: str, root: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "etude", "train", spec, "--runs", str(root), "-q", *words], check=True)


@pytest.mark.parametrize("algorithm", ["sac", "td3", "tqc"])
def test_a_pendulum_swings_up_within_20k_steps(algorithm: str, tmp_path: Path) -> None:
    _train(f"Pendulum-v1:{algorithm}", tmp_path)
    measure = [sys.executable, "-m", "etude", "evaluate", "@last", "--runs", str(tmp_path), "--episodes", "100", "--json"]
    report = json.loads(subprocess.run(measure, check=True, capture_output=True).stdout)
    (result,) = report["modes"].values()
    assert report["env_steps"] == 20_000
    assert result["return_mean"] >= -200


def test_a_planned_pendulum_swings_up_within_10k_steps(tmp_path: Path) -> None:
    _train("Pendulum-v1:tdmpc", tmp_path)
    measure = [sys.executable, "-m", "etude", "evaluate", "@last", "--runs", str(tmp_path), "--episodes", "50", "--json"]
    report = json.loads(subprocess.run(measure, check=True, capture_output=True).stdout)
    (result,) = report["modes"].values()
    assert report["env_steps"] == 10_000
    assert result["return_mean"] >= -250


def test_soft_q_learning_visits_all_four_goals_within_100k_steps(tmp_path: Path) -> None:
    _train("MultiGoal-v0:sql", tmp_path)
    stored = open_policy(Run((tmp_path / "@last").resolve()), "last")
    environment = make_environment(stored.config.environment, num_envs=200)
    workflow = q_contours._workflow(stored, environment)
    paths = q_contours._paths(workflow, environment, "sample", torch.Generator().manual_seed(0), seed=0)
    distances = np.stack([np.linalg.norm(path[-1] - GOALS, axis=1) for path in paths])  # (200, goals)
    arrived = distances.min(1) < 1
    shares = np.bincount(distances[arrived].argmin(1), minlength=4) / 200
    print(f"arrived {arrived.mean():.2f}, at each goal {shares.tolist()}")
    assert arrived.mean() >= 0.9
    assert shares.min() >= 0.1
    assert stored.checkpoint.counters["env_steps"] == 100_000
