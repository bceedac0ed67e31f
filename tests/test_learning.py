"""What the shipped presets reach, measured one way: last checkpoint, 100 fresh episodes, every seed reported."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def _train_and_measure(spec: str, seed: int, root: Path, *words: str) -> float:
    """Return the mean return of 100 episodes, trained and measured in new processes; the seconds are printed."""
    command = [sys.executable, "-m", "etude"]
    started = time.monotonic()
    subprocess.run([*command, "train", spec, "--seed", str(seed), "--runs", str(root), "-q", *words], check=True)
    seconds = time.monotonic() - started
    measured = [*command, "evaluate", "@last", "--runs", str(root), "--episodes", "100", "--json"]
    report = json.loads(subprocess.run(measured, check=True, capture_output=True).stdout)
    (result,) = report["modes"].values()
    shown = f"{result['return_mean']:.1f} ± {result['return_std']:.1f}"
    print(f"{spec} seed {seed}: {shown} after {report['env_steps']:,} steps, {seconds:.1f} s")
    return result["return_mean"]


def test_cartpole_is_solved_by_five_seeds_of_five_within_100k_steps(tmp_path: Path) -> None:
    returns = [_train_and_measure("CartPole-v1:ppo", seed, tmp_path) for seed in (1, 2, 3, 4, 5)]
    assert [value for value in returns if value < 475] == []


def test_pendulum_reaches_minus_250_in_200k_steps_on_three_seeds(tmp_path: Path) -> None:
    returns = [_train_and_measure("Pendulum-v1:ppo", seed, tmp_path) for seed in (1, 2, 3)]
    assert [value for value in returns if value < -250] == []


@pytest.mark.parametrize("algorithm", ["a2c", "reinforce"])
def test_cartpole_is_solved_without_clipping_or_replay_within_500k_steps(algorithm: str, tmp_path: Path) -> None:
    returns = [_train_and_measure(f"CartPole-v1:{algorithm}", seed, tmp_path) for seed in (1, 2, 3)]
    assert [value for value in returns if value < 475] == []


def test_the_loops_own_cost_is_below_three_percent(tmp_path: Path) -> None:
    """1 - time inside hooks / wall time, on the default CartPole preset with every sink on."""
    from etude.telemetry.jsonl import read_rows

    costs = []
    for seed in (1, 2, 3):
        _train_and_measure("CartPole-v1:ppo", seed, tmp_path / str(seed), "logging.tensorboard=true")
        (metrics,) = (tmp_path / str(seed)).glob("2*/metrics.jsonl")
        last = read_rows(metrics)[-1]
        costs.append(1 - sum(last[f"time/share/{hook}"] for hook in ("collect", "update", "evaluate")))
    print(f"loop's own cost: {costs}")
    assert min(costs) < 0.03
