"""Etude's robots learning with PPO: one JSON line with their speed.

python bench/robots_etude.py go1 --mjlab FOLDER --num-envs 4096 --iterations 30 --warm-up 10
python bench/robots_etude.py full --num-envs 16384
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from measurement import versions
from robots_clock import Clock, summary
from robots_go1 import DATA, find_model, write_robot

TASKS = {
    "go1": (None, "go1-flat.yaml"),
    "full": ("quadruped-flat:ppo", "full.yaml"),
    "flat": ("quadruped-flat:ppo", None),
    "rough": ("quadruped-rough:ppo", None),
}
"""Each task: what it is called on Etude's command line, and the file that is laid over it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and print what it took."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="etude-robots-") as scratch:
        answer = measure(options, Path(scratch))
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Train through Etude's own loop, as `etude train` does; no run directory, evaluations or checkpoints."""
    import torch

    from etude.config.compose import compose
    from etude.training import assembly

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    spec, file = TASKS[options.task]
    words = _words(options, device)
    if options.task == "go1":
        words.append(f"environment.robot.model={write_robot(find_model(options.mjlab), scratch)}")
    config = assembly.resolve(compose(spec, file=DATA / file if file else None, words=[*words, *options.words]).config)
    orchestrator = assembly.build(config)
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    steps = config.algorithm.rollout_size(config.environment.num_envs)
    clock = Clock(device)
    if options.split:
        orchestrator.stopwatch.now = _waiting_clock(device)
    before, last = {"collect": 0.0, "update": 0.0}, {}
    rows = orchestrator.rows()
    for row in islice(rows, options.warm_up + options.iterations):
        now = {name: orchestrator.stopwatch.spent.get(name, 0.0) for name in before}
        clock.tick(now["collect"] - before["collect"], now["update"] - before["update"])
        before = now
        last = row
    environment: Any = orchestrator.collector.environment.base
    kernels = {"kernels": kernels_of(rows)} if options.profile else {}
    for _ in rows:  # to its end
        pass
    return {
        "side": "etude",
        "task": options.task,
        "robots": config.environment.num_envs,
        **summary(clock.marks, options.warm_up, steps),
        "split": options.split,
        "simulator": type(environment.simulation).__name__,
        "compile": config.experiment.compile,
        "updates": orchestrator.workflow._executor.mode,
        "parts_compiled": [part.is_compiled for part in environment.traced],
        "seen": {name: group.size for name, group in environment.groups.items()},
        "last_row": {
            key: last[key] for key in ("env_steps", "updates", "collect/return_mean", "collect/length_mean") if key in last
        },
        "versions": versions("etude", "mujoco", "mujoco-warp", "warp-lang", "torch"),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
        **kernels,
    }


def kernels_of(rows: Iterator[Any], most: int = 25) -> dict[str, Any]:
    """Return how many kernels one more iteration takes, how long, and which of them the longest. Empty on a CPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        next(rows)
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    kinds = {"physics": ("mujoco_warp", "_cuda_kernel_forward")}
    told: dict[str, Any] = {
        "count": sum(event.count for event in events),
        "ms": sum(event.self_device_time_total for event in events) / 1e3,
        "costliest": [f"{e.key[:90]} {e.count} {e.self_device_time_total / 1e3:.2f} ms" for e in events[:most]],
    }
    for kind, marks in kinds.items():
        own = [event for event in events if any(mark in event.key for mark in marks)]
        told[kind] = {"count": sum(e.count for e in own), "ms": sum(e.self_device_time_total for e in own) / 1e3}
    return told


def _words(options: argparse.Namespace, device: str) -> list[str]:
    rollout = 24 * options.num_envs
    return [
        f"experiment.device={device}",
        f"experiment.seed={options.seed}",
        *(["experiment.tf32=true"] if device.startswith("cuda") else []),  # as mjlab sets it
        f"environment.num_envs={options.num_envs}",
        f"training.total_steps={(options.warm_up + options.iterations + options.profile) * rollout}",
        "training.early_stop=off",
        "evaluation.every_steps=0",
        "checkpoint.every_steps=0",
        "logging.terminal=false",
        f"logging.every_steps={rollout}",
    ]


def _waiting_clock(device: str) -> Any:
    """Return a clock that lets the device finish first, so that what it does counts where it was asked for."""
    import torch

    def now() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    return now


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "task", choices=TASKS, help="go1: mjlab's task; full: a task with everything on; flat, rough: as shipped"
    )
    parser.add_argument("--mjlab", type=Path, action="append", default=[], help="the folder of packages that has mjlab")
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--iterations", type=int, default=30, help="iterations that are timed")
    parser.add_argument("--warm-up", type=int, default=10, help="iterations before them")
    parser.add_argument("--device", help="default: the first GPU, if there is one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--split", action="store_true", help="wait for the device between collecting and learning, to tell them apart"
    )
    parser.add_argument("--profile", action="store_true", help="also count the kernels of one more iteration")
    parser.add_argument("--words", nargs="*", default=[], metavar="KEY=VALUE", help="more settings")
    return parser


if __name__ == "__main__":
    sys.exit(main())
