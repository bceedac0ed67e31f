"""How much faster a run with a slow environment is with samplers beside the learner, and whether it learns as well.

    python -m bench.samplers [--busy] [--steps 20000] [--algorithm ppo]

Three runs of one seed with the same settings: all in one process, samplers that are one rollout behind, and free-running ones.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from etude.config.compose import compose
from etude.telemetry.jsonl import read_rows
from etude.training import session

ENVIRONMENT = "bench.slow_environment:slow/CartPole-v1"
SETTINGS = {
    "ppo": ("environment.num_envs=8", "algorithm.rollout_steps=32", "algorithm.batch_size=256", "algorithm.epochs=20",
            "algorithm.gae_lambda=0.8", "algorithm.gamma=0.98", "algorithm.learning_rate=lin_1e-3"),
    "sac": ("environment.num_envs=4", "algorithm.learning_starts=200"),
}  # fmt: skip


def main() -> None:
    """Measure, and print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--milliseconds", type=float, default=10.0)
    parser.add_argument("--algorithm", default="ppo", choices=SETTINGS)
    parser.add_argument("--samplers", type=int, default=2)
    asked = parser.parse_args()
    common = (*SETTINGS[asked.algorithm], f"training.total_steps={asked.steps}", "evaluation.every_steps=0",
              "experiment.compile=off",
              f"environment.kwargs={{milliseconds: {asked.milliseconds}, busy: {str(asked.busy).lower()}}}")  # fmt: skip
    beside = f"environment.samplers={asked.samplers}"
    ways = {"one process": (), "samplers": (beside,), "free-running": (beside, "environment.free_running=true")}
    first = None
    for name, words in ways.items():
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
            composition = compose(f"{ENVIRONMENT}:{asked.algorithm}", words=(*common, *words))
            began = time.perf_counter()
            training = session.start(composition, root=Path(folder), quiet=True, stream=nowhere)
            ready = time.perf_counter()
            run = training.finish().run
            took = time.perf_counter() - ready
            last = read_rows(run.metrics_path)[-1]
        first = first or took
        lag = last.get("collect/policy_lag", 0.0)
        print(
            f"{name:<14}{took:8.1f} s  {first / took:5.2f}x  return {last['collect/return_mean']:7.1f}  lag {lag:.2f}"
            f"  (started in {ready - began:.1f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
