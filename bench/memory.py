"""PPO with memory on a GPU, eager beside captured: environment steps per second, in turn, the best of several.

    python bench/memory.py                                  # GRU of 128 on CartPole without velocities, 512 copies
    python bench/memory.py --num-envs 2048 --network lstm
    python bench/memory.py --device cpu --quick             # does it run?

Needs torch, numpy, gymnasium and Etude. Counted are whole cycles, collecting and learning, after those in which libraries warm
up and graphs are captured. The bar is captured at 5 times eager.
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

BAR = 5.0
WARM_UP = 6
"""Cycles: a few to capture in, and one more."""


def words(given: argparse.Namespace, mode: str) -> list[str]:
    """Return the settings of one side."""
    network = f"{{type: {given.network}, hidden_dims: [128], memory_size: {given.memory}}}"
    if given.network == "transformer":
        network = f"{{type: transformer, window: 16, width: {given.memory}}}"
    rows = given.num_envs * given.steps
    return [
        f"environment.num_envs={given.num_envs}",
        f"algorithm.rollout_steps={given.steps}",
        f"algorithm.batch_size={rows // given.minibatches}",
        f"algorithm.epochs={given.epochs}",
        f"network.actor={network}",
        f"network.critic={network}",
        f"experiment.device={given.device}",
        f"experiment.compile={mode}",
        f"training.total_steps={rows * 1_000_000}",
        "evaluation.every_steps=0",
    ]


def start(given: argparse.Namespace, mode: str) -> Any:
    """Build a run and have it warm up."""
    config = assembly.resolve(compose(f"{given.environment}:ppo", words=words(given, mode)).config)
    run = assembly.build(config)
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    for _ in range(WARM_UP):
        run._run_cycle()
    return run


def measure(run: Any, cycles: int) -> dict[str, float]:
    """Return steps per second over some cycles, and how long collecting and learning take of each."""
    spent = {"collect": 0.0, "update": 0.0}
    for name in spent:
        setattr(run.workflow, name, timed(type(run.workflow), name, run.workflow, spent))
    before = run.counters.env_steps
    begin = now()
    for _ in range(cycles):
        run._run_cycle()
    seconds = now() - begin
    for name in spent:
        delattr(run.workflow, name)
    parts = {f"{name}_ms": 1000 * value / cycles for name, value in spent.items()}
    return {"steps_per_s": (run.counters.env_steps - before) / seconds, **parts}


def timed(cls: type, name: str, workflow: Any, spent: dict[str, float]) -> Any:
    """Return a hook that notes how long it took, the device included."""
    hook = getattr(cls, name)

    def call(*arguments: Any) -> Any:
        begin = now()
        result = hook(workflow, *arguments)
        spent[name] += now() - begin
        return result

    return call


def now() -> float:
    """Return the time, once the device has done all it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> int:
    """Measure both sides in turn, and say how they compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--environment", default="CartPoleNoVelocity-v0")
    parser.add_argument("--network", default="gru", choices=("gru", "lstm", "transformer"))
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--steps", type=int, default=32, help="vector steps of a rollout")
    parser.add_argument("--memory", type=int, default=128, help="units of the memory")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--cycles", type=int, default=20, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--mode", default="capture", choices=("capture", "on"), help="what stands beside eager; on compiles too"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    given = parser.parse_args()
    if given.quick:
        given.num_envs, given.steps, given.memory, given.cycles, given.repeats = 8, 8, 16, 2, 1
    runs = {mode: start(given, mode) for mode in ("off", given.mode)}
    best: dict[str, dict[str, float]] = {}
    for _ in range(given.repeats):
        for mode, run in runs.items():
            found = measure(run, given.cycles)
            if mode not in best or found["steps_per_s"] > best[mode]["steps_per_s"]:
                best[mode] = found
    for mode, found in best.items():
        parts = ", ".join(f"{name} {found[f'{name}_ms']:.1f} ms" for name in ("collect", "update"))
        print(f"{runs[mode].workflow._executor.mode:>10}: {found['steps_per_s']:12,.0f} steps/s; a cycle: {parts}")
    ratio = best[given.mode]["steps_per_s"] / best["off"]["steps_per_s"]
    print(f"{runs[given.mode].workflow._executor.mode} is {ratio:.2f} times eager (bar: {BAR:g})")
    print(json.dumps({"settings": vars(given), "torch": torch.__version__, "sides": best, "ratio": ratio}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
