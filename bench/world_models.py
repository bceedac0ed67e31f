"""How long an update of a world model takes, and a plan: eager, captured, and captured with compiled cells; in turn.

    python bench/world_models.py dreamer --size 12m                        # B16 × T64 from vectors, as in the papers
    python bench/world_models.py tdmpc --size 5m
    python bench/world_models.py dreamer --size tiny --device cpu --batch 16 --window 16 --modes off on

Counted is the time of `update` alone, after those in which libraries warm up and graphs are captured; on a GPU beside it the
sum of the times of its kernels, which no way of launching them can beat.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch

from etude.config.compose import compose
from etude.training import assembly
from etude.workflows.base import Phase

WARM_UP = 3


def words(given: argparse.Namespace, mode: str) -> list[str]:
    """Return the settings of one side."""
    chosen = [
        f"algorithm.size={given.size}",
        f"algorithm.batch_size={given.batch}",
        f"environment.num_envs={given.num_envs}",
        f"experiment.device={given.device}",
        f"experiment.compile={mode}",
        f"buffers.replay.capacity={max(20_000, given.num_envs * 1000)}",
        "training.total_steps=100000000",
        "evaluation.every_steps=0",
    ]
    return [*chosen, *([f"buffers.replay.sequence={given.window}"] if given.algorithm == "dreamer" else []), *given.words]


class Side:
    """One way to run, warmed up."""

    def __init__(self, given: argparse.Namespace, mode: str) -> None:
        config = assembly.resolve(compose(f"{given.environment}:{given.algorithm}", words=words(given, mode)).config)
        self.run: Any = assembly.build(config)
        self.workflow = self.run.workflow
        self.run.collector.start(self.workflow.initial_state)
        self.phase = Phase("train", total_steps=100_000_000)
        buffer = self.run.buffers["replay"]
        while not buffer.ready or buffer.size < 4 * given.batch * given.window:
            self.workflow.collect(self.phase, 16)
        begin = now()
        self.update(WARM_UP)
        self.started_s = now() - begin

    def update(self, count: int) -> None:
        """Take some updates."""
        self.workflow.update(self.phase, count)

    def update_ms(self, count: int) -> float:
        """Return how long one takes."""
        begin = now()
        self.update(count)
        return 1000 * (now() - begin) / count

    def decide_ms(self, count: int) -> float:
        """Return how long one vector step with its decision takes."""
        begin = now()
        self.workflow.collect(self.phase, count)
        return 1000 * (now() - begin) / count

    def kernels(self) -> dict[str, float]:
        """Return how many kernels an update has, and how long they take together."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            self.update(1)
            torch.cuda.synchronize()
        times = [event.device_time for event in profiler.events() or () if event.device_type.name == "CUDA"]
        return {"kernels": len(times), "kernels_ms": sum(times) / 1000}


def now() -> float:
    """Return the time, once the device has done all it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> int:
    """Measure the sides in turn, and print the best of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("algorithm", choices=("dreamer", "tdmpc"))
    parser.add_argument("--environment", default="Pendulum-v1")
    parser.add_argument("--size", default="12m")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--modes", nargs="+", default=["off", "capture", "on"], choices=("off", "capture", "on"))
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--words", nargs="*", default=[], help="more settings")
    given = parser.parse_args()
    given.batch = given.batch or (16 if given.algorithm == "dreamer" else 256)
    given.window = given.window if given.algorithm == "dreamer" else 4
    sides = {mode: Side(given, mode) for mode in given.modes}
    best: dict[str, dict[str, float]] = {}
    for _ in range(given.repeats):
        for mode, side in sides.items():
            found = {"update_ms": side.update_ms(given.updates), "decide_ms": side.decide_ms(given.updates)}
            best[mode] = {name: min(value, best.get(mode, found)[name]) for name, value in found.items()}
    for mode, side in sides.items():
        best[mode]["started_s"] = side.started_s
        if given.device.startswith("cuda") and mode != "off":
            best[mode] |= side.kernels()
        said = ", ".join(f"{name} {value:,.2f}" for name, value in best[mode].items())
        print(f"{side.workflow._executor.mode:>22}: {said}", flush=True)
    print(json.dumps({"settings": vars(given), "torch": torch.__version__, "sides": best}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
