"""Folders of many runs, made by writing files: no training, and a hundred of them in a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from etude.runs.record_migration import VERSION

_ENVIRONMENTS = (("CartPole-v1", 500.0), ("Acrobot-v1", -80.0), ("LunarLander-v3", 250.0), ("Pendulum-v1", -150.0))
_ALGORITHMS = ("ppo", "a2c", "dqn", "sac", "td3")
_RATES = (0.0003, 0.001)
_STATUSES = ("finished", "finished", "finished", "stopped", "failed", "interrupted")


def make_runs(root: Path, count: int, *, rows: int = 50, seeds: int = 5) -> list[str]:
    """Make run folders of several environments, algorithms and seeds, and return their ids, newest first."""
    ids = [make_run(root, number, rows=rows, seeds=seeds) for number in range(count)]
    return ids[::-1]


def make_run(root: Path, number: int, *, rows: int = 50, seeds: int = 5, **record: Any) -> str:
    """Make one run folder; `number` decides what it is, and `record` changes its run.json."""
    setup, seed = divmod(number, seeds)
    environment, best = _ENVIRONMENTS[setup % 4]
    algorithm, rate = _ALGORITHMS[setup // 4 % 5], _RATES[setup // 20 % 2]
    created = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=7 * number)
    run_id = f"{created:%Y%m%d-%H%M%S}-{environment}-{algorithm}-s{seed}"
    folder = root / run_id
    for part in ("checkpoints", "logs", "videos", "provenance"):
        (folder / part).mkdir(parents=True)
    config = (
        f"experiment:\n  seed: {seed}\nenvironment:\n  id: {environment}\n  num_envs: 8\nalgorithm:\n  name: {algorithm}\n"
        f"  learning_rate: {rate}\n  gamma: 0.99\nnetwork:\n  actor:\n    hidden_dims: [64, 64]\n"
        f"training:\n  total_steps: {rows * 200}\n"
    )
    (folder / "resolved.yaml").write_text(config)
    (folder / "config.yaml").write_text(config)
    known = {
        "version": VERSION,
        "id": run_id,
        "name": f"{environment}-{algorithm}",
        "created": created.isoformat(),
        "status": _STATUSES[number % len(_STATUSES)],
        "group": f"study/{algorithm}" if setup % 3 else None,
        "tags": ["paper"] if number % 7 == 0 else [],
        "environment": environment,
        "algorithm": algorithm,
        "seed": seed,
    }
    (folder / "run.json").write_text(json.dumps({**known, **record}))
    with open(folder / "metrics.jsonl", "w") as file:
        file.writelines(f"{json.dumps(row, separators=(',', ':'))}\n" for row in metric_rows(number, rows, best))
    summary = {
        "counters": {"env_steps": rows * 200, "updates": rows * 10, "episodes": rows * 2},
        "best": {"metric": "eval/return_mean", "value": round(best + seed, 2), "env_steps": rows * 180},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return run_id


def metric_rows(number: int, rows: int, best: float, first: int = 0) -> Iterator[dict[str, float]]:
    """Yield rows as a training logs them: losses in each, an evaluation in every tenth."""
    generator = np.random.default_rng(number)
    speed, noise = generator.uniform(2, 6), generator.standard_normal((first + rows, 3))
    for row in range(first, first + rows):
        share = (row + 1) / max(first + rows, 1)
        level = best * (1 - 0.9 * np.exp(-speed * share))
        values: dict[str, float] = {
            "decisions": 200 * (row + 1),
            "env_steps": 200 * (row + 1),
            "updates": 10 * (row + 1),
            "episodes": 2 * (row + 1),
            "cycles": row + 1,
            "collect/return_mean": round(level + abs(best) * 0.08 * noise[row, 0], 4),
            "train/loss": round(float(np.exp(-3 * share + 0.2 * noise[row, 1])), 6),
            "train/entropy": round(0.7 - 0.5 * share + 0.02 * noise[row, 2], 5),
            "time/elapsed_s": round(0.05 * (row + 1), 3),
            "time/steps_per_second": 4000.0,
            "time/share/collect": 0.55,
            "time/share/update": 0.35,
        }
        if row % 10 == 9:
            values["eval/return_mean"] = round(level + abs(best) * 0.03 * noise[row, 1], 4)
            values["eval/return_std"] = round(abs(best) * 0.1, 3)
        yield values
