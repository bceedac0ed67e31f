"""Etude's algorithms with a replay buffer, through its own loop; no run directory, no evaluation, no checkpoints."""

from __future__ import annotations

from typing import Any

from measurement import answer, steady, versions
from tasks import replay_task

from sides.etude_config import plain, replay_words, start, train


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Train and time it."""
    from etude.config.validate import to_plain

    task = replay_task(request["task"])
    words = replay_words(task, mode=request["mode"], threads=request["threads"])
    config, orchestrator = start(f"{task.env_id}:{task.algorithm}", words, mode=request["mode"])
    points = train(orchestrator)
    settings = to_plain(config)
    return {
        **steady(points, task.warmup_steps),
        "resolved": {
            "environment": type(orchestrator.collector.environment).__name__,
            **{key: settings["experiment"].get(key) for key in ("device", "threads", "compile")},
            **{section: plain(settings[section]) for section in ("algorithm", "network", "buffers")},
        },
        "versions": versions("etude", "torch", "gymnasium", "mujoco", "numpy"),
    }


if __name__ == "__main__":
    answer(measure)
