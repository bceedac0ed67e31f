"""Run directories written in a moment: the files of a run without the training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from etude.runs.process import this_process
from etude.telemetry.jsonl import JsonlSink

STEPS = (1000, 2000, 3000, 4000)
SCHEDULE = {"start": 1e-3, "end": 0.0, "start_at": 0.0, "end_at": 1.0}


def write_run(
    root: Path,
    name: str,
    *,
    seed: int = 1,
    returns: Sequence[float] = (10.0, 20.0, 30.0, 40.0),
    steps: Sequence[int] = STEPS,
    metrics: Mapping[str, Sequence[float]] | None = None,
    environment: str = "CartPole-v1",
    algorithm: str = "ppo",
    settings: Mapping[str, Any] | None = None,
    group: str | None = None,
    status: str = "finished",
    commit: str | None = "a" * 40,
    packages: Mapping[str, str] | None = None,
) -> Path:
    """Write a run whose `eval/return_mean` and other metrics have these values at these steps."""
    path = root / f"20260301-120000-{name}-s{seed}"
    (path / "provenance").mkdir(parents=True)
    config: dict[str, Any] = {
        "experiment": {"name": name, "project": environment, "group": group, "tags": [], "seed": seed},
        "environment": {"id": environment, "num_envs": 8, "spec": {"return_threshold": 475.0}},
        "algorithm": {
            "name": algorithm,
            "gamma": 0.98,
            "learning_rate": {"start": 1e-3, "end": 0.0, "start_at": 0.0, "end_at": 1.0},
        },
        "training": {"total_steps": 4000},
        "logging": {"every_steps": 100},
    }
    for key, value in (settings or {}).items():
        section, _, rest = key.partition(".")
        config.setdefault(section, {})[rest] = value
    columns = {"eval/return_mean": returns, **(metrics or {})}
    sink = JsonlSink(path / "metrics.jsonl")
    for index, step in enumerate(steps):
        counters = {"decisions": step, "env_steps": step, "updates": step // 10, "episodes": step // 100, "cycles": index}
        values = {metric: column[index] for metric, column in columns.items() if index < len(column)}
        sink.write([{**counters, **values, "time/elapsed_s": 0.5 * (index + 1) * (1 + 0.1 * seed)}])
    sink.close()
    record = {
        "version": 1,
        "id": path.name,
        "name": name,
        # In the order in which they are written.
        "created": f"2026-03-01T12:00:{len(list(root.iterdir())):02}+00:00",
        "status": status,
    }
    facts = {"group": group, "tags": [], "environment": environment, "algorithm": algorithm, "seed": seed, "total_steps": 4000}
    gone = {**this_process(), "pid": 2**22 + 1} if status == "running" else {}
    _write_json(path / "run.json", {**record, **facts, **gone})
    ended = {"counters": {"env_steps": steps[-1] if steps else 0}, "elapsed_s": 2.0}
    _write_json(path / "summary.json", {"version": 1, **ended})
    _write_json(path / "provenance" / "git.json", {"commit": commit, "dirty": False})
    _write_json(
        path / "provenance" / "environment.json", {"python": "3.11.7 (main)", "packages": packages or {"torch": "2.13"}}
    )
    (path / "resolved.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def two_setups(root: Path, **options: Any) -> list[Path]:
    """Three seeds at gamma 0.98, which end at 100, 110 and 120, and three at 0.9, which end at 40, 50 and 60."""
    paths = []
    for gamma, ends in ((0.98, (100.0, 110.0, 120.0)), (0.9, (40.0, 50.0, 60.0))):
        for seed, end in enumerate(ends, start=1):
            returns = [end * (index + 1) / len(STEPS) for index in range(len(STEPS))]
            entropy = {"train/entropy": [0.7, 0.6, 0.5, 0.4 + seed / 100]}
            name = f"gamma-{gamma}"
            changed = {"algorithm.gamma": gamma}
            paths.append(write_run(root, name, seed=seed, returns=returns, metrics=entropy, settings=changed, **options))
    return paths


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
