"""Run directories for tests, made without training anything."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from etude.runs.manifest import Manifest
from etude.runs.run import Run

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def make_run(
    root: Path,
    name: str,
    *,
    best: float | None = 100.0,
    environment: str = "CartPole-v1",
    algorithm: str = "ppo",
    seed: int = 1,
    status: str = "finished",
    tags: Sequence[str] = (),
    group: str | None = None,
    age_days: float = 0.0,
    metrics: Mapping[str, float] | None = None,
    settings: Mapping[str, object] | None = None,
    with_files: bool = False,
) -> Run:
    """Make a run as a training leaves it; `with_files` adds a checkpoint of 3,000 bytes and a video of 500."""
    config = {
        "experiment": {"seed": seed},
        "environment": {"id": environment},
        "algorithm": {"name": algorithm, "gamma": 0.99, **(settings or {})},
        "network": {"actor": {"hidden_dims": [64, 64]}},
        "training": {"total_steps": 1000},
    }
    text = yaml.safe_dump(config)
    facts = {"environment": environment, "algorithm": algorithm, "seed": seed, "config_hash": f"c{seed}", "setup_hash": "s"}
    run = Run.create(root, name=name, config_yaml=text, resolved_yaml=text, tags=tags, group=group, facts=facts)
    created = datetime.fromtimestamp(time.time() - age_days * 86400, UTC)
    run.update_status(status=status, created=created.isoformat())
    if best is not None:
        results = {"eval/return_mean": best - 10, "eval/return_std": 1.0, **(metrics or {})}
        run.write_summary(
            {
                "counters": {"env_steps": 1000, "updates": 10, "episodes": 5},
                "elapsed_s": 12.5,
                "best": {"metric": "eval/return_mean", "value": best},
                "last_evaluation": results,
            }
        )
        row = {"env_steps": 1000, "train/loss": 0.5, "time/elapsed_s": 12.0}
        run.metrics_path.write_text(json.dumps(row) + "\n")
        for path in (run.summary_path, run.metrics_path):
            os.utime(path, (created.timestamp(), created.timestamp()))
    provenance = run.path / "provenance"
    provenance.mkdir()
    (provenance / "git.json").write_text(json.dumps({"commit": COMMIT, "branch": "main", "dirty": False}))
    if with_files:
        checkpoint = run.checkpoints_path / "000001-1000-10"
        checkpoint.mkdir()
        saved = Manifest(1, "full", {"env_steps": 1000, "updates": 10}, {}, False, created.isoformat(), {})
        (checkpoint / "manifest.json").write_bytes(saved.to_bytes().ljust(3000))
        (run.checkpoints_path / "last").symlink_to(checkpoint.name)
        (run.videos / "one.mp4").write_bytes(b"x" * 500)
    return run


def settle() -> None:
    """Wait until files written so far count as settled: the index reads what changed just now again in any case."""
    time.sleep(0.06)
