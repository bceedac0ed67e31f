"""Etude's PPO through its own loop, or its collector alone; no run directory, no evaluation, no checkpoints."""

from __future__ import annotations

from typing import Any

from measurement import Point, answer, point, steady, versions
from tasks import PPOTask, ppo_task

from sides.etude_config import plain, ppo_words, start, train


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Train, or only collect, and time it."""
    from etude.config.validate import to_plain

    task = ppo_task(request["task"])
    words = ppo_words(task, mode=request["mode"], threads=request["threads"])
    config, orchestrator = start(f"{task.env_id}:ppo", words, mode=request["mode"])
    points = train(orchestrator) if task.learns else _collect(orchestrator, task)
    settings, environment = to_plain(config), orchestrator.collector.environment
    return {
        **steady(points, task.warmup_steps),
        "resolved": {
            "environment": type(environment).__name__,
            "physics_threads": getattr(getattr(environment, "simulation", None), "threads", None),
            **{key: settings["experiment"].get(key) for key in ("device", "threads", "compile")},
            **{section: plain(settings[section]) for section in ("algorithm", "network")},
        },
        "versions": versions("etude", "torch", "gymnasium", "mujoco", "numpy"),
    }


def _collect(orchestrator: Any, task: PPOTask) -> list[Point]:
    from etude.workflows.base import Phase

    workflow, (buffer,) = orchestrator.workflow, orchestrator.buffers.values()
    phase = Phase("collect")
    points = [point(0)]
    steps = 0
    while steps < task.total_steps:
        steps += workflow.collect(phase, task.rollout_steps).env_steps
        buffer.clear()
        points.append(point(steps))
    return points


if __name__ == "__main__":
    answer(measure)
